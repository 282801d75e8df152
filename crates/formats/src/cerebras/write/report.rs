//! Collects values that the format can't hold: losses if a substitute is written, or a single
//! refusal that lists all others.

use std::borrow::Cow;

use statelens_checkpoint::{
    Advice, DType, Error, Loss, LossCode, LossKind, Losses, Setting, Text, advice,
};

/// Losses and refusals found so far.
#[derive(Default)]
pub(super) struct LossReport {
    losses: Losses,
    refused: Vec<(String, Cow<'static, str>)>,
    /// Settings that avoid the refusals.
    advice: Vec<Setting>,
}

const CAST: Setting = Setting::CastToFloat32;
/// Returns the setting that avoids a tensor of a dtype that the format lacks.
pub(super) fn without(dtype: &DType) -> Setting {
    if statelens_tensor::has_floats(dtype) { CAST } else { EXCLUDE }
}

pub(super) const OLDER: Setting = Setting::FormatVersion04;
pub(super) const EXCLUDE: Setting = Setting::Exclude;

/// The reason to refuse the second of two entries with the same name.
pub(super) const SAME_NAME: &str = "another entry has the same name once it is flattened (if \
     patterns find both, convert to PyTorch, which keeps both)";

/// Returns a sentence on the setting that avoids a refusal.
fn sentence(setting: Setting) -> Advice {
    let text = match setting {
        CAST => "Real floating-point tensors can be cast to another dtype, for example with ",
        Setting::Prefix => "Give a value without a name one with ",
        OLDER => "Format 0.4 holds them unchanged: ",
        _ => "Entries can be left out with ",
    };
    advice![text, setting, "."]
}

/// The number of refusals that are listed; the rest are counted.
const SHOWN: usize = 10;

const FLATTENING: &str =
    "The format knows dict, OrderedDict, defaultdict, list, tuple, set and deque only.";

pub(super) const NAMED: LossKind =
    LossCode::NamedTuple.lost("named tuples become plain tuples", FLATTENING);
pub(super) const SIZE: LossKind =
    LossCode::TorchSize.harmless("torch.Size becomes a plain tuple", FLATTENING);
pub(super) const DICT: LossKind =
    LossCode::DictClass.lost("dicts of other classes become plain dicts", FLATTENING);
pub(super) const CLASS: LossKind = LossCode::ObjectFields
    .lost("objects become plain dicts of their fields, without their class", FLATTENING);
pub(super) const DEFAULT: LossKind = LossCode::DefaultDict.lost(
    "defaultdicts become plain dicts",
    "The Cerebras library loads a defaultdict only if it has at most two entries and creates \
     missing ones with a class of Python's own.",
);
pub(super) const DEFAULT_04: LossKind = LossCode::DefaultDict.lost(
    "defaultdicts become plain dicts",
    "Release 2.0 of the Cerebras library can't load them.",
);
pub(super) const MAXLEN: LossKind = LossCode::DequeLength.lost(
    "deques lose their maximum length",
    "The Cerebras library can't save a deque that has one.",
);
pub(super) const DEQUE_04: LossKind = LossCode::Deque
    .lost("deques of tensors become lists", "Release 2.0 of the Cerebras library can't load them.");
pub(super) const SET_04: LossKind = LossCode::Set.lost(
    "sets of tensors become lists",
    "Format 0.4 holds a set as one pickled object, which has no room for tensors.",
);
pub(super) const KEY: LossKind = LossCode::KeyType.lost(
    "keys of other types become strings",
    "The structure holds only keys that are strings, numbers, bools and None.",
);
pub(super) const COPIES: LossKind = LossCode::Copies.harmless(
    "containers that were one object become equal copies",
    "The library flattens each copy separately; the tensors in them stay tied.",
);
pub(super) const ATTRIBUTES: LossKind = LossCode::Attributes.harmless(
    "attributes set on a dict (a state dict's `_metadata`) are left out",
    "The Cerebras library leaves them out as well.",
);
pub(super) const OF_TENSORS: LossKind = LossCode::TensorAttributes.harmless(
    "Python attributes of tensors are left out",
    "The Cerebras library stores plain tensors.",
);
pub(super) const PARAMETER: LossKind = LossCode::Parameter.harmless(
    "parameters become tensors",
    "The Cerebras library stores plain tensors; a module turns them into parameters when it loads \
     its state dict.",
);
pub(super) const GRADIENT: LossKind = LossCode::Gradient.harmless(
    "tensors no longer require a gradient",
    "The Cerebras library stores plain tensors; a module turns them into parameters when it loads \
     its state dict.",
);
pub(super) const SUBCLASS: LossKind = LossCode::TensorClass
    .lost("tensors of other classes become plain tensors", "The format holds plain tensors.");
pub(super) const SHARED: LossKind = LossCode::SharedMemory.harmless(
    "tensors that share memory are written one by one",
    "Only tensors that are equal views of it stay tied, as in the Cerebras library.",
);
pub(super) const FLOAT64: LossKind = LossCode::Float64Scalar.harmless(
    "numpy float64 scalars become floats",
    "The Cerebras library stores them so: to Python they are floats.",
);
pub(super) const BFLOAT16: LossKind = LossCode::Bfloat16Array.harmless(
    "numpy arrays of bfloat16 become tensors of the same values",
    "The Cerebras library loads such arrays as integers.",
);
pub(super) const TITLES: LossKind = LossCode::FieldTitles
    .lost("fields of records lose their titles", "HDF5 has one name for each field.");
pub(super) const SCALAR: LossKind = LossCode::ArrayScalar.harmless(
    "numpy scalars become arrays without dimensions",
    "Their bytes are not available when the file is planned.",
);
pub(super) const SCALAR_04: LossKind = LossCode::ArrayScalar
    .harmless("numpy scalars become arrays without dimensions", "Format 0.4 stores both alike.");
pub(super) const ARRAY_01: LossKind =
    LossCode::Array.lost("numpy arrays become tensors", "Format 0.1 does not distinguish them.");
pub(super) const TIES_04: LossKind = LossCode::Ties.harmless(
    "values that were one object are loaded as two",
    "Format 0.4 has no links; tied tensors share their bytes in the file all the same.",
);

impl LossReport {
    /// Adds the loss `kind` for the value at `key`.
    pub(super) fn lose(&mut self, kind: LossKind, key: &Text) {
        self.losses.add(kind, key.to_string());
    }

