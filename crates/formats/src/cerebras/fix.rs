//! Repairs checkpoints of releases up to 1.7 so that later releases can load them. Does the same as
//! the script `fix_checkpoint_spec.py` of releases 2.0.2 and 2.0.3:
//!
//! - A class in the spec that no longer exists in the library becomes a dict.
//! - Tied weights that have two names in the spec but are stored once: the missing name becomes a
//!   link to the other one, for the pairs of names that are known.
//! - `last_epoch` of learning-rate schedulers, which was one step behind, is set to the global
//!   step, or to the steps since the milestone at which a scheduler in a sequence began.

use std::collections::HashMap;

use statelens_checkpoint::{
    Checkpoint, Error, Int, Leaf, Result, Setting, Value, ValueId, advice, order,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// A class that the spec names became a dict.
    Class(String),
    /// A weight that was missing became a link to its other name.
    Link {
        key: String,
        /// The existing key.
        to: String,
    },
    /// A `last_epoch` was set.
    Epoch { key: String, old: String, new: Int },
}

#[derive(Debug, Clone)]
pub struct Fixed {
    /// The checkpoint with all repairs.
    pub checkpoint: Checkpoint,
    pub repairs: Vec<Repair>,
    /// Whether some `last_epoch` was left unchanged because there is no `global_step`.
    pub no_global_step: bool,
}

impl Repair {
    /// Describes the repair in the past tense, in one line.
    pub fn text(&self) -> String {
        match self {
            Self::Class(class) => format!("the class {class} in the spec became a dict"),
            Self::Link { key, to } => format!("{key}, which was missing, became a link to {to}"),
            Self::Epoch { key, old, new } => format!("{key} was {old} and became {new}"),
        }
    }

    /// Describes the repair as still to be made, in one line.
    pub fn needed(&self) -> String {
        match self {
            Self::Class(class) => format!("the class `{class}` in the spec becomes a dict"),
            Self::Link { key, to } => {
                format!("`{key}`, which is missing, becomes a link to `{to}`")
            }
            Self::Epoch { key, old, new } => format!("`{key}` is {old} and becomes {new}"),
        }
    }
}

/// The two names of a tied weight, as suffixes of keys.
const ALIASES: [(&str, &str); 3] = [
    ("embedding_layer.word_embeddings.weight", "lm_head.weight"),
    ("ln_f.weight", "transformer_decoder.norm.weight"),
    ("ln_f.bias", "transformer_decoder.norm.bias"),
];

/// Repairs a checkpoint. Fails if it is not of format 0.4 or older, or if a weight is missing and
/// its other name is unknown or missing, too.
pub fn fix(source: &Checkpoint) -> Result<Fixed> {
    check_format(source)?;
    if !is_legacy(source) {
        return Err(Error::refused(format!(
            "this has format {}, whose spec needs no repair",
            source.format.version
        ))
        .advice("Only checkpoints of format 0.4 and older, of releases up to 2.4, may need it."));
    }
    let leaves = source.leaves();
    let mut builder = source.edit();
    let mut repairs = classes(source);
    for (key, id, to, target) in links(source, &leaves)? {
        if let Some(place) = builder.value_mut(id) {
            *place = Value::Link(target);
        }
        repairs.push(Repair::Link { key, to });
    }
    let (epochs, no_global_step) = epochs(source, &leaves)?;
    for (key, id, new) in epochs {
        let old = match source.value(id) {
            Value::Int(old) if *old == new => continue,
            Value::Int(old) => old.to_string(),
            value => value.kind().to_owned(),
        };
        if let Some(place) = builder.value_mut(id) {
            *place = Value::Int(new.clone());
        }
        repairs.push(Repair::Epoch { key, old, new });
    }
    let mut checkpoint = builder.rebuild(source)?;
    // The findings were about the problems that are now repaired.
    checkpoint.findings.clear();
    Ok(Fixed { checkpoint, repairs, no_global_step })
}

/// Returns whether a checkpoint has format 0.4 or older.
pub fn is_legacy(source: &Checkpoint) -> bool {
    source.format.version.parse::<f64>().is_ok_and(|version| version < 0.5)
}

