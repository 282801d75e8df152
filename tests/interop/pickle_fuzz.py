"""Compares `scan` with CPython's unpicklers on random pickles.

    python pickle_fuzz.py --batch PROGRAM [--seconds N] [--cases N] [--seed N] [--python PYTHON ...]

Each case runs in `pickle._Unpickler` (in Python) and `pickle.Unpickler` (in C) of each PYTHON. Their `find_class` imports
nothing: it records the name and returns an inert class, which records the calls of the class and the changes of its
objects. PROGRAM is the example `scan_batch` of `statelens-formats`. If `scan` would exit with 0, a case is a difference if

- an unpickler looks up a name (not an empty one) that `scan` does not list as harmless or in a warning, or
- an unpickler calls a function or changes an object, and `scan` has no record of it with the same arguments.

The exit status is 1 if there are differences. Differing cases are printed after they have been shorten as far as
possible.
"""

import argparse
import copyreg
import io
import json
import pickle
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import time
import warnings
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
# The maximum length of fixtures in bytes, because longer ones are slow.
LONGEST = 3000
SHOWN = 20
MEMORY = 1 << 30


def main():
    options = arguments()
    if options.worker:
        return work(options)
    pythons = options.python or [sys.executable]
    seconds = options.seconds / len(pythons)
    failed = 0
    for number, python in enumerate(pythons):
        command = [python, __file__, "--worker", "--batch", options.batch, "--seconds", str(seconds)]
        command += ["--seed", str(options.seed + number), "--cases", str(options.cases)]
        failed |= subprocess.run(command).returncode
    return failed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", required=True)
    parser.add_argument("--work", help="ignored, because this script writes no files")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--cases", type=int, default=0, help="number of cases (0: until the time is over)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", nargs="*", default=[])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# Unpicklers


class Trace:
    """The names and calls of one unpickler."""

    def __init__(self):
        self.names = set()
        self.calls = set()
        self.extension = False


TRACE = Trace()
# Tuples that are nested more deeply, and longer tuples inside others, are abbreviated.
DEEPEST, WIDEST = 4, 8


def canon(value, depth=0):
    """Returns the text of a value in the form of `scan_batch`."""
    kind = type(value)
    if value is None:
        return "N"
    if kind in (bool, int):
        return str(int(value)) if -(1 << 63) <= value < 1 << 63 else "big"
    if kind is float:
        return "nan" if value != value else "f" + struct.pack(">d", value).hex()
    if kind is str:
        return "t" + value.encode("utf-8", "surrogatepass").hex()
    if kind is bytes:
        return "t" + value.hex()
    if kind is tuple:
        if depth == DEEPEST or depth and len(value) > WIDEST:
            return "(...)"
        return "(" + ",".join(canon(item, depth + 1) for item in value) + ")"
    if kind in (bytearray, list, dict, set, frozenset):
        return kind.__name__
    if isinstance(value, Meta):
        return "e" if value.extension else f"g:{value.names[0]}:{value.names[1]}"
    if isinstance(value, Inert):
        return value.__dict__.get("kind", "o")
    if kind is memoryview:
        return "b"
    return f"?{kind.__name__}"


class RecordedMethod:
    """A method of a class or of its objects that only records its calls."""

    def __init__(self, verb, many=False):
        self.verb, self.many = verb, many

    def __get__(self, instance, owner):
        target = canon(owner if instance is None else instance)

        def record(*args):
            for group in [(item,) for item in args[0]] if self.many else [args]:
                TRACE.calls.add(" ".join([self.verb, target, *map(canon, group)]))

        return record


class Inert:
    """A placeholder for an object. It records changes, but they have no effect."""

    append = add = RecordedMethod("add")
    extend = update = RecordedMethod("add", True)
    __setstate__ = RecordedMethod("build")

    def __setitem__(self, key, value):
        TRACE.calls.add(f"set {canon(self)} {canon(key)} {canon(value)}")

    def __call__(self, *args):
        TRACE.calls.add(f"make {canon(self)} {canon(args)}")
        return Inert()

    def __iter__(self):
        return iter(())

    def __reduce_ex__(self, protocol):
        raise TypeError


