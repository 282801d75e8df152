"""Runs the command `statelens` for `python -m pystatelens`."""

import sys

from ._command import main

if __name__ == "__main__":
    sys.exit(main())