/// Returns the classes that the reader replaced by a dict.
fn classes(source: &Checkpoint) -> Vec<Repair> {
    let calls = source.findings.iter().filter_map(|finding| finding.call.as_ref());
    let ours = calls.filter(|call| call.name == "TensorScalarDict");
    ours.map(|call| Repair::Class(format!("{}.{}", call.module, call.name))).collect()
}

/// Returns the missing leaves: key and value, and key and value of the link target.
fn links(source: &Checkpoint, leaves: &[Leaf]) -> Result<Vec<(String, ValueId, String, ValueId)>> {
    // The reader returns a missing value as a None without attributes. A stored None has some.
    let is_missing = |leaf: &Leaf| {
        leaf.id == leaf.target
            && *source.value(leaf.id) == Value::None
            && source.raw_attributes(leaf.id).is_empty()
    };
    let mut there: HashMap<String, ValueId> = HashMap::new();
    for leaf in leaves.iter().filter(|leaf| !is_missing(leaf)) {
        there.insert(leaf.flat.to_lossy().into_owned(), leaf.target);
    }
    let mut links = Vec::new();
    for leaf in leaves.iter().filter(|leaf| is_missing(leaf)) {
        let key = leaf.flat.to_lossy().into_owned();
        let names = ALIASES.iter().flat_map(|(one, other)| [(one, other), (other, one)]);
        let mut known =
            names.filter_map(|(from, to)| Some(format!("{}{to}", key.strip_suffix(from)?)));
        let Some(other) = known.next() else {
            return Err(Error::refused(format!(
                "the weight {key} is missing from the file, and no other name of it is known"
            ))
            .advice("The checkpoint may be incomplete: use an earlier one."));
        };
        let Some(target) = there.get(&other) else {
            return Err(Error::refused(format!(
                "the weight {key} is missing from the file, and so is {other}, which is tied to it"
            ))
            .advice("The checkpoint may be incomplete: use an earlier one."));
        };
        links.push((key, leaf.id, other, *target));
    }
    Ok(links)
}

/// The key of a `last_epoch`, its value, and the correct value.
type Epoch = (String, ValueId, Int);

/// Returns the correct values of the `last_epoch` leaves, and whether they are unknown.
fn epochs(source: &Checkpoint, leaves: &[Leaf]) -> Result<(Vec<Epoch>, bool)> {
    let keys: Vec<(String, ValueId)> =
        leaves.iter().map(|leaf| (leaf.flat.to_lossy().into_owned(), leaf.target)).collect();
    let last: Vec<&(String, ValueId)> = keys
        .iter()
        .filter(|(key, _)| key.contains("lr_scheduler") && key.contains("last_epoch"))
        .collect();
    let step = keys.iter().find(|(key, _)| key == "global_step").map(|(_, id)| source.value(*id));
    let step = match step {
        Some(Value::Int(step)) => step.to_i64(),
        _ => None,
    };
    let Some(step) = step else { return Ok((Vec::new(), !last.is_empty())) };
    let mut milestones: Vec<(u64, i64)> = Vec::new();
    for (key, id) in &keys {
        let scheduler = key.find("lr_scheduler").map(|at| &key[at..]);
        if !scheduler.is_some_and(|key| key.contains("milestones")) {
            continue;
        }
        let number = key.rsplit('.').next().and_then(|number| number.parse().ok());
        if let (Some(number), Value::Int(value)) = (number, source.value(*id)) {
            milestones.push((number, value.to_i64().unwrap_or(i64::MAX)));
        }
    }
    order::natural(&mut milestones);
    let epoch = |key: &str| -> Result<i64> {
        let id = key.strip_suffix(".last_epoch").and_then(|rest| rest.rsplit('.').next());
        match id.and_then(|id| id.parse::<usize>().ok()) {
            Some(id) if id > 0 && !milestones.is_empty() => match milestones.get(id - 1) {
                Some((_, begun)) => Ok(step.saturating_sub(*begun).max(0)),
                None => Err(Error::refused(format!(
                    "{key} belongs to a scheduler that begins at a missing milestone"
                ))),
            },
            _ => Ok(step),
        }
    };
    let set = last.into_iter().map(|(key, id)| Ok((key.clone(), *id, Int::from(epoch(key)?))));
    Ok((set.collect::<Result<_>>()?, false))
}