class Meta(type):
    """The metaclass of placeholders for classes and functions."""

    names, extension = ("", ""), False

    def __call__(cls, *args, **kwargs):
        TRACE.calls.add(f"make {canon(cls)} {canon(args)}")
        return object.__new__(cls)

    def __setitem__(cls, key, value):
        TRACE.calls.add(f"set {canon(cls)} {canon(key)} {canon(value)}")

    def __iter__(cls):
        return iter(())


def new(cls, *args, **kwargs):
    TRACE.calls.add(f"make {canon(cls)} {canon(args)}")
    return object.__new__(cls)


PLACEHOLDERS = {}


def placeholder(module, name, extension=False):
    key = (module, name, extension)
    if key not in PLACEHOLDERS:
        if len(PLACEHOLDERS) > 20_000:
            PLACEHOLDERS.clear()
        cls = Meta("Placeholder", (Inert,), {"__new__": new})
        type.__setattr__(cls, "names", (module, name))
        type.__setattr__(cls, "extension", extension)
        PLACEHOLDERS[key] = cls
    return PLACEHOLDERS[key]


def special(kind):
    value = object.__new__(Inert)
    value.__dict__["kind"] = kind
    return value


# Extension codes as a program registers them. A pickle refers to them by number only.
REGISTERED = {1: ("registered", "first"), 2: ("registered", "second"), 300: ("registered", "third")}
for code, names in REGISTERED.items():
    copyreg.add_extension(*names, code)


def python3_name(module, name):
    if (module, name) in NAME_MAPPING:
        return NAME_MAPPING[module, name]
    # Python 3 does not have this module. `scan` treats its names as those of `builtins`.
    if module == "exceptions":
        return "builtins", name
    return IMPORT_MAPPING.get(module, module), name


class Pure(pickle._Unpickler):
    def find_class(self, module, name):
        if module == "registered":
            return placeholder(module, name, True)
        if self.proto < 3 and self.fix_imports:
            module, name = python3_name(module, name)
        TRACE.names.add((module, name))
        return placeholder(module, name)

    def persistent_load(self, pid):
        return special("p")

    def load_inst(self):
        # Without a mark it imports a module, which is installed anyway, and fails before it calls anything.
        if not self.metastack:
            raise pickle.UnpicklingError("no mark")
        super().load_inst()

    dispatch = {**pickle._Unpickler.dispatch, pickle.INST[0]: load_inst}


class Fast(pickle.Unpickler):
    mapped = False

    def find_class(self, module, name):
        if module == "registered":
            return placeholder(module, name, True)
        # The unpickler in C does not expose the protocol.
        if self.mapped:
            module, name = python3_name(module, name)
        TRACE.names.add((module, name))
        return placeholder(module, name)

    def persistent_load(self, pid):
        return special("p")


class FastMapped(Fast):
    mapped = True


def run(unpickler, data, encoding, buffers):
    """Loads up to three consecutive pickles of a file, and returns the trace of the unpickler."""
    global TRACE
    TRACE = Trace()
    file = io.BytesIO(data)
    copyreg._extension_cache.clear()
    # A limit of CPU time, which does not depend on other programs.
    signal.setitimer(signal.ITIMER_VIRTUAL, 10)
    try:
        for _ in range(3):
            views = [memoryview(bytearray(b"one")), memoryview(b"two")]
            buffer = iter(views) if buffers else None
            unpickler(file, encoding=encoding, buffers=buffer).load()
    except Exception:
        pass
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return TRACE


# Cases

