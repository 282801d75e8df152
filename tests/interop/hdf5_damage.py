"""Flips bits of HDF5 files where libhdf5 keeps its own notes, and compares the verdicts.

Where libhdf5 refuses a file, or can't list or read something in it, `statelens verify` must not
call it sound; where both read it, both must read the same datasets. Files are written here, in the
oldest and in the latest layout of libhdf5, with every kind of index that it has. The oldest layout
has no checksums, so that each field has to be checked for itself.

What is refused by h5py or by its surroundings, and not by libhdf5, is no damage:

- A soft link may lead nowhere.
- A name need not be UTF-8. h5py lists such a name as bytes and does not find it: it is opened by a
  lower function here.
- h5py has no dtype for every datatype: not for times, and not for floats of unusual parts.
- A filter that is not installed here may be installed elsewhere. Its number next to the name of
  another filter is damage.
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
    """A file with every structure that libhdf5 has an index or a heap for."""
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
        # One dataset for each kind of chunk index, with filters and without.
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
    """Chunk indexes that are so long that they are cut into pages."""
    with h5py.File(path, "w", libver=libver) as file:
        data = np.arange(5000, dtype="<u1")
        file.create_dataset("fixed", data=data[:2100], chunks=(1,))
        grows = file.create_dataset("grows", (5000,), maxshape=(None,), chunks=(1,), dtype="u1")
        grows[:] = data


def write_heaps(path, libver):
    """Links and attributes that fill several levels of a heap's blocks."""
    with h5py.File(path, "w", libver=libver) as file:
        group = file.create_group("group")
        target = file.create_dataset("target", data=np.arange(3, dtype="<i8"))
        for index in range(700):
            group[f"{index:04} " + "name " * 10] = target
        for index in range(40):
            target.attrs[f"attribute {index}"] = np.arange(40, dtype="<f8")
        if libver == "latest":
            # Larger than what a header takes: a huge object of the heap.
            target.attrs["huge"] = np.arange(20000, dtype="<f8")


def write_filtered(path, libver):
    """A few datasets in a small file, so that each byte of it comes up."""
    with h5py.File(path, "w", libver=libver) as file:
        data = np.arange(48, dtype="<f4").reshape(8, 6)
        file.create_dataset("deflate", data=data, chunks=(4, 3), compression="gzip")
        file.create_dataset("scale", data=data.astype("<i4"), chunks=(4, 3), scaleoffset=0)
        file.create_dataset("fill", (6, 4), chunks=(2, 2), dtype="<f4", fillvalue=2.5)[0, 0] = 1


def metadata(path):
    """The bytes that are not data of datasets."""
    taken = bytearray(os.path.getsize(path))
    def mark(offset, size):
        if offset is not None:
            taken[offset : offset + size] = b"\1" * size
    def visit(_, one):
        if isinstance(one, h5py.Dataset):
            if one.chunks:
                for index in range(one.id.get_num_chunks()):
                    chunk = one.id.get_chunk_info(index)
                    mark(chunk.byte_offset, chunk.size)
            else:
                mark(one.id.get_offset(), one.id.get_storage_size())
    with h5py.File(path) as file:
        file.visititems(visit)
    return [at for at, byte in enumerate(taken) if not byte]


def look(path):
    """What h5py reads: for each dataset of numbers dtype, shape and hash."""
    found = {}
    def attributes(one):
        for attribute in list(one.attrs):
            read(lambda: one.attrs[attribute])
    def walk(group, prefix, above):
        for name in list(group):
            raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
            key = prefix + raw.decode("utf-8", "replace")
            hard = group.id.links.get_info(raw).type == h5py.h5l.TYPE_HARD
            try:
                one = opened(h5py.h5o.open(group.id, raw))
            except KeyError:
                if hard:
                    raise
                continue
            attributes(one)
            if isinstance(one, h5py.Dataset):
                value = read(lambda: np.asarray(one[()]))
                if value is None:
                    found[key] = None
                    continue
                value = value.astype(value.dtype.newbyteorder("<"))
                found[key] = hashlib.sha256(value.tobytes()).hexdigest()
            elif isinstance(one, h5py.Group) and hard and one.id not in above:
                walk(one, key + ".", above + [one.id])
    with h5py.File(path, "r") as file:
        attributes(file)
        walk(file, "", [file.id])
    return found


