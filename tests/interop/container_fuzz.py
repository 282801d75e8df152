"""Fuzzes containers: if a Python reader finds a pickle in a container, `statelens scan` must find it too.

    python container_fuzz.py --statelens BINARY --work FOLDER [--seed N] [--cases N]

Each case is a container with random changes, and with a pickle that names `statelens_marker.run`. The readers are
`tarfile`, `zipfile`, `gzip`, `bz2`, `lzma`, `zlib`, `numpy.load` and, if they are installed, `joblib.load` and
`torch.load(weights_only=False)`. They import no names: each pickle gets an inert object instead. If a reader loads the
marker, the scan of the same file must report it. The exit status is 1 if a scan does not; the script keeps the file.
"""

import argparse
import bz2
import gzip
import io
import json
import lzma
import pickle
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np

try:
    import joblib.numpy_pickle
except ImportError:
    joblib = None
try:
    import torch
except ImportError:
    torch = None

warnings.simplefilter("ignore")
MARKER = "statelens_marker"
BATCH = 400
MOST = 1 << 22
# Address space for readers, in bytes, because a mutated length may be huge.
MEMORY = 2 << 30


class MarkerLoaded(BaseException):
    """A reader loaded the marker."""


class Timeout(BaseException):
    """A reader takes too long. Before Python 3.14, `tarfile` has an infinite loop."""


def raise_timeout(*_):
    raise Timeout


