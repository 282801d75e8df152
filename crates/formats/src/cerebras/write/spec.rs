//! Writes the structure of a state dict as JSON: the output of torch's `treespec_dumps`, and the
//! human-readable skeleton that the Cerebras library adds to it.

use statelens_checkpoint::DictKey;
#[cfg(test)]
use statelens_checkpoint::Text;
use statelens_checkpoint::json;

use super::node::{ContainerClass, StructureNode};

/// Returns `[skeleton, spec]`, indented, as in the root attribute `__spec__`.
pub(super) fn root(nodes: &[StructureNode]) -> String {
    let mut out = String::from("[");
    json::separate(&mut out, false, 1);
    if dumpable(nodes) {
        skeleton(nodes, &mut out);
    } else {
        out.push_str("null");
    }
    json::separate(&mut out, true, 1);
    json::quote_str(&treespec(nodes), &mut out);
    json::separate(&mut out, false, 0);
    out.push(']');
    out
}

/// Writes the same for a dict with one leaf, indented by one level. `quoted` is its key as JSON.
/// Every leaf of a file has such a text, so this does not build the nodes.
pub(super) fn single(quoted: &str, out: &mut String) {
    out.push_str("[\n        {\n            ");
    out.push_str(quoted);
    out.push_str(": \"*\"\n        },\n        ");
    out.push_str(BEFORE_KEY);
    // The key is in a list in a string in a string.
    let key = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    out.push_str(&json::escaped(&json::escaped(key)));
    out.push_str(AFTER_KEY);
    out.push_str("\n    ]");
}

/// The spec of a dict with one leaf, as a string in JSON, up to its key and after it.
const BEFORE_KEY: &str = r#""[1, {\"type\": \"builtins.dict\", \"context\": \"[\\\""#;
const AFTER_KEY: &str = r#"\\\"]\", \"children_spec\": [{\"type\": null, \"context\": null, \"children_spec\": []}]}]""#;

/// Returns whether JSON can hold a key of a dict. (Other keys would be saved, but not found on
/// load.)
pub(super) fn can_hold(key: &DictKey) -> bool {
    !matches!(key, DictKey::Bytes(_) | DictKey::Tuple(_) | DictKey::Other(_))
}

/// Returns the spec: protocol 1, then the tree.
fn treespec(nodes: &[StructureNode]) -> String {
    let mut out = String::from("[1, ");
    // The number of remaining children of each open container.
    let mut open: Vec<usize> = Vec::new();
    for node in nodes {
        match node {
            StructureNode::Leaf => {
                out.push_str("{\"type\": null, \"context\": null, \"children_spec\": []}");
            }
            StructureNode::Container { class, keys, children } => {
                out.push_str("{\"type\": \"");
                out.push_str(type_name(class));
                out.push_str("\", \"context\": ");
                context(class, keys, &mut out);
                out.push_str(", \"children_spec\": [");
                open.push(*children);
                if *children > 0 {
                    continue;
                }
            }
        }
        close(&mut open, &mut out, matches!(node, StructureNode::Container { .. }));
    }
    out.push(']');
    out
}

/// Closes all containers that are complete after a leaf or an empty container.
fn close(open: &mut Vec<usize>, out: &mut String, mut empty: bool) {
    while let Some(left) = open.last_mut() {
        if !empty {
            *left -= 1;
        }
        empty = false;
        if *left > 0 {
            out.push_str(", ");
            return;
        }
        out.push_str("]}");
        open.pop();
    }
}

fn type_name(class: &ContainerClass) -> &'static str {
    match class {
        ContainerClass::Dict => "builtins.dict",
        ContainerClass::Ordered => "collections.OrderedDict",
        ContainerClass::Default(_) => "collections.defaultdict",
        ContainerClass::List => "builtins.list",
        ContainerClass::Tuple => "builtins.tuple",
        ContainerClass::Deque => "collections.deque",
        ContainerClass::Set => "builtins.set",
    }
}

