//! An open checkpoint.

use std::sync::Arc;

use statelens_checkpoint::{
    self as core, Error, Finding, FormatInfo, Progress, Result, Unwatched, Value, ValueId,
};
use statelens_inspect::compare::{Comparison, ComparisonReport as Diff, DiffOptions};
use statelens_inspect::verify::{Verification, VerificationReport as Verdict};

use crate::files::FileSource;
use crate::{Tensor, parallel};

/// An open checkpoint: a state dict whose tensors are still in their files.
#[derive(Clone)]
pub struct Checkpoint {
    inner: Arc<core::Checkpoint>,
    sources: Vec<Arc<FileSource>>,
}

impl Checkpoint {
    /// What was opened, and the files of the disk behind it.
    pub(crate) fn new(inner: core::Checkpoint, sources: Vec<Arc<FileSource>>) -> Self {
        Self { inner: Arc::new(inner), sources }
    }

    /// What the format says about itself.
    pub fn format(&self) -> &FormatInfo {
        &self.inner.format
    }

    /// What was noticed while it was opened: damage, missing shards, code that loading would run.
    pub fn findings(&self) -> &[Finding] {
        &self.inner.findings
    }

    /// Flat keys of all leaves, tensors or not, in file order.
    pub fn keys(&self) -> impl Iterator<Item = String> + '_ {
        self.inner.each_leaf().map(|leaf| leaf.flat.to_lossy().into_owned())
    }

    /// All tensors by their flat keys, in file order. One that has several names comes under each.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> + '_ {
        self.inner.each_leaf().filter_map(|leaf| {
            let (id, _) = self.inner.tensor_of(leaf.target)?;
            Tensor::new(&self.inner, leaf.flat.to_lossy().into_owned(), id).ok()
        })
    }

    /// The tensor of a flat key. Fails if there is none, and names keys that are near.
    pub fn tensor(&self, key: &str) -> Result<Tensor<'_>> {
        let mut found = self.named(key)?.into_iter();
        let tensor = found.find_map(|target| self.inner.tensor_of(target));
        let (id, _) = tensor.ok_or_else(|| {
            Error::refused(format!("the value of `{key}` is not a tensor")).coded("not-a-tensor")
        })?;
        Tensor::new(&self.inner, key.to_owned(), id)
    }

    /// The value of a flat key: a number, a text, an empty list. Fails if there is none, and names
    /// keys that are near.
    pub fn value(&self, key: &str) -> Result<&Value> {
        Ok(self.inner.value(self.named(key)?[0]))
    }

    /// The values of a flat key, one at least: keys with dots in them may be the same.
    fn named(&self, key: &str) -> Result<Vec<ValueId>> {
        let same = self.inner.each_leaf().filter(|leaf| leaf.flat.to_lossy() == key);
        let found: Vec<ValueId> = same.map(|leaf| leaf.target).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let leaves = self.inner.leaves();
        let near = statelens_inspect::near_keys(&leaves, key, NEAR);
        let near: Vec<String> = near.iter().map(|leaf| format!("`{}`", leaf.flat)).collect();
        let error = Error::refused(format!("there is no key `{key}`")).coded("no-such-key");
        Err(match near.as_slice() {
            [] => error,
            near => error.advice(format!("Did you mean {}?", near.join(" or "))),
        })
    }

    /// Reads all of it, looks at every checksum that its files have, and counts NaN and infinities.
    /// That it is damaged is a verdict, not an error.
    pub fn verify(&self) -> Result<Verdict> {
        self.verify_with(&mut Unwatched)
    }

    /// As [`Checkpoint::verify`]; tells how far it is in bytes, and stops where `progress` says so.
    pub fn verify_with(&self, progress: &mut dyn Progress) -> Result<Verdict> {
        let checks = statelens_formats::checks(&self.inner, self.inner.files.limits())?;
        let mut verification = Verification::new(self.inner.clone(), checks, false);
        parallel::drive(&mut verification, self.workers(), progress)?;
        verification.into_report(None)
    }

    /// A server is asked for one part after the other: each part that is read grows.
    fn workers(&self) -> usize {
        if self.sources.is_empty() { 1 } else { parallel::cores() }
    }

    /// The tree of values with the table of tensors, for what this crate does not do itself.
    pub fn inner(&self) -> &Arc<core::Checkpoint> {
        &self.inner
    }

    /// The files that it was read from, which are not to be written over.
    pub(crate) fn sources(&self) -> &[Arc<FileSource>] {
        &self.sources
    }
}

/// Keys that are named beside one that is not there.
const NEAR: usize = 3;

/// Compares two checkpoints key by key and value by value, whatever formats they are in.
pub fn diff(left: &Checkpoint, right: &Checkpoint) -> Result<Diff> {
    diff_with(left, right, DiffOptions::default(), &mut Unwatched)
}

/// As [`diff`], with a tolerance and other options; tells how far it is in bytes.
pub fn diff_with(
    left: &Checkpoint,
    right: &Checkpoint,
    options: DiffOptions,
    progress: &mut dyn Progress,
) -> Result<Diff> {
    let mut comparison = Comparison::new(left.inner.clone(), right.inner.clone(), options);
    parallel::drive(&mut comparison, left.workers().min(right.workers()), progress)?;
    Ok(comparison.into_report())
}
