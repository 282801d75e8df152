"""Loads random pickles that `statelens scan` reports as harmless, and checks that they only create values.

    python harmless_pickles.py --statelens BINARY --work FOLDER [--count N] [--seed N]

A grammar of opcodes generates the pickles. They use harmless names (from `crates/pickle/src/names/harmless.rs`) in
usual and unusual ways, and hostile names that would run, write or reach something. Pickles that `statelens scan` reports
as harmless are loaded in a separate process, in an empty folder. An audit hook of this process refuses all events but
the lookup of harmless names, such as opening, importing, compiling, running and connecting. The exit status is 1 if the
hook refuses an event or if the process crashes.
"""

import argparse
import importlib
import importlib.util
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve()
LIST = HERE.parent.parent.parent / "crates/pickle/src/names/harmless.rs"
BATCH = 200

# Names that must never be called, because they run code, write files or reach other objects.
HOSTILE = [
    ("os", "system"), ("posix", "system"), ("subprocess", "getoutput"), ("builtins", "eval"),
    ("builtins", "exec"), ("builtins", "open"), ("builtins", "getattr"), ("builtins", "setattr"),
    ("builtins", "__import__"), ("builtins", "dict.get"), ("random", "__builtins__"), ("enum", "global_enum"),
    ("enum", "eval"), ("enum", "Enum"), ("dataclasses", "make_dataclass"), ("functools", "partial"),
    ("functools", "reduce"), ("operator", "attrgetter"), ("numpy", "savetxt"), ("numpy", "vectorize"),
    ("numpy", "frompyfunc"), ("torch", "load"), ("pathlib", "Path.write_text"), ("tempfile", "mktemp"),
    ("typing", "get_type_hints"), ("io", "FileIO"), ("weakref", "finalize"), ("types", "FunctionType"),
    ("collections", "namedtuple"), ("collections", "OrderedDict.fromkeys"), ("ml_dtypes", "finfo"),
    ("numpy.random._pickle", "__builtins__"), ("__builtin__", "reduce"), ("commands", "getoutput"),
    ("torch.storage", "UntypedStorage.from_file"), ("dill._dill", "_create_code"), ("__main__", "Thing"),
]

# Audit events that occur while values are created. The hook reports all others.
ALLOWED = {
    "pickle.find_class", "object.__getattr__", "object.__setattr__", "object.__delattr__", "builtins.id",
    "array.__new__", "sys._getframe", "cpython._PySys_ClearAuditHooks", "gc.get_objects",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--load", nargs="*", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load is not None:
        return load(options.load)
    shutil.rmtree(options.work, ignore_errors=True)
    folder = options.work / "pickles"
    folder.mkdir(parents=True)
    names = importable(harmless_names())
    files = []
    for number in range(options.count):
        generator = Generator(random.Random(options.seed * 1_000_003 + number), names)
        path = folder / f"{number:05}.pkl"
        path.write_bytes(generator.pickle())
        files.append(path)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda path: judge(options.statelens, path), files))
    wrong = [f"{path.name}: scan exited with {code}" for path, code in zip(files, verdicts) if code not in (0, 1)]
    harmless = [path for path, code in zip(files, verdicts) if code == 0]
    # Pickles with names of missing libraries would only search for their modules.
    tops = {module.split(".")[0] for module, _ in harmless_names()}
    absent = [top.encode() for top in tops if importlib.util.find_spec(top) is None]
    harmless = [path for path in harmless if not any(top in path.read_bytes() for top in absent)]
    # Too few harmless pickles would not test enough.
    if len(harmless) < options.count // 20 or len(harmless) == options.count:
        wrong.append(f"{len(harmless)} of {options.count} are reported as harmless: the grammar is wrong")
    loaded, created = 0, 0
    for start in range(0, len(harmless), BATCH):
        batch = harmless[start:start + BATCH]
        count, problems = load_in_process(options.work, batch)
        loaded += len(batch)
        created += count
        wrong += problems
    print("\n".join(wrong[:40]) or (
        f"{options.count} pickles of {len(names)} harmless and {len(HOSTILE)} hostile names: {loaded} are reported as "
        f"harmless, and loading them has no other effects ({created} create a value, the others fail)"
    ))
    return 1 if wrong else 0


