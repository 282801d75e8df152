"""Flips bits in the metadata of HDF5 files, and compares `statelens verify` with libhdf5.

If libhdf5 refuses a file, or can't list or read an object in it, `verify` must not report it as sound. If both read the
file, they must read the same datasets. The script writes the files in the oldest and in the latest layout of libhdf5,
with each kind of index. The oldest layout has no checksums, so the reader must check each field.

Errors of h5py and of its environment are not damage:

- A soft link may be dangling.
- A name may be invalid UTF-8. h5py lists such a name as bytes but can't open it, so the script uses the low-level API.
- h5py lacks dtypes for some datatypes: times, and floats with unusual fields.
- A filter may be missing in this environment. But the number of a filter with the name of another filter is damage.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import resource
import select
import subprocess
import sys

import h5py
import numpy as np


def write(path, libver):
    """Writes a file with all kinds of indexes and heaps of libhdf5."""
    with h5py.File(path, "w", libver=libver) as file:
        data = np.arange(4096, dtype="<f4")
        file["contiguous"] = data[:64].reshape(8, 8)
        file["scalar"] = np.float32(1.5)
        names = file.create_group("names")
        for index in range(24):
            names.create_dataset(f"key_{index:03}", data=data[index : index + 2])
        ordered = file.create_group("ordered", track_order=True)
        for index in range(12):
            ordered.create_dataset(f"z{12 - index}", data=data[index : index + 1])
        for index in range(14):
            names.attrs[f"attribute {index}"] = index * 1.5
        names.attrs["text"] = "a text"
        inner = names.create_group("inner")
        inner["soft"] = h5py.SoftLink("/contiguous")
        inner["hard"] = file["contiguous"]
        # One dataset for each kind of chunk index, with and without filters.
        chunked = file.create_group("chunked")
        for name, options in {
            "plain": {},
            "deflate": {"compression": "gzip", "shuffle": True},
            "fletcher": {"fletcher32": True},
        }.items():
            part = data[:60].reshape(10, 6)
            chunked.create_dataset(f"one_{name}", data=part, chunks=(10, 6), **options)
            chunked.create_dataset(f"fixed_{name}", data=part, chunks=(3, 2), **options)
            grows = chunked.create_dataset(
                f"grows_{name}", shape=(80,), maxshape=(None,), chunks=(1,), dtype="<f4", **options
            )
            grows[:] = data[:80]
            chunked.create_dataset(
                f"both_{name}", data=part, maxshape=(None, None), chunks=(2, 2), **options
            )


def write_paged(path, libver):
    """Writes chunk indexes that are long enough for several pages."""
    with h5py.File(path, "w", libver=libver) as file:
        data = np.arange(5000, dtype="<u1")
        file.create_dataset("fixed", data=data[:2100], chunks=(1,))
        grows = file.create_dataset("grows", (5000,), maxshape=(None,), chunks=(1,), dtype="u1")
        grows[:] = data


def write_heaps(path, libver):
    """Writes links and attributes that fill several levels of blocks of a heap."""
    with h5py.File(path, "w", libver=libver) as file:
        group = file.create_group("group")
        target = file.create_dataset("target", data=np.arange(3, dtype="<i8"))
        for index in range(700):
            group[f"{index:04} " + "name " * 10] = target
        for index in range(40):
            target.attrs[f"attribute {index}"] = np.arange(40, dtype="<f8")
        if libver == "latest":
            # Too large for an object header, so it is a huge object of the heap.
            target.attrs["huge"] = np.arange(20000, dtype="<f8")


def write_filtered(path, libver):
    """Writes a few datasets to a small file, so that the flips reach most of its bytes."""
    with h5py.File(path, "w", libver=libver) as file:
        data = np.arange(48, dtype="<f4").reshape(8, 6)
        file.create_dataset("deflate", data=data, chunks=(4, 3), compression="gzip")
        file.create_dataset("scale", data=data.astype("<i4"), chunks=(4, 3), scaleoffset=0)
        file.create_dataset("fill", (6, 4), chunks=(2, 2), dtype="<f4", fillvalue=2.5)[0, 0] = 1


def metadata(path):
    """Returns the offsets of all bytes that are not values of datasets."""
    is_data = bytearray(os.path.getsize(path))
    def mark(offset, size):
        if offset is not None:
            is_data[offset : offset + size] = b"\1" * size
    def visit(_, node):
        if isinstance(node, h5py.Dataset):
            if node.chunks:
                for index in range(node.id.get_num_chunks()):
                    chunk = node.id.get_chunk_info(index)
                    mark(chunk.byte_offset, chunk.size)
            else:
                mark(node.id.get_offset(), node.id.get_storage_size())
    with h5py.File(path) as file:
        file.visititems(visit)
    return [offset for offset, byte in enumerate(is_data) if not byte]


def hashes(path):
    """Reads all objects and attributes with h5py, and returns the hash of each dataset by key."""
    values = {}
    def attributes(node):
        for attribute in list(node.attrs):
            read(lambda: node.attrs[attribute])
    def walk(group, prefix, ancestors):
        for name in list(group):
            raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
            key = prefix + raw.decode("utf-8", "replace")
            hard = group.id.links.get_info(raw).type == h5py.h5l.TYPE_HARD
            try:
                node = high_level(h5py.h5o.open(group.id, raw))
            except KeyError:
                if hard:
                    raise
                continue
            attributes(node)
            if isinstance(node, h5py.Dataset):
                value = read(lambda: np.asarray(node[()]))
                if value is None:
                    values[key] = None
                    continue
                value = value.astype(value.dtype.newbyteorder("<"))
                values[key] = hashlib.sha256(value.tobytes()).hexdigest()
            elif isinstance(node, h5py.Group) and hard and node.id not in ancestors:
                walk(node, key + ".", ancestors + [node.id])
    with h5py.File(path, "r") as file:
        attributes(file)
        walk(file, "", [file.id])
    return values


def high_level(identifier):
    """Returns the high-level object of a low-level identifier."""
    classes = {h5py.h5g.GroupID: h5py.Group, h5py.h5d.DatasetID: h5py.Dataset}
    return classes.get(type(identifier), h5py.Datatype)(identifier)


# Parts of messages: h5py lacks a dtype, or libhdf5 lacks a filter.
NO_DTYPE = [
    "No NumPy equivalent", "Insufficient precision in available types", "not understood",
    "NumPy dtype descriptor requires",
]
NO_FILTER = ["/plugin)", "is not registered"]


def read(value):
    """Calls `value` and returns its result, or None if h5py lacks the dtype or the filter."""
    try:
        return value()
    except (OSError, TypeError, ValueError) as error:
        if any(part in str(error) for part in NO_DTYPE + NO_FILTER):
            return None
        raise


def worker():
    """Reads paths from standard input, and prints the hashes or the error of h5py for each. h5py may crash or need all
    memory."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    for line in sys.stdin:
        try:
            result = {"hashes": hashes(line.strip())}
        except Exception as error:
            result = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)


