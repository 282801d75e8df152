//! What is taken of a checkpoint, and as what.

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, Error, List, Opaque, Result, Set, Sparse, Text, Tuple,
    TupleClass, Value, ValueId,
};

use crate::Pattern;

/// What is taken of a checkpoint, and as what. The default takes all as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Edit {
    /// The leaves to take: those that one of these matches; all if there are none.
    pub select: Vec<Pattern>,
    /// The leaves to leave out of those.
    pub exclude: Vec<Pattern>,
    /// The dtype for torch tensors of a floating dtype. Integers (an optimizer's step), numpy
    /// arrays and plain numbers stay what they are.
    pub cast: Option<DType>,
}

impl Edit {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.select.is_empty() && self.exclude.is_empty() && self.cast.is_none()
    }

    /// The checkpoint that is left. Containers keep their kind and order; those that lost all
    /// their leaves are gone, and a list that lost some is shorter. A link whose target is gone
    /// becomes the value itself; further links lead to it there.
    ///
    /// Fails if nothing is left, if one of the patterns to select matches nothing (it may be
    /// misspelt), or if the dtype is none that tensors can be cast to.
    pub fn apply(&self, source: &Checkpoint) -> Result<Checkpoint> {
        let mut builder = source.edit();
        if !(self.select.is_empty() && self.exclude.is_empty()) {
            let kept = self.keep(source)?;
            filter(&mut builder, source, &kept);
        }
        let reached = place_links(&mut builder, source)?;
        if let Some(dtype) = &self.cast {
            cast(&mut builder, dtype, &reached)?;
        }
        builder.finish(
            source.root(),
            source.format.clone(),
            source.files.clone(),
            source.findings.clone(),
        )
    }

    /// For each value, whether it is a leaf to keep or above one.
    fn keep(&self, source: &Checkpoint) -> Result<Vec<bool>> {
        let mut used = vec![false; self.select.len()];
        let mut kept = vec![false; source.values().len()];
        let parents = parents(source);
        let mut any = false;
        for leaf in source.leaves().iter().filter(|leaf| !leaf.inside_object) {
            let key = leaf.flat.to_lossy();
            let mut selected = self.select.is_empty();
            for (pattern, used) in self.select.iter().zip(&mut used) {
                if pattern.matches(&key) {
                    selected = true;
                    *used = true;
                }
            }
            if !selected || self.exclude.iter().any(|pattern| pattern.matches(&key)) {
                continue;
            }
            any = true;
            let mut at = Some(leaf.id);
            while let Some(id) = at {
                match kept.get_mut(id.0 as usize) {
                    Some(kept) if !*kept => *kept = true,
                    _ => break,
                }
                at = parents[id.0 as usize];
            }
        }
        if let Some((pattern, _)) = self.select.iter().zip(&used).find(|(_, used)| !**used) {
            return Err(no_match(pattern));
        }
        match any {
            true => Ok(kept),
            false => Err(Error::refused("nothing is left: every selected key is excluded too")),
        }
    }
}

fn no_match(pattern: &Pattern) -> Error {
    let text = pattern.as_str();
    let error = Error::refused(format!("no key matches {text}"));
    if text.starts_with('/') || text.contains('*') {
        return error.advice("List the keys with `statelens ls`.");
    }
    error.advice(format!(
        "A pattern has to match the whole key: `{text}.*` takes what is below it, `*{text}*` what \
         has it anywhere."
    ))
}

fn parents(source: &Checkpoint) -> Vec<Option<ValueId>> {
    let mut parents = vec![None; source.values().len()];
    for (index, value) in (0..).zip(source.values()) {
        for child in value.children() {
            if let Some(parent) = parents.get_mut(child.0 as usize) {
                *parent = Some(ValueId(index));
            }
        }
    }
    parents
}

