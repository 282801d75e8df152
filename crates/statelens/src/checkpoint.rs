//! An open checkpoint.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use statelens_checkpoint::{
    self as core, Error, ErrorKind, Finding, FormatInfo, Progress, Result, Setting, TensorId,
    Unwatched, Value, ValueId,
};
use statelens_compare::diff::{Comparison, ComparisonReport as Diff, DiffOptions};
use statelens_compare::verify::{
    Manifest, ScaleFault, Verification, VerificationReport as Verdict, check_scales,
};
use statelens_convert::CastRule;
use statelens_describe::info::MAX_DESCRIBED;
use statelens_describe::model::{Config, Model, summarised};
use statelens_describe::share::{Measuring, Outline};
use statelens_describe::{CheckpointSummary, Info, ManifestWriter, Unread};
use statelens_quantised::QuantisedWeight;
use statelens_remote::{Meter, MeteredCall};

use crate::files::FileSource;
#[cfg(feature = "http")]
use crate::remote::HubSources;
use crate::{Tensor, parallel};

/// An open checkpoint: a state dict whose tensors are still in their files.
#[derive(Clone)]
pub struct Checkpoint {
    inner: Arc<core::Checkpoint>,
    sources: Arc<[Arc<FileSource>]>,
    /// The files of the Hub that the checkpoint is read from, unless all are in the local cache.
    #[cfg(feature = "http")]
    hub: Option<Arc<HubSources>>,
    /// The values by flat key, collected when the first is looked up.
    by_key: Arc<OnceLock<HashMap<String, Vec<ValueId>>>>,
    /// The meter of a remote checkpoint, if its limit is that of a call.
    meter: Option<Arc<Meter>>,
}

impl Checkpoint {
    /// Wraps a checkpoint and the files on disk that it is read from.
    pub(crate) fn new(inner: core::Checkpoint, sources: Vec<Arc<FileSource>>) -> Self {
        let (sources, by_key) = (sources.into(), Arc::default());
        Self {
            inner: Arc::new(inner),
            sources,
            #[cfg(feature = "http")]
            hub: None,
            by_key,
            meter: None,
        }
    }

    /// Sets the files of the Hub that the checkpoint is read from.
    #[cfg(feature = "http")]
    pub(crate) fn on_hub(self, sources: HubSources) -> Self {
        Self { hub: Some(Arc::new(sources)), ..self }
    }

    /// Limits each call that reads the checkpoint, by the meter with which it was opened.
    pub(crate) fn metered(self, meter: Arc<Meter>) -> Self {
        Self { meter: Some(meter), ..self }
    }

    /// Begins a call that reads the checkpoint through [`Checkpoint::inner`], as the methods of this
    /// type do: it may fetch as many bytes from servers as [`Opener`](crate::Opener) allows.
    pub fn call(&self) -> Option<MeteredCall> {
        self.meter.as_ref().map(Meter::call)
    }

    /// Returns the name and version of the format.
    pub fn format(&self) -> &FormatInfo {
        &self.inner.format
    }

    /// Returns what opening noticed: damage, missing shards, code that loading would run.
    pub fn findings(&self) -> &[Finding] {
        &self.inner.findings
    }

