"""Interop of `scan`: what it calls harmless is loaded by Python, which must do nothing but make values.

    python harmless_pickles.py --statelens BINARY --work FOLDER [--count N] [--seed N]

Makes pickles at random from a grammar of opcodes: with the names that are known to be harmless (read from
`crates/pickle/src/names/harmless.rs`), used in the usual way and in every other, and with names that would
run, write or reach something. `statelens scan` judges each. What it calls harmless is loaded in a process of
its own, in an empty folder, with an audit hook that fails on anything but looking up a name of the list:
opening, importing, compiling, running, connecting. A crash of that process is a failure, too. Exit status 1
if anything happens that should not.
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

# Names that must never be called: each would leave a trace, reach something or run what it is given.
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

# What a process that only makes values may do. The rest of the events are told.
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
        maker = Maker(random.Random(options.seed * 1_000_003 + number), names)
        path = folder / f"{number:05}.pkl"
        path.write_bytes(maker.pickle())
        files.append(path)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda path: judge(options.statelens, path), files))
    wrong = [f"{path.name}: scan ended with {code}" for path, code in zip(files, verdicts) if code not in (0, 1)]
    harmless = [path for path, code in zip(files, verdicts) if code == 0]
    # What is not installed here would be looked for on the disk, and do nothing else.
    tops = {module.split(".")[0] for module, _ in harmless_names()}
    absent = [top.encode() for top in tops if importlib.util.find_spec(top) is None]
    harmless = [path for path in harmless if not any(top in path.read_bytes() for top in absent)]
    # So few would show nothing.
    if len(harmless) < options.count // 20 or len(harmless) == options.count:
        wrong.append(f"{len(harmless)} of {options.count} are called harmless: the grammar is off")
    loaded, made = 0, 0
    for start in range(0, len(harmless), BATCH):
        batch = harmless[start:start + BATCH]
        outcome, problems = watch(options.work, batch)
        loaded += len(batch)
        made += outcome
        wrong += problems
    print("\n".join(wrong[:40]) or (
        f"{options.count} pickles of {len(names)} harmless and {len(HOSTILE)} hostile names: {loaded} are called "
        f"harmless, and loading them did nothing else ({made} made a value, the others an error)"
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
    assert ("collections", "OrderedDict") in names and ("torch", "FloatStorage") in names, "the list is not understood"
    return names


def importable(names):
    """Those that this interpreter has: without its library, a name does nothing."""
    warnings.simplefilter("ignore")
    found = []
    for module, name in sorted(names):
        try:
            getattr(importlib.import_module(module), name)
            found.append((module, name))
        except Exception:
            pass
    return found


def judge(statelens, path):
    """What scan says: 0 if nothing is to be feared, 1 if something is, anything else if it failed."""
    ran = subprocess.run([statelens, "scan", "--json", path], capture_output=True, timeout=60)
    if ran.returncode == 0:
        worst = [json.loads(line).get("worst") for line in ran.stdout.splitlines() if line.startswith(b"{")]
        return 0 if set(worst) <= {None, "note", "warning"} else 1
    # A file that can't be opened is not called harmless.
    return 1 if ran.returncode in (1, 2) else ran.returncode


def watch(work, batch):
    """Loads the files in another process; how many made a value, and what went wrong."""
    empty = work / "empty"
    shutil.rmtree(empty, ignore_errors=True)
    empty.mkdir()
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(empty.resolve())}
    command = [sys.executable, HERE, "--load", *[path.resolve() for path in batch]]
    try:
        ran = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired as slow:
        return 0, [f"loading takes too long, {last(slow.stdout)}"]
    problems = []
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    problems += [f"{line['file']}: {line['problem']}" for line in lines if line.get("problem")]
    if ran.returncode != 0:
        problems.append(f"the loader ended with {ran.returncode}, {last(ran.stdout)} {ran.stderr[-300:]}")
    problems += [f"{left} was left behind in the folder" for left in os.listdir(empty)]
    return sum(1 for line in lines if line.get("made")), problems


def last(output):
    text = output.decode() if isinstance(output, bytes) else output or ""
    begun = [json.loads(line)["file"] for line in text.splitlines() if line.startswith("{")]
    return f"in or behind {begun[-1]}" if begun else "before the first file"


def load(files):
    """Loads each file under the hook; prints what happened, a line each."""
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
        made, value = False, None
        watching[0] = True
        try:
            value = pickle.loads(data)
            made = True
        except MemoryError:
            pass
        except Exception:
            pass
        del value
        gc.collect()
        watching[0] = False
        print(json.dumps({"file": name, "made": made, "problem": "; ".join(seen)}), flush=True)
    # What the interpreter does at its end is its own.
    sys.stdout.flush()
    os._exit(0)


def is_constant(code):
    """What dill has evaluated for Python's constants, as text and compiled."""
    if isinstance(code, bytes):
        return re.fullmatch(rb"Ellipsis|NotImplemented|None|range\(-?\d+(, -?\d+)*\)", code) is not None
    return set(getattr(code, "co_names", "?")) <= {"Ellipsis", "NotImplemented", "range"}