/// Takes what is not kept out of the containers that are. What is taken out stays as it was, for
/// a link may still lead to it.
fn filter(builder: &mut Builder, source: &Checkpoint, kept: &[bool]) {
    let keep = |id: &ValueId| kept.get(id.0 as usize).copied().unwrap_or(false);
    for (index, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
        let id = ValueId(index as u32);
        if !source.value(id).is_container() {
            continue;
        }
        match builder.value_mut(id) {
            Some(Value::Dict(Dict { entries, .. })) => entries.retain(|(_, child)| keep(child)),
            Some(Value::List(List { items, .. }) | Value::Set(Set { items, .. })) => {
                items.retain(keep);
            }
            Some(Value::Tuple(Tuple { class, items })) => {
                let before = items.len();
                items.retain(keep);
                if items.len() < before {
                    // A named tuple or a size with fewer items is none.
                    *class = TupleClass::Tuple;
                }
            }
            _ => {}
        }
    }
}

/// Walks what hangs below the root, objects and attributes included, and puts the targets of
/// links that hang there no longer in the place of the first link to them. Returns which
/// values hang there then.
fn place_links(builder: &mut Builder, source: &Checkpoint) -> Result<Vec<bool>> {
    let mut reached = vec![false; source.values().len()];
    let mut links: VecDeque<(ValueId, ValueId)> = VecDeque::new();
    let names = OnceCell::new();
    // Values that are to be visited, with their parents; the root is its own.
    let mut stack = vec![(source.root(), source.root())];
    loop {
        while let Some((parent, id)) = stack.pop() {
            if let Some(Value::Link(_)) = builder.value(id) {
                links.push_back((parent, id));
                continue;
            }
            match reached.get_mut(id.0 as usize) {
                Some(reached) if !*reached => *reached = true,
                _ => {
                    // An earlier link took it out of this container: here is a link to it now.
                    let link = builder.push(Value::Link(id))?;
                    if let Some(value) = builder.value_mut(parent) {
                        replace_child(value, id, link);
                    }
                    continue;
                }
            }
            stack.extend(source.attributes(id).map(|attributes| (id, attributes)));
            let children = builder.value(id).map(Value::children).unwrap_or_default();
            stack.extend(children.into_iter().rev().map(|child| (id, child)));
        }
        let Some((parent, link)) = links.pop_front() else { return Ok(reached) };
        let target = source.resolve(link);
        if reached.get(target.0 as usize) != Some(&false) {
            continue;
        }
        if let Some(value) = builder.value_mut(parent) {
            replace_child(value, link, target);
        }
        rename(builder, source, &names, link, target);
        stack.push((parent, target));
    }
}

/// The file's own names are for places: a value that moves takes the name of its new one.
fn rename(
    builder: &mut Builder,
    source: &Checkpoint,
    names: &OnceCell<HashMap<ValueId, Text>>,
    link: ValueId,
    target: ValueId,
) {
    if source.stored_key(link).is_none() && source.stored_key(target).is_none() {
        return;
    }
    let names = names
        .get_or_init(|| source.leaves().into_iter().map(|leaf| (leaf.id, leaf.flat)).collect());
    if let Some(name) = names.get(&link) {
        builder.set_stored_key(target, name.clone());
    }
}

fn replace_child(value: &mut Value, old: ValueId, new: ValueId) {
    let swap = |id: &mut ValueId| {
        if *id == old {
            *id = new;
        }
    };
    match value {
        Value::List(List { items, .. })
        | Value::Tuple(Tuple { items, .. })
        | Value::Set(Set { items, .. }) => items.iter_mut().for_each(swap),
        Value::Dict(Dict { entries, .. }) => entries.iter_mut().map(|(_, id)| id).for_each(swap),
        Value::Sparse(sparse) => sparse.parts.iter_mut().map(|(_, id)| id).for_each(swap),
        Value::Opaque(opaque) => {
            let Opaque { args, state, items, entries, .. } = &mut **opaque;
            let pairs = entries.iter_mut().flat_map(|(key, value)| [key, value]);
            args.iter_mut().chain(state).chain(items).chain(pairs).for_each(swap);
        }
        _ => {}
    }
}

