"""Prints the names that `torch.load(weights_only=True)` of the installed torch accepts, one per line.

    python allowlist.py > tests/fixtures/weights_only_VERSION.txt

Run it by hand with torch 2.4 and with the newest torch, each in a separate environment.
"""

from torch._weights_only_unpickler import _get_allowed_globals

print(*sorted(_get_allowed_globals()), sep="\n")
