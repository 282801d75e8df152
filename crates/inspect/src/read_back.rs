//! Whether what was written can be read, and is what was to be written.
//!
//! A [`ReadBack`] is taken of a plan before it runs. Once the files are complete, and before they
//! get their names, they are opened as anybody would open them, and their structure is compared
//! with that of the plan's source: every leaf by its key, with kind, dtype, shape, plain value and
//! what it is tied to. What the target can't hold as it is stands in the plan's losses, by key; of
//! those leaves only what the loss leaves as it was is compared. No weights are read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, DType, Error, FileSet, Leaf, Limits, Loss, Plan, Progress, ReadAt, Result, Text,
    Value, ValueId,
};

use crate::compare::{Options, same_value};
use crate::{dtype_of, shape_of, shape_text, text_of};

/// What files are to hold, remembered until they are written.
#[derive(Debug, Clone)]
pub struct ReadBack {
    source: Arc<Checkpoint>,
    losses: Vec<Loss>,
    names: Vec<String>,
}

impl ReadBack {
    /// What the files of `plan` are to hold.
    pub fn of(plan: &Plan) -> Self {
        let names = plan.files.iter().map(|file| file.name.clone()).collect();
        Self { source: plan.source.clone(), losses: plan.losses.clone(), names }
    }

    /// The names of the files, in the order in which they are written.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Opens what was written, a source for each of [`ReadBack::names`], within what whoever reads
    /// it may spend, and compares. Fails with what does not read back: then the files are not to
    /// be kept.
    pub fn check(
        &self,
        written: Vec<Arc<dyn ReadAt>>,
        limits: &Limits,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut files = FileSet::default();
        for (name, source) in self.names.iter().zip(written) {
            files.push(name.clone(), source);
        }
        let index = files.iter().find(|(_, file)| is_index(&file.name)).map(|(id, _)| id);
        let main = index.map_or_else(|| files.main(), Ok)?;
        let opened = statelens_formats::open(files.opened_at(main), limits, progress);
        let opened = opened.map_err(|error| match error.kind() {
            statelens_checkpoint::ErrorKind::Cancelled => error,
            _ => broken(format!("what was written can't be opened again: {}", error.what())),
        })?;
        self.compare(&opened)
    }

    /// Compares the structure of what was opened again with what was to be written.
    fn compare(&self, written: &Checkpoint) -> Result<()> {
        let told = Told::new(&self.losses);
        let mut found = Found::new(written);
        let strict = ["torch", "cerebras"].iter().any(|id| written.format.id.starts_with(id));
        let mut ties: HashMap<ValueId, ValueId> = HashMap::new();
        let mut unmatched = Vec::new();
        for leaf in self.source.each_leaf() {
            let lost = told.of(&leaf.flat);
            let Some(id) = found.take(&leaf) else {
                match lost {
                    // It is left out, or in parts under other names.
                    How::Lost => {}
                    // It may have another name.
                    How::Form => unmatched.push(leaf),
                    How::Exact if written.format.id.starts_with("tensorflow") => {
                        unmatched.push(leaf);
                    }
                    How::Exact => {
                        return Err(broken(format!("`{}` is not in what was written", leaf.flat)));
                    }
                }
                continue;
            };
            if lost == How::Lost {
                continue;
            }
            self.leaf(&leaf, written, id, lost, strict)?;
            if lost == How::Exact && strict && self.source.tensor_of(leaf.target).is_some() {
                let target = written.resolve(id);
                if *ties.entry(leaf.target).or_insert(target) != target {
                    return Err(broken(format!("`{}` is no longer tied", leaf.flat)));
                }
            }
        }
        let left = found.left(&told);
        self.renamed(&unmatched, &left, written)
    }

