//! The content of the files of a checkpoint, and the root that is built from it.

use std::collections::HashMap;

use statelens_checkpoint::{
    Builder, DType, Dict, DictKey, FileId, FileSet, Finding, FormatInfo, Layout, Progress, Result,
    Span, Tensor, Text, Value, ValueId, in_order,
};

use crate::joined::{self, UnreadFiles};
use crate::paths::folder;
use crate::torch;

/// The state with the optimizer's moments.
pub(super) const OPTIMIZER: &str = "optimizer";
/// The state with the 16-bit weights.
pub(super) const MODULE: &str = "module";

/// The names and shapes of parameters.
pub(super) type Shapes = Vec<(Text, Vec<u64>)>;

/// Those of each group of the optimizer.
pub(super) type Groups = Vec<Shapes>;

/// Entries of a dict.
pub(super) type Entries = Vec<(DictKey, ValueId)>;

pub(super) struct Reading<'a> {
    pub(super) files: &'a FileSet,
    pub(super) builder: Builder,
    /// The number of storages so far.
    pub(super) storages: u32,
    pub(super) findings: Vec<Finding>,
    pub(super) unread: UnreadFiles,
    /// The pieces of incomplete tensors, by key.
    pub(super) partial: HashMap<Text, Layout>,
    /// The entries of the root.
    pub(super) entries: Entries,
    /// The number of tensors of the model.
    pub(super) tensors: u64,
}

impl Reading<'_> {
    /// Adds the content of a file of `torch.save`, and returns its root. `None` if it can't be read,
    /// which is recorded.
    pub(super) fn load(
        &mut self,
        file: FileId,
        progress: &mut dyn Progress,
    ) -> Result<Option<ValueId>> {
        Ok(self.load_all(&[file], progress)?.pop().flatten())
    }

    /// Adds the content of several files, as [`Reading::load`] does, and returns their roots. Opens
    /// them side by side.
    pub(super) fn load_all(
        &mut self,
        ids: &[FileId],
        progress: &mut dyn Progress,
    ) -> Result<Vec<Option<ValueId>>> {
        let (files, limits) = (self.files, self.builder.limits().clone());
        let open = |at: usize, progress: &mut dyn Progress| {
            progress.check(at as u64, ids.len() as u64)?;
            let (file, mut builder) = (ids[at], Builder::new(&limits));
            let span = Span { file, offset: 0, len: files.len(file) };
            let opened = torch::read::part(files.structure(file)?, span, 0, &mut builder);
            let opened = opened.and_then(|(lowered, storages)| {
                let (format, findings) = (FormatInfo::default(), lowered.findings);
                Ok((builder.finish(lowered.root, format, files.clone(), findings)?, storages))
            });
            joined::of_content(files, file, opened)
        };
        let mut roots = Vec::with_capacity(ids.len());
        in_order(files.workers(), ids.len(), progress, open, |at, opened| {
            let (mut part, storages) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    self.unread.add(ids[at], error);
                    roots.push(None);
                    return Ok(());
                }
            };
            self.notice(std::mem::take(&mut part.findings));
            roots.push(Some(self.builder.absorb_from(part, self.storages)?));
            self.storages = self.storages.saturating_add(storages);
            Ok(())
        })?;
        Ok(roots)
    }

    fn notice(&mut self, findings: Vec<Finding>) {
        for mut finding in findings {
            finding.place.clear();
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }

    pub(super) fn resolve(&self, id: ValueId) -> ValueId {
        match self.builder.value(id) {
            Some(Value::Link(target)) => *target,
            _ => id,
        }
    }

    pub(super) fn value(&self, id: ValueId) -> Option<&Value> {
        self.builder.value(self.resolve(id))
    }

    /// Returns the entries of a dict.
    pub(super) fn dict(&self, id: ValueId) -> &[(DictKey, ValueId)] {
        match self.value(id) {
            Some(Value::Dict(dict)) => &dict.entries,
            _ => &[],
        }
    }

    /// Returns an entry of a dict that is not `None`.
    pub(super) fn get(&self, id: ValueId, key: &str) -> Option<ValueId> {
        let is_key = |known: &DictKey| matches!(known, DictKey::Str(text) if *text == *key);
        let (_, id) = self.dict(id).iter().rev().find(|(known, _)| is_key(known))?;
        (!matches!(self.value(*id)?, Value::None)).then(|| self.resolve(*id))
    }

    pub(super) fn items(&self, id: ValueId) -> &[ValueId] {
        match self.value(id) {
            Some(Value::List(list)) => &list.items,
            Some(Value::Tuple(tuple)) => &tuple.items,
            _ => &[],
        }
    }

    pub(super) fn int(&self, id: ValueId) -> Option<u64> {
        match self.value(id)? {
            Value::Int(int) => int.to_u64(),
            _ => None,
        }
    }

    pub(super) fn tensor(&self, id: ValueId) -> Option<&Tensor> {
        match self.value(id)? {
            Value::Tensor(tensor) => self.builder.tensor(*tensor),
            _ => None,
        }
    }

    /// Reads a dict of names and shapes.
    pub(super) fn sizes(&self, id: ValueId) -> Shapes {
        let size = |(key, id): &(DictKey, ValueId)| {
            let DictKey::Str(name) = key else { return None };
            let shape: Option<Vec<u64>> = self.items(*id).iter().map(|id| self.int(*id)).collect();
            let shape = shape.filter(|shape| joined::fits(shape, &DType::F64))?;
            Some((name.clone(), shape))
        };
        self.dict(id).iter().filter_map(size).collect()
    }

    /// Returns the names and shapes of the trained parameters.
    pub(super) fn shapes(&self, states: ValueId) -> Groups {
        let Some(shapes) = self.get(states, "param_shapes") else { return Vec::new() };
        match self.value(shapes) {
            // Before release 0.4, there was one dict.
            Some(Value::Dict(_)) => vec![self.sizes(shapes)],
            _ => self.items(shapes).iter().map(|group| self.sizes(*group)).collect(),
        }
    }

    /// Adds a further state to the root.
    pub(super) fn further(&mut self, key: &str, id: ValueId) {
        let mut key = key.to_owned();
        while self.entries.iter().any(|(known, _)| *known == DictKey::from(key.as_str())) {
            key.push('_');
        }
        self.builder.set_outside_state(id, true);
        self.entries.push((DictKey::from(key.as_str()), id));
    }

    pub(super) fn push(&mut self, tensor: Tensor) -> Result<ValueId> {
        let tensor = self.builder.push_tensor(tensor)?;
        self.builder.push(Value::Tensor(tensor))
    }
}

pub(super) fn dict(entries: Entries) -> Value {
    Value::Dict(Dict { entries, ..Dict::default() })
}

/// Returns the folder of the checkpoint, with its trailing slash.
pub(super) fn top(files: &FileSet, main: FileId) -> &str {
    folder(files.name(main))
}
