"""The command `statelens`, which the package brings along."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of this process; returns its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C ends the command as it ends any program, or as the command itself handles it.
        # Python's own handler would wait until the command returns.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(sys.argv)
