//! Writes the structure of a state dict for format 0.4: a pickled `torch.utils._pytree.TreeSpec` in
//! hexadecimal.
//!
//! Torch 2.0 to 2.4 can load it: it has all the counts of torch 2.1 and later, which include those
//! of 2.0.

use statelens_checkpoint::{DictKey, Result};
use statelens_pickle::{Encoder, MemoId};

use super::node::{ContainerClass, Outline, StructureNode};

/// A container whose children are being written.
struct OpenContainer {
    children: usize,
    left: usize,
    nodes: i64,
    leaves: i64,
}

/// Memoised objects that are used repeatedly.
#[derive(Default)]
struct Memos {
    tree: Option<MemoId>,
    leaf: Option<MemoId>,
    names: [Option<MemoId>; 6],
    types: Vec<(ContainerClass, MemoId)>,
}

/// Attribute names of a spec.
const NAMES: [&str; 6] =
    ["type", "context", "children_specs", "num_nodes", "num_leaves", "num_children"];

/// Returns the pickle in hexadecimal. Fails on keys that can't be pickled as plain values.
pub(super) fn hex(outline: &Outline) -> Result<String> {
    let mut out = Encoder::new();
    out.proto(4);
    let frame = out.begin_frame();
    let mut memos = Memos::default();
    let mut open: Vec<OpenContainer> = Vec::new();
    for node in &outline.nodes {
        match node {
            StructureNode::Leaf => leaf(&mut out, &mut memos)?,
            StructureNode::Container { class, keys, children } => {
                begin(&mut out, &mut memos, class, keys)?;
                let children = *children;
                open.push(OpenContainer { children, left: children, nodes: 1, leaves: 0 });
                if children > 0 {
                    out.mark();
                    continue;
                }
            }
        }
        // A leaf or an empty container may complete the containers around it.
        let mut done = match node {
            StructureNode::Leaf => Some((1, 1)),
            StructureNode::Container { .. } => None,
        };
        while let Some(parent) = open.last_mut() {
            if let Some((nodes, leaves)) = done {
                parent.left -= 1;
                parent.nodes += nodes;
                parent.leaves += leaves;
            }
            if parent.left > 0 {
                break;
            }
            done = Some((parent.nodes, parent.leaves));
            if parent.children > 0 {
                out.appends();
            }
            let counts = [parent.nodes, parent.leaves, parent.children as i64];
            end(&mut out, &mut memos, counts)?;
            open.pop();
        }
    }
    out.stop();
    out.end_frame(frame);
    let digits = |byte: &u8| [byte >> 4, byte & 0xf].map(|half| char::from_digit(half.into(), 16));
    Ok(out.bytes().iter().flat_map(digits).flatten().collect())
}

/// Writes the leaf, a single object shared by all.
fn leaf(out: &mut Encoder, memos: &mut Memos) -> Result<()> {
    if let Some(memo) = memos.leaf {
        out.memoized(memo);
        return Ok(());
    }
    global(out, "torch.utils._pytree", "LeafSpec")?;
    out.empty_tuple();
    out.newobj();
    memos.leaf = Some(out.memoize_next());
    out.empty_dict();
    out.mark();
    name(out, memos, 0)?;
    out.none();
    name(out, memos, 1)?;
    out.none();
    name(out, memos, 2)?;
    out.empty_list();
    end(out, memos, [1, 1, 0])
}

/// Writes a container up to its list of children.
fn begin(
    out: &mut Encoder,
    memos: &mut Memos,
    class: &ContainerClass,
    keys: &[DictKey],
) -> Result<()> {
    match memos.tree {
        Some(memo) => out.memoized(memo),
        None => {
            global(out, "torch.utils._pytree", "TreeSpec")?;
            memos.tree = Some(out.memoize_next());
        }
    }
    out.empty_tuple();
    out.newobj();
    out.empty_dict();
    out.mark();
    name(out, memos, 0)?;
    match memos.types.iter().find(|(known, _)| known == class) {
        Some((_, memo)) => out.memoized(*memo),
        None => {
            match class {
                ContainerClass::Ordered => global(out, "collections", "OrderedDict")?,
                ContainerClass::List => global(out, "builtins", "list")?,
                ContainerClass::Tuple => global(out, "builtins", "tuple")?,
                // The outline of this family has no others.
                _ => global(out, "builtins", "dict")?,
            }
            memos.types.push((class.clone(), out.memoize_next()));
        }
    }
    name(out, memos, 1)?;
    if matches!(class, ContainerClass::List | ContainerClass::Tuple) {
        out.none();
    } else {
        out.empty_list();
        out.mark();
        for one in keys {
            key(out, one)?;
        }
        out.appends();
    }
    name(out, memos, 2)?;
    out.empty_list();
    Ok(())
}

/// Writes the counts and the end of a spec's attributes.
fn end(out: &mut Encoder, memos: &mut Memos, counts: [i64; 3]) -> Result<()> {
    for (index, count) in counts.into_iter().enumerate() {
        name(out, memos, 3 + index)?;
        out.small_int(count);
    }
    out.setitems();
    out.build();
    Ok(())
}

fn name(out: &mut Encoder, memos: &mut Memos, index: usize) -> Result<()> {
    match memos.names[index] {
        Some(memo) => out.memoized(memo),
        None => {
            out.short_str(NAMES[index])?;
            memos.names[index] = Some(out.memoize_next());
        }
    }
    Ok(())
}

fn key(out: &mut Encoder, key: &DictKey) -> Result<()> {
    match key {
        DictKey::Tuple(keys) => out.tuple_of(keys, plain_key),
        key => plain_key(out, key),
    }
}

fn plain_key(out: &mut Encoder, key: &DictKey) -> Result<()> {
    match key {
        DictKey::Str(text) => out.text(text)?,
        DictKey::Int(int) => out.int(int)?,
        DictKey::Bool(value) => out.bool(*value),
        DictKey::Float(value) => out.float(*value),
        // Other keys were already refused, see `can_hold`.
        _ => out.none(),
    }
    Ok(())
}

/// Returns whether the structure can hold a key and Python's representation of it, which becomes
/// its name, is known.
pub(super) fn can_hold(key: &DictKey) -> bool {
    let plain = |c: char| matches!(c, ' '..='~') && c != '\'' && c != '\\';
    let simple = |key: &DictKey| match key {
        DictKey::Str(text) => text.as_str().is_some_and(|text| text.chars().all(plain)),
        DictKey::Int(_) | DictKey::Bool(_) | DictKey::Float(_) | DictKey::None => true,
        _ => false,
    };
    match key {
        DictKey::Str(_) => true,
        DictKey::Tuple(keys) => keys.iter().all(simple),
        key => simple(key),
    }
}

fn global(out: &mut Encoder, module: &str, name: &str) -> Result<()> {
    out.short_str(module)?;
    out.short_str(name)?;
    out.stack_global();
    Ok(())
}
