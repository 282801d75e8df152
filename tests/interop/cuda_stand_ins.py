"""Makes a CUDA build of torch start on a machine without the CUDA libraries.

    python cuda_stand_ins.py SITE_PACKAGES

PyPI has torch for Linux only as a CUDA build. Its wheel depends on gigabytes of libraries (cuBLAS, cuDNN, NCCL...) that
the dynamic loader requires, although no code calls them on a CPU. For each missing library, this script compiles a stub
of the same name, with a trap for each symbol that torch refers to. The files of torch itself stay unchanged.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Libraries whose symbols have no version, and a pattern for the start of their symbols.
UNVERSIONED = {
    "libcuda.so": "cu[A-Z]",
    "libcufile": "cuFile",
    "libcurand": "curand",
    "libcusparseLt": "cusparseLt",
    "libnccl": "nccl",
}
CUDA = re.compile(r"lib(cu|nv|nccl)")


def main(site_packages):
    folder = site_packages / "torch" / "lib"
    libraries = sorted(folder.glob("*.so*"))
    needed, unversioned = references(libraries)
    present = {path.name for path in libraries}
    present |= {path.name for path in site_packages.glob("nvidia/**/lib/*")}
    for name, versions in sorted(needed.items()):
        if name in present or not CUDA.match(name):
            continue
        if not versions:
            start = next((s for prefix, s in UNVERSIONED.items() if name.startswith(prefix)), None)
            versions = {"": {s for s in unversioned if start and re.match(start, s)}}
        build(folder / name, versions)
        print(f"{name}: {sum(map(len, versions.values()))} symbols")


def references(libraries):
    """Returns the symbols that the libraries need, `{library: {version: symbols}}`, and those without a version."""
    needed, owner, unversioned = {}, {}, set()
    for library in libraries:
        for name in re.findall(r"NEEDED.*\[(.*?)\]", readelf("-dW", library)):
            needed.setdefault(name, {})
        file = None
        for line in readelf("-VW", library).splitlines():
            if match := re.search(r"File: (\S+)", line):
                file = match[1]
            elif file and (match := re.search(r"Name: (\S+)\s+Flags", line)):
                owner[match[1]] = file
        for symbol, _, version in re.findall(r" UND ([^\s@]+)(@+(\S+))?", readelf("--dyn-syms", "-W", library)):
            if not version:
                unversioned.add(symbol)
            elif version in owner:
                needed.setdefault(owner[version], {}).setdefault(version, set()).add(symbol)
    return needed, unversioned


def build(path, versions):
    names = sorted({name for names in versions.values() for name in names})
    script = "".join(
        f"{version} {{ {' '.join(f'{n};' for n in sorted(names))} }};\n"
        for version, names in versions.items()
        if version
    )
    with tempfile.TemporaryDirectory() as folder:
        source, exports = Path(folder, "stub.c"), Path(folder, "exports.map")
        source.write_text("".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in names))
        exports.write_text(script)
        command = ["cc", "-w", "-shared", "-nostdlib", f"-Wl,-soname,{path.name}", "-o", path, source]
        if script:
            command.append(f"-Wl,--version-script={exports}")
        subprocess.run(command, check=True)


def readelf(*arguments):
    return subprocess.run(["readelf", *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