def harmless_names():
    """Returns the module and the name of each harmless class and function."""
    text = re.sub(r"//[^\n]*", "", LIST.read_text())
    lists = dict(re.findall(r'const (\w+): &str = "([^"]*)";', text))
    words = lambda part: lists.get(part, part.strip('"')).split()
    names = set()
    rows = text[text.index("const ROWS"):text.index("#[cfg(test)]\nmod tests")]
    for modules, group in re.findall(r'(?:\{|;)\s*(\w+|"[^"]*"),\s*(\w+|"[^"]*"),\s*"', rows):
        names |= {(module, name) for module in words(modules) for name in words(group)}
    assert ("collections", "OrderedDict") in names and ("torch", "FloatStorage") in names, f"can't parse {LIST}"
    return names


def importable(names):
    """Returns the names whose library is installed. Other names have no effect."""
    warnings.simplefilter("ignore")
    installed = []
    for module, name in sorted(names):
        try:
            getattr(importlib.import_module(module), name)
            installed.append((module, name))
        except Exception:
            pass
    return installed


def judge(statelens, path):
    """Returns 0 if `scan` reports the file as harmless, 1 if it does not, and the exit status if it failed."""
    process = subprocess.run([statelens, "scan", "--json", path], capture_output=True, timeout=60)
    if process.returncode == 0:
        worst = [json.loads(line).get("worst") for line in process.stdout.splitlines() if line.startswith(b"{")]
        return 0 if set(worst) <= {None, "note", "warning"} else 1
    # `scan` exits with 2 if it can't open the file.
    return 1 if process.returncode in (1, 2) else process.returncode


def load_in_process(work, batch):
    """Loads the files in another process. Returns the number of values that they create, and the problems."""
    empty = work / "empty"
    shutil.rmtree(empty, ignore_errors=True)
    empty.mkdir()
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(empty.resolve())}
    command = [sys.executable, HERE, "--load", *[path.resolve() for path in batch]]
    try:
        process = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired as error:
        return 0, [f"loading takes too long, {position(error.stdout)}"]
    problems = []
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    problems += [f"{line['file']}: {line['problem']}" for line in lines if line.get("problem")]
    if process.returncode != 0:
        status = f"the loader exited with {process.returncode}"
        problems.append(f"{status}, {position(process.stdout)} {process.stderr[-300:]}")
    problems += [f"loading wrote {name}" for name in os.listdir(empty)]
    return sum(1 for line in lines if line.get("created")), problems


def position(output):
    """Returns the last file that the loader started, for an error message."""
    text = output.decode() if isinstance(output, bytes) else output or ""
    started = [json.loads(line)["file"] for line in text.splitlines() if line.startswith("{")]
    return f"in or after {started[-1]}" if started else "before the first file"


def load(files):
    """Loads each file under the audit hook, and prints one line with the result of each."""
    import gc
    import pickle

    warnings.simplefilter("ignore")
    contents = [(path.name, path.read_bytes()) for path in files]
    names = harmless_names()
    warm_up(names)
    seen, watching = [], [False]

    def hook(event, arguments):
        if not watching[0]:
            return
        if event == "pickle.find_class" and tuple(arguments) in names:
            return
        if event in ("compile", "exec") and is_constant(arguments[0]):
            return
        if event == "pickle.find_class" or event not in ALLOWED:
            seen.append(f"{event} {str(arguments)[:200]}")
            raise PermissionError(event)

    sys.addaudithook(hook)
    for name, data in contents:
        print(json.dumps({"file": name}), flush=True)
        seen.clear()
        created, value = False, None
        watching[0] = True
        try:
            value = pickle.loads(data)
            created = True
        except MemoryError:
            pass
        except Exception:
            pass
        del value
        gc.collect()
        watching[0] = False
        print(json.dumps({"file": name, "created": created, "problem": "; ".join(seen)}), flush=True)
    # Skips the cleanup of the interpreter.
    sys.stdout.flush()
    os._exit(0)


def is_constant(code):
    """Returns whether code is one of the constants that dill evaluates, as text or compiled."""
    if isinstance(code, bytes):
        return re.fullmatch(rb"Ellipsis|NotImplemented|None|range\(-?\d+(, -?\d+)*\)", code) is not None
    return set(getattr(code, "co_names", "?")) <= {"Ellipsis", "NotImplemented", "range"}