def warm_up(names):
    """Libraries import parts of themselves when they are first used: here, where nothing is watched."""
    import codecs

    for codec in ("latin1", "utf-8", "ascii"):
        codecs.lookup(codec)
    tries = [(), (None,), (1,), ("x",), (b"x",), ([1],), ({},), ("f4",), (2, 3), ("x", "latin1"), (dict, (), ())]
    for module, name in sorted(names):
        # Two would do what they are told; elements of ml_dtypes crash when they are made of a text.
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


class Maker:
    """Makes one pickle at random."""

    def __init__(self, chance, names):
        self.chance = chance
        self.names = names
        self.memo = 0
        self.protocol = chance.choice([0, 1, 2, 2, 2, 3, 4, 4, 5])
        # Most are without hostile names, so that what is left to find is the harmless ones misused.
        self.hostile = chance.choice([0, 0, 0, 0.02, 0.2])
        # Names whose use is restricted come up more often than their number would have it.
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
        made = self.chance.choice(simple if depth > 4 else simple + deep + deep)(depth)
        if self.memo and self.chance.random() < 0.05:
            made = b"j" + struct.pack("<I", self.chance.randrange(self.memo))
        elif self.chance.random() < 0.2:
            made += b"r" + struct.pack("<I", self.memo)
            self.memo += 1
        return made

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
        made = self.chance.choice([self.call, self.instance, self.name, self.usual])(depth)
        for _ in range(self.chance.randint(1, 2)):
            made += self.chance.choice([
                self.dict(depth) + b"b", b"N" + self.dict(depth) + b"\x86b", self.tuple(depth) + b"b",
                self.value(depth + 1) + b"a", self.text(depth) + self.value(depth + 1) + b"s",
                b"(" + self.items(depth) + b"\x90",
            ])
        return made

    def passed(self, depth):
        """A function that calls another: with what it is given."""
        callers = [
            ("torch._tensor", "_rebuild_from_type_v2"), ("dill._dill", "_create_array"), ("copyreg", "__newobj__"),
            ("numpy.random._pickle", "__generator_ctor"), ("copyreg", "_reconstructor"), ("collections", "defaultdict"),
        ]
        caller = self.chance.choice([pair for pair in callers if pair in self.names])
        return self.spelled(*caller) + b"(" + self.name() + self.items(depth) + b"tR"

    def extended(self, depth):
        """Something popped, something doubled, a call of what a call gives."""
        return self.chance.choice([
            self.value(depth + 1) + b"0" + self.value(depth + 1),
            self.value(depth + 1) + b"2\x86",
            self.call(depth) + self.tuple(depth) + b"R",
        ])

    def usual(self, depth):
        """What honest files hold, sometimes with one thing changed."""
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
