"""Inputs and comparisons for `cargo xtask bench ranks`: checkpoints in many files.

    ranks.py KIND FOLDER        writes an input; data are holes, so the files take no space
    ranks.py COMPARISON FOLDER [OUTPUT]

Only the standard library is needed for `kimi` and `hf`; the others need torch, `headers` safetensors, `zero-to-fp32`
DeepSpeed.
"""

import json
import os
import struct
import sys
from pathlib import Path

# A set like that of Kimi K3: 497,220 tensors in 96 shards.
LAYERS, EXPERTS, SHARDS = 60, 920, 96
# The ranks and gigabytes of the checkpoints that are converted.
GIGABYTES = float(os.environ.get("STATELENS_BENCH_GB", "2"))


def kimi_tensors():
    """Yields the name, dtype and shape of each tensor."""
    for layer in range(LAYERS):
        top = f"language_model.model.layers.{layer}"
        for part, shape in [
            ("input_layernorm.weight", [64]),
            ("self_attn.q_proj.weight", [64, 64]),
            ("self_attn.k_proj.weight", [64, 64]),
            ("self_attn.v_proj.weight", [64, 64]),
            ("self_attn.o_proj.weight", [64, 64]),
            ("post_attention_layernorm.weight", [64]),
            ("mlp.gate.weight", [EXPERTS, 64]),
        ]:
            yield f"{top}.{part}", "BF16", shape
        for expert in range(EXPERTS):
            for projection in ["gate_proj", "up_proj", "down_proj"]:
                name = f"{top}.mlp.experts.{expert}.{projection}"
                yield f"{name}.weight_packed", "I32", [64, 8]
                yield f"{name}.weight_scale", "BF16", [64, 2]
                yield f"{name}.weight_shape", "I32", [2]


def kimi(folder):
    tensors = list(kimi_tensors())
    each = -(-len(tensors) // SHARDS)
    size, total, index = {"BF16": 2, "I32": 4}, 0, {}
    for shard in range(SHARDS):
        name = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for key, dtype, shape in tensors[shard * each : (shard + 1) * each]:
            count = size[dtype]
            for dim in shape:
                count *= dim
            header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + count]}
            at += count
            index[key] = name
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / name, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + at)
        total += at
    document = {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document, indent=2))


def headers(folder):
    """Reads what the library reads of a set: the index and all headers."""
    from safetensors import safe_open

    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    count = 0
    for name in sorted(set(index.values())):
        with safe_open(folder / name, "numpy") as file:
            count += len(file.keys())
    assert count == len(index), (count, len(index))


