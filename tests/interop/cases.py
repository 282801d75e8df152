"""What is converted, and every case that can't be compared, by name and with its reason.

`run.py` fails when a reason is no longer needed.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    group: str  # what is shown, in words
    source: str  # the fixture, from tests/fixtures
    suffix: str  # of what is written
    expect: str  # how the source is loaded, see load.py
    actual: str  # how what we wrote is loaded
    options: tuple = ()
    cast: str = ""


def cases(fixtures: Path):
    names = sorted(str(path.relative_to(fixtures)) for path in fixtures.rglob("*") if path.is_file())
    mdl = [name for name in names if name.startswith("cerebras/") and name.endswith(".mdl")]
    torch = [name for name in names if name.endswith((".pt", ".pth", ".ckpt", ".pth.tar"))
             and name.startswith(("cerebras/", "torch/", "torch_crafted/"))]
    for name in mdl:
        yield Case("mdl -> pt, safely loaded", name, ".pt", "cstorch", "weights_only")
        yield Case("mdl -> mdl", name, ".mdl", "cstorch", "cstorch")
        yield Case("mdl -> mdl, LZ4", name, ".mdl", "cstorch", "cstorch", ("--compress", "lz4"))
        yield Case("mdl -> mdl, gzip", name, ".mdl", "cstorch", "cstorch", ("--compress", "gzip"))
        yield Case("mdl -> mdl 0.4", name, ".mdl", "cstorch", "cstorch", ("--format-version", "0.4"))
    for name in torch:
        yield Case("pt -> mdl", name, ".mdl", "torch", "cstorch")
        yield Case("pt -> pt, safely loaded", name, ".pt", "torch", "weights_only")
        yield Case("pt -> mdl 0.4", name, ".mdl", "torch", "cstorch", ("--format-version", "0.4"))
    for name in ("cerebras/v2.10.0/gpt_small.mdl", "cerebras/v2.4.0/gpt_small.mdl", "cerebras/v2.10.0/dtypes.mdl"):
        yield Case("mdl -> pt, cast", name, ".pt", "cstorch", "weights_only", ("--cast", "bfloat16"), "bfloat16")
        yield Case("mdl -> mdl, cast", name, ".mdl", "cstorch", "cstorch", ("--cast", "float16"), "float16")
    for name in ("cerebras/v2.10.0/gpt_small.pt", "torch/zip_training_ckpt.pt", "torch/zip_views.pt"):
        yield Case("pt -> mdl, cast", name, ".mdl", "torch", "cstorch", ("--cast", "bfloat16"), "bfloat16")


# Why the library itself does not load a fixture: `reason: fixtures`.
_NOT_LOADED = {
    "made by hand without what cstorch needs: it refuses": [
        f"cerebras/errors/{name}.mdl"
        for name in ("dset_missing", "dset_without_attrs", "empty", "link_missing", "missing_key_meta", "no_spec",
                     "no_success", "no_version", "nothdf5", "success_false", "unknown_type", "version_0_4_on_new")
    ],
    "releases 1.7 and 1.8, which cstorch 2.10 can't open (no version, or its own ImportError)": [
        "cerebras/compat/synthetic_1.7.mdl",
        "cerebras/compat/synthetic_1.7_fixed.mdl",
        "cerebras/errors/v01.mdl",
        "cerebras/errors/v02.mdl",
    ],
    "two leaves with one flat key: cstorch saves them and can't load them": [
        "cerebras/v2.10.0/keys_collide.mdl",
        "cerebras/v2.10.0/keys_collide_tensor.mdl",
        "cerebras/v2.10.0/keys_int_str_collide.mdl",
        "cerebras/v2.10.0/keys_tuple.mdl",
    ],
    "a defaultdict of three: cstorch loses the third when it saves, and can't load the rest": [
        "cerebras/v2.10.0-special/defaultdict3.mdl",
    ],
    "a TorchScript graph that cstorch saves and can't run": ["cerebras/v2.10.0-special/graph_tensor.mdl"],
    "links to a file by an absolute path that only existed where it was saved": [
        "cerebras/v2.10.0-special/link_external.mdl",
        "cerebras/v2.4.0-special/link_external.mdl",
        "cerebras/v2.4.0-special/file_tensor_link.mdl",
    ],
    "an entry without a type, left by a save that failed: cstorch 2.10 stops at its own ImportError": [
        "cerebras/v2.4.0-special/full_none.mdl",
        "cerebras/v2.4.0/string_nul.mdl",
        "cerebras/v2.4.0/string_surrogate.mdl",
    ],
    "torch.save stopped half-way and left an archive without a pickle": [
        f"cerebras/{release}/dtype_uint{bits}.pt" for release in ("v2.10.0", "v2.4.0") for bits in (16, 32, 64)
    ],
    "torch writes these dtypes into a legacy file and can't load them": ["torch/legacy_new_dtypes.pt"],
    "torch wants one folder at the start of the archive": [
        "torch_crafted/no_root.pt",
        "torch_crafted/root_deep.pt",
        "torch_crafted/prefixed.pt",
    ],
    "not whole": ["torch_crafted/truncated.pt", "torch_crafted/zero_bytes.pt"],
}
NOT_LOADED = {name: reason for reason, names in _NOT_LOADED.items() for name in names}

# Conversions that lose something, and so are asked for with --lossy: `group: fixtures`.
LOSSY = {}

# Conversions that we refuse, lossy or not: `(group, fixture): reason`.
REFUSED = {}

# Where what we wrote differs from the source in a way that is right: `(group, fixture): reason`.
DIFFERENT = {}