/// Gives all floating torch tensors another dtype.
fn cast(builder: &mut Builder, dtype: &DType, reached: &[bool]) -> Result<()> {
    if !castable(dtype) {
        return Err(Error::refused(format!("tensors can't be cast to {dtype}"))
            .advice("Take float32, float16, bfloat16, float64 or one of the float8 types."));
    }
    for (index, _) in reached.iter().enumerate().filter(|(_, reached)| **reached) {
        let id = ValueId(index as u32);
        match builder.value_mut(id) {
            Some(Value::Tensor(tensor)) => {
                let tensor = *tensor;
                if let Some(tensor) = builder.tensor_mut(tensor)
                    && castable(&tensor.dtype)
                {
                    tensor.dtype = dtype.clone();
                }
            }
            Some(Value::Sparse(sparse)) if castable(&sparse.dtype) => {
                let Sparse { dtype: of_values, .. } = &mut **sparse;
                *of_values = dtype.clone();
            }
            _ => {}
        }
    }
    Ok(())
}

/// A floating dtype with one number in each element.
fn castable(dtype: &DType) -> bool {
    dtype.is_float() && *dtype != DType::F4E2M1FNX2
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{
        DictKey, FileSet, Form, FormatInfo, Global, Layout, Limits, Tensor,
    };

    struct Tree(Builder);

    impl Tree {
        fn new() -> Self {
            Self(Builder::new(&Limits::default()))
        }

        fn int(&mut self, value: i64) -> ValueId {
            self.0.push(Value::Int(value.into())).unwrap()
        }

        fn tensor(&mut self, dtype: DType) -> ValueId {
            let item = vec![0; dtype.itemsize() as usize];
            let tensor = Tensor::new(dtype, vec![2], Layout::Fill(item.into()));
            let tensor = self.0.push_tensor(tensor).unwrap();
            self.0.push(Value::Tensor(tensor)).unwrap()
        }

        fn link(&mut self, target: ValueId) -> ValueId {
            self.0.push(Value::Link(target)).unwrap()
        }

        fn dict(&mut self, entries: &[(&str, ValueId)]) -> ValueId {
            let entries = entries.iter().map(|(key, id)| (DictKey::from(*key), *id)).collect();
            self.0.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap()
        }

        fn list(&mut self, items: &[ValueId]) -> ValueId {
            self.0.push(Value::List(List { items: items.to_vec(), ..List::default() })).unwrap()
        }

        fn finish(self, root: ValueId) -> Checkpoint {
            self.0.finish(root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap()
        }
    }

    fn edit(select: &[&str], exclude: &[&str]) -> Edit {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Edit { select: parse(select), exclude: parse(exclude), cast: None }
    }

    fn flat(checkpoint: &Checkpoint) -> Vec<String> {
        checkpoint
            .leaves()
            .iter()
            .map(|leaf| match &leaf.alias_of {
                Some(key) => format!("{} = {key}", leaf.flat),
                None => format!("{} {}", leaf.flat, checkpoint.value(leaf.id).kind()),
            })
            .collect()
    }

    fn sample() -> Checkpoint {
        let mut tree = Tree::new();
        let w = tree.tensor(DType::F32);
        let b = tree.tensor(DType::I64);
        let tied = tree.link(w);
        let again = tree.link(w);
        let one = tree.int(1);
        let empty = tree.list(&[]);
        let model = tree.dict(&[("w", w), ("b", b)]);
        let whole = tree.link(model);
        let list = tree.list(&[one, tied]);
        let root = tree.dict(&[
            ("model", model),
            ("list", list),
            ("again", again),
            ("e", empty),
            ("m", whole),
        ]);
        tree.finish(root)
    }

    #[test]
    fn structure_stays_and_emptied_containers_go() {
        let source = sample();
        let apply = |select: &[&str], exclude: &[&str]| {
            edit(select, exclude).apply(&source).map(|checkpoint| flat(&checkpoint))
        };
        assert_eq!(apply(&["model.*"], &[]).unwrap(), ["model.w tensor", "model.b tensor"]);
        assert_eq!(
            apply(&[], &["model.b", "m"]).unwrap(),
            ["model.w tensor", "list.0 int", "list.1 = model.w", "again = model.w", "e list"]
        );
        assert_eq!(apply(&["list.0", "e"], &[]).unwrap(), ["list.0 int", "e list"]);
    }

    #[test]
    fn a_link_whose_target_went_becomes_the_value() {
        let source = sample();
        let left = edit(&["list.1", "again"], &[]).apply(&source).unwrap();
        assert_eq!(flat(&left), ["list.0 tensor", "again = list.0"]);
        // A whole dict that was linked to comes whole.
        let left = edit(&["m", "again"], &[]).apply(&source).unwrap();
        assert_eq!(flat(&left), ["again tensor", "m.w = again", "m.b tensor"]);
    }

    #[test]
    fn patterns_that_match_nothing_are_told() {
        let source = sample();
        let error = edit(&["model.w", "modle"], &[]).apply(&source).unwrap_err();
        assert!(error.to_string().contains("no key matches modle"), "{error}");
        let error = edit(&["model.w"], &["*w"]).apply(&source).unwrap_err();
        assert!(error.to_string().contains("nothing is left"), "{error}");
    }

    #[test]
    fn casts_reach_floating_tensors_only() {
        let source = sample();
        let cast = Edit { cast: Some(DType::BF16), ..Edit::default() };
        let left = cast.apply(&source).unwrap();
        let dtypes: Vec<&DType> = left.tensors().iter().map(|tensor| &tensor.dtype).collect();
        assert_eq!(dtypes, [&DType::BF16, &DType::I64]);
        assert_eq!(left.tensors()[0].stored, DType::F32);
        assert!(Edit { cast: Some(DType::I8), ..Edit::default() }.apply(&source).is_err());
    }

    #[test]
    fn a_value_that_moves_takes_the_name_of_its_new_place() {
        let mut tree = Tree::new();
        let w = tree.tensor(DType::F32);
        let link = tree.link(w);
        let root = tree.dict(&[("w", w), ("v", link)]);
        tree.0.set_stored_key(w, "'w'".into());
        let left = edit(&["v"], &[]).apply(&tree.finish(root)).unwrap();
        assert_eq!(flat(&left), ["v tensor"]);
    }

    #[test]
    fn objects_keep_what_they_link_to() {
        let mut tree = Tree::new();
        let w = tree.tensor(DType::F32);
        let link = tree.link(w);
        let object = Value::Opaque(Box::new(Opaque {
            global: Global::new("a", "B"),
            form: Form::Call,
            args: vec![link],
            state: None,
            items: vec![],
            entries: vec![],
            repr: None,
        }));
        let object = tree.0.push(object).unwrap();
        let root = tree.dict(&[("w", w), ("o", object)]);
        let left = edit(&["o"], &[]).apply(&tree.finish(root)).unwrap();
        assert_eq!(flat(&left), ["o object", "o.args[0] tensor"]);
    }

    #[test]
    fn a_cycle_stays_one() {
        let mut tree = Tree::new();
        let one = tree.int(1);
        let two = tree.int(2);
        let root = tree.dict(&[]);
        let cycle = tree.link(root);
        let entries = [("a", one), ("b", two), ("self", cycle)];
        let entries = entries.iter().map(|(key, id)| (DictKey::from(*key), *id)).collect();
        *tree.0.value_mut(root).unwrap() = Value::Dict(Dict { entries, ..Dict::default() });
        let left = edit(&["b", "self"], &[]).apply(&tree.finish(root)).unwrap();
        assert_eq!(flat(&left), ["b int", "self = "]);
    }
}
