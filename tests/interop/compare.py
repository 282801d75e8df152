"""Compares the values that two libraries loaded, in the form of `describe`."""

import math
import re
from fnmatch import fnmatchcase

# A subtree of any form, which is not compared; see `BECOMES`.
ANYTHING = {"kind": "anything"}


def flat_key(path):
    """Returns the flat key of a path, as `cstorch` and `statelens` join it."""
    return ".".join(step[1:] if step[:1] in "#$" else step for step in path)


def differences(expected, actual, same_storages=False):
    """Returns one sentence for each difference. `same_storages` also compares which tensors share a storage without
    being equal, which not every format can store."""
    skipped = [path for path, node in expected if node == ANYTHING]
    if skipped:
        expected = [row for row in expected if not _below(row[0], skipped)]
        actual = [row for row in actual if not _below(row[0], skipped)]
    sentences = []
    for (path, node), (other_path, other) in zip(expected, actual):
        if path != other_path:
            sentences.append(f"expected {flat_key(path)!r}, found {flat_key(other_path)!r}")
            return sentences
        for field in sorted(set(node) | set(other)):
            if field == "storage" and not same_storages:
                continue
            if node.get(field) != other.get(field):
                difference = f"expected {node.get(field)!r}, found {other.get(field)!r}"
                sentences.append(f"{flat_key(path)!r}: {field}: {difference}")
    if len(expected) != len(actual):
        sentences.append(f"expected {len(expected)} values, found {len(actual)}")
    return sentences


def _below(path, tops):
    return any(path[: len(top)] == top for top in tops)


def without(rows, patterns):
    """Returns the rows that remain after `statelens convert --exclude` with these patterns."""
    # `KEY.*` matches the fields of an object, which the library loads as one value.
    patterns = [*patterns, *(pattern[:-2] for pattern in patterns if pattern.endswith(".*"))]
    excluded = [path for path, _ in rows if path and any(fnmatchcase(flat_key(path), pattern) for pattern in patterns)]
    return [row for row in rows if not _below(row[0], excluded)]


# Losses that describe the source or the reader, and do not change the output.
NOTES = re.compile(r"need a (later torch than 2\.4|torch that has these dtypes)|missing from the file$")


def apply_losses(rows, losses):
    """Applies the losses that a conversion reports to `rows`. Returns the expected rows of its output, and a sentence
    for each loss that does not list the right keys."""
    sentences = []
    objects = [flat_key(path) for path, node in rows if _is_object(path, node)]
    for loss in losses:
        if CAST.match(loss["what"]) or loss["what"] in EXPECTED or NOTES.search(loss["what"]):
            continue
        if loss["what"] not in BECOMES:
            sentences.append(f"`BECOMES` does not have this loss: {loss['what']!r}")
            continue
        applies, change = BECOMES[loss["what"]]
        # We list the fields of an object, which the library loads as one value.
        tops = {key: next((top for top in objects if _inside(key, top)), None) for key in loss["keys"]}
        opened = loss["what"] == WITHOUT_CLASS
        listed = {top if opened and top is not None else key for key, top in tops.items() if opened or top is None}
        touched = {index for index, (path, node) in enumerate(rows) if applies and applies(path, node)}
        if loss["what"] in AS_LISTED:
            touched = {index for index in touched if flat_key(rows[index][0]) in listed}
        keys = {flat_key(rows[index][0]) for index in touched}
        # An object that occurs twice is listed once, at its first key.
        again = {flat_key(rows[index][0]) for index in touched
                 if flat_key(rows[index][1].get("tie") or []) in listed}
        if loss["what"] not in UNSEEN and (listed - keys or keys - listed - again):
            sentences.append(f"{loss['what']!r} should list {sorted(keys)}, but lists {sorted(listed)}")
        rows = [[path, change(path, node) if index in touched else node] for index, (path, node) in enumerate(rows)]
    return rows, sentences


def _inside(key, top):
    return key != top and (top == "" or key.startswith(top + "."))


def _numbers(node):
    return not any(word in node["dtype"] for word in ("str", "bytes", "S", "U", "[", "datetime", "timedelta", "object"))


def _kind(*kinds):
    return lambda path, node: node["kind"] in kinds


def _class(name):
    return lambda path, node: node.get("class") == name


def _set(**fields):
    return lambda path, node: {**node, **fields}


def _drop(*fields):
    return lambda path, node: {field: value for field, value in node.items() if field not in fields}


def _other_dict(path, node):
    return node["kind"] == "dict" and node["class"] not in ("dict", "collections.OrderedDict")


def _is_path(path, node):
    return node["kind"] == "object" and node["type"].startswith("pathlib")


def _is_dtype(path, node):
    return node["kind"] == "object" and node["type"].startswith("numpy.dtype")


