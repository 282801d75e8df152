"""Compares what two libraries loaded, both as `describe` puts it."""

# A part of the tree whose form nobody could foresee; see `BECOMES`.
ANYTHING = {"kind": "anything"}


def flat_key(path):
    """The key as `cstorch` and `statelens` join it: `str` of every step."""
    return ".".join(step[1:] if step[:1] in "#$" else step for step in path)


def differences(expected, actual, same_storages=False):
    """What differs, a sentence each. Which tensors share a storage without being the same is
    compared only on demand: not every format can say it."""
    skipped = [path for path, node in expected if node == ANYTHING]
    if skipped:
        expected = [row for row in expected if not _below(row[0], skipped)]
        actual = [row for row in actual if not _below(row[0], skipped)]
    found = []
    for (path, node), (other_path, other) in zip(expected, actual):
        if path != other_path:
            found.append(f"expected {flat_key(path)!r}, found {flat_key(other_path)!r}")
            return found
        for field in sorted(set(node) | set(other)):
            if field == "storage" and not same_storages:
                continue
            if node.get(field) != other.get(field):
                found.append(f"{flat_key(path)!r}: {field}: expected {node.get(field)!r}, found {other.get(field)!r}")
    if len(expected) != len(actual):
        found.append(f"expected {len(expected)} values, found {len(actual)}")
    return found


def _below(path, tops):
    return any(path[: len(top)] == top for top in tops)


def apply_losses(rows, losses):
    """What is left of `rows` if a conversion loses what it says, and only that; and where it says
    something else than what is there."""
    found = []
    for loss in losses:
        if loss["what"] not in BECOMES:
            found.append(f"nothing here knows what this means: {loss['what']!r}")
            continue
        applies, change = BECOMES[loss["what"]]
        touched = [index for index, (_, node) in enumerate(rows) if applies(node)]
        keys = {flat_key(rows[index][0]) for index in touched}
        listed = set(loss["keys"])
        # The same object at a second place is listed once, where it is first.
        again = {flat_key(rows[index][0]) for index in touched
                 if flat_key(rows[index][1].get("tie") or []) in listed}
        if listed - keys or keys - listed - again:
            found.append(f"{loss['what']!r} should be said of {sorted(keys)}, and is said of {sorted(listed)}")
        rows = [[path, change(node) if index in set(touched) else node] for index, (path, node) in enumerate(rows)]
    return rows, found


def _numbers(node):
    return not any(word in node["dtype"] for word in ("str", "bytes", "S", "U", "[", "datetime", "timedelta", "object"))


def _plain_dict(node):
    return node["class"] in ("dict", "collections.OrderedDict", "collections.Counter")


def _repr_as_text(node):
    return {"kind": "str", "value": node["repr"]} if node.get("repr") else ANYTHING


def _path_text(node):
    return {"kind": "str", "value": node["repr"].split("'")[1]}


def _is_path(node):
    return node["kind"] == "object" and node["type"].startswith("pathlib")


# What a conversion says will happen: which values it concerns, and what becomes of them.
BECOMES = {
    "numpy arrays become tensors of the same values": (
        lambda node: node["kind"] == "ndarray" and _numbers(node),
        lambda node: {**node, "kind": "tensor"},
    ),
    "numpy scalars become tensors without dimensions, of the same value": (
        lambda node: node["kind"] == "npscalar" and _numbers(node),
        lambda node: {**node, "kind": "tensor"},
    ),
    "arrays of strings, records or dates become None": (
        lambda node: node["kind"] in ("ndarray", "npscalar") and not _numbers(node),
        lambda node: {"kind": "none", "value": None},
    ),
    "paths become strings": (_is_path, _path_text),
    "deques become lists": (
        lambda node: node.get("class") == "collections.deque",
        lambda node: {**node, "class": "list"},
    ),
    "named tuples become plain tuples": (
        lambda node: node["kind"] == "tuple" and node["class"] not in ("tuple", "torch.Size"),
        lambda node: {**node, "class": "tuple"},
    ),
    "frozensets become sets": (
        lambda node: node["kind"] == "frozenset",
        lambda node: {"kind": "set"},
    ),
    "dicts of other classes become plain dicts": (
        lambda node: node["kind"] == "dict" and not _plain_dict(node),
        lambda node: {**node, "class": "dict"},
    ),
    "tensors of other classes become plain tensors": (
        lambda node: node["kind"] == "tensor" and node.get("class", "").startswith("__main__"),
        lambda node: {field: value for field, value in node.items() if field != "class"},
    ),
    "objects become the text that Python prints for them": (
        lambda node: node["kind"] == "object" and not _is_path(node),
        _repr_as_text,
    ),
    "objects become dicts or lists of what they hold": (
        lambda node: node["kind"] == "object" and not _is_path(node),
        lambda node: ANYTHING,
    ),
}


def manifest_entries(rows):
    """The manifest that belongs to what a library loaded: `[key, fields]`, as far as it can know."""
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
            fields = {name: node[name] for name in ("dtype", "shape", "nbytes", "sha256") if name in node}
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


def manifest_differences(rows, manifest):
    """How a manifest of ours differs from what the library loaded."""
    expected = manifest_entries(rows)
    objects = [key for key, fields in expected if fields.get("kind") == "object"]
    # We also list the tensors in an object that nobody built; for the library it is one value.
    actual = [entry for entry in manifest["entries"]
              if entry["key"] in objects or not any(entry["key"].startswith(key + ".") or key == "" for key in objects)]
    ties = {flat_key(path): flat_key(node["tie"]) for path, node in rows if "tie" in node}
    # The members of a set have no order and no key of their own.
    expected = [[key, fields] for key, fields in expected]
    found = []
    for (key, fields), entry in zip(expected, actual):
        if key.split(".{}")[0] != (entry["key"].rsplit(".", 1)[0] if ".{}" in key else entry["key"]):
            return [f"expected {key!r}, found {entry['key']!r}"]
        for name, value in fields.items():
            other = entry.get(name)
            if name == "parts":
                other = {part: {field: other[part].get(field) for field in wanted} for part, wanted in value.items()}
            if other != value:
                found.append(f"{key!r}: {name}: expected {value!r}, found {other!r}")
        if "alias_of" in entry and key in ties and ties[entry["alias_of"]] != ties[key]:
            found.append(f"{key!r}: is said to be {entry['alias_of']!r}, and is not")
    if len(expected) != len(actual):
        found.append(f"expected {len(expected)} entries, found {len(actual)}")
    return found