def warm_up(names):
    """Calls the harmless names before the hook is active, because libraries import modules at the first use."""
    import codecs

    for codec in ("latin1", "utf-8", "ascii"):
        codecs.lookup(codec)
    tries = [(), (None,), (1,), ("x",), (b"x",), ([1],), ({},), ("f4",), (2, 3), ("x", "latin1"), (dict, (), ())]
    for module, name in sorted(names):
        # Two of the names evaluate or import their argument, and types of ml_dtypes crash with a string.
        if name in ("_eval_repr", "_import_module") or module == "ml_dtypes":
            continue
        try:
            function = getattr(importlib.import_module(module), name)
        except Exception:
            continue
        for arguments in tries:
            try:
                function(*arguments)
            except BaseException:
                pass
    import pickle

    for value in (1.5, {1, 2}, b"x", "x", [1], {"a": (1,)}, frozenset({1})):
        for protocol in range(6):
            pickle.loads(pickle.dumps(value, protocol))


class Generator:
    """Generates one random pickle."""

    def __init__(self, chance, names):
        self.chance = chance
        self.names = names
        self.memo = 0
        self.protocol = chance.choice([0, 1, 2, 2, 2, 3, 4, 4, 5])
        # Most pickles have no hostile names, so that `scan` must judge the use of harmless ones.
        self.hostile = chance.choice([0, 0, 0, 0.02, 0.2])
        # Names with restricted uses, which are selected more often than others.
        self.special = [
            pair for pair in names
            if pair[0].startswith(("dill", "numpy.core.mul", "numpy._core.mul", "torch.jit", "_codecs", "copyreg"))
            or pair[1] in ("dtype", "type", "str", "bytes", "_load_from_bytes", "_rebuild_from_type_v2", "defaultdict",
                           "Namespace", "TreeSpec", "__bit_generator_ctor", "__generator_ctor", "_frombuffer")
        ]

    def pickle(self):
        head = b"" if self.protocol < 2 else b"\x80" + bytes([self.protocol])
        body = head + self.value(0) + b"."
        if self.chance.random() < 0.1:
            body = bytearray(body)
            for _ in range(self.chance.randint(1, 3)):
                body[self.chance.randrange(len(body))] = self.chance.randrange(256)
            body = bytes(body)
        return body

    def value(self, depth):
        simple = [self.number, self.text, self.bytes, self.constant, self.name]
        deep = [self.tuple, self.list, self.dict, self.call, self.call, self.call, self.instance, self.built, self.built,
                self.usual, self.usual, self.usual, self.old, self.passed, self.extended]
        opcodes = self.chance.choice(simple if depth > 4 else simple + deep + deep)(depth)
        if self.memo and self.chance.random() < 0.05:
            opcodes = b"j" + struct.pack("<I", self.chance.randrange(self.memo))
        elif self.chance.random() < 0.2:
            opcodes += b"r" + struct.pack("<I", self.memo)
            self.memo += 1
        return opcodes

    def number(self, _depth):
        return self.chance.choice([
            b"K" + bytes([self.chance.randrange(20)]), b"I-1\n", b"I01\n", b"G" + struct.pack(">d", 0.5), b"L7L\n",
        ])

    def text(self, _depth):
        words = ["x", "__class__", "__setstate__", "__init__", "append", "latin1", "zlib", "f4", "O8", "V8", "U2",
                 "int", "type", "numpy", "os", "system", "Ellipsis", "range(0, 3)", "__import__('os').getcwd()", "_", ""]
        return spell(self.chance.choice(words))

    def bytes(self, _depth):
        data = bytes(self.chance.randrange(256) for _ in range(self.chance.choice([0, 1, 4, 8])))
        return b"C" + bytes([len(data)]) + data

    def constant(self, _depth):
        return self.chance.choice([b"N", b"\x88", b"\x89", b")", b"]", b"}", b"\x8f"])

    def name(self, _depth=0):
        if self.chance.random() < self.hostile:
            pair = self.chance.choice(HOSTILE)
        else:
            pair = self.chance.choice(self.special if self.chance.random() < 0.5 else self.names)
        return self.spelled(*pair)

    def spelled(self, module, name):
        if self.protocol >= 4 and self.chance.random() < 0.5:
            if self.chance.random() < self.hostile:
                return self.computed(module) + self.computed(name) + b"\x93"
            return spell(module) + spell(name) + b"\x93"
        return f"c{module}\n{name}\n".encode()

    def computed(self, text):
        return b"cbuiltins\nstr\n(C" + bytes([len(text)]) + text.encode() + spell("ascii") + b"tR"

    def items(self, depth, most=4):
        return b"".join(self.value(depth + 1) for _ in range(self.chance.randint(0, most)))

    def tuple(self, depth):
        return b"(" + self.items(depth) + b"t"

    def list(self, depth):
        return b"](" + self.items(depth) + b"e"

    def dict(self, depth):
        entries = b"".join(self.text(depth) + self.value(depth + 1) for _ in range(self.chance.randint(0, 3)))
        return b"}(" + entries + b"u"

    def call(self, depth):
        return self.name() + self.tuple(depth) + b"R"

    def instance(self, depth):
        if self.chance.random() < 0.2:
            return self.name() + self.tuple(depth) + self.dict(depth) + b"\x92"
        return self.name() + self.tuple(depth) + b"\x81"

    def old(self, depth):
        if self.chance.random() < 0.5:
            return b"(" + self.name() + self.items(depth) + b"o"
        module, name = self.chance.choice(self.special)
        return b"(" + self.items(depth) + f"i{module}\n{name}\n".encode()

    def built(self, depth):
        opcodes = self.chance.choice([self.call, self.instance, self.name, self.usual])(depth)
        for _ in range(self.chance.randint(1, 2)):
            opcodes += self.chance.choice([
                self.dict(depth) + b"b", b"N" + self.dict(depth) + b"\x86b", self.tuple(depth) + b"b",
                self.value(depth + 1) + b"a", self.text(depth) + self.value(depth + 1) + b"s",
                b"(" + self.items(depth) + b"\x90",
            ])
        return opcodes

    def passed(self, depth):
        """Returns a call of a function that calls its first argument."""
        callers = [
            ("torch._tensor", "_rebuild_from_type_v2"), ("dill._dill", "_create_array"), ("copyreg", "__newobj__"),
            ("numpy.random._pickle", "__generator_ctor"), ("copyreg", "_reconstructor"), ("collections", "defaultdict"),
        ]
        caller = self.chance.choice([pair for pair in callers if pair in self.names])
        return self.spelled(*caller) + b"(" + self.name() + self.items(depth) + b"tR"

    def extended(self, depth):
        """Returns a popped value, a duplicated value, or a call of the result of a call."""
        return self.chance.choice([
            self.value(depth + 1) + b"0" + self.value(depth + 1),
            self.value(depth + 1) + b"2\x86",
            self.call(depth) + self.tuple(depth) + b"R",
        ])

    def usual(self, depth):
        """Returns opcodes as in ordinary files, sometimes with one argument changed."""
        odd = lambda usual, *others: self.chance.choice([usual] * 6 + list(others))
        dtype = lambda: (
            b"cnumpy\ndtype\n(" + spell(odd("f4", "O8", "V8", "f8", "U2", "O,i4")) + b"\x89\x88tR(K\x03"
            + spell("|") + odd(b"N", b"(cnumpy\ndtype\n(X\x02\x00\x00\x00f4tRK\x02t") + b"N"
            + odd(b"N", b"}") + odd(b"J\xff\xff\xff\xff", b"K\x08", b"K\x00") + b"J\xff\xff\xff\xff"
            + odd(b"K\x00", b"K\x3f", b"K\x1b") + b"tb"
        )
        data = lambda: odd(b"C\x08" + bytes(8), b"]", b"cnumpy\nndarray\n", b"](K\x01K\x02e")
        encoded = lambda: b"c_codecs\nencode\n(" + spell("12345678") + spell(odd("latin1", "zlib", "hex", "idna")) + b"tR"
        core = self.chance.choice(["numpy.core.multiarray", "numpy._core.multiarray"])
        return self.chance.choice([
            encoded,
            dtype,
            lambda: f"c{core}\nscalar\n(".encode() + dtype() + odd(data(), encoded()) + b"tR",
            lambda: f"c{core}\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR(K\x01(K\x02t".encode()
            + dtype() + b"\x89" + data() + b"tb",
            lambda: b"cdill._dill\n_load_type\n(" + spell(odd("int", "type", "CodeType", "FunctionType", "map")) + b"tR",
            lambda: b"cdill._dill\n_get_attr\n(cdill._dill\n_import_module\n(" + spell(odd("numpy", "os", "argparse"))
            + b"tR" + spell(odd("float32", "system", "Namespace", "dtype")) + b"tR",
            lambda: b"cdill._dill\n_eval_repr\n(" + spell(odd("Ellipsis", "open('x', 'w')", "range(0, 3)")) + b"tR",
            lambda: b"cbuiltins\ntype\n(" + odd(b"N", b"]", spell("C") + b")}") + b"tR",
            lambda: b"cargparse\nNamespace\n)\x81" + self.dict(depth) + b"b",
            lambda: b"ccollections\nOrderedDict\n)R(" + spell("a") + self.value(depth + 1) + b"u",
        ])()


def spell(text):
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


if __name__ == "__main__":
    sys.exit(main())
