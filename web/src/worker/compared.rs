//! The two sides of a comparison: two checkpoints, or two tensors of one.

use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{Error, Result};
use statelens_compare::check::{CheckReport, Expected, Reference, compare_keys};
use statelens_compare::diff::ComparisonReport;
use statelens_convert::alone;

use crate::worker::opened::OpenCheckpoint;

/// The state of a trainer's checkpoint that is checked, which is the command's default.
const STATE: &str = "model";

/// The state of a comparison.
#[derive(Default)]
pub(crate) struct ComparedCheckpoint {
    /// The first side, unless it is the open checkpoint.
    first: Option<OpenCheckpoint>,
    pub(crate) open: Option<OpenCheckpoint>,
    /// The expected keys, if a manifest or a list of keys was opened instead of a checkpoint, until
    /// they are compared.
    pub(crate) list: Option<Vec<Expected>>,
    /// The keys of both sides compared, for the check whether the first would load.
    keys: Option<CheckReport>,
    /// The result, once the comparison is complete.
    pub(crate) report: Option<ComparisonReport>,
}

impl ComparedCheckpoint {
    /// Creates the comparison of two tensors of a checkpoint, each as a checkpoint of one key.
    pub(crate) fn of_rows(open: &OpenCheckpoint, a: u32, b: u32) -> Result<Self> {
        let leaf = |row: u32| open.leaves.get(row as usize);
        // Both have the key of the first, so that they are paired.
        let name = leaf(a).map(|leaf| leaf.flat.to_lossy().into_owned()).unwrap_or_default();
        let only = |row: u32| -> Result<OpenCheckpoint> {
            let tensor = leaf(row).and_then(|leaf| open.checkpoint.tensor_of(leaf.target));
            let (_, tensor) = tensor.ok_or_else(|| Error::refused("this is not a tensor"))?;
            let tensors = [(name.as_str(), tensor.clone())];
            let checkpoint = Arc::new(alone(&open.checkpoint, tensors, &open.limits)?);
            let leaves = checkpoint.leaves().into();
            let (sources, limits) = (Rc::clone(&open.sources), open.limits.clone());
            Ok(OpenCheckpoint::new(checkpoint, leaves, sources, limits))
        };
        Ok(Self { first: Some(only(a)?), open: Some(only(b)?), ..Self::default() })
    }

    /// Returns whether the sides are two tensors of the open checkpoint.
    pub(crate) fn is_of_rows(&self) -> bool {
        self.first.is_some()
    }

    /// Returns both sides; `None` until the second is open. `open` is the open checkpoint.
    pub(crate) fn sides(
        &self,
        open: Option<&OpenCheckpoint>,
    ) -> Option<(OpenCheckpoint, OpenCheckpoint)> {
        let first = self.first.as_ref().or(open)?;
        Some((first.clone(), self.open.clone()?))
    }

    /// Returns the comparison of the keys of both sides, which is made once; `None` until the second
    /// is open. `first` is the open checkpoint.
    pub(crate) fn keys(&mut self, first: &OpenCheckpoint) -> Option<&CheckReport> {
        if self.keys.is_none() {
            let reference = match (&self.open, self.list.take()) {
                (Some(open), _) => Reference::of(&open.checkpoint, STATE),
                (None, list) => Reference::listed(list?, STATE),
            };
            let own = Reference::of(&first.checkpoint, STATE);
            self.keys = Some(compare_keys(own, reference, STATE));
        }
        self.keys.as_ref()
    }
}