HARMLESS = [
    ("collections", "OrderedDict"), ("torch._utils", "_rebuild_tensor_v2"), ("torch", "FloatStorage"),
    ("builtins", "set"), ("__builtin__", "set"), ("datetime", "date"), ("_codecs", "encode"),
    ("torch", "float32"), ("torch", "Size"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"), ("numpy.core.multiarray", "scalar"), ("collections", "defaultdict"),
    ("builtins", "complex"), ("argparse", "Namespace"), ("builtins", "bytearray"), ("__builtin__", "xrange"),
    ("torch.nn.parameter", "Parameter"), ("torch._utils", "_rebuild_parameter"), ("pathlib", "PosixPath"),
]
OTHERS = [
    ("os", "system"), ("posix", "system"), ("builtins", "eval"), ("__builtin__", "eval"), ("mymodel", "Net"),
    ("nt", "x"), ("a.b", "c.d"), ("exceptions", "ValueError"), ("copy_reg", "_reconstructor"), ("é", "ü"),
    ("functools", "partial"), ("getattr", ""), ("", "x"), ("os", "path"),
]

INTEGERS = [
    b"0", b"1", b"00", b"01", b"-1", b"0x1f", b"0X_f", b"0o17", b"0b11", b"1_0", b"017", b"08", b" 7", b"7 ",
    b"\x0b7", b"+3", b"", b"1__0", b"_1", b"12\x00x", b"\x00", b"99999999999999999999", b"1L", b"0L", b"1.0",
    b"-0x80", b"00000", b"0_0", b"1" * 4300, b"1" * 4301, b"0x" + b"f" * 50, "١".encode(), b"- 1", b"\r1\r",
]
FLOATS = [
    b"1.5", b" 1.5", b"1.5 ", b"1_0.5", b"nan", b"-NaN", b"inf", b"-Infinity", b"1e5", b"1e999", b".5", b"5.",
    b"", b".", b"1.5\x00x", b"0x10", b"1,5", b"1_", b"infinit", b"1e", b"\x0b2",
]
STRINGS = [
    b"'a'", b'"a"', b"'a", b"a", b"''", b"'", b"'\\x41'", b"'\\x4'", b"'\\101\\400'", b"'\\q'", b"'\\'", b"'\\\\'",
    b"'\xe9'", b"'os'", b"'system'", b"'a' ", b"\"'\"", b"'\\n\\t'", b"'\\N'",
]
UNICODES = [
    b"os", b"system", b"collections", b"OrderedDict", b"", b"\\u006fs", b"\\\\u006fs", b"\\U0000006fs", b"\\", b"\\u12",
    b"\\ud800", b"\xe9", b"\\n", b"\\U00110000", b"a\\", b"\\\\\\u006f",
]


def names(rng):
    return rng.choice(HARMLESS if rng.random() < 0.7 else OTHERS)


def encoded(rng, text, kinds="XVU8"):
    """Returns an opcode that creates a `str`."""
    data = text.encode("utf-8", "surrogatepass")
    kind = rng.choice(kinds)
    if kind == "V" and "\n" not in text:
        return b"V" + text.encode("raw-unicode-escape", "replace") + b"\n"
    if kind == "U" and len(data) < 256:
        return b"\x8c" + bytes([len(data)]) + data
    if kind == "8":
        return b"\x8d" + struct.pack("<Q", len(data)) + data
    if kind == "S" and data.isalnum():
        return b"S'" + data + b"'\n"
    return b"X" + struct.pack("<I", len(data)) + data


def scalar(rng):
    kind = rng.randrange(17)
    if kind == 0:
        return b"N"
    if kind == 1:
        return rng.choice([b"\x88", b"\x89", b"I01\n", b"I00\n"])
    if kind == 2:
        return b"K" + bytes([rng.randrange(256)])
    if kind == 3:
        return b"M" + rng.randbytes(2) if hasattr(rng, "randbytes") else b"M\x01\x00"
    if kind == 4:
        return b"J" + struct.pack("<i", rng.randrange(-5, 70000))
    if kind == 5:
        return b"I" + rng.choice(INTEGERS) + b"\n"
    if kind == 6:
        return b"L" + rng.choice(INTEGERS) + rng.choice([b"", b"L"]) + b"\n"
    if kind == 7:
        data = bytes(rng.randrange(256) for _ in range(rng.randrange(4)))
        return b"\x8a" + bytes([len(data)]) + data
    if kind == 8:
        data = bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 9, 300])))
        return b"\x8b" + struct.pack("<i", len(data)) + data
    if kind == 9:
        return b"F" + rng.choice(FLOATS) + b"\n"
    if kind == 10:
        return b"G" + struct.pack(">d", rng.choice([0.0, 1.5, -1e300, float("inf")]))
    if kind == 11:
        return b"S" + rng.choice(STRINGS) + b"\n"
    if kind == 12:
        return b"V" + rng.choice(UNICODES) + b"\n"
    if kind == 13:
        data = rng.choice([b"", b"a", b"os", b"\xff\xfe"])
        return rng.choice([
            b"T" + struct.pack("<i", len(data)) + data, b"U" + bytes([len(data)]) + data,
            b"B" + struct.pack("<I", len(data)) + data, b"C" + bytes([len(data)]) + data,
            b"\x8e" + struct.pack("<Q", len(data)) + data, b"\x96" + struct.pack("<Q", len(data)) + data,
        ])
    if kind == 14:
        return rng.choice([b"\x97", b"\x97\x98", b"Pa\n", b"P\xe9\n", b"NQ", b")Q"])
    if kind == 15:
        return rng.choice([b"\x82\x01", b"\x83\x2c\x01", b"\x84\x02\x00\x00\x00", b"\x82\x09", b"\x84\xff\xff\xff\xff", b"\x82\x00"])
    return encoded(rng, rng.choice(names(rng)), "XVU8S")


