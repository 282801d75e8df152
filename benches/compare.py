"""Compares two builds of the command on the inputs that `cargo xtask bench` leaves in target/bench:

    python benches/compare.py BEFORE AFTER target/bench [TIMES]

Each line measures a whole process. The builds run in turns, TIMES times (default: 5); the fastest run and the highest
peak memory of each build count. AFTER creates missing inputs; a line without an input is left out.
"""

import os
import shutil
import sys
import time
from pathlib import Path

BEFORE, AFTER, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
TIMES = int(sys.argv[4]) if len(sys.argv) > 4 else 5
OUT = FOLDER / "compare"


def run(command, *words):
    """Returns the seconds and peak memory in MB of a process, or None if it fails."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    start = time.perf_counter()
    child = os.posix_spawn(
        command,
        [command, *map(str, words)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)],
    )
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - start
    # `diff` exits with 1 if the files differ.
    return (seconds, usage.ru_maxrss / 1000) if os.waitstatus_to_exitcode(status) in (0, 1) else None


def best(runs):
    return (min(seconds for seconds, _ in runs), max(memory for _, memory in runs)) if all(runs) else None


def compare(name, source, *words):
    if not source.exists():
        return
    words = [words[0], source, *words[1:]]
    for command in (BEFORE, AFTER):
        run(command, *words)
    pairs = [(run(BEFORE, *words), run(AFTER, *words)) for _ in range(TIMES)]
    before, after = (best(side) for side in zip(*pairs))
    cells = [f"{one[0]:.3f} s, {one[1]:.0f} MB" if one else "–" for one in (before, after)]
    ratio = f"{after[0] / before[0]:.2f}" if before and after else "–"
    print(f"| {name} | {cells[0]} | {cells[1]} | {ratio} |", flush=True)


def input_file(name, source, *words):
    path = FOLDER / name
    if not path.exists() and source.exists():
        run(AFTER, "convert", source, path, "--lossy", *words)
    return path


many = FOLDER / "many"
twenty = {"safetensors": many / "one.safetensors", "pt": many / "zip.pt", "npz": many / "stored.npz"}
twenty["mdl"] = input_file("keys-20000.mdl", twenty["safetensors"])
hundred = {"safetensors": FOLDER / "keys-100000.safetensors"}
for kind in ("pt", "mdl", "npz"):
    hundred[kind] = input_file(f"keys-100000.{kind}", hundred["safetensors"])
small, plain = FOLDER / "rows-1005.pt", FOLDER / "plain.safetensors"
gzip = input_file("rows-1005-gzip.mdl", small, "--compress", "gzip")
other = input_file("rows-1005.npz", small)

print("| what | before | now | ratio |\n|---|---|---|---|")
for count, files in (("20,000", twenty), ("100,000", hundred)):
    for kind, path in files.items():
        compare(f"`info`, {count} keys, .{kind}", path, "info")
        compare(f"`ls`, {count} keys, .{kind}", path, "ls")
for name, path in (("LZ4", FOLDER / "rows-1005.mdl"), ("one run", FOLDER / "rows-1005-contiguous.mdl"), ("gzip", gzip)):
    compare(f"223 MB, .mdl ({name}) → .pt", path, "convert", OUT / "out.pt")
for kind in ("mdl", "npz"):
    compare(f"223 MB, .pt → .{kind}", small, "convert", OUT / f"out.{kind}", "--lossy")
for filter in ("lz4", "gzip"):
    compare(f"223 MB, .pt → .mdl ({filter})", small, "convert", OUT / "out.mdl", "--compress", filter)
for kind in ("pt", "mdl", "npz", "index"):
    compare(f"500 MiB, .safetensors → .{kind}", plain, "convert", OUT / f"out.{kind}", "--lossy")
compare("500 MiB, .pt → .safetensors", FOLDER / "plain.pt", "convert", OUT / "out.safetensors")
compare("500 MiB, float32 → bfloat16", plain, "convert", OUT / "out.safetensors", "--cast", "bfloat16")
narrow = FOLDER / "plain-bf16.safetensors"
compare("250 MiB, bfloat16 → float32", narrow, "convert", OUT / "out.safetensors", "--cast", "float32")
compare("500 MiB, `verify`, .pt", FOLDER / "plain.pt", "verify")
compare("223 MB, `verify`, .mdl (gzip)", gzip, "verify")
compare("223 MB, `manifest`, .pt", small, "manifest")
compare("500 MiB, `diff`, .pt with .safetensors", FOLDER / "plain.pt", "diff", plain)
shutil.rmtree(OUT, ignore_errors=True)