    /// Replaces the settings in the advice of findings with a front end's names for them.
    #[must_use]
    pub fn word_findings(mut self, name: impl Fn(Setting) -> &'static str) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.findings.iter_mut().for_each(|finding| finding.word(&name));
        }
        self
    }

    /// Returns the flat keys of all leaves, including plain values, in file order.
    pub fn keys(&self) -> impl Iterator<Item = String> + '_ {
        self.inner.each_leaf().map(|leaf| leaf.flat.to_lossy().into_owned())
    }

    /// Returns all tensors with their flat keys, in file order. A tied tensor appears under each of
    /// its keys.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor> + '_ {
        self.inner.each_leaf().filter_map(|leaf| {
            let (id, _) = self.inner.tensor_of(leaf.target)?;
            self.tensor_by_id(id, leaf.flat.to_lossy()).ok()
        })
    }

    /// Returns the tensor with a flat key. Otherwise, the error suggests similar keys.
    pub fn tensor(&self, key: &str) -> Result<Tensor> {
        let mut found = self.named(key)?.iter();
        let tensor = found.find_map(|target| self.inner.tensor_of(*target));
        let (id, _) = tensor.ok_or_else(|| {
            Error::refused(format!("the value of `{key}` is not a tensor")).coded("not-a-tensor")
        })?;
        self.tensor_by_id(id, key)
    }

    /// Returns the value with a flat key, such as a number, a text or an empty list. Otherwise, the
    /// error suggests similar keys.
    pub fn value(&self, key: &str) -> Result<&Value> {
        Ok(self.inner.value(self.named(key)?[0]))
    }

    /// Returns the values with a flat key, at least one: a name with a dot can make two keys equal.
    fn named(&self, key: &str) -> Result<&[ValueId]> {
        if let Some(found) = self.by_key()?.get(key) {
            return Ok(found);
        }
        let leaves = self.inner.leaves();
        let near = statelens_describe::near_keys(&leaves, key, NEAR);
        let mut near: Vec<String> = near.iter().map(|leaf| format!("`{}`", leaf.flat)).collect();
        near.dedup();
        let error = Error::refused(format!("there is no key `{key}`")).coded("no-such-key");
        Err(match near.as_slice() {
            [] => error,
            near => error.advice(format!("Did you mean {}?", near.join(" or "))),
        })
    }

    fn by_key(&self) -> Result<&HashMap<String, Vec<ValueId>>> {
        if let Some(by_key) = self.by_key.get() {
            return Ok(by_key);
        }
        self.inner.room(200)?;
        Ok(self.by_key.get_or_init(|| {
            let mut by_key: HashMap<String, Vec<ValueId>> = HashMap::new();
            for leaf in self.inner.each_leaf() {
                by_key.entry(leaf.flat.to_lossy().into_owned()).or_default().push(leaf.target);
            }
            by_key
        }))
    }

    /// Returns whether there is a leaf with this flat key.
    pub fn has(&self, key: &str) -> Result<bool> {
        Ok(self.by_key()?.contains_key(key))
    }

    /// Returns the leaf with a flat key; for several, the first. Otherwise, the error suggests
    /// similar keys.
    pub fn leaf_id(&self, key: &str) -> Result<ValueId> {
        self.named(key).map(|found| found[0])
    }

    /// Returns a tensor by its id in [`Checkpoint::inner`]; `key` is the key that the tensor
    /// reports.
    pub fn tensor_by_id(&self, id: TensorId, key: impl Into<String>) -> Result<Tensor> {
        let (sources, meter) = (self.sources.clone(), self.meter.clone());
        Tensor::new(&self.inner, sources, meter, key.into(), id)
    }

    /// Returns the value at `key`: a leaf, or the dict, list or other container that holds the keys
    /// below it. The empty key is the root object.
    pub fn value_id(&self, key: &str) -> Result<ValueId> {
        if key.is_empty() {
            return Ok(self.inner.root());
        }
        let container = if self.has(key)? { None } else { self.container(key) };
        container.map_or_else(|| self.leaf_id(key), Ok)
    }

    /// Finds a container by its flat key. Names may have dots, so all ways to split it are tried.
    fn container(&self, key: &str) -> Option<ValueId> {
        let mut open = vec![(self.inner.root(), key)];
        while let Some((id, rest)) = open.pop() {
            let mut step = |name: &str, child: ValueId| {
                let after = rest.strip_prefix(name)?;
                match after.strip_prefix('.') {
                    _ if after.is_empty() => Some(child),
                    Some(after) => {
                        open.push((child, after));
                        None
                    }
                    None => None,
                }
            };
            let found = match self.inner.value(id) {
                Value::Dict(dict) => {
                    dict.entries.iter().find_map(|(name, id)| step(&name.to_string(), *id))
                }
                Value::List(core::List { items, .. }) | Value::Tuple(core::Tuple { items, .. }) => {
                    (0..).zip(items).find_map(|(at, id): (usize, _)| step(&at.to_string(), *id))
                }
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Reads the whole checkpoint, checks every checksum of its files, and counts NaN and
    /// infinities. Damage is reported in the verdict, not as an error.
    pub fn verify(&self) -> Result<Verdict> {
        self.verify_with(&mut Unwatched)
    }

    /// Verifies as [`Checkpoint::verify`] does; `progress` counts bytes and can cancel.
    pub fn verify_with(&self, progress: &mut dyn Progress) -> Result<Verdict> {
        self.verify_against(None, progress)
    }

    /// Verifies as [`Checkpoint::verify_with`] does, and compares every value with a manifest.
    pub fn verify_against(
        &self,
        manifest: Option<&Manifest>,
        progress: &mut dyn Progress,
    ) -> Result<Verdict> {
        let _call = self.call();
        self.check_size("reading all values")?;
        let checks = statelens_formats::checks(&self.inner, self.inner.files.limits())?;
        self.inner.room(600)?;
        #[cfg(feature = "http")]
        let hashing = self.hub.as_ref().map(|hub| hub.hashing());
        let mut verification = Verification::new(self.inner.clone(), checks, manifest.is_some());
        parallel::drive(&mut verification, self.workers(), progress)?;
        let mut report = verification.into_report(manifest)?;
        #[cfg(feature = "http")]
        crate::blobs::check(&self.sources, hashing.as_ref(), &mut report, progress)?;
        let faults = statelens_quantised::scale_faults(&self.inner, &|_| true, progress)?;
        // Those of blocks were found in the same pass as all values.
        report.result.scales.splice(0..0, faults);
        self.unchanged()?;
        Ok(report)
    }

    /// Verifies a checkpoint as [`Checkpoint::verify_against`] does. One that is too damaged to open
    /// is a verdict, too.
    pub fn verify_opened(
        opened: Result<Self>,
        manifest: Option<&Manifest>,
        progress: &mut dyn Progress,
    ) -> Result<Verdict> {
        match opened {
            Ok(checkpoint) => checkpoint.verify_against(manifest, progress),
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(Verdict::of_damage(&error)),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of threads that read it. One for a remote file, because sequential requests
    /// grow in size.
    pub fn workers(&self) -> usize {
        if self.sources.is_empty() { 1 } else { parallel::cores() }
    }

    /// Returns the core's checkpoint, a tree of values with a table of tensors, which offers more
    /// than this type.
    pub fn inner(&self) -> &Arc<core::Checkpoint> {
        &self.inner
    }

    /// Fails if one of its files on disk was overwritten since it was opened: results may mix old
    /// and new bytes.
    pub fn unchanged(&self) -> Result<()> {
        self.sources.iter().try_for_each(|source| source.unchanged())
    }

    /// Returns the files on disk that the checkpoint is read from, which must not be overwritten.
    pub fn sources(&self) -> &Arc<[Arc<FileSource>]> {
        &self.sources
    }

    /// Returns the core's checkpoint, and the files on disk that it is read from.
    pub fn into_parts(self) -> (Arc<core::Checkpoint>, Arc<[Arc<FileSource>]>) {
        (self.inner, self.sources)
    }

    /// Wraps a checkpoint that was built from tensors of others, which are read from the files
    /// `sources` on disk, among others.
    pub fn built(inner: core::Checkpoint, sources: Vec<Arc<FileSource>>) -> Self {
        Self::new(inner, sources)
    }

    /// Returns an edited copy of this checkpoint, which is read from the same files.
    pub fn edited(&self, inner: core::Checkpoint) -> Self {
        Self { inner: Arc::new(inner), by_key: Arc::default(), ..self.clone() }
    }

    /// Returns a copy in which arrays without a dtype have the dtype of these rules; `None` if
    /// every array has a dtype.
    pub fn read_as(&self, rules: &[CastRule]) -> Result<Option<Self>> {
        if rules.is_empty() {
            return Ok(None);
        }
        Ok(statelens_convert::read_as(rules, &self.inner)?.map(|inner| self.edited(inner)))
    }

    /// Reads the scales of the quantised weights whose key, or that of a part, is `wanted`, and
    /// returns the weights with faults.
    pub fn scale_faults(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        progress: &mut dyn Progress,
    ) -> Result<Vec<ScaleFault>> {
        let _call = self.call();
        let leaves = self.inner.each_leaf().filter(|leaf| wanted(&leaf.flat.to_lossy()));
        check_scales(&self.inner, &leaves.collect::<Vec<_>>(), wanted, progress)
    }

    /// Returns a copy in which each quantised weight is one tensor of `dtype`, or of float32, and
    /// the weights that were found; `None` if no weight is quantised. The values are computed as
    /// they are read. Weights whose values are not known are unchanged, with the reason.
    pub fn dequantised(
        &self,
        dtype: Option<&core::DType>,
    ) -> Result<Option<(Self, Vec<QuantisedWeight>)>> {
        let _call = self.call();
        self.inner.room(600)?;
        let found = statelens_quantised::dequantise(&self.inner, dtype)?;
        Ok(found.map(|found| (self.edited(found.checkpoint), found.weights)))
    }

    /// Returns a copy for showing values: weights that are stored as several tensors are one of
    /// float32, next to their scales. `None` if no weight is quantised.
    pub fn with_quantised_shown(&self) -> Result<Option<(Self, Vec<QuantisedWeight>)>> {
        let _call = self.call();
        self.inner.room(600)?;
        let found = statelens_quantised::shown(&self.inner)?;
        Ok(found.map(|found| (self.edited(found.checkpoint), found.weights)))
    }

    /// Returns a copy for reading values, as [`with_quantised_shown`](Self::with_quantised_shown) does,
    /// and the weights that were found; unchanged if one of `keys`, which a slice may follow, is a key
    /// that the copy lacks.
    pub fn quantised_unless(&self, keys: &[&str]) -> Result<(Self, Vec<QuantisedWeight>)> {
        let Some((shown, weights)) = self.with_quantised_shown()? else {
            return Ok((self.clone(), Vec::new()));
        };
        for key in keys {
            let key = key.split_once('[').map_or(*key, |(key, _)| key);
            if self.has(key)? && !shown.has(key)? {
                return Ok((self.clone(), Vec::new()));
            }
        }
        Ok((shown, weights))
    }

    /// Returns a copy with one key for each layer in place of tensors that hold all layers, as
    /// Megatron stores them; `None` without such tensors.
    pub fn unstacked(&self) -> Result<Option<Self>> {
        let _call = self.call();
        Ok(statelens_convert::unstacked(&self.inner)?.map(|inner| self.edited(inner)))
    }

    /// Fails if an operation that processes all values, such as "reading all values", would process
    /// much more than the size of the files suggests.
    pub fn check_size(&self, what: &str) -> Result<()> {
        let files = &self.inner.files;
        let name = files.main().map(|main| files.name(main)).unwrap_or_default();
        let checked = self.inner.unfolded().check(what, files.limits());
        checked.map_err(|error| error.in_file(name))
    }

    /// Returns the findings that say that it is damaged or incomplete.
    pub fn damage(&self) -> impl Iterator<Item = &core::Finding> {
        self.inner.findings.iter().filter(|finding| finding.grade == core::Grade::Damage)
    }

    /// Writes the manifest: the hash or the value of each leaf. Returns the keys that can't be read.
    pub fn manifest(
        &self,
        form: ManifestForm,
        out: &mut dyn FnMut(&str) -> Result<()>,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Unread>> {
        let _call = self.call();
        self.check_size("hashing all values")?;
        let leaves = self.inner.leaves();
        let mut writer = match form {
            ManifestForm::Json => ManifestWriter::json(&self.inner, &leaves, out),
            ManifestForm::Lines => ManifestWriter::lines(&self.inner, &leaves, out),
        };
        parallel::drive(&mut writer, self.workers(), progress)?;
        self.unchanged()?;
        writer.finish()
    }

    /// Describes the checkpoint: format, counts, findings and, unless it has very many keys and
    /// `model` is false, the model. Reads no tensors. `config` is that of the model, if known.
    pub fn info(&self, config: Option<&Config>, model: bool) -> Result<Info> {
        let describes = model || self.inner.unfolded().leaves <= MAX_DESCRIBED;
        // Memory per leaf for the list, its description and its split key.
        self.inner.room(if describes { 1_500 } else { 750 })?;
        if !describes {
            let (summary, parameters) = summarised(&self.inner, config);
            return Ok(Info::new(&self.inner, summary, parameters, Model::default()));
        }
        let leaves = self.inner.leaves();
        let summary = CheckpointSummary::new(&self.inner, &leaves);
        let (model, parameters) = Model::counted(&self.inner, &leaves, &summary, config);
        Ok(Info::new(&self.inner, summary, parameters, model))
    }

    /// Summarises the checkpoint, with statistics and a fingerprint of the content if requested,
    /// for which all values are read. `config` is that of the model, if it is known.
    pub fn outline(
        &self,
        statistics: bool,
        content: bool,
        config: Option<&Config>,
        progress: &mut dyn Progress,
    ) -> Result<Outline> {
        let _call = self.call();
        self.inner.room(750)?;
        let leaves = self.inner.leaves();
        let mut outline = Outline::new(&self.inner, &leaves, config);
        if statistics || content {
            self.check_size("reading all values")?;
            let mut measuring = Measuring::new(&self.inner, &leaves, statistics);
            parallel::drive(&mut measuring, self.workers(), progress)?;
            self.unchanged()?;
            measuring.finish(&mut outline)?;
        }
        Ok(outline)
    }
}

/// The form of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestForm {
    /// JSON.
    Json,
    /// A line per leaf, for people and for `diff`.
    Lines,
}

impl From<core::Checkpoint> for Checkpoint {
    /// Takes a checkpoint that was built or edited, and is not read from files on disk.
    fn from(inner: core::Checkpoint) -> Self {
        Self::new(inner, Vec::new())
    }
}

/// Similar keys that an error suggests.
const NEAR: usize = 3;

/// Compares two checkpoints of any formats, key by key and value by value.
pub fn diff(left: &Checkpoint, right: &Checkpoint) -> Result<Diff> {
    diff_with(left, right, DiffOptions::default(), &mut Unwatched)
}

/// Compares as [`diff`] does, with a tolerance and other options; `progress` counts bytes and can
/// cancel.
pub fn diff_with(
    left: &Checkpoint,
    right: &Checkpoint,
    options: DiffOptions,
    progress: &mut dyn Progress,
) -> Result<Diff> {
    let _calls = (left.call(), right.call());
    for side in [left, right] {
        side.check_size("comparing all values")?;
    }
    left.inner.room(950)?;
    let mut comparison = Comparison::new(left.inner.clone(), right.inner.clone(), options);
    parallel::drive(&mut comparison, left.workers().min(right.workers()), progress)?;
    left.unchanged()?;
    right.unchanged()?;
    Ok(comparison.into_report())
}
