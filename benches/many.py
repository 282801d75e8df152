"""Writes files with many tensors, for the times of opening in `cargo xtask bench`.

    python many.py torch FOLDER         with torch, safetensors, numpy and h5py; other formats by hand
    python many.py tensorflow FOLDER    with TensorFlow

Each file has 20,000 tensors of four float32 in 5,000 layers. zip64.pt has 66,000, so its archive has more
records than a zip file without the 64-bit extension can count. Existing files are kept.
"""

import io
import json
import os
import pickle
import struct
import sys
import tarfile
import warnings
import zipfile
from pathlib import Path

warnings.simplefilter("ignore")

COUNT = 20_000
SHARDS = 8


def names(count=COUNT):
    parts = ("attention.weight", "attention.bias", "dense.weight", "dense.bias")
    return [f"model.layers.{number // 4}.{parts[number % 4]}" for number in range(count)]


def arrays():
    import numpy as np

    return {name: np.full(4, number, "<f4") for number, name in enumerate(names())}


def tensors(count=COUNT):
    import torch

    return {name: torch.full((4,), float(number)) for number, name in enumerate(names(count))}


def shards(state):
    items = list(state.items())
    size = -(-len(items) // SHARDS)
    return [dict(items[start : start + size]) for start in range(0, len(items), size)]


def zip64(path):
    import torch

    torch.save(tensors(66_000), path)


def torch_zip(path):
    import torch

    torch.save(tensors(), path)


def legacy(path):
    import torch

    torch.save(tensors(), path, _use_new_zipfile_serialization=False)


def tar(path):
    """Writes the tar format of torch 0.1, which `torch.load` still reads."""
    import torch

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return str(value[0]) if isinstance(value, Key) else None

    class Key(tuple):
        pass

    def pickled(value):
        return pickle.dumps(value, protocol=2)

    state, storages, views = io.BytesIO(), io.BytesIO(), io.BytesIO()
    Pickler(state, protocol=2).dump({name: Key((number,)) for number, name in enumerate(names())})
    storages.write(pickled(COUNT))
    views.write(pickled(COUNT))
    for number in range(COUNT):
        storages.write(pickled((COUNT + number, "cpu", torch.FloatStorage)))
        storages.write(struct.pack("<q4f", 4, *[float(number)] * 4))
        views.write(pickled((number, COUNT + number, torch.FloatTensor)))
        views.write(struct.pack("<iiqqq", 1, 0, 4, 1, 0))
    storages.write(pickled([]))
    info = pickled({"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 8}})
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (("sys_info", info), ("pickle", state.getvalue()), ("tensors", views.getvalue()),
                              ("storages", storages.getvalue())):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def dcp(path):
    import torch.distributed.checkpoint as checkpoint

    checkpoint.save(tensors(), checkpoint_id=str(path), no_dist=True)


def torch_set(path):
    import torch

    sharded(path, "pytorch_model", ".bin", tensors(), torch.save)


def safetensors(path):
    from safetensors.torch import save_file

    save_file(tensors(), path)


def safetensors_set(path):
    from safetensors.torch import save_file

    sharded(path, "model", ".safetensors", tensors(), save_file)


def sharded(path, stem, suffix, state, save):
    path.mkdir()
    parts, weight_map = shards(state), {}
    for number, part in enumerate(parts, 1):
        file = f"{stem}-{number:05}-of-{len(parts):05}{suffix}"
        save(part, path / file)
        weight_map.update(dict.fromkeys(part, file))
    index = {"metadata": {"total_size": 16 * COUNT}, "weight_map": weight_map}
    (path / f"{stem}{suffix}.index.json").write_text(json.dumps(index, indent=2))


def npz(path):
    import numpy as np

    np.savez(path, **arrays())


def npz_deflated(path):
    import numpy as np

    np.savez_compressed(path, **arrays())


def gguf(path):
    """Writes version 3 as ggml's `gguf.md` describes it."""

    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, COUNT, 1)
    head += string("general.architecture") + struct.pack("<I", 8) + string("llama")
    data = b""
    data = io.BytesIO()
    infos = []
    for name, array in arrays().items():
        infos.append(string(name) + struct.pack("<IQIQ", 1, 4, 0, data.tell()))
        data.write(array.tobytes().ljust(32, b"\0"))
    head += b"".join(infos)
    path.write_bytes(head.ljust(-(-len(head) // 32) * 32, b"\0") + data.getvalue())


def flax(path):
    """Packs a nested dict as `flax.serialization.msgpack_serialize` does."""

    def text(value):
        return struct.pack(">BB", 0xD9, len(value)) + value.encode()

    def array(value):
        shape = struct.pack(">BB", 0x91, len(value))
        packed = b"\x93" + shape + text(value.dtype.name) + struct.pack(">BB", 0xC4, value.nbytes) + value.tobytes()
        return struct.pack(">BBb", 0xC7, len(packed), 1) + packed

    def nested(value):
        if not isinstance(value, dict):
            return array(value)
        items = b"".join(text(key) + nested(item) for key, item in value.items())
        return struct.pack(">BI", 0xDF, len(value)) + items

    tree = {}
    for name, value in arrays().items():
        *folders, last = name.split(".")
        parent = tree
        for folder in folders:
            parent = parent.setdefault(folder, {})
        parent[last] = value
    path.write_bytes(nested({"params": tree}))


def hdf5(path):
    import h5py

    with h5py.File(path, "w") as file:
        for name, value in arrays().items():
            file[name.replace(".", "/")] = value


def layers():
    """Yields the name of each layer of a Keras model, and the shapes of its weights."""
    for number in range(COUNT // 2):
        yield f"dense_{number}" if number else "dense", {"kernel": (2, 2), "bias": (4,)}


def config():
    listed = [{"class_name": "Dense", "config": {"name": name}, "name": name} for name, _ in layers()]
    return json.dumps({"class_name": "Sequential", "config": {"name": "model", "layers": listed}})


def keras_h5(path):
    """Writes the layout of Keras 2's `save_model`."""
    import h5py
    import numpy as np

    with h5py.File(path, "w") as file:
        file.attrs.update(backend="tensorflow", keras_version="2.15.0", model_config=config())
        weights = file.create_group("model_weights", track_order=True)
        listed = np.array([name.encode() for name, _ in layers()])
        for chunk, part in enumerate(np.array_split(listed, 1 + listed.nbytes // 60_000)):
            weights.attrs[f"layer_names{chunk}"] = part
        for name, shapes in layers():
            layer = weights.create_group(name)
            layer.attrs["weight_names"] = np.array([f"{name}/{weight}:0".encode() for weight in shapes])
            for weight, shape in shapes.items():
                layer[f"{name}/{weight}:0"] = np.zeros(shape, "<f4")


def fill_weights(file, part=lambda _: True):
    import numpy as np

    for number, (name, shapes) in enumerate(layers()):
        if part(number):
            group = file.create_group(f"layers/{name}/vars")
            group.attrs["name"] = name
            for index, shape in enumerate(shapes.values()):
                group[str(index)] = np.zeros(shape, "<f4")


def keras_weights(path):
    """Writes the layout of Keras 3's `save_weights`."""
    import h5py

    with h5py.File(path, "w") as file:
        fill_weights(file)


def keras(path):
    """Writes the layout of Keras 3's `model.save`."""
    import h5py

    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        fill_weights(file)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1", "date_saved": "2026-11-20@00:00:00"}))
        archive.writestr("config.json", config())
        archive.writestr("model.weights.h5", weights.getvalue())


def keras_set(path):
    """Writes the layout of Keras 3's `save_weights(max_shard_size=...)`."""
    import h5py

    path.mkdir()
    weight_map = {}
    for shard in range(SHARDS):
        file_name = f"model_{shard:05}.weights.h5"
        with h5py.File(path / file_name, "w") as file:
            fill_weights(file, lambda number, shard=shard: number % SHARDS == shard)
        for number, (name, _) in enumerate(layers()):
            if number % SHARDS == shard:
                weight_map[f"/layers/{name}/vars"] = file_name
    index = {"metadata": {"total_size": 16 * COUNT}, "weight_map": weight_map}
    (path / "model.weights.json").write_text(json.dumps(index))


def bundle(path):
    import tensorflow as tf

    save_v2(tf, path, [""] * COUNT, [4] * COUNT)


def partitioned(path):
    """Writes 2,500 variables of eight slices each."""
    import tensorflow as tf

    slices = [f"{4 * SHARDS} {4 * number},4" for number in range(SHARDS)] * (COUNT // SHARDS)
    save_v2(tf, path, slices, [4] * COUNT, [name for name in names(COUNT // SHARDS) for _ in range(SHARDS)])


def save_v2(tf, path, slices, lengths, listed=None):
    values = [tf.fill([length], float(number)) for number, length in enumerate(lengths)]
    tf.raw_ops.SaveV2(prefix=str(path), tensor_names=[name.replace(".", "/") for name in listed or names()],
                      shape_and_slices=slices, tensors=values)


def object_graph(path):
    import tensorflow as tf

    layers = []
    for number in range(COUNT // 4):
        layer = tf.Module()
        for index, part in enumerate(("kernel", "bias", "scale", "offset")):
            setattr(layer, part, tf.Variable(tf.fill([4], float(4 * number + index))))
        layers.append(layer)
    tf.train.Checkpoint(layers=layers).write(str(path))


def saver_v1(path):
    import tensorflow as tf

    values = [tf.fill([4], float(number)) for number in range(COUNT)]
    tf.raw_ops.SaveSlices(filename=str(path), tensor_names=[name.replace(".", "/") for name in names()],
                          shapes_and_slices=[""] * COUNT, data=values)


WRITERS = {
    "torch": {
        "zip64.pt": zip64, "zip.pt": torch_zip, "legacy.pt": legacy, "tar.pt": tar, "dcp": dcp, "torch-set": torch_set,
        "one.safetensors": safetensors, "safetensors-set": safetensors_set, "stored.npz": npz,
        "deflated.npz": npz_deflated, "one.gguf": gguf, "one.msgpack": flax, "generic.h5": hdf5, "keras2.h5": keras_h5,
        "keras3.weights.h5": keras_weights, "keras3.keras": keras, "keras-set": keras_set,
    },
    "tensorflow": {
        "bundle": bundle, "partitioned": partitioned, "object-graph": object_graph, "saver-v1": saver_v1,
    },
}

if __name__ == "__main__":
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in WRITERS[sys.argv[1]].items():
        if not ((folder / name).exists() or (folder / f"{name}.index").exists()):
            make(folder / name)