def named(rng):
    module, name = names(rng)
    if rng.random() < 0.4:
        return b"c" + module.encode() + b"\n" + name.encode() + b"\n"
    between = rng.choice([b"", b"", b"\x94", b"q\x05", b"N0", b"(1", b"20", b"\x95" + struct.pack("<Q", 3)])
    kinds = "XVU8S" if rng.random() < 0.2 else "XVU8"
    return encoded(rng, module, kinds) + between + encoded(rng, name, kinds) + b"\x93"


def value(rng, depth=0):
    """Returns opcodes that push one value on the stack."""
    roll = rng.random()
    if depth > 4 or roll < 0.45:
        return scalar(rng)
    inner = lambda: value(rng, depth + 1)
    many = lambda most=3: b"".join(inner() for _ in range(rng.randrange(most + 1)))
    if roll < 0.55:
        return named(rng)
    if roll < 0.63:
        return rng.choice([
            lambda: b")", lambda: b"(" + many() + b"t", lambda: inner() + b"\x85",
            lambda: inner() + inner() + b"\x86", lambda: inner() + inner() + inner() + b"\x87",
            lambda: b"(" + many() + b"l", lambda: b"(" + many() + b"\x91", lambda: b"(" + inner() + inner() + b"d",
        ])()
    if roll < 0.75:
        return rng.choice([b"]", b"}", b"\x8f"]) + change(rng, depth)
    if roll < 0.93:
        args = rng.choice([lambda: b")", lambda: b"(" + many() + b"t", lambda: inner() + b"\x85", inner])()
        call = rng.choice([
            lambda: named(rng) + args + b"R", lambda: named(rng) + args + b"\x81",
            lambda: named(rng) + args + b"}\x92", lambda: b"(" + named(rng) + many() + b"o",
            lambda: b"(" + many() + b"i" + "\n".join(names(rng)).encode() + b"\n",
            lambda: inner() + args + b"R",
        ])()
        return call + (change(rng, depth) if rng.random() < 0.4 else b"")
    return inner() + change(rng, depth)


