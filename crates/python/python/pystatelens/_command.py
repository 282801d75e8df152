"""Runs the command `statelens`, which is part of the package."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of this process, and returns its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Python's handler of Ctrl-C would wait until the command returns. The default handler ends
        # the process, unless the command installs its own.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(sys.argv)