class Reader:
    """Reads files with h5py in a separate process, and restarts the process if it crashes or hangs."""

    def __init__(self):
        self.process = None

    def read(self, path):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 10)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            self.process.wait()
            self.process = None
            return {"refused": "the process crashed or hung"}
        return json.loads(line)


class Outcome:
    def __init__(self):
        self.counts = {"both read the same": 0, "both refuse": 0, "only statelens refuses": 0}
        self.failures = []


def judge(statelens, path, reader, outcome, title):
    verify = subprocess.run([statelens, "verify", path], capture_output=True, text=True)
    theirs = reader.read(path)
    if verify.returncode not in (0, 1, 2) or "panicked" in verify.stderr:
        outcome.failures.append(f"{title}: verify exited with {verify.returncode}")
    elif verify.returncode:
        result = "both refuse" if "refused" in theirs else "only statelens refuses"
        outcome.counts[result] += 1
    elif "refused" in theirs:
        outcome.failures.append(f"{title}: reported as sound, but h5py fails: {theirs['refused'][:200]}")
    else:
        manifest = subprocess.run([statelens, "manifest", "--json", path], capture_output=True)
        entries = json.loads(manifest.stdout)["entries"]
        ours = {entry["key"]: entry["sha256"] for entry in entries if "sha256" in entry}
        known = {key: value for key, value in theirs["hashes"].items() if value is not None}
        differ = [key for key, value in known.items() if ours.get(key) != value]
        extra = [key for key in ours if key not in theirs["hashes"]]
        if differ or extra:
            outcome.failures.append(f"{title}: reported as sound, but differs at {(differ + extra)[:3]}")
        else:
            outcome.counts["both read the same"] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--statelens")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--flips", type=int, default=40, help="number of flips for each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    if args.worker:
        return worker()
    args.work.mkdir(parents=True, exist_ok=True)
    chance, reader, failed = random.Random(args.seed), Reader(), 0
    writers = {"all": write, "paged": write_paged, "heaps": write_heaps, "filtered": write_filtered}
    for writer, libver in [(w, v) for w in writers for v in ("earliest", "latest")]:
        name = f"{writer}_{libver}"
        if args.only not in name:
            continue
        path = args.work / f"{name}.h5"
        writers[writer](path, libver)
        whole = path.read_bytes()
        outcome = Outcome()
        judge(args.statelens, str(path), reader, outcome, f"{name} without damage")
        if outcome.counts["both read the same"] != 1:
            outcome.failures.append(f"{name}: not read correctly without damage")
        offsets = metadata(path)
        damaged = str(args.work / f"{name}.damaged.h5")
        for offset in chance.sample(offsets, min(args.flips, len(offsets))):
            bit = chance.randrange(8)
            changed = bytearray(whole)
            changed[offset] ^= 1 << bit
            pathlib.Path(damaged).write_bytes(changed)
            judge(args.statelens, damaged, reader, outcome, f"{name}, byte {offset}, bit {bit}")
        pathlib.Path(damaged).unlink(missing_ok=True)
        counts = ", ".join(f"{count} {result}" for result, count in outcome.counts.items())
        print(f"{name}: {len(offsets)} bytes of metadata; {counts}; {len(outcome.failures)} failures", flush=True)
        for failure in outcome.failures:
            print(f"  {failure}")
        failed += len(outcome.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