def change(rng, depth):
    """Returns opcodes that change the value on top of the stack, or no opcodes."""
    inner = lambda: value(rng, depth + 1)
    many = lambda: b"".join(inner() for _ in range(rng.randrange(3)))
    return rng.choice([
        lambda: b"", lambda: inner() + b"a", lambda: b"(" + many() + b"e", lambda: inner() + inner() + b"s",
        lambda: b"(" + inner() + inner() + b"u", lambda: b"(" + many() + b"u", lambda: b"(" + many() + b"\x90",
        lambda: inner() + b"b", lambda: b"}b", lambda: b"N" + inner() + b"\x86b", memo_opcodes(rng),
        lambda: inner() + b"0", lambda: b"(0", lambda: b"(" + many() + b"1", lambda: b"20", lambda: b"2a",
    ])()


def memo_opcodes(rng):
    index = rng.randrange(6)
    text = rng.choice([b"%d", b"0%d", b" %d ", b"+%d", b"%d\x00x", b"-%d", b"9999999999999999999999%d"]) % index
    return lambda: rng.choice([
        b"\x94", b"q" + bytes([index]), b"r" + struct.pack("<I", index), b"p" + text + b"\n",
        b"h" + bytes([index]) + b"0", b"q%c0h%c" % (index, index), b"p" + text + b"\n0g" + text + b"\n",
    ])


def framed(rng, body):
    kind = rng.random()
    if kind < 0.6:
        return body
    cut = rng.randrange(len(body) + 1)
    length = max(0, len(body) - cut + rng.choice([0, 0, 0, 1, -1, 5, 1 << 40]))
    return body[:cut] + b"\x95" + struct.pack("<Q", length) + body[cut:]