class Inert:
    """Replaces each class and function of a pickle."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return Inert()

    def __setstate__(self, state):
        pass

    def __setitem__(self, key, value):
        pass

    append = extend = __call__


def find_class(module, name):
    if module == MARKER:
        raise MarkerLoaded
    return Inert


class Recorder(pickle._Unpickler):
    def find_class(self, module, name):
        return find_class(module, name)


class Recording:
    """Replaces the module `pickle`."""

    def __getattr__(self, name):
        return getattr(pickle, name)

    Unpickler = Recorder

    @staticmethod
    def load(file, **_):
        return Recorder(file).load()


np.lib._format_impl.pickle = np.lib.format.pickle = Recording()
if joblib:
    original = joblib.numpy_pickle.NumpyUnpickler.find_class

    def find_in_joblib(self, module, name):
        if module.startswith(("numpy", "joblib.numpy_pickle")):
            return original(self, module, name)
        return find_class(module, name)

    joblib.numpy_pickle.NumpyUnpickler.find_class = find_in_joblib
    joblib.numpy_pickle.pickle = Recording()


def payload(rng):
    """Returns a pickle that loads and calls the marker. A search for signatures in all bytes would find the last two."""
    module, name = MARKER.encode(), b"run"
    return rng.choice(
        [
            b"V%s\nV%s\n\x93)R." % (module, name),
            b"X%sX%s\x93)R." % (struct.pack("<I", len(module)) + module, struct.pack("<I", 3) + name),
            b"\x80\x04V%s\nV%s\n\x93)R." % (module, name),
            b"c%s\n%s\n)R." % (module, name),
            b"\x80\x02c%s\n%s\n)R." % (module, name),
        ]
    )


def harmless(rng):
    return pickle.dumps({"a": rng.random(), "b": [1] * rng.randrange(30)}, rng.randrange(6))


# Containers.


def number(rng, value, width):
    """Returns a number in a spelling that `tarfile` accepts in a header."""
    spellings = [
        b"%0*o\0" % (width - 1, value),
        b"%0*o " % (width - 1, value),
        b" %o\0" % value,
        b"\t%o " % value,
        b"0o%o\0" % value,
        b"0O_%o\0" % value,
        b"0_%o\0" % value,
        b"+%o\0" % value,
        b"\x80" + value.to_bytes(width - 1, "big"),
        b"\x1f%o\x0c" % value,
    ]
    text = rng.choice(spellings) if rng.random() < 0.4 else spellings[0]
    return text[:width].ljust(width, b"\0")


def tar_header(rng, name, size, kind, extension=b""):
    header = bytearray(512)
    header[:100] = name[:100].ljust(100, b"\0")
    header[100:108] = b"0000644\0"
    header[124:136] = number(rng, size, 12)
    header[136:148] = number(rng, 0, 12)
    header[156:157] = kind
    if rng.random() < 0.7:
        header[257:265] = rng.choice([b"ustar\x0000", b"ustar  \0"])
    header[386 : 386 + len(extension)] = extension
    total = sum(header[:148]) + sum(header[156:]) + 256
    header[148:156] = number(rng, total, 8)
    return bytes(header)


def padded(data):
    return data + bytes(-len(data) % 512)


def record(key, value):
    body = b" %s=%s\n" % (key, value)
    length = len(body) + 1
    while len(b"%d" % length) + len(body) != length:
        length += 1
    return b"%d%s" % (length, body)


def pax(rng, records):
    data = b"".join(record(key, value) for key, value in records)
    if rng.random() < 0.1:
        data = data.replace(b"=", b"==", 1)
    return tar_header(rng, b"pax", len(data), rng.choice([b"x", b"x", b"X", b"g"])) + padded(data)


def tar(rng, data):
    out = b""
    names = [b"storages", b"tensors", b"pickle", b"sys_info", b"a.pkl", b"w", b"./x", b"d/", b""]
    for at in range(rng.randrange(1, 4)):
        body = data if at == 0 or rng.random() < 0.3 else harmless(rng)
        name = rng.choice(names)
        form = rng.randrange(9)
        if form == 0:
            size = rng.choice([b"%d" % len(body), b"+%d" % len(body), b" 0_%d" % len(body), b"-1", b"x"])
            out += pax(rng, [(b"size", size)])
            out += tar_header(rng, name, rng.choice([0, len(body), 512]), b"0") + padded(body)
        elif form == 1:
            cut = rng.randrange(len(body) + 1)
            hole = rng.choice([0, 512, 7])
            parts = [(0, cut), (cut + hole, len(body) - cut)]
            sparse = b"".join(number(rng, n, 12) for part in parts for n in part).ljust(97, b"\0")
            total = number(rng, len(body) + hole, 12)
            out += tar_header(rng, name, len(body), b"S", sparse + total) + padded(body)
        elif form == 2:
            text = b",".join(b"%d" % n for n in (0, len(body)))
            records = [(b"GNU.sparse.map", text), (b"GNU.sparse.size", b"%d" % len(body))]
            rng.shuffle(records)
            out += pax(rng, records) + tar_header(rng, name, len(body), b"0") + padded(body)
        elif form == 3:
            records = [
                (b"GNU.sparse.size", b"%d" % len(body)),
                (b"GNU.sparse.numblocks", b"1"),
                (b"GNU.sparse.offset", b"0"),
                (b"GNU.sparse.numbytes", b"%d" % len(body)),
            ]
            out += pax(rng, records) + tar_header(rng, name, len(body), b"0") + padded(body)
        elif form == 4:
            table = padded(b"1\n0\n%d\n" % len(body))
            records = [
                (b"GNU.sparse.major", b"1"),
                (b"GNU.sparse.minor", b"0"),
                (b"GNU.sparse.realsize", b"%d" % len(body)),
            ]
            size = len(table) + len(body)
            out += pax(rng, records) + tar_header(rng, name, size, b"0") + table + padded(body)
        elif form == 5:
            long = b"n" * rng.randrange(90, 600) + b"\0"
            out += tar_header(rng, b"././@LongLink", len(long), b"L") + padded(long)
            out += tar_header(rng, name, len(body), b"0") + padded(body)
        elif form == 6:
            # Members of these types have no data, for any size in the header.
            out += tar_header(rng, name, rng.choice([0, 512, 1024]), rng.choice([b"1", b"5", b"2", b"6"]))
            out += tar_header(rng, name, len(body), b"0") + padded(body)
        else:
            out += tar_header(rng, name, len(body), rng.choice([b"0", b"\0", b"7", b"A"])) + padded(body)
    return out + bytes(rng.choice([0, 512, 1024, 10240]))


def zip_archive(rng, data):
    file = io.BytesIO()
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    with zipfile.ZipFile(file, "w", rng.choice(methods)) as archive:
        archive.writestr(rng.choice(["a/data.pkl", "x", "config.json", "w.npy"]), data)
        for at in range(rng.randrange(3)):
            archive.writestr(f"m{at}", harmless(rng), rng.choice(methods))
        if rng.random() < 0.3:
            archive.comment = bytes(rng.randrange(60))
    bytes_ = bytearray(file.getvalue())
    form = rng.randrange(7)
    end = bytes_.rfind(b"PK\5\6")
    size, offset = struct.unpack_from("<II", bytes_, end + 12)
    if form == 0:
        # All offsets are too large by the same amount, which Python accepts.
        shift = rng.randrange(1, 1000)
        at = offset
        while bytes_[at : at + 4] == b"PK\1\2":
            (header,) = struct.unpack_from("<I", bytes_, at + 42)
            struct.pack_into("<I", bytes_, at + 42, header + shift)
            at += 46 + sum(struct.unpack_from("<HHH", bytes_, at + 28))
        struct.pack_into("<I", bytes_, end + 16, offset + shift)
    elif form == 1:
        bytes_[:0] = harmless(rng) + bytes(rng.randrange(100))
    elif form in (2, 3):
        # Two zip64 records. The locator may point to either, or elsewhere.
        good = zip64_record(size, offset)
        other = zip64_record(rng.randrange(200), rng.randrange(200))
        first, second = (good, other) if form == 2 else (other, good)
        at = rng.choice([end, end + 56, rng.randrange(end + 60)])
        locator = b"PK\6\7" + struct.pack("<IQI", 0, at, 1)
        tail = bytes(bytes_[end:])
        if rng.random() < 0.5:
            tail = tail[:12] + b"\xff" * 8 + tail[20:]
        bytes_[end:] = first + second + locator + tail
    elif form == 4:
        bytes_ += bytes_[: rng.randrange(len(bytes_))]
    return bytes(bytes_)


def zip64_record(size, offset):
    return b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, size, offset)


def compressed(rng, data):
    alone = {"format": lzma.FORMAT_ALONE}
    form = rng.randrange(9)
    if form == 0:
        cut = rng.randrange(len(data) + 1)
        pack = rng.choice([gzip.compress, bz2.compress, lzma.compress])
        return pack(data[:cut]) + pack(data[cut:])
    if form == 1:
        cut = rng.randrange(len(data) + 1)
        return lzma.compress(data[:cut]) + lzma.compress(data[cut:], **alone)
    if form == 2:
        cut = rng.randrange(len(data) + 1)
        return lzma.compress(data[:cut], **alone) + lzma.compress(data[cut:], **alone)
    if form == 3:
        props = {"id": lzma.FILTER_LZMA1, "dict_size": rng.choice([4096, 6144, 1 << 16, 3 << 20])}
        props |= {"lc": rng.randrange(4), "lp": rng.randrange(2), "pb": rng.randrange(5)}
        packed = bytearray(lzma.compress(data, filters=[props], **alone))
        if rng.random() < 0.5:
            struct.pack_into("<I", packed, 1, rng.choice([1 << 28, 1 << 30, 0xFFFFFFFF, 0x30000000, 12345]))
        return bytes(packed)
    if form == 4:
        filters = [{"id": lzma.FILTER_DELTA, "dist": rng.randrange(1, 9)}] if rng.random() < 0.5 else []
        filters += [{"id": rng.choice([lzma.FILTER_X86, lzma.FILTER_ARM])}] if rng.random() < 0.3 else []
        filters += [{"id": lzma.FILTER_LZMA2, "preset": rng.randrange(7)}]
        check = rng.choice([lzma.CHECK_NONE, lzma.CHECK_CRC32, lzma.CHECK_CRC64, lzma.CHECK_SHA256])
        return lzma.compress(data, check=check, filters=filters) + bytes(4 * rng.randrange(3))
    if form == 5:
        return zlib.compress(data, rng.randrange(10))
    if form == 6:
        packer = zlib.compressobj(wbits=rng.choice([9, 11, 13, 15, 31]))
        return packer.compress(data) + packer.flush()
    if form == 7 and joblib:
        length = hex(len(data)).encode()
        return b"ZF" + length.ljust(19) + zlib.compress(data)
    return gzip.compress(data) + bytes(rng.randrange(9))


def array(rng, data):
    descr = rng.choice(["'|O'", "'O'", "'|\\x4f'", "'\\117'", "'|' 'O'", "'object'", "[('a', 'O')]", "u'O'", "'<f4'"])
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}"
    text = text + " " * rng.randrange(80) + "\n"
    version = rng.choice([1, 2, 3])
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


def with_arrays(rng, data):
    """Returns a file of joblib with the payload at its end, in some cases after an array wrapper whose state is
    set again."""
    file = io.BytesIO()
    value = [np.arange(rng.randrange(5)), np.array(["ab"] * rng.randrange(3)), {"w": np.zeros(2)}]
    joblib.dump(value[: rng.randrange(1, 4)], file)
    made = file.getvalue()
    body = data[2:-1] if data[:1] == b"\x80" else data[:-1]
    form = rng.randrange(3)
    if form == 0:
        return made[:-1] + b"0" + body + b"."
    where = made.find(b"numpy_array_alignment_bytes")
    built = made.find(b"b", where)
    if form == 1 or built < 0:
        return made + data
    # Sets an empty state for the first object in the memo.
    return made[: built + 1] + made[built + 1 : -1] + b"0h\x00}b" + bytes(rng.randrange(40)) + b"0" + body + b"."


# Names of records that torch's zip reader may accept as the pickle, and names that it must not.
RECORDS = ["data.pkl", "DATA.PKL", "Data.pkl", "constants.pkl", "./data.pkl", "data.pkl/", "a/data.pkl", "data.pkl.bak"]


def torch_file(rng, data):
    """Returns a file of `torch.save` with the payload in place of one of its pickles."""
    file = io.BytesIO()
    weights = {"w": torch.zeros(2), "b": torch.ones(1)}
    if rng.random() < 0.4:
        torch.save(weights, file, _use_new_zipfile_serialization=False)
        made = file.getvalue()
        # Three pickles (magic number, version, system) precede the state dict.
        ends, stream = [], io.BytesIO(made)
        for _ in range(3):
            Recorder(stream).load()
            ends.append(stream.tell())
        at = rng.randrange(3)
        if rng.random() < 0.5:
            return made[: ends[at]] + data
        return made[: ends[at]] + data + made[ends[at] :]
    torch.save(weights, file)
    made = io.BytesIO()
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]
    with zipfile.ZipFile(io.BytesIO(file.getvalue())) as source, zipfile.ZipFile(made, "w") as archive:
        folder = rng.choice(["archive", "a", "é", "data.pkl", "x/y"])
        for name in rng.sample(source.namelist(), len(source.namelist())):
            record = name.split("/", 1)[1]
            body = source.read(name)
            if record == "data.pkl":
                form = rng.randrange(3)
                body = data if form < 2 else body
                if form == 2:
                    archive.writestr(f"{folder}/{rng.choice(RECORDS)}", data, rng.choice(methods))
                if form == 1:
                    record = rng.choice(RECORDS[:3])
            archive.writestr(f"{folder}/{record}", body, rng.choice(methods))
    return made.getvalue()


def container(rng, data):
    kinds = [tar, tar, zip_archive, zip_archive, compressed, compressed, array]
    if joblib:
        kinds.append(with_arrays)
    if torch:
        kinds += [torch_file, torch_file]
    made = rng.choice(kinds)(rng, data)
    if rng.random() < 0.25:
        made = rng.choice([tar, zip_archive, compressed])(rng, made)
    if rng.random() < 0.3:
        made = mutated(rng, made)
    return made


def mutated(rng, data):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        form = rng.randrange(4)
        if form == 0 and at < len(data):
            data[at] = rng.choice([0, 0xFF, data[at] ^ 1 << rng.randrange(8), rng.randrange(256)])
        elif form == 1:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 5)))
        elif form == 2:
            del data[at : at + rng.randrange(1, 5)]
        else:
            size = rng.choice([1, 16, 512])
            data[at:at] = data[at : at + size]
    return bytes(data)


# Readers.


def unpickle(file):
    for _ in range(6):
        Recorder(file).load()


def by_tar(data):
    for mode in ("r:", "r:*"):
        with tarfile.open(fileobj=io.BytesIO(data), mode=mode) as archive:
            for member in archive:
                attempt(lambda member=member: each_member(archive.extractfile(member)))


def each_member(file):
    data = file.read(MOST)
    attempt(lambda: unpickle(io.BytesIO(data)))
    for reader in (by_zip, *STREAMS, by_numpy):
        attempt(lambda reader=reader: reader(data))


def by_zip(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            attempt(lambda info=info: each_member(archive.open(info)))


def by_numpy(data):
    loaded = np.load(io.BytesIO(data), allow_pickle=True)
    for name in getattr(loaded, "files", []):
        attempt(lambda name=name: loaded[name])


def stream(open_it):
    def read(data):
        attempt(lambda: unpickle(open_it(io.BytesIO(data))))
        attempt(lambda: by_numpy(open_it(io.BytesIO(data)).read(MOST)))

    return read


STREAMS = [
    stream(lambda file: gzip.GzipFile(fileobj=file)),
    stream(bz2.BZ2File),
    stream(lzma.LZMAFile),
    stream(lambda file: lzma.LZMAFile(file, format=lzma.FORMAT_ALONE)),
    stream(lambda file: io.BytesIO(zlib.decompressobj().decompress(file.read(), MOST))),
]


def by_joblib(data):
    if joblib:
        joblib.load(io.BytesIO(data))


def by_torch(data):
    if torch:
        torch.load(io.BytesIO(data), map_location="cpu", weights_only=False, pickle_module=Recording())


def attempt(read):
    try:
        read()
    except Exception:
        pass


def reader_of_marker(data):
    """Returns the name of the first reader that loads the marker, or None."""
    readers = {
        "pickle": lambda data: unpickle(io.BytesIO(data)),
        "tarfile": by_tar,
        "zipfile": by_zip,
        "numpy": by_numpy,
        "joblib": by_joblib,
        "torch": by_torch,
    }
    readers |= {f"stream {at}": read for at, read in enumerate(STREAMS)}
    for name, read in readers.items():
        signal.alarm(3)
        try:
            attempt(lambda read=read: read(data))
        except MarkerLoaded:
            return name
        except Timeout:
            pass
        finally:
            signal.alarm(0)
    return None


def address_space():
    """Returns the size of the process's address space in bytes. The libraries of torch alone may need gigabytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1200)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, raise_timeout)
    rng = random.Random(options.seed)
    loaded, missed, done = {}, 0, 0
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    while done < options.cases:
        count = min(BATCH, options.cases - done)
        with tempfile.TemporaryDirectory() as folder:
            expected = {}
            resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY, unlimited[1]))
            for at in range(count):
                data = container(rng, payload(rng))
                path = Path(folder, f"{at}{rng.choice(['.pt', '.bin', '.joblib', '.nemo', '.npy', ''])}")
                path.write_bytes(data)
                reader = reader_of_marker(data)
                if reader:
                    loaded[reader] = loaded.get(reader, 0) + 1
                    expected[str(path)] = reader
            resource.setrlimit(resource.RLIMIT_AS, unlimited)
            process = subprocess.run(
                [options.statelens, "scan", "--json", folder], capture_output=True, text=True, timeout=1800
            )
            lines = [json.loads(line) for line in process.stdout.splitlines()]
            if len(lines) != count:
                sys.exit(f"{len(lines)} reports for {count} files: {process.stderr[-2000:]}")
            for line in lines:
                bad = line["worst"] in ("damage", "unknown code", "danger")
                # A truncated pickle that only loads the name is a warning with the name of the module.
                bad = bad or any(MARKER in finding["title"] for finding in line["findings"])
                path = Path(line["path"])
                if str(path) in expected and not bad:
                    missed += 1
                    options.work.mkdir(parents=True, exist_ok=True)
                    kept = options.work / f"{options.seed}_{done}_{path.name}"
                    shutil.copy(path, kept)
                    print(f"missed, but loaded by {expected[str(path)]}: {kept}", flush=True)
        done += count
    print(f"{done} containers, seed {options.seed}: readers loaded {sum(loaded.values())} {loaded}, scan missed {missed}")
    return 1 if missed or not loaded else 0


if __name__ == "__main__":
    sys.exit(main())
