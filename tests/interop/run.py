"""Converts all fixtures with `statelens`, and compares the output with the real libraries.

    python run.py --statelens BINARY --cerebras PYTHON [--h5dump PROGRAM] --work FOLDER [--only TEXT]

Runs in the environment of current torch; PYTHON is the interpreter of cerebras-pytorch. The real libraries load the
source and our output. `describe.py` describes both, and `compare.py` compares the descriptions. `cases.py` lists the
exceptions. The exit status is 1 if anything differs, or if an exception is no longer needed.
"""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cases
import compare

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[1] / "target/fixtures"
SHOWN = 6


def main():
    options = arguments()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    start = time.monotonic()
    selected = [case for case in cases.cases(FIXTURES) if options.only in f"{case.group}: {case.source}"]
    report = Report(complete=not options.only)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        written = dict(zip(selected, pool.map(lambda case: convert(options, case), selected)))
        sources = sorted({case.source for case in selected})
        manifests = dict(zip(sources, pool.map(lambda source: manifest(options, source), sources)))
    say(f"{len(selected)} conversions, {len(sources)} manifests", start)

    loaded = load(options, selected, written)
    say(f"{len(loaded)} files loaded by the real libraries", start)

    for case in selected:
        judge(report, case, written[case], loaded)
    for source in sources:
        judge_manifest(report, source, manifests[source], loaded)
    check_hdf5(report, options, selected, written, loaded)
    say("compared", start)
    return report.show()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--cerebras", type=Path, required=True)
    parser.add_argument("--h5dump", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="", help="run only cases whose `group: fixture` contains this text")
    return parser.parse_args()


def say(text, start):
    print(f"[{time.monotonic() - start:5.1f} s] {text}", flush=True)


class Output:
    """The result of `statelens convert`: a file and the reported losses, or an error."""

    def __init__(self, path, losses, error, refused=False):
        self.path, self.losses, self.error, self.refused = path, losses, error, refused
        self.exists = error is None and not refused


DAMAGED = ["missing from the source, or damaged in it", "missing from the file", "casting loses numbers"]


def convert(options, case):
    folder = options.work / "".join(c if c.isalnum() else "_" for c in case.group) / Path(case.source).parent
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / (Path(case.source).name + case.suffix)
    command = [options.statelens, "convert", "--json", FIXTURES / case.source, output, *case.options]
    steps = []
    if (case.target, case.source) in cases.REFUSED:
        patterns, _ = cases.REFUSED[case.target, case.source]
        steps.append(("REFUSED", [f"--exclude={pattern}" for pattern in patterns]))
    if case.source in cases.LOSSY[case.target]:
        steps.append(("LOSSY", ["--lossy"]))
    # Without the options of each step, the conversion must fail.
    for table, arguments in steps:
        if subprocess.run(command, capture_output=True, timeout=120).returncode == 0:
            return Output(output, [], f"works, so remove it from {table}")
        if table == "REFUSED" and not arguments:
            return Output(output, [], None, refused=True)
        command += arguments
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    # Damaged values, and numbers that don't fit the dtype, need --lossy.
    if process.returncode != 0 and any(text in process.stderr for text in DAMAGED) and "--lossy" not in command:
        process = subprocess.run([*command, "--lossy"], capture_output=True, text=True, timeout=120)
    if process.returncode != 0:
        return Output(output, [], process.stderr.strip() or f"exit status {process.returncode}")
    return Output(output, json.loads(process.stdout)["losses"], None)


def manifest(options, source):
    command = [options.statelens, "manifest", "--json", FIXTURES / source]
    process = subprocess.run(command, capture_output=True, timeout=120)
    # The status of a checkpoint with missing values is 1; the manifest lists the others.
    return json.loads(process.stdout) if process.stdout else process.stderr.decode().strip()


def load(options, selected, written):
    """Loads all sources and outputs with the real libraries. Returns `{(how, path, cast): result}`."""
    jobs = {(case.expect, str(FIXTURES / case.source), case.cast) for case in selected}
    jobs |= {(case.expect, str(FIXTURES / case.source), "") for case in selected}
    for case, output in written.items():
        if output.exists:
            jobs.add((case.actual, str(output.path), ""))
            if case.suffix == ".mdl":
                jobs.add(("h5py", str(output.path), ""))
    results = {}
    interpreters = {"cstorch": options.cerebras, "h5py": options.cerebras}
    shares = collections.defaultdict(list)
    for job in sorted(jobs):
        shares[interpreters.get(job[0], sys.executable)].append(job)
    with ThreadPoolExecutor() as pool:
        for part in pool.map(lambda share: load_in(options.work, *share), shares.items()):
            results.update(part)
    return results


def load_in(work, interpreter, jobs):
    name = Path(interpreter).parent.parent.name
    input_path, output_path = work / f"{name}.json", work / f"{name}.jsonl"
    input_path.write_text(json.dumps([{"id": index, "how": how, "path": path, "cast": cast}
                                      for index, (how, path, cast) in enumerate(jobs)]))
    subprocess.run([interpreter, "-W", "ignore", HERE / "load.py", input_path, output_path], check=True)
    with open(output_path) as lines:
        return {jobs[result["id"]]: result for result in map(json.loads, lines)}