def _is_object(path, node):
    other = node["kind"] == "object" and not _is_path(path, node) and not _is_dtype(path, node)
    subclass = node["kind"] in ("dict", "list") and node["class"].startswith("__main__")
    return other or subclass or node["kind"] == "object_array"


def _text(path, node):
    return {"kind": "str", "value": node["repr"]} if isinstance(node.get("repr"), str) else ANYTHING


def _dtype_text(path, node):
    return ANYTHING if "[" in node["repr"] else {"kind": "str", "value": node["repr"].split("'")[1]}


def _path_text(path, node):
    text = node["repr"].split("'")[1]
    return {"kind": "str", "value": text.replace("/", "\\") if "Windows" in node["type"] else text}


def _is_huge(path, node):
    return node["kind"] == "int" and int(node["value"]).bit_length() >= 255 * 8


# The loss of the class of an object, whose fields are written.
WITHOUT_CLASS = "objects become plain dicts of their fields, without their class"
# The losses that a conversion reports: a function that selects the affected values, and one that changes their nodes.
BECOMES = {
    "numpy arrays become tensors of the same values": (
        lambda path, node: node["kind"] == "ndarray" and _numbers(node),
        _set(kind="tensor"),
    ),
    "numpy scalars become tensors without dimensions, of the same value": (
        lambda path, node: node["kind"] == "npscalar" and _numbers(node),
        lambda path, node: {**_drop("value")(path, node), "kind": "tensor"},
    ),
    "numpy scalars become arrays without dimensions": (
        _kind("npscalar"),
        lambda path, node: {**_drop("value")(path, node), "kind": "ndarray"},
    ),
    "numpy float64 scalars become floats": (
        lambda path, node: node["kind"] == "npscalar" and node["dtype"] == "float64",
        lambda path, node: {"kind": "float", "value": node["value"]},
    ),
    "arrays of strings, records, dates or numbers of odd sizes become None": (
        lambda path, node: node["kind"] in ("ndarray", "npscalar") and not _numbers(node),
        lambda path, node: {"kind": "none", "value": None},
    ),
    "numpy dtypes become their names": (_is_dtype, _dtype_text),
    "integers of more than 255 bytes become strings of their digits": (_is_huge, _set(kind="str")),
    "paths become strings": (_is_path, _path_text),
    "deques become lists": (_class("collections.deque"), _set(**{"class": "list"})),
    "deques of tensors become lists": (_class("collections.deque"), _set(**{"class": "list"})),
    "named tuples become plain tuples": (
        lambda path, node: node["kind"] == "tuple" and node["class"] not in ("tuple", "torch.Size"),
        _set(**{"class": "tuple"}),
    ),
    "torch.Size becomes a plain tuple": (_class("torch.Size"), _set(**{"class": "tuple"})),
    "frozensets become sets": (_kind("frozenset"), lambda path, node: {"kind": "set"}),
    "dicts of other classes become plain dicts": (_other_dict, _set(**{"class": "dict"})),
    "defaultdicts become plain dicts": (_class("collections.defaultdict"), _set(**{"class": "dict"})),
    "tensors of other classes become plain tensors": (
        lambda path, node: node["kind"] == "tensor" and node.get("class", "").startswith("__main__"),
        _drop("class"),
    ),
    "parameters become tensors": (_class("torch.nn.parameter.Parameter"), _drop("class", "requires_grad")),
    "tensors no longer require a gradient": (lambda path, node: "requires_grad" in node, _drop("requires_grad")),
    "objects become the text that Python prints for them, or the name of their class": (_is_object, _text),
    "objects become dicts of their attributes": (_is_object, lambda path, node: ANYTHING),
    WITHOUT_CLASS: (_is_object, lambda path, node: ANYTHING),
    "values that were one object are loaded as two": (
        lambda path, node: "tie" in node,
        lambda path, node: {**node, "tie": path},
    ),
    "contents of modules outside the state dict are left out": (_is_object, lambda path, node: ANYTHING),
    # `describe` does not show these.
    "attributes set on a dict (a state dict's `_metadata`) are left out": (None, None),
    "Python attributes of dicts and tensors are left out": (None, None),
    "Python attributes of dicts (`_metadata`) are left out": (None, None),
    "Python attributes of tensors are left out": (None, None),
    "tensors that share memory are written one by one": (None, None),
    "deques lose their maximum length": (None, None),
    "containers that were one object become equal copies": (None, None),
}
# Losses that affect the listed keys only: whether a value is affected depends on the format and its content.
AS_LISTED = {
    "dicts of other classes become plain dicts",
    "numpy scalars become arrays without dimensions",
    "objects become the text that Python prints for them, or the name of their class",
    "objects become dicts of their attributes",
    WITHOUT_CLASS,
}
# Losses whose affected values can't be recognised in the rows.
UNSEEN = {
    "contents of modules outside the state dict are left out",
    "containers that were one object become equal copies",
    "torch.Size becomes a plain tuple",
    "values that were one object are loaded as two",
    "attributes set on a dict (a state dict's `_metadata`) are left out",
    "Python attributes of dicts and tensors are left out",
    "Python attributes of dicts (`_metadata`) are left out",
    "Python attributes of tensors are left out",
    "tensors that share memory are written one by one",
    "deques lose their maximum length",
}
# A requested cast, which `describe` also applies to the expected values.
CAST = re.compile(r"\w+ becomes \w+: ")
# Requested losses, and damage that the library finds in the source, too.
EXPECTED = {
    "the optimizer's state is left out, so training can't resume from this",
    "the data is missing from the source, or damaged in it",
}