    /// Compares a leaf with what was found under its key.
    fn leaf(
        &self,
        leaf: &Leaf,
        written: &Checkpoint,
        id: ValueId,
        how: How,
        strict: bool,
    ) -> Result<()> {
        let source = &*self.source;
        let differs = |what: &str, wanted: &str, found: &str| {
            Err(broken(format!("{what} of `{}` was written as {found}, not {wanted}", leaf.flat)))
        };
        let target = written.resolve(id);
        let (one, two) = (source.value(leaf.target), written.value(target));
        let is_array = |value: &Value| matches!(value, Value::Tensor(_) | Value::Array(_));
        if is_array(one) || matches!(one, Value::Sparse(_)) {
            let (wanted, found) = (shape_of(source, leaf.target), shape_of(written, target));
            if wanted != found {
                let text = |shape: Option<&[u64]>| shape.map_or("none".into(), shape_text);
                return differs("the shape", &text(wanted), &text(found));
            }
            let (wanted, found) = (dtype_of(source, leaf.target), dtype_of(written, target));
            if how == How::Exact && wanted != found {
                let text = |dtype: Option<&DType>| dtype.map_or("none".into(), DType::to_string);
                return differs("the dtype", &text(wanted), &text(found));
            }
        }
        if how == How::Form {
            return Ok(());
        }
        let alike = !strict && is_array(one) && is_array(two);
        if !alike && one.kind() != two.kind() {
            return differs("the kind", one.kind(), two.kind());
        }
        let plain = !is_array(one) && !matches!(one, Value::Sparse(_));
        if plain && !same_value(source, leaf.target, written, target, &Options::default()) {
            return differs("the value", &text_of(source, leaf.target), &text_of(written, target));
        }
        Ok(())
    }

    /// Compares what has another name in the file: as many tensors of each dtype and shape have to
    /// be there.
    fn renamed(&self, wanted: &[Leaf], left: &[ValueId], written: &Checkpoint) -> Result<()> {
        let mut shapes: HashMap<&[u64], u64> = HashMap::new();
        for id in left {
            *shapes.entry(shape_of(written, *id).unwrap_or(&[])).or_default() += 1;
        }
        for leaf in wanted {
            let shape = shape_of(&self.source, leaf.target).unwrap_or(&[]);
            match shapes.get_mut(shape) {
                Some(count) if *count > 0 => *count -= 1,
                _ => {
                    return Err(broken(format!("`{}` is not in what was written", leaf.flat)));
                }
            }
        }
        Ok(())
    }
}

/// How much of a leaf is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// All of it.
    Exact,
    /// Its form changes, or its name: it is there, in its shape.
    Form,
    /// The target can't hold it.
    Lost,
}

/// What the losses say, by key.
struct Told<'a> {
    lost: HashSet<&'a str>,
    form: HashSet<&'a str>,
}

impl<'a> Told<'a> {
    fn new(losses: &'a [Loss]) -> Self {
        let keys = |harmless| {
            let told = losses.iter().filter(move |loss| loss.harmless == harmless);
            told.flat_map(|loss| loss.keys.iter().map(String::as_str)).collect()
        };
        Self { lost: keys(false), form: keys(true) }
    }

    /// A container that is lost takes what is below it along.
    fn of(&self, key: &Text) -> How {
        let key = key.to_lossy();
        let above = key.match_indices('.').map(|(at, _)| &key[..at]);
        if !self.lost.is_empty() && above.chain([&*key]).any(|key| self.lost.contains(key)) {
            return How::Lost;
        }
        if self.form.contains(&*key) {
            return How::Form;
        }
        How::Exact
    }
}

/// The leaves of what was written, by their names, until they are met.
struct Found {
    by_key: HashMap<Text, Vec<ValueId>>,
}

impl Found {
    fn new(written: &Checkpoint) -> Self {
        let mut by_key: HashMap<Text, Vec<ValueId>> = HashMap::new();
        for leaf in written.each_leaf() {
            by_key.entry(leaf.flat).or_default().push(leaf.id);
        }
        // In the order of the file, from the back.
        by_key.values_mut().for_each(|ids| ids.reverse());
        Self { by_key }
    }

    /// What stands under the key of a leaf, or, of a format that has no other names, its path.
    fn take(&mut self, leaf: &Leaf) -> Option<ValueId> {
        let ids = match self.by_key.get_mut(&leaf.flat) {
            Some(ids) if !ids.is_empty() => ids,
            _ => self.by_key.get_mut(&leaf.key.flat())?,
        };
        ids.pop()
    }

    /// What was not met, but for what the losses say is added.
    fn left(self, told: &Told<'_>) -> Vec<ValueId> {
        let added = |key: &Text| told.of(key) != How::Exact;
        self.by_key.into_iter().filter(|(key, _)| !added(key)).flat_map(|(_, ids)| ids).collect()
    }
}

/// The file of a set that names the others.
fn is_index(name: &str) -> bool {
    name.ends_with(".index.json") || name.ends_with(".index")
}

fn broken(what: String) -> Error {
    Error::damaged(what)
        .advice("Nothing was kept. This is an error of the writer: please report it.")
}
