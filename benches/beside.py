"""Two builds of the command side by side, on the inputs that `cargo xtask bench` leaves in target/bench:

    python benches/beside.py BEFORE AFTER target/bench [TIMES]

Each line is a whole process, run TIMES times (5 unless said) in turns, so that both see the same machine; the fastest
run of each counts, and the largest peak memory. Files that are not there are made by AFTER, or their lines left out.
"""

import os
import shutil
import sys
import time
from pathlib import Path

BEFORE, AFTER, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
TIMES = int(sys.argv[4]) if len(sys.argv) > 4 else 5
OUT = FOLDER / "beside"


def run(command, *words):
    """Seconds and peak memory in MB of a process, or None where it fails."""
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
    taken = time.perf_counter() - start
    # 1 is an answer: files differ.
    return (taken, usage.ru_maxrss / 1000) if os.waitstatus_to_exitcode(status) in (0, 1) else None


def best(runs):
    return (min(seconds for seconds, _ in runs), max(memory for _, memory in runs)) if all(runs) else None


def beside(name, source, *words):
    if not source.exists():
        return
    words = [words[0], source, *words[1:]]
    for command in (BEFORE, AFTER):
        run(command, *words)
    pairs = [(run(BEFORE, *words), run(AFTER, *words)) for _ in range(TIMES)]
    before, after = (best(side) for side in zip(*pairs))
    told = [f"{one[0]:.3f} s, {one[1]:.0f} MB" if one else "–" for one in (before, after)]
    ratio = f"{after[0] / before[0]:.2f}" if before and after else "–"
    print(f"| {name} | {told[0]} | {told[1]} | {ratio} |", flush=True)


def made(name, source, *words):
    path = FOLDER / name
    if not path.exists() and source.exists():
        run(AFTER, "convert", source, path, "--lossy", *words)
    return path


many = FOLDER / "many"
twenty = {"safetensors": many / "one.safetensors", "pt": many / "zip.pt", "npz": many / "stored.npz"}
twenty["mdl"] = made("keys-20000.mdl", twenty["safetensors"])
hundred = {"safetensors": FOLDER / "keys-100000.safetensors"}
for kind in ("pt", "mdl", "npz"):
    hundred[kind] = made(f"keys-100000.{kind}", hundred["safetensors"])
small, plain = FOLDER / "rows-1005.pt", FOLDER / "plain.safetensors"
gzip = made("rows-1005-gzip.mdl", small, "--compress", "gzip")
other = made("rows-1005.npz", small)

print("| what | before | now | ratio |\n|---|---|---|---|")
for count, files in (("20,000", twenty), ("100,000", hundred)):
    for kind, path in files.items():
        beside(f"`info`, {count} keys, .{kind}", path, "info")
        beside(f"`ls`, {count} keys, .{kind}", path, "ls")
for name, path in (("LZ4", FOLDER / "rows-1005.mdl"), ("one run", FOLDER / "rows-1005-contiguous.mdl"), ("gzip", gzip)):
    beside(f"223 MB, .mdl ({name}) → .pt", path, "convert", OUT / "out.pt")
for kind in ("mdl", "npz"):
    beside(f"223 MB, .pt → .{kind}", small, "convert", OUT / f"out.{kind}", "--lossy")
for filter in ("lz4", "gzip"):
    beside(f"223 MB, .pt → .mdl ({filter})", small, "convert", OUT / "out.mdl", "--compress", filter)
for kind in ("pt", "mdl", "npz", "index"):
    beside(f"500 MiB, .safetensors → .{kind}", plain, "convert", OUT / f"out.{kind}", "--lossy")
beside("500 MiB, .pt → .safetensors", FOLDER / "plain.pt", "convert", OUT / "out.safetensors")
beside("500 MiB, float32 → bfloat16", plain, "convert", OUT / "out.safetensors", "--cast", "bfloat16")
narrow = FOLDER / "plain-bf16.safetensors"
beside("250 MiB, bfloat16 → float32", narrow, "convert", OUT / "out.safetensors", "--cast", "float32")
beside("500 MiB, `verify`, .pt", FOLDER / "plain.pt", "verify")
beside("223 MB, `verify`, .mdl (gzip)", gzip, "verify")
beside("223 MB, `manifest`, .pt", small, "manifest")
beside("500 MiB, `diff`, .pt with .safetensors", FOLDER / "plain.pt", "diff", plain)
shutil.rmtree(OUT, ignore_errors=True)
