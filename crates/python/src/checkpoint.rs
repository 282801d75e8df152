//! Open checkpoints.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use statelens::parts::checkpoint::{Text, ValueId};
use statelens::{Checkpoint, Error, Result};

use crate::errors::{detached, raised};
use crate::text::{from_python, to_python};
use crate::tree::Trees;

/// An open checkpoint.
#[pyclass(frozen, module = "pystatelens._native", name = "Checkpoint", weakref)]
pub(crate) struct NativeCheckpoint {
    pub(crate) checkpoint: Checkpoint,
    index: OnceLock<LeafIndex>,
}

/// The leaves by key. Keys are unique: a flat key that occurs again gets a number, as in `a.b (2)`.
struct LeafIndex {
    leaves: Vec<(Text, ValueId)>,
    by_key: HashMap<Text, usize>,
}

impl From<Checkpoint> for NativeCheckpoint {
    fn from(checkpoint: Checkpoint) -> Self {
        Self { checkpoint, index: OnceLock::new() }
    }
}

impl NativeCheckpoint {
    fn index(&self) -> Result<&LeafIndex> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        self.checkpoint.inner().room(300)?;
        Ok(self.index.get_or_init(|| LeafIndex::new(&self.checkpoint)))
    }

    /// Returns the leaf with a key, if there is one.
    pub(crate) fn find(&self, key: &Text) -> Result<Option<ValueId>> {
        let index = self.index()?;
        let found = index.by_key.get(key).and_then(|at| index.leaves.get(*at));
        Ok(found.map(|(_, id)| *id))
    }

    /// Returns the error for a key that does not exist.
    fn absent(&self, key: &Text) -> Error {
        let name = key.to_lossy();
        if !key.is_empty() && self.checkpoint.value_id(&name).is_ok() {
            let error =
                Error::refused(format!("there is no key `{name}`, but there are keys below it"));
            return error
                .coded("no-such-key")
                .advice(format!("`state_dict(\"{name}\")` returns what they hold."));
        }
        match self.checkpoint.leaf_id(&name) {
            Err(error) => error,
            // A lone surrogate, which its replacement in a text looks like.
            Ok(_) => Error::refused(format!("there is no key `{name}`")).coded("no-such-key"),
        }
    }
}

impl LeafIndex {
    fn new(checkpoint: &Checkpoint) -> Self {
        let (mut leaves, mut by_key) = (Vec::new(), HashMap::new());
        let mut again = Vec::new();
        for leaf in checkpoint.inner().each_leaf() {
            match by_key.entry(leaf.flat.clone()) {
                Entry::Vacant(place) => drop(place.insert(leaves.len())),
                Entry::Occupied(_) => again.push(leaves.len()),
            }
            leaves.push((leaf.flat, leaf.target));
        }
        let mut numbers: HashMap<Text, u64> = HashMap::new();
        for at in again {
            let Some((key, _)) = leaves.get_mut(at) else { continue };
            let number = numbers.entry(key.clone()).or_insert(1);
            loop {
                *number += 1;
                let suffix = format!(" ({number})");
                let numbered = [key.as_bytes(), suffix.as_bytes()].concat();
                // A text with more text is a text.
                let Ok(numbered) = Text::from_surrogatepass(&numbered) else { break };
                if let Entry::Vacant(place) = by_key.entry(numbered.clone()) {
                    place.insert(at);
                    *key = numbered;
                    break;
                }
            }
        }
        Self { leaves, by_key }
    }
}

#[pymethods]
impl NativeCheckpoint {
    /// Returns the flat keys of all leaves, in file order.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let index = detached(py, || self.index())?;
        let keys = index.leaves.iter().map(|(key, _)| to_python(py, key));
        PyList::new(py, keys.collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the number of leaves.
    fn __len__(&self) -> usize {
        usize::try_from(self.checkpoint.inner().unfolded().leaves).unwrap_or(usize::MAX)
    }

    fn has(&self, key: &Bound<'_, PyString>) -> PyResult<bool> {
        let text = from_python(key)?;
        detached(key.py(), || Ok(self.find(&text)?.is_some()))
    }

    /// Returns the short name, the name and the version of the format, and the program that wrote
    /// it.
    #[getter]
    fn format(&self) -> (&str, &str, &str, &str) {
        let format = self.checkpoint.format();
        (format.id, format.name, &format.version, &format.producer)
    }

    /// Returns the value of a leaf. `maker` makes tensors and whatever else Python itself lacks.
    fn leaf<'py>(
        &self,
        key: &Bound<'py, PyString>,
        maker: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let text = from_python(key)?;
        let id = detached(key.py(), || self.find(&text)?.ok_or_else(|| self.absent(&text)))?;
        Trees::of_leaf(&self.checkpoint, id, &text.to_lossy(), maker)
    }

    /// Returns the value at `key` with everything below it.
    fn below<'py>(
        &self,
        key: &Bound<'py, PyString>,
        maker: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let text = from_python(key)?;
        let found = detached(key.py(), || match text.is_empty() {
            true => Ok(None),
            false => self.find(&text),
        })?;
        let id = match found {
            Some(id) => id,
            None => self
                .checkpoint
                .value_id(&text.to_lossy())
                .map_err(|error| raised(key.py(), &error))?,
        };
        let keys = detached(key.py(), || {
            let mut keys = HashMap::new();
            for (key, id) in &self.index()?.leaves {
                if let Some((tensor, _)) = self.checkpoint.inner().tensor_of(*id) {
                    keys.entry(tensor).or_insert_with(|| key.to_lossy().into_owned());
                }
            }
            Ok(keys)
        })?;
        Trees::below(&self.checkpoint, id, keys, maker)
    }
}