/// Writes the context of a container: JSON in a JSON string; for a defaultdict, an object.
fn context(class: &ContainerClass, keys: &[DictKey], out: &mut String) {
    match class {
        ContainerClass::Dict | ContainerClass::Ordered => json::quote_str(&key_list(keys), out),
        ContainerClass::Default(factory) => {
            out.push_str("{\"default_factory_module\": ");
            json::quote_str(&factory.module, out);
            out.push_str(", \"default_factory_name\": ");
            json::quote_str(&factory.name, out);
            out.push_str(", \"dict_context\": ");
            out.push_str(&key_list(keys));
            out.push('}');
        }
        ContainerClass::List
        | ContainerClass::Tuple
        | ContainerClass::Deque
        | ContainerClass::Set => out.push_str("\"null\""),
    }
}

fn key_list(keys: &[DictKey]) -> String {
    let mut out = String::from("[");
    for (index, key) in keys.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        match key {
            DictKey::Str(text) => json::quote(text, &mut out),
            key => out.push_str(&json_key(key)),
        }
    }
    out.push(']');
    out
}

/// Returns a key that is not a string, as JSON.
fn json_key(key: &DictKey) -> String {
    match key {
        DictKey::Bool(true) => "true".into(),
        DictKey::Bool(false) => "false".into(),
        DictKey::None => "null".into(),
        DictKey::Float(value) => json::float(*value),
        key => key.to_string(),
    }
}

/// Returns whether Python's JSON can hold the structure: it has no sets and no deques.
fn dumpable(nodes: &[StructureNode]) -> bool {
    nodes.iter().all(|node| {
        !matches!(
            node,
            StructureNode::Container { class: ContainerClass::Set | ContainerClass::Deque, .. }
        )
    })
}

/// Writes the structure with `"*"` for every leaf, indented by one level.
fn skeleton(nodes: &[StructureNode], out: &mut String) {
    struct OpenNode<'a> {
        keys: &'a [DictKey],
        children: usize,
        done: usize,
        end: char,
    }
    let mut open: Vec<OpenNode<'_>> = Vec::new();
    for node in nodes {
        if let Some(frame) = open.last_mut() {
            let (first, key) = (frame.done == 0, frame.keys.get(frame.done));
            frame.done += 1;
            json::separate(out, !first, open.len() + 1);
            if let Some(key) = key {
                match key {
                    DictKey::Str(text) => json::quote(text, out),
                    key => json::quote_str(&json_key(key), out),
                }
                out.push_str(": ");
            }
        }
        match node {
            StructureNode::Leaf => out.push_str("\"*\""),
            StructureNode::Container { class, keys, children } => {
                let (start, end) = match class {
                    ContainerClass::Dict | ContainerClass::Ordered | ContainerClass::Default(_) => {
                        ('{', '}')
                    }
                    _ => ('[', ']'),
                };
                out.push(start);
                open.push(OpenNode { keys, children: *children, done: 0, end });
            }
        }
        while let Some(frame) = open.pop_if(|frame| frame.done == frame.children) {
            if frame.children > 0 {
                json::separate(out, false, open.len() + 1);
            }
            out.push(frame.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The spec of one leaf is the spec of a tree with that leaf.
    #[test]
    fn spec_of_a_leaf_is_that_of_its_tree() {
        for key in [&b"model.layers.0.weight"[..], b"a\"b\\c\n", b"\xc3\xa9\xed\xa0\x80", b""] {
            let key = Text::from_surrogatepass(key).unwrap();
            let (mut quoted, mut text) = (String::new(), String::new());
            json::quote(&key, &mut quoted);
            single(&quoted, &mut text);
            let keys = vec![DictKey::Str(key)];
            let class = ContainerClass::Dict;
            let nodes =
                [StructureNode::Container { class, keys, children: 1 }, StructureNode::Leaf];
            // The tree's own text begins a level further out.
            assert_eq!(text, root(&nodes).replace('\n', "\n    "));
        }
    }
}