def opened(one):
    kinds = {h5py.h5g.GroupID: h5py.Group, h5py.h5d.DatasetID: h5py.Dataset}
    return kinds.get(type(one), h5py.Datatype)(one)


# What h5py says where it has no dtype, and libhdf5 where a filter is not installed.
NO_DTYPE = [
    "No NumPy equivalent", "Insufficient precision in available types", "not understood",
    "NumPy dtype descriptor requires",
]
NO_FILTER = ["/plugin)", "is not registered"]


def read(value):
    """A value; none if h5py has no dtype for it, or no filter."""
    try:
        return value()
    except (OSError, TypeError, ValueError) as error:
        if any(known in str(error) for known in NO_DTYPE + NO_FILTER):
            return None
        raise


def worker():
    """Reads paths, prints what h5py makes of each; it may die of one, or want all memory."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    for line in sys.stdin:
        try:
            answer = {"found": look(line.strip())}
        except Exception as error:
            answer = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


class Reader:
    """h5py in a process of its own, started again when it dies or hangs."""

    def __init__(self):
        self.process = None

    def ask(self, path):
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
            return {"refused": "the process died or hung"}
        return json.loads(line)


class Outcome:
    def __init__(self):
        self.counts = {"both read the same": 0, "both refuse": 0, "only statelens objects": 0}
        self.failures = []


def judge(statelens, path, reader, outcome, what):
    verified = subprocess.run([statelens, "verify", path], capture_output=True, text=True)
    theirs = reader.ask(path)
    if verified.returncode not in (0, 1, 2) or "panicked" in verified.stderr:
        outcome.failures.append(f"{what}: verify ended with {verified.returncode}")
    elif verified.returncode:
        either = "both refuse" if "refused" in theirs else "only statelens objects"
        outcome.counts[either] += 1
    elif "refused" in theirs:
        outcome.failures.append(f"{what}: called sound, but h5py says {theirs['refused'][:200]}")
    else:
        listed = subprocess.run([statelens, "manifest", "--json", path], capture_output=True)
        entries = json.loads(listed.stdout)["entries"]
        ours = {entry["key"]: entry["sha256"] for entry in entries if "sha256" in entry}
        known = {key: value for key, value in theirs["found"].items() if value is not None}
        differ = [key for key, value in known.items() if ours.get(key) != value]
        more = [key for key in ours if key not in theirs["found"]]
        if differ or more:
            outcome.failures.append(f"{what}: called sound, differs at {(differ + more)[:3]}")
        else:
            outcome.counts["both read the same"] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--statelens")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--flips", type=int, default=40, help="of each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    if args.worker:
        return worker()
    args.work.mkdir(parents=True, exist_ok=True)
    chance, reader, failed = random.Random(args.seed), Reader(), 0
    makers = {"all": write, "paged": write_paged, "heaps": write_heaps, "filtered": write_filtered}
    for maker, libver in [(m, v) for m in makers for v in ("earliest", "latest")]:
        name = f"{maker}_{libver}"
        if args.only not in name:
            continue
        path = args.work / f"{name}.h5"
        makers[maker](path, libver)
        whole = path.read_bytes()
        outcome = Outcome()
        judge(args.statelens, str(path), reader, outcome, f"{name} as it was written")
        if outcome.counts["both read the same"] != 1:
            outcome.failures.append(f"{name}: not read as it was written")
        places = metadata(path)
        damaged = str(args.work / f"{name}.damaged.h5")
        for at in chance.sample(places, min(args.flips, len(places))):
            bit = chance.randrange(8)
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            pathlib.Path(damaged).write_bytes(changed)
            what = f"{name}, byte {at}, bit {bit}"
            judge(args.statelens, damaged, reader, outcome, what)
        pathlib.Path(damaged).unlink(missing_ok=True)
        counts = ", ".join(f"{count} {what}" for what, count in outcome.counts.items())
        print(f"{name}: {len(places)} bytes of metadata; {counts}; {len(outcome.failures)} failures", flush=True)
        for failure in outcome.failures:
            print(f"  {failure}")
        failed += len(outcome.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