def manifest_entries(rows):
    """Returns the expected entries of the manifest, `[key, fields]`, for the values that a library loaded."""
    entries, skipped = [], []
    for index, (path, node) in enumerate(rows):
        if _below(path, skipped):
            continue
        kind, key = node["kind"], flat_key(path)
        below = index + 1 < len(rows) and rows[index + 1][0][: len(path)] == path and len(rows[index + 1][0]) > len(path)
        if kind in ("dict", "list", "tuple", "set"):
            if not below:
                entries.append([key, {"kind": kind}])
        elif kind == "frozenset":
            skipped.append(path)
            entries.append([key, {"kind": "object", "type": "builtins.frozenset"}])
        elif kind in ("tensor", "ndarray", "npscalar"):
            fields = {name: node[name] for name in ("shape", "nbytes", "sha256")}
            fields["dtype"] = node["dtype"] if kind == "tensor" else _dtype_name(node)
            entries.append([key, {"kind": "tensor" if kind == "tensor" else "ndarray", **fields}])
        elif kind == "sparse":
            entries.append([key, {"kind": kind, "dtype": node["dtype"], "shape": node["shape"], "layout": node["layout"],
                                  "parts": node["parts"]}])
        elif kind == "meta":
            entries.append([key, {"kind": "tensor", "dtype": node["dtype"], "shape": node["shape"], "sha256": None}])
        elif kind in ("bytes", "bytearray"):
            entries.append([key, {"kind": "bytes", **node["value"]}])
        elif kind in ("int", "float", "bool", "str", "complex"):
            entries.append([key, {"kind": kind, "value": node["value"]}])
        elif kind in ("none",):
            entries.append([key, {"kind": kind}])
        elif kind == "cycle":
            entries.append([key, {"alias_of": flat_key(node["to"])}])
        else:
            entries.append([key, {"kind": "object"}])
    return entries


def _dtype_name(node):
    """Returns the manifest's name for a dtype of NumPy: `bytes16` for `|S2`, `void96` for a record."""
    dtype = node["dtype"]
    for code, name, bits in (("|S", "bytes", 8), ("<U", "str", 32)):
        if dtype.startswith(code):
            return f"{name}{int(dtype[2:]) * bits}"
    count = math.prod(node["shape"])
    return f"void{node['nbytes'] // count * 8}" if dtype.startswith("[") and count else dtype


def manifest_differences(rows, manifest):
    """Returns one sentence for each difference of our manifest from the values that a library loaded."""
    expected = manifest_entries(rows)
    objects = [key for key, fields in expected if fields.get("kind") == "object"]
    # We list the fields of an object, which the library loads as one value.
    owner = {entry["key"]: next((key for key in objects if entry["key"] == key or _inside(entry["key"], key)), None)
             for entry in manifest["entries"]}
    sentences = [f"{key!r} and its fields are not listed" for key in objects if key not in owner.values()]
    expected = [[key, fields] for key, fields in expected if key not in objects]
    actual = [entry for entry in manifest["entries"] if owner[entry["key"]] is None]
    ties = {flat_key(path): flat_key(node["tie"]) for path, node in rows if "tie" in node}
    for (key, fields), entry in zip(expected, actual):
        # Members of a set have neither an order nor a key.
        if key.split(".{}")[0] != (entry["key"].rsplit(".", 1)[0] if ".{}" in key else entry["key"]):
            return [f"expected {key!r}, found {entry['key']!r}"]
        for name, value in fields.items():
            other = entry.get(name)
            if name == "parts":
                other = {part: {field: other[part].get(field) for field in wanted} for part, wanted in value.items()}
            if other != value:
                sentences.append(f"{key!r}: {name}: expected {value!r}, found {other!r}")
        if "alias_of" in entry and key in ties and ties[entry["alias_of"]] != ties[key]:
            sentences.append(f"{key!r}: is listed as an alias of {entry['alias_of']!r}, but is not tied to it")
    if len(expected) != len(actual):
        sentences.append(f"expected {len(expected)} entries, found {len(actual)}")
    return sentences