/// Fails if the checkpoint is of another format.
pub fn check_format(source: &Checkpoint) -> Result<()> {
    if source.format.id == "cerebras-h5" {
        return Ok(());
    }
    let what = format!("this is {}, not a Cerebras checkpoint", source.format.name);
    Err(Error::refused(what).advice(advice!["Convert it with ", Setting::Convert, "."]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{Builder, Dict, DictKey, FileSet, FormatInfo, Limits};

    /// Returns a flat state dict as the reader would: missing keys are None without attributes.
    fn checkpoint(version: &str, entries: Vec<(&str, Value)>) -> Checkpoint {
        let mut builder = Builder::new(&Limits::default());
        let mut made = Vec::new();
        for (key, value) in entries {
            let is_there = value != Value::None;
            let id = builder.push(value).unwrap();
            if is_there {
                builder.set_raw_attributes(id, vec![("is_scalar".into(), "True".into())]);
            }
            made.push((DictKey::from(key), id));
        }
        let root = builder.push(Value::Dict(Dict { entries: made, ..Dict::default() })).unwrap();
        let format =
            FormatInfo { id: "cerebras-h5", version: version.into(), ..FormatInfo::default() };
        builder.finish(root, format, FileSet::default(), Vec::new()).unwrap()
    }

    fn int(value: i64) -> Value {
        Value::Int(value.into())
    }

    #[test]
    fn missing_weight_is_restored_from_its_alias() {
        let source = checkpoint("0.1", vec![("m.ln_f.bias", Value::None), ("m.other", int(1))]);
        let error = fix(&source).unwrap_err().to_string();
        assert!(error.contains("m.transformer_decoder.norm.bias"), "{error}");
        let source = checkpoint("0.1", vec![("m.w", Value::None)]);
        let error = fix(&source).unwrap_err().to_string();
        assert!(error.contains("m.w is missing"), "{error}");
        // Either of the two names may be missing.
        for (gone, there) in ALIASES.iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
            let (gone, there) = (format!("m.{gone}"), format!("m.{there}"));
            let source = checkpoint("0.1", vec![(&gone, Value::None), (&there, int(1))]);
            let fixed = fix(&source).unwrap();
            assert_eq!(fixed.repairs, [Repair::Link { key: gone, to: there }]);
            assert_eq!(
                fixed.checkpoint.leaves()[0].alias_of,
                Some(fixed.checkpoint.leaves()[1].flat.clone())
            );
        }
    }

    #[test]
    fn last_epoch_follows_the_global_step() {
        let mut entries = vec![("global_step", int(100)), ("lr_scheduler.last_epoch", int(99))];
        let milestones = ["lr_scheduler._milestones.10", "lr_scheduler._milestones.2"];
        entries.extend([(milestones[0], int(300)), (milestones[1], int(40))]);
        let schedulers = [
            "lr_scheduler._schedulers.0.last_epoch",
            "lr_scheduler._schedulers.1.last_epoch",
            "lr_scheduler._schedulers.2.last_epoch",
        ];
        entries.extend(schedulers.map(|key| (key, int(7))));
        entries.push(("other.last_epoch", int(3)));
        let fixed = fix(&checkpoint("0.1", entries.clone())).unwrap();
        let news: Vec<String> = fixed.repairs.iter().map(Repair::text).collect();
        assert_eq!(
            news,
            [
                "lr_scheduler.last_epoch was 99 and became 100",
                "lr_scheduler._schedulers.0.last_epoch was 7 and became 100",
                "lr_scheduler._schedulers.1.last_epoch was 7 and became 60",
                "lr_scheduler._schedulers.2.last_epoch was 7 and became 0",
            ]
        );
        entries.push(("lr_scheduler._schedulers.3.last_epoch", int(7)));
        let error = fix(&checkpoint("0.1", entries)).unwrap_err().to_string();
        assert!(error.contains("_schedulers.3"), "{error}");
    }

    #[test]
    fn epochs_stay_without_a_global_step() {
        let source = checkpoint("0.1", vec![("lr_scheduler.last_epoch", int(3))]);
        let fixed = fix(&source).unwrap();
        assert!(fixed.repairs.is_empty() && fixed.no_global_step);
    }

    #[test]
    fn refuses_the_new_format() {
        let error = fix(&checkpoint("0.5", vec![("a", int(1))])).unwrap_err().to_string();
        assert!(error.contains("0.5"), "{error}");
    }
}
