"""Compares checkpoints in S3 with the Cerebras library: it loads what `statelens` writes, and writes what `statelens` reads.

    python cerebras_s3.py --statelens BINARY --work FOLDER [--only TEXT]

Runs in the environment of cerebras-pytorch with boto3, against `s3_server.py`. BINARY is built with the feature
`object-store`. The sources are the fixtures that cstorch loads, files of torch, and states with keys that only S3 can have.
The exit status is 1 if anything differs.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import cases
import compare
import describe
import load
import torch
from s3_server import S3Server

FIXTURES = Path(__file__).resolve().parents[2] / "target/fixtures"
# The library fails to load these, or needs minutes.
LEFT_OUT = ("legacy_many_5k", "link_")
# Records, which the library saves to S3 and cannot load: refused, and left out by these patterns; nothing else is in the file
# if there are none.
RECORDS = {
    "cerebras/v2.10.0/numpy_struct.mdl": [],
    "cerebras/v2.4.0/numpy_struct.mdl": [],
}
# Bytes of an object that is read in several requests.
LARGE = 256 << 10
# Not `zip_numpy.pt`: the library needs NumPy 1, which can't load the arrays of NumPy 2.
TORCH = ["zip_module_state_dict.pt", "zip_tied.pt", "zip_training_ckpt.pt", "zip_views.pt"]
# Keys that `.mdl` files can't have, or that clients of S3 change.
HARD_KEYS = [
    "", ".", "..", "../up", "./here", "/lead", "trail/", "dou//ble", "a", "a/b", "a/b/", "uni é 世 😀", "with space", "pct%2F",
    "q?x=1&y", "h#frag", "plus+", "star*", "back\\slash", "lt<gt>&amp;", "tab\there", "line\nbreak", "x.__METADATA__",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with S3Server("bucket") as server:
        # The library makes its client once.
        os.environ.update(server.environment())
        comparison = Comparison(options, server)
        for name, how, state in states(options.only):
            comparison.written(name, how, state)
            for compressed in (False, True):
                comparison.read(name, state, compressed)
        if not options.only:
            comparison.large()
    return comparison.show()


def states(only):
    """Yields names, paths (None for states without a file), and loaded values."""
    seen = set()
    for case in cases.cases(FIXTURES):
        is_wanted = case.group == "mdl -> mdl" or case.group == "pt -> mdl" and case.source in {f"torch/{name}" for name in TORCH}
        is_left_out = any(part in case.source for part in LEFT_OUT) or case.source in cases.NOT_LOADED
        if not is_wanted or is_left_out or case.source in seen or only not in case.source:
            continue
        seen.add(case.source)
        yield case.source, FIXTURES / case.source, load.HOW[case.expect](str(FIXTURES / case.source))
    if only in "hard keys":
        yield "hard keys", None, {key: torch.full([2, 3], float(at)) for at, key in enumerate(HARD_KEYS)}


class Comparison:
    def __init__(self, options, server):
        self.options, self.server = options, server
        self.counts, self.problems, self.number = collections.Counter(), [], 0

    def address(self):
        self.number += 1
        return f"s3://bucket/checkpoint-{self.number}"

    def statelens(self, *arguments):
        environment = {**os.environ, "AWS_ALLOW_HTTP": "true"}
        command = [self.options.statelens, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)

    def check(self, what, name, sentences):
        self.counts[what if not sentences else f"{what}: WRONG"] += 1
        self.problems += [f"{what}: {name}: {sentence}" for sentence in sentences[:4]]

    def written(self, name, path, state):
        """Converts a file, and loads the objects."""
        import cerebras.pytorch as cstorch

        if path is None:
            source = self.address()
            cstorch.save(state, source)
        else:
            source = path
        target = self.address()
        command = ["convert", "--json", source, target]
        patterns = []
        process = self.statelens(*command)
        if process.returncode and (("0.5", name) in cases.REFUSED or name in RECORDS):
            patterns, _ = cases.REFUSED.get(("0.5", name), ([], None))
            patterns = patterns + RECORDS.get(name, [])
            if not patterns:
                self.counts["refused, as `.mdl` is"] += 1
                return
            command += [f"--exclude={pattern}" for pattern in patterns]
            process = self.statelens(*command)
        is_whole = process.returncode == 0
        if not is_whole:
            process = self.statelens(*command, "--lossy")
        if process.returncode:
            return self.check("written", name, [process.stderr.strip()])
        losses = json.loads(process.stdout)["losses"]
        rows, sentences = compare.apply_losses(compare.without(describe.describe(state), patterns), losses)
        loaded = describe.describe(cstorch.load(target))
        keys, _ = cases.DIFFERENT.get(name, ((), None))
        found = [text for text in compare.differences(rows, loaded) if not any(text.startswith(f"{key!r}: ") for key in keys)]
        self.check("written", name, sentences + found)
        # A copy of an incomplete checkpoint says so.
        if not is_whole:
            return
        verified = self.statelens("verify", target)
        self.check("verified", name, [] if verified.returncode == 0 else [verified.stdout + verified.stderr])

    def read(self, name, state, compressed):
        """Saves a state with the library, and compares the manifest."""
        import cerebras.pytorch as cstorch

        address = self.address()
        cstorch.backends.csx.performance.compress_weights = compressed
        try:
            cstorch.save(state, address)
        except Exception:
            # Strided tensors, dtypes that the library lacks, and objects that dill refuses.
            self.counts["the library can't save it to S3"] += 1
            return
        finally:
            cstorch.backends.csx.performance.compress_weights = False
        try:
            rows = describe.describe(cstorch.load(address))
        except Exception:
            self.counts["the library can't load what it saved"] += 1
            return
        self.server.requests.clear()
        process = self.statelens("manifest", "--json", address)
        if not process.stdout:
            return self.check("read", name, [process.stderr.strip()])
        keys, _ = cases.DIFFERENT.get(name, ((), None))
        sentences = [] if name in cases.MANIFEST_DIFFERENT else compare.manifest_differences(rows, json.loads(process.stdout))
        sentences = [text for text in sentences if not any(text.startswith(f"{key!r}: ") for key in keys)]
        metadata = [request for request in self.server.requests if request[1].endswith("/__METADATA__")]
        objects = collections.Counter(key for _, key, _ in self.server.requests)
        several = [f"{key} was requested {count} times" for key, count in objects.items()
                   if count > 1 and len(self.server.below(key)[key].body) <= LARGE]
        if len(metadata) != 1 and name != "hard keys":
            several.append(f"{len(metadata)} requests for __METADATA__")
        self.check("read, compressed" if compressed else "read", name, sentences + several)

    def large(self):
        """Writes an object in parts."""
        import cerebras.pytorch as cstorch

        state = {"w": torch.arange(10 << 20, dtype=torch.float32).reshape(1 << 10, -1), "step": 3}
        path, target = self.options.work / "large.pt", self.address()
        self.options.work.mkdir(parents=True, exist_ok=True)
        torch.save(state, path)
        process = self.statelens("convert", path, target)
        if process.returncode:
            return self.check("written in parts", "large", [process.stderr])
        parts = sum(method == "PUT" and "partNumber" in query for method, _, query in self.server.requests)
        sentences = compare.differences(describe.describe(state), describe.describe(cstorch.load(target)))
        self.check("written in parts", "large", sentences + ([] if parts > 1 else [f"{parts} parts"]))

    def show(self):
        for what, count in sorted(self.counts.items()):
            print(f"{count:5} {what}")
        for problem in self.problems:
            print(problem)
        enough = self.counts["written"] > 0 and self.counts["read"] > 0
        print(f"{len(self.problems)} problems" if self.problems else "Everything agrees with the Cerebras library.")
        return 1 if self.problems or not enough else 0


if __name__ == "__main__":
    sys.exit(main())