def hollow(value, path):
    """Calls `torch.save` on fake tensors: the file has room for their data, which is a hole."""
    import torch

    with torch.serialization.skip_data(materialize_fake_tensors=True):
        torch.save(value, path)


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def zero(folder, ranks=8):
    """DeepSpeed ZeRO-3, as its engine writes it: a flat float32 tensor per rank."""
    import torch

    numel = int(GIGABYTES * (1 << 30)) // 4
    rows = 4096
    # The parameters take all of the flat tensors but some padding at the end of each.
    count, width = 64, (numel * ranks // 64) // rows
    shapes = {f"model.layers.{at}.mlp.up_proj.weight": torch.Size([rows, width]) for at in range(count)}
    step = folder / "global_step1"
    step.mkdir(exist_ok=True)
    (folder / "latest").write_text("global_step1")
    with fake():
        for rank in range(ranks):
            each = sum(-(-rows * width // ranks) for _ in shapes)
            state = {
                "module": {},
                "buffer_names": [],
                "param_shapes": [shapes],
                "frozen_param_shapes": None,
                "frozen_param_fragments": None,
                "shared_params": {},
                "ds_config": {},
                "ds_version": "0.18.0",
            }
            hollow(state, step / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
            flat = torch.empty(each, dtype=torch.float32)
            inner = {
                "zero_stage": 3,
                "partition_count": ranks,
                "fp32_flat_groups": [flat],
                "optimizer_state_dict": {"state": {}, "param_groups": []},
            }
            state = {"optimizer_state_dict": inner, "ds_config": {}, "ds_version": "0.18.0"}
            hollow(state, step / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def mesh(ranks, rank):
    """Starts torch.distributed without other processes, and returns a mesh of all ranks."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    return dist.init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",))


def fsdp(folder, ranks=64, tensors=1000):
    """Files of all ranks of FSDP2, with small tensors."""
    import torch
    from torch.distributed.tensor import DTensor, Shard

    for rank in range(ranks):
        every = mesh(ranks, rank)
        state = {}
        for at in range(tensors):
            local = torch.full([2, 8], float(at))
            name = f"model.layers.{at // 10}.part{at % 10}.weight"
            state[name] = DTensor.from_local(local, every, [Shard(0)], run_check=False)
        torch.save(state, folder / f"model_world_size_{ranks}_rank_{rank}.pt")


def dcp(folder, ranks=4):
    """torch.distributed.checkpoint: the pieces of each rank in a file, and `.metadata`."""
    import pickle

    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    count, rows = 64, 4096
    width = int(GIGABYTES * (1 << 30)) // 4 // count // (rows // ranks)
    whole, storage = {}, {}
    for at in range(count):
        chunks = []
        for rank in range(ranks):
            offsets, sizes = [rank * rows // ranks, 0], [rows // ranks, width]
            chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
        name = f"model.layers.{at}.mlp.up_proj.weight"
        properties = TensorProperties(dtype=torch.float32)
        whole[name] = TensorStorageMetadata(properties, torch.Size([rows, width]), chunks)
    piece_path = folder / "piece.pt"
    with fake():
        hollow(torch.empty(rows // ranks, width), piece_path)
    length = piece_path.stat().st_size
    # The pieces differ in nothing, so each is a copy of this one with holes kept.
    data = piece_path.read_bytes()
    start = data.find(b"\0" * (1 << 16))
    end = data.rfind(b"\0" * (1 << 16)) + (1 << 16)
    for rank in range(ranks):
        with open(folder / f"__{rank}_0.distcp", "wb") as file:
            for at, name in enumerate(whole):
                file.seek(at * length)
                file.write(data[:start])
                file.seek(at * length + end)
                file.write(data[end:])
                index = MetadataIndex(name, whole[name].chunks[rank].offsets, rank)
                storage[index] = _StorageInfo(f"__{rank}_0.distcp", at * length, length)
    piece_path.unlink()
    planner = {name: (name,) for name in whole}
    with open(folder / ".metadata", "wb") as file:
        pickle.dump(Metadata(whole, planner, storage), file)


def hf(folder, ranks=4):
    """safetensors of torch.distributed.checkpoint: a file per rank, with rows of each tensor."""
    count, rows = 64, 4096
    width = int(GIGABYTES * (1 << 30)) // 4 // count // (rows // ranks)
    names = [f"model.layers.{at}.mlp.up_proj.weight" for at in range(count)]
    for rank in range(ranks):
        places = {name: {"saved_offsets": [rank * rows // ranks, 0]} for name in names}
        facts = {"format": "pt", "DCP_SHARDING_INFO": json.dumps(places), "DCP_VERSION": "1.0"}
        header, at, size = {"__metadata__": facts}, 0, rows // ranks * width * 4
        for name in names:
            shape = [rows // ranks, width]
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / f"shard-{rank + 1:05}-model-00001-of-00001.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + at)


def dcp_to_torch(folder, output):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(folder, output)


def consolidate(folder, output):
    """Writes the file next to `output` in a folder, and moves it there."""
    import torch.distributed.checkpoint._consolidate_hf_safetensors as library
    from safetensors import safe_open

    with safe_open(sorted(folder.glob("shard-*"))[0], "numpy") as file:
        names = list(file.keys())
    target = Path(f"{output}-folder")
    target.mkdir(exist_ok=True)
    library.consolidate_safetensors_files(str(folder), str(target), {name: 1 for name in names})
    (written,) = target.glob("*.safetensors")
    written.rename(output)
    for left in target.iterdir():
        left.unlink()
    target.rmdir()


def zero_to_fp32(folder, output):
    """Calls what `zero_to_fp32.py` calls."""
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    torch.save(get_fp32_state_dict_from_zero_checkpoint(str(folder)), output)


INPUTS = {"kimi": kimi, "zero": zero, "fsdp": fsdp, "dcp": dcp, "hf": hf}
COMPARISONS = {
    "headers": headers,
    "dcp-to-torch": dcp_to_torch,
    "consolidate": consolidate,
    "zero-to-fp32": zero_to_fp32,
}

if __name__ == "__main__":
    what, folder, *rest = sys.argv[1:]
    folder = Path(folder)
    if what in INPUTS:
        folder.mkdir(parents=True, exist_ok=True)
        INPUTS[what](folder)
    else:
        COMPARISONS[what](folder, *rest)
