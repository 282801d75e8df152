"""Converts each readable format to each writable one, and compares the output as loaded by the real libraries.

    python matrix.py --statelens BINARY --cerebras PYTHON --tensorflow PYTHON --work FOLDER [--write]

The expected values are those of `statelens manifest` for the source, which the fixture tests compare with the real
libraries. Each conversion reports lost and changed values. All others must be equal, bit for bit, after the target's own
library has loaded the output. The result is a table. The run fails if it differs from `docs/conversions.md`; with
`--write`, it writes the table to this file.
"""

import argparse
import collections
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[1] / "target/fixtures"
TABLE = HERE.parent.parent / "docs" / "conversions.md"

# Readable formats: the name, and a fixture with as many features as possible. A format of which no file is here gets
# the largest file of `tests/fixtures/ID`.
SOURCES = [
    ("Cerebras HDF5 0.5", "cerebras/v2.10.0/gpt_small.mdl"),
    ("Cerebras HDF5 0.4", "cerebras/v2.4.0/gpt_small.mdl"),
    ("PyTorch zip", "torch/zip_training_ckpt.pt"),
    ("PyTorch zip, all dtypes", "torch/zip_all_dtypes.pt"),
    ("PyTorch legacy stream", "torch/legacy_all_dtypes.pt"),
    ("PyTorch distributed", "dcp_single/.metadata"),
    ("PyTorch FSDP ranks", "sharded/verl_w2"),
    ("DeepSpeed", "deepspeed/z3_bf16_w2"),
    ("safetensors of ranks", "sharded/hf_w2_ints"),
    ("TorchScript", "torchscript/jit_script.pt"),
    ("bare pickle", "pickle/numpy_proto4.pkl"),
    ("safetensors", "safetensors/order.safetensors"),
    ("safetensors, sharded", "hf_sharded_safetensors/model.safetensors.index.json"),
    ("TensorFlow bundle", "tf/saver_v2_basic/model.ckpt-200.index"),
    ("TensorFlow bundle, all dtypes", "tf/saver_v2_dtypes/all.index"),
    ("TensorFlow bundle, object graph", "tf/tf2_checkpoint/ckpt-1.index"),
    ("TensorFlow V1 Saver", "tf/saver_v1/old.ckpt"),
    ("Keras 2 .h5", "keras/k2_full.h5"),
    ("Keras 3 .keras", "keras/k3_seq_compiled.keras"),
    ("Keras 3 .weights.h5", "keras/k3_functional.weights.h5"),
    ("NumPy .npy", "numpy/f4.npy"),
    ("NumPy .npz", "numpy/plain.npz"),
    ("GGUF", "gguf/types_v3.gguf"),
    ("Flax msgpack", "flax/flax_model.msgpack"),
    ("HDF5", "hdf5/contiguous.h5"),
]

# Writable formats: the name, options, the output path, the path to load, and the loader in load_tensors.py.
TARGETS = [
    ("Cerebras 0.5", ("--to", "cerebras"), "out.mdl", "out.mdl", "cstorch"),
    ("Cerebras 0.4", ("--to", "cerebras", "--format-version", "0.4"), "out.mdl", "out.mdl", "cstorch"),
    ("PyTorch", ("--to", "torch"), "out.pt", "out.pt", "weights_only"),
    ("PyTorch, sharded", ("--to", "torch", "--shard-size", "16KB"), "pytorch_model.bin",
     "pytorch_model.bin.index.json", "torch_index"),
    ("safetensors", ("--to", "safetensors"), "out.safetensors", "out.safetensors", "safetensors"),
    ("safetensors, sharded", ("--to", "safetensors", "--shard-size", "16KB"), "model.safetensors",
     "model.safetensors.index.json", "safetensors_index"),
    ("TensorFlow", ("--to", "tensorflow"), "out.ckpt", "out.ckpt", "tensorflow"),
    ("npz", ("--to", "npz"), "out.npz", "out.npz", "numpy"),
]
SHOWN = 5


