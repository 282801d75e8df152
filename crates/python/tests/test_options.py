"""Compares the options of the command with the parameters of Python's functions, so that none is forgotten."""

import inspect
import re
import subprocess
import sys

import pystatelens
import pytest

FUNCTIONS = {
    "check": [pystatelens.check],
    "convert": [pystatelens.convert],
    "convert-config": [pystatelens.convert_config],
    "convert-dataloader-state": [pystatelens.convert_dataloader_state],
    "convert-model": [pystatelens.convert_model],
    "diff": [pystatelens.diff, pystatelens.renames, pystatelens.tensor_diff],
    "export": [pystatelens.picture, pystatelens.save],
    "fix-checkpoint-spec": [pystatelens.fix_checkpoint_spec],
    "fold-lora": [pystatelens.fold_lora],
    "formats": [pystatelens.formats],
    "h5-to-tensorflow": [pystatelens.convert],
    "info": [pystatelens.info],
    "job abort": [pystatelens.job.abort],
    "job commit": [pystatelens.job.commit],
    "job plan": [pystatelens.job.plan, pystatelens.convert],
    "job plan manifest": [pystatelens.job.plan_many],
    "job plan scan": [pystatelens.job.plan_many],
    "job plan stats": [pystatelens.job.plan_many],
    "job plan verify": [pystatelens.job.plan_many],
    "job run": [pystatelens.job.run],
    "job status": [pystatelens.job.status],
    "latest": [pystatelens.latest],
    "list-converters": [pystatelens.list_converters],
    "ls": [pystatelens.ls],
    "manifest": [pystatelens.manifest],
    "merge": [pystatelens.merge],
    "prune": [pystatelens.prune],
    "runs": [pystatelens.runs],
    "scan": [pystatelens.scan],
    "show": [pystatelens.Checkpoint.code],
    "singular": [pystatelens.singular],
    "stats": [pystatelens.stats, pystatelens.rank],
    "summary": [pystatelens.summary],
    "tensorflow-to-h5": [pystatelens.convert],
    "upgrade": [pystatelens.upgrade],
    "verify": [pystatelens.verify],
}
"""The functions that do what a command does."""

WITHOUT = {
    "completions": "for shells",
    "help": "Python has docstrings",
    "job": "its subcommands have functions",
    "man": "for shells",
    "open": "starts a server for a browser",
    "serve": "starts a server for a browser",
}
"""Commands without a function, and why."""

OTHER_NAMES = {
    "compress": "compression",
    "dataloader_type": "dataloader",
    "fixed_checkpoint_path": "path",
    "fix_inplace": "in_place",
    "force": "replace",
    "format_version": "version",
    "job": "job",
    "no_findings": "findings",
    "no_strict": "strict",
    "no_strict_version": "strict_version",
    "old_checkpoint": "checkpoint",
    "output": "path",
    "output_file": "path",
    "shard": "shards",
    "shuffle_seed": "seed",
    "tgt_fmt": "to",
    "with": "with_files",
    "worker_data_iter_files_dir": "states",
}
"""Parameters whose name is not that of the option."""

OPENING = {"limit", "max_fetch", "read_as", "scratch", "unstack", "with"}
"""Options that `open` has: functions take what it returns."""

ON_DISK = {
    "convert-dataloader-state",
    "convert-model",
    "fix-checkpoint-spec",
    "fold-lora",
    "latest",
    "merge",
    "prune",
    "runs",
    "upgrade",
}
"""Commands that take files, and not what `open` returns. Their limits are the defaults."""

OF_THE_COMMAND = {
    "help": "Python has docstrings",
    "json": "functions return what it prints",
    "sarif": "for code scanning, which runs the command",
}
"""Options that no function has."""

