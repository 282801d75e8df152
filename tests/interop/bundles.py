"""Compares the TensorFlow bundles that we write with their sources, bit for bit.

    python bundles.py --statelens BINARY --work FOLDER

Runs in the environment of TensorFlow. Converts each source to a bundle and reads it with the APIs that users have:
`tf.train.load_checkpoint`, `tf.compat.v1.train.Saver`, `tf.train.Checkpoint`. The expected values come from TensorFlow
or, for files of other libraries, from `statelens manifest`, which `run.py` compares with those libraries. The exit
status is 1 if anything differs.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy
import tensorflow as tf

FIXTURES = Path(__file__).resolve().parents[2] / "target/fixtures"
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

# Prefixes of bundles and V1 files, with options of the conversion.
BUNDLES = {
    "tf/merged/m": [],
    "tf/raw_slices/s": [],
    "tf/saved_model/variables/variables": [],
    "tf/saver_v1/old.ckpt": [],
    "tf/saver_v2_basic/model.ckpt-1": [],
    "tf/saver_v2_basic/model.ckpt-200": [],
    "tf/saver_v2_dtypes/all": [],
    "tf/saver_v2_partitioned/part": [],
    "tf/saver_v2_sharded/sh": [],
    "tf/saver_v1_sharded/old": [],
    "tf/tf2_checkpoint/ckpt-1": [],
    "tf/tf2_slots/slots": [],
    # Only TensorFlow can read and write variants.
    "tf/variant/v": ["--exclude", "tl"],
    "tf_crafted/bigendian/m": [],
    "tf_crafted/snappy/m": [],
}
# Dtypes that are plain integers after the conversion of a file of another library.
PLAIN = {"uint4": "uint8", "qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32"}

# Files of other libraries, with options of the conversion.
OTHERS = {
    "cerebras/v2.10.0/bytes.mdl": [],
    "cerebras/v2.10.0/containers.mdl": [],
    "cerebras/v2.10.0/dtypes.mdl": [],
    "cerebras/v2.10.0/dtypes_empty.mdl": [],
    "cerebras/v2.10.0/dtypes_scalar.mdl": [],
    "cerebras/v2.10.0/gpt_small_bf16.mdl": [],
    "torch/zip_0d_empty.pt": [],
    "torch/zip_all_dtypes.pt": [],
    "torch/zip_many_20k.pt": [],
    "torch/zip_new_dtypes.pt": [],
    "torch/zip_tied.pt": [],
    "torch/zip_training_ckpt.pt": [],
    # TensorFlow refuses names that are empty or not UTF-8. Two paths with dots would have the same name.
    "torch/zip_unicode_keys.pt": ["--exclude", "/^$/", "--exclude", "a.b.c.d", "--exclude", "lone*"],
    "torch/zip_views.pt": [],
}
# Dtypes that TensorFlow lacks, and the dtypes with the same bits.
SAME_BITS = {
    "float8_e8m0fnu": "uint8", "float4_e2m1fn_x2": "uint8", "bits8": "uint8", "bits1x8": "uint8",
    "bits2x4": "uint8", "bits4x2": "uint8", "bits16": "uint16",
    "complex32": "float16", "bcomplex32": "bfloat16",
}
# Dtypes that TensorFlow can save and restore, but without variables on a CPU.
NO_VARIABLES = {"float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "qint16", "quint16"}
SCALARS = {"int": numpy.int64, "float": numpy.float64, "bool": numpy.bool_}


class Checks:
    def __init__(self):
        self.count, self.failures = 0, []

    def equal(self, name, actual, expected):
        self.count += 1
        if actual != expected:
            self.failures.append(f"{name}: {str(actual)[:300]} instead of {str(expected)[:300]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="", help="run only steps whose name contains this text")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    checks = Checks()
    for step in (bundles, others, through_h5, shards, by_saver, by_objects, state_file):
        if options.only not in step.__name__:
            continue
        before = checks.count
        step(checks, options)
        print(f"{step.__name__}: {checks.count - before} comparisons", flush=True)
    for failure in checks.failures:
        print(failure)
    print(f"{checks.count} comparisons with TensorFlow {tf.__version__}, {len(checks.failures)} differences")
    return 1 if checks.failures else 0


def statelens(options, *arguments):
    process = subprocess.run([options.statelens, *arguments], capture_output=True, text=True, timeout=300)
    if process.returncode != 0:
        raise SystemExit(f"statelens {' '.join(map(str, arguments))}: {process.stderr.strip()}")
    return process.stdout


def convert(options, source, name, *arguments):
    """Converts a fixture to a bundle, and returns the prefix of the bundle."""
    folder = options.work / name
    folder.mkdir(parents=True)
    statelens(options, "convert", FIXTURES / source, folder / "out.index", *arguments)
    return str(folder / "out")


def describe(value):
    """Returns the dtype, the shape and a hash of the bytes of a tensor, or the items of a string tensor."""
    array = value.numpy() if isinstance(value, tf.Tensor) else value
    if value.dtype == tf.string:
        array = numpy.asarray(array, dtype=object)
        items = [bytes(item) for item in array.reshape(-1)]
        return ("string", list(array.shape), items)
    array = numpy.ascontiguousarray(array)
    return (tf.as_dtype(value.dtype).name, list(value.shape), hashlib.sha256(array.tobytes()).hexdigest())


def read_bundle(prefix):
    """Reads all tensors of a bundle with `RestoreV2`, which checks the checksums."""
    reader = tf.train.load_checkpoint(prefix)
    dtypes = reader.get_variable_to_dtype_map()
    tensors = {}
    for name, dtype in sorted(dtypes.items()):
        if dtype == tf.variant:
            continue
        tensors[name] = describe(tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=[name], shape_and_slices=[""], dtypes=[dtype])[0])
        # `get_tensor` does not support all dtypes.
        if dtype in (tf.float32, tf.int64, tf.string, tf.bool):
            value = reader.get_tensor(name)
            value = tf.constant(value, dtype=dtype)
            if describe(value) != tensors[name]:
                raise SystemExit(f"{prefix}: {name}: load_checkpoint and RestoreV2 differ")
    return tensors


def read_v1(prefix):
    """Reads all tensors of a V1 file or of its shards."""
    prefix = prefix if Path(prefix).exists() else f"{prefix}-?????-of-00004"
    dtypes = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
    return {name: describe(tf.raw_ops.Restore(file_pattern=prefix, tensor_name=name, dt=dtype))
            for name, dtype in dtypes.items()}


def same(checks, title, actual, expected):
    checks.equal(f"{title}: names", sorted(actual), sorted(expected))
    for name in set(actual) & set(expected):
        checks.equal(f"{title}: {name}", actual[name], expected[name])


def bundles(checks, options):
    """Converts bundles and V1 files of TensorFlow to bundles."""
    for source, arguments in BUNDLES.items():
        path = str(FIXTURES / source)
        expected = read_v1(path) if "v1" in source else read_bundle(path)
        name = source.replace("/", "_")
        same(checks, source, read_bundle(convert(options, source, name, *arguments)), expected)


def plain_values(options, source):
    """Returns the values that the bundle of a file from another library must have."""
    expected = {}
    for entry in json.loads(statelens(options, "manifest", "--json", FIXTURES / source))["entries"]:
        kind = entry["kind"]
        if kind == "tensor":
            dtype, shape = entry["dtype"], entry["shape"]
            shape = shape + [2] if dtype in ("complex32", "bcomplex32") else shape
            expected[entry["key"]] = (PLAIN.get(dtype, SAME_BITS.get(dtype, dtype)), shape, entry["sha256"])
        elif kind in SCALARS:
            text = entry["value"]
            number = text in (True, "True", "true") if kind == "bool" else SCALARS[kind](text)
            expected[entry["key"]] = describe(tf.constant(numpy.asarray(number, dtype=SCALARS[kind])))
        elif kind == "str":
            expected[entry["key"]] = ("string", [], [entry["value"].encode("utf-8", "surrogatepass")])
        else:
            # The manifest has only a hash of bytes. Ties are resolved below.
            expected[entry["key"]] = entry
    ties = {key: entry for key, entry in expected.items() if isinstance(entry, dict) and "alias_of" in entry}
    for key, entry in ties.items():
        expected[key] = expected[entry["alias_of"]]
    return expected


def others(checks, options):
    """Converts tensors, plain values and ties of other libraries."""
    for source, arguments in OTHERS.items():
        actual = read_bundle(convert(options, source, source.replace("/", "_"), "--lossy", *arguments))
        compared = 0
        for key, expected in plain_values(options, source).items():
            if not key or key in arguments or not key.isprintable() and key.startswith("lone"):
                continue
            if not isinstance(expected, dict):
                checks.equal(f"{source}: {key}", actual.get(key), expected)
                compared += 1
            elif expected["kind"] == "bytes":
                items = actual[key][2]
                checks.equal(f"{source}: {key}", hashlib.sha256(items[0]).hexdigest(), expected["sha256"])
                compared += 1
        if compared == 0:
            checks.failures.append(f"{source}: nothing was compared")


def through_h5(checks, options):
    """Converts bundles with `tensorflow-to-h5` and back with `h5-to-tensorflow`."""
    for source in ("tf/saver_v2_basic/model.ckpt-200", "tf/saver_v2_partitioned/part", "tf/merged/m",
                   "tf/tf2_checkpoint/ckpt-1", "tf/saver_v1/old.ckpt"):
        folder = options.work / "h5" / source
        folder.mkdir(parents=True)
        # The Cerebras format has no complex numbers.
        exclude = ["--exclude", "c"] if "v1" in source else []
        statelens(options, "tensorflow-to-h5", FIXTURES / source, folder / "model.h5", *exclude)
        prefix = folder / "model.ckpt-7"
        statelens(options, "h5-to-tensorflow", folder / "model.h5", prefix)
        path = str(FIXTURES / source)
        expected = read_v1(path) if "v1" in source else read_bundle(path)
        if exclude:
            del expected["c"]
        same(checks, f"{source} through H5", read_bundle(str(prefix)), expected)


def shards(checks, options):
    """Writes a bundle with several data files."""
    source = "torch/zip_training_ckpt.pt"
    whole = read_bundle(convert(options, source, "whole", "--lossy"))
    prefix = convert(options, source, "shards", "--lossy", "--shard-size", "1kB")
    count = len(list(Path(prefix).parent.glob("out.data-*")))
    checks.equal("shards", count > 2, True)
    same(checks, "shards", read_bundle(prefix), whole)


def by_saver(checks, options):
    """Restores variables of a graph by name, with a Saver."""
    for source in ("tf/saver_v2_dtypes/all", "torch/zip_all_dtypes.pt", "cerebras/v2.10.0/gpt_small_bf16.mdl"):
        prefix = convert(options, source, f"saver_{Path(source).stem}", "--lossy")
        expected = read_bundle(prefix)
        reader = tf.train.load_checkpoint(prefix)
        dtypes, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variables = {}
            for index, (name, dtype) in enumerate(sorted(dtypes.items())):
                if dtype.name in NO_VARIABLES:
                    continue
                initial = tf.fill(shapes[name], "") if dtype == tf.string else \
                    tf.cast(tf.zeros(shapes[name], tf.float32), dtype)
                variables[name] = tf.compat.v1.Variable(initial, name=f"v{index}")
            saver = tf.compat.v1.train.Saver(variables)
            saver.restore(session, prefix)
            for name, variable in variables.items():
                value = session.run(variable)
                actual = describe_array(value, variable.dtype.base_dtype, shapes[name])
                checks.equal(f"{source} by Saver: {name}", actual, expected[name])
            skipped = {dtype.name for name, dtype in dtypes.items() if name not in variables}
            checks.equal(f"{source} by Saver: not compared", skipped - NO_VARIABLES, set())


def describe_array(value, dtype, shape):
    if dtype == tf.string:
        array = numpy.asarray(value, dtype=object)
        return ("string", list(array.shape), [bytes(item) for item in array.reshape(-1)])
    array = numpy.ascontiguousarray(value)
    return (dtype.name, list(shape), hashlib.sha256(array.tobytes()).hexdigest())


class Node(tf.Module):
    """An object with tracked attributes of any name."""


def by_objects(checks, options):
    """Restores variables of nested objects by attribute, with `tf.train.Checkpoint`."""
    for source in ("torch/zip_training_ckpt.pt", "cerebras/v2.10.0/gpt_small_bf16.mdl",
                   "tf/saver_v2_basic/model.ckpt-200"):
        prefix = convert(options, source, f"objects_{Path(source).stem}", "--lossy", "--object-graph")
        expected = read_bundle(prefix)
        del expected[GRAPH]
        # Every `tf.train.Checkpoint` has a counter, so the conversion adds it.
        counter = "save_counter" + VALUE
        checks.equal(f"{source}: counter", expected.pop(counter), describe(tf.constant(1, tf.int64)))
        top, variables = {}, {}
        reader = tf.train.load_checkpoint(prefix)
        dtypes, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
        for key in expected:
            *parents, last = [step.replace(".S", "/").replace("..", ".") for step in key.removesuffix(VALUE).split("/")]
            dtype = dtypes[key]
            initial = tf.fill(shapes[key], "") if dtype == tf.string else tf.zeros(shapes[key], dtype)
            variables[key] = tf.Variable(initial)
            if not parents:
                top[last] = variables[key]
                continue
            node = top.setdefault(parents[0], Node())
            for step in parents[1:]:
                if not hasattr(node, step):
                    setattr(node, step, Node())
                node = getattr(node, step)
            setattr(node, last, variables[key])
        checkpoint = tf.train.Checkpoint(**top)
        status = checkpoint.restore(prefix)
        status.assert_existing_objects_matched()
        status.assert_consumed()
        for key, variable in variables.items():
            actual = describe_array(variable.numpy(), variable.dtype, variable.shape)
            checks.equal(f"{source} by objects: {key}", actual, expected[key])
    # The conversion keeps the object graph of a bundle.
    prefix = convert(options, "tf/tf2_checkpoint/ckpt-1", "objects_kept")
    step = tf.Variable(0, dtype=tf.int64)
    tf.train.Checkpoint(step=step).restore(prefix).expect_partial()
    checks.equal("the object graph of the source", int(step), 7)


def state_file(checks, options):
    """Writes the file that names the latest checkpoint."""
    prefix = convert(options, "tf/saver_v2_basic/model.ckpt-200", "state", "--state-file")
    folder = str(Path(prefix).parent)
    checks.equal("latest checkpoint", tf.train.latest_checkpoint(folder), prefix)


if __name__ == "__main__":
    sys.exit(main())