def main():
    options = arguments()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    start = time.monotonic()
    sources = SOURCES + others(options)
    pairs = [(source, target) for source in sources for target in TARGETS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        converted = dict(zip(pairs, pool.map(lambda pair: convert(options, *pair), pairs), strict=True))
        manifests = dict(zip(sources, pool.map(lambda source: manifest(options, FIXTURES / source[1])["entries"], sources), strict=True))
    print(f"[{time.monotonic() - start:5.1f} s] {len(pairs)} conversions", flush=True)
    loaded = load(options, {pair: done for pair, done in converted.items() if done.losses is not None})
    print(f"[{time.monotonic() - start:5.1f} s] {len(loaded)} checkpoints loaded by the real libraries", flush=True)

    problems, cells, changes = [], {}, collections.defaultdict(set)
    for pair, done in converted.items():
        (source, fixture), target = pair[0], pair[1]
        sentences = judge(options, manifests[pair[0]], target, done, loaded.get(pair), cells, pair, changes)
        problems += [f"{source} ({fixture}) -> {target[0]}: {sentence}" for sentence in sentences[:SHOWN]]
    text = table(cells, changes)
    if options.write:
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(text)
    elif not TABLE.exists() or TABLE.read_text() != text:
        problems.append(f"{TABLE.name} differs from the result: check the difference, then run with --write")
    print(text)
    print("\n".join(problems) or "Every conversion agrees with the real libraries.")
    return 1 if problems else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--cerebras", type=Path, required=True)
    parser.add_argument("--tensorflow", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--write", action="store_true", help="write docs/conversions.md")
    return parser.parse_args()


def others(options):
    """Returns a source for each format of which no file is in SOURCES."""
    known = {manifest(options, FIXTURES / path)["format"]["name"] for _, path in SOURCES}
    done = subprocess.run([options.statelens, "formats", "--json"], capture_output=True, text=True, check=True)
    found = []
    for form in json.loads(done.stdout)["formats"]:
        if known.isdisjoint(form["ids"]):
            files = [path for id in form["ids"] for path in (FIXTURES / id).rglob("*")
                     if path.is_file() and path.suffix.removeprefix(".") in form["extensions"]]
            if not files:
                raise SystemExit(f"{form['name']}: add a file to tests/fixtures/{form['ids'][0]}")
            largest = max(files, key=lambda path: path.stat().st_size)
            found.append((form["name"], str(largest.relative_to(FIXTURES))))
    return found


class Conversion:
    def __init__(self, path=None, how=None, losses=None, error=None):
        self.path, self.how, self.losses, self.error = path, how, losses, error


def convert(options, source, target):
    _, arguments, name, result, how = target
    folder = options.work / "".join(c if c.isalnum() else "_" for c in f"{source[0]} {target[0]}")
    folder.mkdir()
    command = [options.statelens, "convert", "--json", "--lossy", FIXTURES / source[1], folder / name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return Conversion(error=done.stderr.strip() or f"exit status {done.returncode}")
    if how.endswith("_index") and (folder / name).exists():
        # The output fits one shard, so there is no index.
        result, how = name, {"torch_index": "weights_only", "safetensors_index": "safetensors"}[how]
    return Conversion(folder / result, how, json.loads(done.stdout)["losses"])


def manifest(options, path):
    done = subprocess.run([options.statelens, "manifest", "--json", path], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise SystemExit(f"{path}: {done.stderr}")
    return json.loads(done.stdout)


def load(options, converted):
    interpreters = {"cstorch": options.cerebras, "tensorflow": options.tensorflow}
    shares = collections.defaultdict(list)
    for pair, done in converted.items():
        shares[interpreters.get(done.how, sys.executable)].append(pair)

    def load_in(interpreter, pairs):
        name = Path(interpreter).parent.parent.name
        jobs, results = options.work / f"{name}.json", options.work / f"{name}.jsonl"
        jobs.write_text(json.dumps([{"id": index, "how": converted[pair].how, "path": str(converted[pair].path)}
                                     for index, pair in enumerate(pairs)]))
        subprocess.run([interpreter, "-W", "ignore", HERE / "load_tensors.py", jobs, results], check=True,
                       env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
        with open(results) as lines:
            return {pairs[result["id"]]: result for result in map(json.loads, lines)}

    results = {}
    with ThreadPoolExecutor() as pool:
        for part in pool.map(lambda share: load_in(*share), shares.items()):
            results.update(part)
    return results


def judge(options, entries, target, done, loaded, cells, pair, changes):
    """Returns one sentence for each difference. Adds the cell of the table to `cells`, and the losses to `changes`."""
    source = pair[0][0]
    if done.error is not None:
        cells[pair] = "refused"
        # The problem without the list of keys and the advice.
        reason = done.error.removeprefix("statelens: ").split("; ")[0].split(". ")[0]
        changes[target[0], f"refused: {reason}"].add(source)
        return [] if "can't hold" in reason else [done.error]
    if "error" in loaded:
        cells[pair] = "WRONG"
        return [f"does not load: {loaded['error']}"]
    reported = {key: loss["what"] for loss in done.losses for key in loss["keys"]}
    # A loss may list an object or the keys inside it.
    opened = [key for key, what in reported.items() if what.startswith(OPENED)]
    for loss in done.losses:
        changes[target[0], loss["what"]].add(source)
    values, sentences = loaded["values"], []
    tensors = {entry["key"]: entry for entry in entries if "sha256" in entry}
    for entry in entries:
        key = entry["key"]
        # A tied tensor must be equal to the first one, as one object or as two.
        while "alias_of" in entry and entry["alias_of"] in tensors and "sha256" not in entry:
            entry = tensors[entry["alias_of"]]
        actual = values.pop(key, None)
        if key in reported or inside(key, opened):
            continue
        if "alias_of" in entry and "sha256" not in entry:
            continue
        if actual is None:
            sentences.append(f"{key!r} is missing, but not reported as lost")
        elif entry["kind"] in ("tensor", "ndarray"):
            expected = {name: entry[name] for name in ("dtype", "shape", "sha256")}
            # A conversion from TensorFlow to TensorFlow keeps uint4.
            if expected["dtype"] == "uint8" and actual.get("dtype") == "uint4":
                expected["dtype"] = "uint4"
            if actual != expected and not same_strings(entry, actual):
                sentences.append(f"{key!r}: expected {expected}, found {actual}")
        elif "value" in entry and not same(entry, actual):
            sentences.append(f"{key!r}: expected {entry['value']!r}, found {actual}")
    extra = [key for key in values if key not in reported and not inside(key, opened)]
    sentences += [f"{key!r} is not in the source" for key in extra]
    if target[4].startswith("safetensors"):
        sentences += metadata_differences(options, entries, done, reported)
    lost = sum(len(loss["keys"]) for loss in done.losses if not loss["harmless"])
    changed = sum(len(loss["keys"]) for loss in done.losses if loss["harmless"])
    words = ["equal"] + [f"{changed} changed in form"] * bool(changed) + [f"{lost} lost"] * bool(lost)
    cells[pair] = "WRONG" if sentences else ", ".join(words)
    return sentences


# The loss of states that are not converted.
LEFT_OUT = "the states next to the model are left out"

# Losses that list containers, whose items get other keys or forms.
OPENED = ("objects ", "of objects", "sets become", "a value without a name")


def inside(key, containers):
    return any(not top or key == top or key.startswith(f"{top}.") for top in containers)


def same_strings(entry, actual):
    """Returns whether TensorFlow's strings, which have different lengths, equal the zero-padded strings of an entry."""
    if not entry["dtype"].startswith("bytes") or "value" not in actual:
        return False
    width = int(entry["dtype"].removeprefix("bytes")) // 8
    dense = b"".join(item.encode("latin-1").ljust(width, b"\0") for item in actual["value"])
    return actual["shape"] == entry["shape"] and hashlib.sha256(dense).hexdigest() == entry["sha256"]


def same(entry, actual):
    expected, value = entry["value"], actual.get("value")
    if entry["kind"] == "complex":
        return value is not None and complex(value) == complex(*map(float, expected))
    if entry["kind"] == "bool":
        return value == repr(expected)
    if entry["kind"] == "float":
        return value is not None and repr(float(value)) == repr(float(expected))
    return value == expected


def metadata_differences(options, entries, done, reported):
    """Compares plain values, which safetensors does not load. We store them in the metadata of the file."""
    back = {entry["key"]: entry for entry in manifest(options, done.path)["entries"]}
    plain = [entry for entry in entries if entry["kind"] != "object" and "value" in entry
             and reported.get(entry["key"], LEFT_OUT) != LEFT_OUT]
    return [f"{entry['key']!r} is not restored from the metadata: {back.get(entry['key'])}" for entry in plain
            if any(back.get(entry["key"], {}).get(name) != entry[name] for name in ("kind", "value"))]


def table(cells, changes):
    lines = [
        "# Conversions",
        "",
        "This table shows the result of converting one checkpoint of each readable format to each",
        "writable format, as loaded by the target's own library (cerebras-pytorch 2.10, torch, safetensors,",
        "TensorFlow, NumPy). *Equal* means bit for bit: keys, dtypes, shapes, values. Statelens lists",
        "everything *changed in form* or *lost* before it writes; losses need `--lossy`, or a click.",
        "",
        "`tests/interop/matrix.py` generates this page; `cargo xtask test --all` checks it.",
        "",
        "| from \\ to | " + " | ".join(target[0] for target in TARGETS) + " |",
        "|---" * (len(TARGETS) + 1) + "|",
    ]
    for source in dict.fromkeys(source for source, _ in cells):
        lines.append(f"| {source[0]} | " + " | ".join(cells[source, target] for target in TARGETS) + " |")
    lines += ["", "## What changes, and where", ""]
    for target in TARGETS:
        losses = {what: sources for (name, what), sources in changes.items() if name == target[0]}
        if losses:
            lines += [f"### {target[0]}", ""]
            lines += [f"- {what} — from {', '.join(sorted(sources))}" for what, sources in sorted(losses.items())]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