EXCEPTIONS = {
    "check": {"all": "`state=None`", "level": "`levels`"},
    "convert": {"scan": '`dry_run="scan"`'},
    "convert-config": {"debug": "the report has `dropped`"},
    "convert-model": {"scan": '`dry_run="scan"`'},
    "diff": {
        "closer": "`tensor_diff(left, right, keys)`",
        "op": "`rtol` and `atol`",
        "quiet": "the report has `matches`",
        "renames": "`renames(left, right)`",
    },
    "export": {"as": "`tensor.cast(dtype)`"},
    "fix-checkpoint-spec": {"yes": "nothing is asked"},
    "formats": {"markdown": "for the README"},
    "h5-to-tensorflow": {"scan": '`dry_run="scan"`'},
    "info": {"states": "the report has `states`"},
    "job plan manifest": {"from": "a path after `@`"},
    "job plan scan": {"from": "a path after `@`"},
    "job plan stats": {"from": "a path after `@`"},
    "job plan verify": {"from": "a path after `@`"},
    "ls": {
        "pieces": "text for people",
        "reverse": "`sorted`",
        "sort": "`sorted`",
        "tree": "text for people; `summary` folds layers",
    },
    "manifest": {name: "`json.dump` of the report" for name in ("force", "output", "sync")},
    "show": {
        "as": "`tensor.numpy().view(dtype)`",
        "code": "`checkpoint.code(key, library)`",
        "shape": "`array.reshape(shape)`",
        "values": "`tensor.numpy()`",
    },
    "stats": {
        "histogram": "text for people; the report has `histogram`",
        "rank": "`rank(tensor, lines)`",
        "reverse": "`sorted`",
        "sort": "`sorted`",
    },
    "summary": {name: "`pathlib.Path.write_text`" for name in ("force", "output", "sync")},
    "tensorflow-to-h5": {"scan": '`dry_run="scan"`'},
}
"""Options that are something else in Python, by command."""


def printed(*arguments):
    run = [sys.executable, "-m", "pystatelens", *arguments, "--help"]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


def subcommands(*command):
    text = printed(*command)
    listed = text.partition("\nCommands:\n")[2].partition("\nOptions:")[0].partition("\nArguments:")[0]
    return re.findall(r"^  ([a-z][a-z0-9-]*)", listed, re.MULTILINE)


def commands():
    found = subcommands()
    jobs = [f"job {name}" for name in subcommands("job") if name != "help"]
    plans = [f"job plan {name}" for name in subcommands("job", "plan") if name != "help"]
    return [*found, *jobs, *plans]


def options(command):
    """Returns the options of a command by the name that a parameter would have."""
    names = re.findall(r"^(?:  -\w, |      )--([\w-]+)", printed(*command.split()), re.MULTILINE)
    return {name.replace("-", "_") for name in names}


def parameters(functions):
    names = set()
    for function in functions:
        names |= inspect.signature(function).parameters.keys()
    return names


def test_each_command_has_a_function():
    assert set(commands()) == FUNCTIONS.keys() | WITHOUT.keys()
    assert not FUNCTIONS.keys() & WITHOUT.keys()


@pytest.mark.parametrize("command", FUNCTIONS)
def test_each_option_has_a_parameter(command):
    known, exceptions = parameters(FUNCTIONS[command]), EXCEPTIONS.get(command, {})
    found = options(command)
    assert found, command
    missing = set()
    for name in found - OF_THE_COMMAND.keys() - exceptions.keys():
        if name in OPENING:
            assert OTHER_NAMES.get(name, name) in parameters([pystatelens.open])
        elif name not in known and OTHER_NAMES.get(name) not in known:
            missing.add(name)
    assert not missing
    assert exceptions.keys() <= found, "an exception is not an option"
    assert not exceptions.keys() & known, "a parameter is listed as an exception"


def test_files_on_disk_take_max_fetch():
    for command in ON_DISK & {name for name in FUNCTIONS if "max_fetch" in options(name)}:
        assert "max_fetch" in parameters(FUNCTIONS[command]), command