def generated(rng):
    start = rng.choice([b"", b"", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x80\x06", b"\x80\x00"])
    body = b"".join(value(rng) + rng.choice([b"", b"0"]) for _ in range(rng.randrange(4))) + value(rng)
    return start + framed(rng, body + rng.choice([b".", b".", b".", b".", b""]))


OPCODES = b"(.012FIJKLMNPQRSTUVXabcd}eghij]lopqrst)uGBC" + bytes(range(0x80, 0x99))


def mutated(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = bytes([rng.choice(OPCODES)])
        elif kind == 2:
            del data[at : at + rng.choice([1, 1, 2, 5])]
        elif kind == 3:
            data[at:at] = value(rng, 3)
        elif kind == 4 and at < len(data):
            data[at] = rng.choice(OPCODES)
        elif kind == 5:
            other = rng.randrange(len(data) + 1)
            data[at:at] = data[other : other + rng.randrange(12)]
        elif kind == 6:
            del data[at:]
        elif at < len(data):
            data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


def corpus():
    """Returns pickles from the fixtures, and pickles of values of all kinds."""
    pickles = []
    for path in sorted(FIXTURES.rglob("*")):
        # Python needs exponential time to hash nested tuples with shared items.
        if not path.is_file() or "laughs" in path.name or path.suffix in (".json", ".md", ".tsv", ".py"):
            continue
        data = path.read_bytes()
        if data[:2] == b"PK":
            try:
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    members = [name for name in archive.namelist() if name.endswith(".pkl")]
                    pickles += [archive.read(name) for name in members]
            except Exception:
                continue
        elif data[:1] == b"\x80" or path.suffix in (".pkl", ".bin", ".pt"):
            pickles.append(data)
    values = [
        None, [1, -5, 1 << 70, 1.5], {"a": (1, "é", b"x"), "b": {2, 3}}, [True, frozenset([1])],
        bytearray(b"ab"), "x" * 300, [[]] * 3, {1: {2: {3: []}}}, list(range(300)),
    ]
    pickles += [pickle.dumps(value, protocol) for value in values for protocol in range(6)]
    return [data for data in pickles if 0 < len(data) <= LONGEST]


def cases(rng):
    seeds = corpus()
    while True:
        roll = rng.random()
        if roll < 0.4:
            case = generated(rng)
        elif roll < 0.55:
            case = mutated(rng, generated(rng))
        else:
            case = mutated(rng, rng.choice(seeds))
        if rng.random() < 0.1:
            case = rng.choice([b"\x80\x02N.", b"N.", b"}.", b"\x80\x04]\x94."]) + case
        yield case


# Comparison


class Batch:
    """A running process of the example `scan_batch`."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def scan(self, data):
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"scan_batch exited at {data.hex()}")
        return None if line == b"1\n" else json.loads(line)


class ScanReport:
    """The names and calls that `scan` recorded."""

    def __init__(self, report):
        self.harmless = {(module, name) for module, name, harmless in report["names"] if harmless}
        self.titles = "\n".join(report["titles"])
        self.calls = set(report["calls"])
        # Calls whose arguments are not a tuple are compare without arguments.
        self.any = {call.rsplit(" ", 1)[0] for call in self.calls if call.endswith(" *")}
        self.bare = {call for call in self.calls if call.count(" ") == 1}

    def difference(self, trace):
        """Returns the first name or call of a trace that `scan` did not record, or None."""
        for module, name in trace.names:
            # Python can't import a module with an invalid name.
            if not re.fullmatch(r"[\w.-]+", module):
                continue
            # The unpickler in Python imports an installed module before it fails, and calls nothing.
            if not name:
                continue
            if (module, name) not in self.harmless and f"`{module}`" not in self.titles:
                return f"the name {module}.{name}"
        for call in trace.calls - self.calls:
            head = call.rsplit(" ", 1)[0]
            if head not in self.any and not any(call.startswith(bare + " ") for bare in self.bare):
                return f"the call {call}"
        return None


def compare(batch, data, options):
    """Returns the first difference of the unpicklers from `scan`, or None; and whether `scan` would exit with 0."""
    report = batch.scan(data)
    if report is None:
        return None, False
    report = ScanReport(report)
    encoding, buffers = options
    pure = report.difference(run(Pure, data, encoding, buffers))
    # The protocol is unknown in C, so compare with all names mapped to Python 3, and with no names mapped.
    fast = report.difference(run(Fast, data, encoding, buffers))
    if fast is not None and report.difference(run(FastMapped, data, encoding, buffers)) is None:
        fast = None
    return pure or fast and f"{fast} (in C)", True


def too_slow(*_):
    raise TimeoutError


def shorten(batch, data, options):
    """Removes bytes from a case as long as it has a difference."""
    size = max(1, len(data) // 2)
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            if compare(batch, shorter, options)[0]:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def work(options):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.setrecursionlimit(2000)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGVTALRM, too_slow)
    rng = random.Random(options.seed)
    batch = Batch(options.batch)
    start, done, harmless, named_cases, differences = time.monotonic(), 0, 0, 0, []
    for case in cases(rng):
        if options.cases and done >= options.cases:
            break
        if done % 64 == 0 and time.monotonic() - start > options.seconds:
            break
        unpickler_options = (rng.choice(["ASCII", "ASCII", "utf-8", "bytes"]), rng.random() < 0.3)
        difference, is_harmless = compare(batch, case, unpickler_options)
        done += 1
        harmless += is_harmless
        named_cases += bool(is_harmless and TRACE.names)
        if difference:
            short = shorten(batch, case, unpickler_options)
            difference = compare(batch, short, unpickler_options)[0]
            if not any(known == difference for known, _ in differences):
                differences.append((difference, short))
                print(f"{difference}: {short!r} {unpickler_options}", flush=True)
            if len(differences) >= SHOWN:
                break
    version = sys.version.split()[0]
    print(
        f"Python {version}, seed {options.seed}: {done} cases in {time.monotonic() - start:.0f} s, "
        f"{harmless} that scan reports as harmless, {named_cases} of them with names; "
        f"{len(differences)} differences",
        flush=True,
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