    /// Adds a refusal of the value at `key`, with the reason and advice.
    pub(super) fn refuse(
        &mut self,
        key: &Text,
        why: impl Into<Cow<'static, str>>,
        advice: Setting,
    ) {
        self.refused.push((key.to_string(), why.into()));
        let unnamed = (key.as_bytes().is_empty()).then_some(Setting::Prefix);
        for advice in unnamed.into_iter().chain([advice]) {
            if !self.advice.contains(&advice) {
                self.advice.push(advice);
            }
        }
    }

    /// Adds a refusal like [`LossReport::refuse`]. Returns `None`, so that a caller that would return the
    /// encoded value can return this.
    pub(super) fn refused<T>(
        &mut self,
        key: &Text,
        why: impl Into<Cow<'static, str>>,
        advice: Setting,
    ) -> Option<T> {
        self.refuse(key, why, advice);
        None
    }

    /// Returns the losses, or an error if anything was refused.
    pub(super) fn finish(self, version: &str) -> Result<Vec<Loss>, Error> {
        if self.refused.is_empty() {
            return Ok(self.losses.finish(Some));
        }
        let count = self.refused.len();
        let shown: Vec<String> = self
            .refused
            .iter()
            .take(SHOWN)
            .map(|(key, why)| format!("{}: {why}", printable(key)))
            .collect();
        let more = match count.saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let entries = if count == 1 { "an entry" } else { "some entries" };
        let mut advice = self.advice;
        if !advice.contains(&EXCLUDE) {
            advice.push(EXCLUDE);
        }
        let advice = advice.into_iter().map(sentence).reduce(Advice::then).unwrap_or_default();
        Err(Error::refused(format!(
            "Cerebras format {version} can't hold {entries}: {}{more}",
            shown.join("; ")
        ))
        .advice(advice))
    }
}

/// Returns a key on a single line, with control characters replaced.
fn printable(key: &str) -> String {
    if key.is_empty() {
        return "(no name)".into();
    }
    let show = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    format!("`{}`", key.chars().map(show).collect::<String>())
}
