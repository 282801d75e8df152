"""Writes the names that `torch.load(weights_only=True)` of the installed torch accepts, one a line.

usage: allowlist.py > tests/fixtures/weights_only_VERSION.txt

Run by hand with torch 2.4 and the newest, in an environment of its own each.
"""

from torch._weights_only_unpickler import _get_allowed_globals

print(*sorted(_get_allowed_globals()), sep="\n")