def judge(report, case, output, loaded):
    name = (case.group, case.source)
    expected = loaded[case.expect, str(FIXTURES / case.source), case.cast]
    if "error" in expected:
        return report.not_loaded(case.group, case.source, expected["error"])
    if output.error is not None:
        return report.wrong(name, [output.error])
    patterns, reason = cases.REFUSED.get((case.target, case.source), ((), None))
    if reason:
        report.reason(reason, case.source, (case.target, case.source))
        if output.refused:
            report.counts[case.group]["refused"] += 1
            return None
    actual = loaded[case.actual, str(output.path), ""]
    if "error" in actual:
        return report.wrong(name, [f"does not load: {actual['error']}"])
    rows, sentences = compare.apply_losses(compare.without(expected["rows"], patterns), output.losses)
    sentences += compare.differences(rows, actual["rows"])
    report.add(name, sentences, output.losses)


def judge_manifest(report, source, ours, loaded):
    name = ("manifest", source)
    theirs = loaded["cstorch" if source.endswith(".mdl") else "torch", str(FIXTURES / source), ""]
    if "error" in theirs:
        return report.not_loaded("manifest", source, theirs["error"])
    if isinstance(ours, str):
        return report.wrong(name, [ours])
    sentences = compare.manifest_differences(theirs["rows"], ours)
    if source in cases.MANIFEST_DIFFERENT:
        if not sentences:
            return report.wrong(name, ["agrees, so remove it from MANIFEST_DIFFERENT"])
        report.reason(cases.MANIFEST_DIFFERENT[source], source, source)
        report.counts["manifest"]["different, for a reason"] += 1
        return None
    report.add(name, sentences, [])


def check_hdf5(report, options, selected, written, loaded):
    """Reads our HDF5 files completely with h5py and h5dump."""
    files = {case: output for case, output in written.items() if output.exists and case.suffix == ".mdl"}
    for case, output in files.items():
        result = loaded["h5py", str(output.path), ""]
        errors = [result["error"]] if "error" in result else []
        report.add(("read by h5py", f"{case.source} ({case.group})"), errors, [])
    if options.h5dump is None:
        return print("h5dump is not installed, so it checked no files")

    def dump(output):
        command = [options.h5dump, output.path]
        process = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return [] if process.returncode == 0 else [f"exit status {process.returncode}: {process.stderr[:200]}"]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, errors in zip(files, pool.map(dump, files.values())):
            report.add(("read by h5dump", f"{case.source} ({case.group})"), errors, [])


class Report:
    def __init__(self, complete):
        self.complete = complete
        self.counts = collections.defaultdict(collections.Counter)
        self.problems = []
        self.reasons = collections.defaultdict(set)
        self.losses = collections.Counter()
        self.used = set()

    def wrong(self, name, sentences):
        self.counts[name[0]]["WRONG"] += 1
        rest = f" (and {len(sentences) - SHOWN} more)" if len(sentences) > SHOWN else ""
        self.problems.append(f"{name[0]}: {name[1]}:" + "".join(f"\n    {text}" for text in sentences[:SHOWN]) + rest)

    def add(self, name, sentences, losses):
        keys, reason = cases.DIFFERENT.get(name[1], ((), None))
        wrong = [text for text in sentences if not any(text.startswith(f"{key!r}: ") for key in keys)]
        if wrong:
            return self.wrong(name, wrong)
        if sentences:
            self.reason(reason, name[1], name[1])
        for loss in losses:
            self.losses[loss["what"]] += len(loss["keys"])
        result = "equal, with exceptions" if sentences else "equal after the reported losses" if losses else "equal"
        self.counts[name[0]][result] += 1
        return None

    def reason(self, reason, source, used):
        self.used.add(used)
        self.reasons[reason].add(source)

    def not_loaded(self, group, source, error):
        if source not in cases.NOT_LOADED:
            return self.wrong((group, source), [f"the library does not load the source: {error}"])
        self.reason(cases.NOT_LOADED[source], source, source)
        self.counts[group]["source not loadable"] += 1
        return None

    def show(self):
        if self.complete:
            listed = {*cases.NOT_LOADED, *cases.REFUSED, *cases.DIFFERENT, *cases.MANIFEST_DIFFERENT}
            for name in sorted(listed - self.used - cases.EQUAL_AT_TIMES, key=str):
                self.problems.append(f"{name} is not needed in cases.py")
        print("\nNot compared, or different for a reason:")
        for reason, names in sorted(self.reasons.items()):
            print(f"  {reason}")
            for source in sorted(names):
                print(f"      {source}")
        print("\nReported losses that were verified (number of values):")
        for what, count in sorted(self.losses.items()):
            print(f"  {count:6}  {what}")
        print("\nCompared:")
        for group, counts in sorted(self.counts.items()):
            print(f"  {group:28}" + ", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
        for problem in self.problems:
            print(f"\n{problem}")
        print(f"\n{len(self.problems)} problems" if self.problems else "\nEverything agrees with the real libraries.")
        return 1 if self.problems else 0


if __name__ == "__main__":
    sys.exit(main())
