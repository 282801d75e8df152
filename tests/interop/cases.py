"""Lists the conversions that `run.py` compares, and the exceptions with their reasons.

`run.py` fails if an exception is no longer needed.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    group: str  # title in the output
    source: str  # path of the fixture below tests/fixtures
    suffix: str  # extension of the output
    expect: str  # loader of the source, see load.py
    actual: str  # loader of the output
    options: tuple = ()
    cast: str = ""

    @property
    def target(self):
        return "0.4" if "0.4" in self.options else ".pt" if self.suffix == ".pt" else "0.5"


def cases(fixtures: Path):
    names = sorted(str(path.relative_to(fixtures)) for path in fixtures.rglob("*") if path.is_file())
    for name in names:
        if name.startswith("cerebras/") and name.endswith(".mdl"):
            yield Case("mdl -> pt", name, ".pt", "cstorch", "weights_only")
            yield Case("mdl -> mdl", name, ".mdl", "cstorch", "cstorch")
            if "/v2.4.0" in name:
                yield Case("mdl -> mdl, gzip", name, ".mdl", "cstorch", "cstorch", ("--compress", "gzip"))
            else:
                yield Case("mdl -> mdl, LZ4", name, ".mdl", "cstorch", "cstorch", ("--compress", "lz4"))
                yield Case("mdl -> mdl 0.4", name, ".mdl", "cstorch", "cstorch", ("--format-version", "0.4"))
        # Releases 2.4 and 2.10 saved the same state dicts, so the `.pt` files of 2.4 need one case only.
        elif name.startswith("cerebras/v2.4.0/") and name.endswith(".pt"):
            yield Case("pt -> mdl 0.4", name, ".mdl", "torch", "cstorch", ("--format-version", "0.4"))
        elif name.startswith(TORCH) and name.endswith((".pt", ".pth", ".ckpt", ".pth.tar")):
            yield Case("pt -> pt", name, ".pt", "torch", "weights_only")
            if name in SLOW:
                continue
            yield Case("pt -> mdl", name, ".mdl", "torch", "cstorch")
            if not name.startswith("cerebras/"):
                yield Case("pt -> mdl 0.4", name, ".mdl", "torch", "cstorch", ("--format-version", "0.4"))
    for name in ("cerebras/v2.10.0/gpt_small.mdl", "cerebras/v2.4.0/gpt_small.mdl", "cerebras/v2.10.0/dtypes.mdl"):
        yield Case("mdl -> pt, cast", name, ".pt", "cstorch", "weights_only", ("--cast", "bfloat16"), "bfloat16")
        yield Case("mdl -> mdl, cast", name, ".mdl", "cstorch", "cstorch", ("--cast", "float16"), "float16")
    for name in ("cerebras/v2.10.0/gpt_small.pt", "torch/zip_training_ckpt.pt", "torch/zip_views.pt"):
        yield Case("pt -> mdl, cast", name, ".mdl", "torch", "cstorch", ("--cast", "bfloat16"), "bfloat16")


# cstorch takes more than ten minutes to load 20,000 values, because its time is quadratic in their number.
# `legacy_many_5k` covers the same code.
SLOW = ("torch/zip_many_20k.pt", "torch/zip_20k_views_one_storage.pt")
TORCH = ("cerebras/v2.10.0", "torch/", "torch_crafted/")

# Fixtures that their own library does not load: `reason: fixtures`.
_NOT_LOADED = {
    "made by hand without data that cstorch requires": [
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
    "a defaultdict with three items: cstorch loses the third one when it saves, and can't load the rest": [
        "cerebras/v2.10.0-special/defaultdict3.mdl",
    ],
    "a TorchScript graph that cstorch saves and can't run": ["cerebras/v2.10.0-special/graph_tensor.mdl"],
    "links to a file by an absolute path of another machine": [
        "cerebras/v2.10.0-special/link_external.mdl",
        "cerebras/v2.10.0-special/link_legacy.mdl",
        "cerebras/v2.10.0-special/link_safetensors.mdl",
        "cerebras/v2.4.0-special/link_external.mdl",
        "cerebras/v2.4.0-special/file_tensor_link.mdl",
    ],
    "an entry without a type, from a save that failed: cstorch 2.10 stops at its own ImportError": [
        "cerebras/v2.4.0-special/full_none.mdl",
        "cerebras/v2.4.0/string_nul.mdl",
        "cerebras/v2.4.0/string_surrogate.mdl",
    ],
    "torch.save failed and left an archive without a pickle": [
        f"cerebras/{release}/dtype_uint{bits}.pt" for release in ("v2.10.0", "v2.4.0") for bits in (16, 32, 64)
    ],
    "torch writes these dtypes into a legacy file and can't load them": ["torch/legacy_new_dtypes.pt"],
    "torch requires one top-level folder in the archive": [
        "torch_crafted/no_root.pt",
        "torch_crafted/root_deep.pt",
        "torch_crafted/prefixed.pt",
    ],
    "incomplete": ["torch_crafted/truncated.pt", "torch_crafted/zero_bytes.pt"],
}
NOT_LOADED = {name: reason for reason, names in _NOT_LOADED.items() for name in names}

# Conversions that lose something and need --lossy: `target: fixtures`.
LOSSY = {
    ".pt": [
        "cerebras/v2.10.0-special/dictsub.mdl",
        "cerebras/v2.10.0-special/dirty.mdl",
        "cerebras/v2.10.0-special/link_materialized.mdl",
        "cerebras/v2.10.0-special/link_target.mdl",
        "cerebras/v2.10.0-special/link_target.pt",
        "cerebras/v2.10.0-special/listsub.mdl",
        "cerebras/v2.10.0/custom.mdl",
        "cerebras/v2.10.0/custom.pt",
        "cerebras/v2.10.0/defaultdict.mdl",
        "cerebras/v2.10.0/defaultdict.pt",
        "cerebras/v2.10.0/deque.mdl",
        "cerebras/v2.10.0/deque.pt",
        "cerebras/v2.10.0/numpy_bytes.mdl",
        "cerebras/v2.10.0/numpy_bytes.pt",
        "cerebras/v2.10.0/numpy_struct.mdl",
        "cerebras/v2.10.0/numpy_struct.pt",
        "cerebras/v2.10.0/pyobjects.mdl",
        "cerebras/v2.10.0/pyobjects.pt",
        "cerebras/v2.4.0/custom.mdl",
        "cerebras/v2.4.0/defaultdict.mdl",
        "cerebras/v2.4.0/deque.mdl",
        "cerebras/v2.4.0/numpy_bytes.mdl",
        "cerebras/v2.4.0/numpy_struct.mdl",
        "cerebras/v2.4.0/pyobjects.mdl",
        "torch/legacy_full_module.pt",
        "torch/legacy_nested_python.pt",
        "torch/lightning_like.ckpt",
        "torch/zip_full_torchnn_module.pt",
        "torch/zip_nested_python.pt",
        "torch/zip_nested_python_weightsonly.pt",
        "torch/zip_numpy.pt",
        "torch/zip_numpy_p4.pt",
        "torch/zip_numpy_p5.pt",
        "torch/zip_protocol2.pt",
        "torch/zip_protocol3.pt",
        "torch/zip_protocol4.pt",
        "torch/zip_protocol5.pt",
        "torch/zip_python_objects.pt",
        "torch/zip_rng_states.pt",
        "torch/zip_tensor_attrs_subclass.pt",
    ],
    "0.5": [
        "cerebras/v2.10.0-special/dirty.mdl",
        "cerebras/v2.10.0-special/link_materialized.mdl",
        "cerebras/v2.10.0-special/link_target.mdl",
        "cerebras/v2.10.0-special/link_target.pt",
        "torch/lightning_like.ckpt",
        "torch/zip_python_objects.pt",
        "torch/zip_tensor_attrs_subclass.pt",
    ],
    "0.4": [
        "cerebras/v2.10.0-special/dirty.mdl",
        "cerebras/v2.10.0-special/link_materialized.mdl",
        "cerebras/v2.10.0-special/link_target.mdl",
        "cerebras/v2.10.0/defaultdict.mdl",
        "cerebras/v2.4.0/defaultdict.pt",
        "torch/lightning_like.ckpt",
        "torch/zip_python_objects.pt",
        "torch/zip_tensor_attrs_subclass.pt",
    ],
}

# Values that the target can't hold: `reason: [(targets, patterns, fixtures)]`. We refuse the conversion. `run.py`
# repeats it without the keys that match, and compares the other keys. Empty patterns mean that no keys remain.
_REFUSED = {
    "objects that only their own code can create, and arrays that h5py does not write": [
        ("0.5 0.4", [], [
            "cerebras/v2.10.0-special/dictsub.mdl",
            "cerebras/v2.10.0-special/listsub.mdl",
            "cerebras/v2.10.0/custom.mdl",
            "torch/legacy_full_module.pt",
            "torch/zip_full_torchnn_module.pt",
        ]),
        ("0.5", [], [
            "cerebras/v2.10.0/custom.pt",
            "cerebras/v2.4.0/custom.mdl",
        ]),
        ("0.4", [], [
            "cerebras/v2.4.0/custom.pt",
        ]),
        ("0.5", ["str", "obj", "dt64", "dtype_s", "nptype"], [
            "torch/zip_numpy.pt",
            "torch/zip_numpy_p4.pt",
            "torch/zip_numpy_p5.pt",
        ]),
        ("0.4", ["str", "obj", "dt64", "sstr", "dtype_s", "nptype"], [
            "torch/zip_numpy.pt",
            "torch/zip_numpy_p4.pt",
            "torch/zip_numpy_p5.pt",
        ]),
        ("0.5 0.4", ["enum", "ie", "dc.*", "slots.*", "partial", "func", "exc"], [
            "torch/zip_python_objects.pt",
        ]),
        ("0.5 0.4", ["npgen.*"], [
            "torch/zip_rng_states.pt",
        ]),
    ],
    "the format has no such tensors, and the Cerebras library refuses to save them": [
        ("0.5", [], [
            "cerebras/v2.4.0/dtype_complex128.mdl",
            "cerebras/v2.4.0/dtype_complex64.mdl",
            "cerebras/v2.4.0/dtype_int8.mdl",
        ]),
        ("0.5 0.4", [], [
            "torch/zip_dtype_bits16.pt",
            "torch/zip_dtype_bits1x8.pt",
            "torch/zip_dtype_bits4x2.pt",
            "torch/zip_dtype_bits8.pt",
            "torch/zip_dtype_float4_e2m1fn_x2.pt",
            "torch/zip_quantized.pt",
            "torch/zip_sparse.pt",
        ]),
        ("0.5", ["int8", "complex64", "complex128"], [
            "torch/legacy_all_dtypes.pt",
            "torch/zip_all_dtypes.pt",
        ]),
        ("0.5 0.4", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32"], [
            "torch/zip_new_dtypes.pt",
        ]),
        ("0.5", ["c"], [
            "torch_crafted/bigendian.pt",
            "torch_crafted/deflated.pt",
            "torch_crafted/old_torch_layout.pt",
            "torch_crafted/rezipped_stored.pt",
            "torch_crafted/src.pt",
            "torch_crafted/with_junk.pt",
        ]),
    ],
    "two values with the same flat key: the library would lose one of them": [
        ("0.5", [], [
            "cerebras/v2.10.0/keys_collide.pt",
            "cerebras/v2.10.0/keys_collide_tensor.pt",
            "cerebras/v2.10.0/keys_int_str_collide.pt",
            "cerebras/v2.4.0/keys_collide.mdl",
            "cerebras/v2.4.0/keys_collide_tensor.mdl",
            "cerebras/v2.4.0/keys_int_str_collide.mdl",
        ]),
        ("0.4", [], [
            "cerebras/v2.4.0/keys_collide.pt",
            "cerebras/v2.4.0/keys_collide_tensor.pt",
            "cerebras/v2.4.0/keys_int_str_collide.pt",
        ]),
        ("0.5", ["", "a", "a.*", "nul*", "lone*"], [
            "torch/zip_unicode_keys.pt",
        ]),
        ("0.4", ["", "a", "a.*", "lone*"], [
            "torch/zip_unicode_keys.pt",
        ]),
    ],
    "a key that the library can save but not load": [
        ("0.5", [], [
            "cerebras/v2.10.0/keys_tuple.pt",
            "cerebras/v2.4.0/keys_tuple.mdl",
        ]),
        ("0.5", ["(1, 2)", "b'bk'"], [
            "torch/legacy_nested_python.pt",
            "torch/zip_nested_python.pt",
        ]),
        ("0.4", ["b'bk'", "ineg2^64", "big", "nbig", "huge"], [
            "torch/legacy_nested_python.pt",
            "torch/zip_nested_python.pt",
        ]),
        ("0.5", ["(1, 2)"], [
            "torch/zip_nested_python_weightsonly.pt",
        ]),
    ],
    "a name that HDF5 can't store": [
        ("0.4", [""], [
            "cerebras/v2.10.0/keys_empty_scalar.mdl",
        ]),
        ("0.4", [], [
            "cerebras/v2.10.0/top_leaf_int.mdl",
            "torch/zip_bare_int.pt",
            "torch/zip_bare_none.pt",
            "torch/zip_bare_str.pt",
        ]),
        ("0.5", [], [
            "cerebras/v2.4.0/keys_slash_trail.mdl",
        ]),
        ("0.5 0.4", [], [
            "torch/legacy_bare_tensor.pth",
            "torch/zip_bare_tensor.pt",
        ]),
        ("0.5", ["a/b"], [
            "cerebras/v2.4.0/keys_slash_prefix.mdl",
        ]),
    ],
    "meta tensors have no data": [
        (".pt 0.5 0.4", [], [
            "torch/zip_meta.pt",
        ]),
    ],
    "0.4 stores integers in 64 bits": [
        ("0.4", [], [
            "cerebras/v2.10.0/py_bigint.mdl",
        ]),
        ("0.4", ["ineg2^64", "big", "nbig", "huge"], [
            "torch/zip_nested_python_weightsonly.pt",
        ]),
        ("0.4", ["big"], [
            "torch/zip_protocol2.pt",
            "torch/zip_protocol3.pt",
            "torch/zip_protocol4.pt",
            "torch/zip_protocol5.pt",
        ]),
    ],
    "0.4 stores strings as NUL-terminated UTF-8": [
        ("0.4", [], [
            "cerebras/v2.10.0/string_nul.mdl",
            "cerebras/v2.10.0/string_surrogate.mdl",
        ]),
    ],
    "containers that contain themselves": [
        (".pt", [], [
            "torch/zip_cyclic.pt",
        ]),
        ("0.5 0.4", ["self", "l.1", "t*"], [
            "torch/zip_cyclic.pt",
        ]),
    ],
}

REFUSED = {
    (target, name): (patterns, reason)
    for reason, entries in _REFUSED.items()
    for targets, patterns, names in entries
    for target in targets.split()
    for name in names
}

# Intended differences of our output or manifest from the values that the library loads: `reason: {fixture: keys}`.
_DIFFERENT = {
    "a constant tensor without a value: the library returns uninitialised memory": {
        "cerebras/v2.10.0-special/full_tensors.mdl": ["none"],
    },
    "a hard link: the library loads two tensors from one dataset; we tie them": {
        "cerebras/v2.4.0-special/hardlink_alias.mdl": ["model.lm_head.weight"],
        "cerebras/v2.4.0-special/link_to_self.mdl": ["model.lm_head.weight"],
    },
    "release 2.4 stored a torch.Size, which 2.10 loads as a plain tuple": {
        "cerebras/v2.4.0/torch_size.mdl": ["size", "t.shape"],
    },
}
DIFFERENT = {name: (keys, reason) for reason, names in _DIFFERENT.items() for name, keys in names.items()}

# Intended differences that are not always there, because uninitialised memory may equal our values.
EQUAL_AT_TIMES = {"cerebras/v2.10.0-special/full_tensors.mdl"}

# Manifests that correctly differ from the values that the library loads: `fixture: reason`.
TWO_KINDS = "two keys that differ only in their type: we put the string in quotes"
MANIFEST_DIFFERENT = {
    "cerebras/v2.10.0-special/dictsub.mdl": "we list a pickled subclass of dict as one object",
    "cerebras/v2.10.0-special/listsub.mdl": "we list a pickled subclass of list as one object",
    "cerebras/v2.10.0/defaultdict.mdl": "we use the library's names for the values of a defaultdict, after its factory",
    "cerebras/v2.4.0/defaultdict.mdl": "we use the library's names for the values of a defaultdict, after its factory",
    "cerebras/v2.10.0/keys_int_str_collide.pt": TWO_KINDS,
    "cerebras/v2.4.0/keys_int_str_collide.mdl": TWO_KINDS,
    "cerebras/v2.4.0/keys_int_str_collide.pt": TWO_KINDS,
    "torch/zip_shared_objects.pt": "a list that occurs five times: we list it once, and four ties",
}
