//! Checks whether a checkpoint would load into what a reference describes: another checkpoint, a
//! manifest, a list. Compares keys, shapes and dtypes; does not read weights.
//!
//! The rules are those of torch's `load_state_dict`: in strict mode, missing and unexpected keys
//! are errors, otherwise both are skipped; shapes must be the same in either mode; dtypes are
//! converted silently. The Cerebras trainer is strict only about the state `model`, so that state
//! is checked if it exists.

mod layers;
mod lines;
mod reference;
mod release;
mod rename;

use std::collections::HashMap;

use serde::Serialize;
use statelens_checkpoint::{Advice, Checkpoint, Grade, KeyPart, Leaf, Setting, Value, advice};
use statelens_describe::{dtype_of, shape_of};
use statelens_values::report_json;

pub use layers::{KeyLayer, by_layer};
pub use lines::{CheckLine, CheckLineKind};
pub use reference::{Expected, is_text, parse_list, parse_reference};
pub use release::{LibraryRelease, RELEASES, ReleaseVerdict, version_of};
pub use rename::{PrefixChange, parts_sides, prefix_between};

/// Options of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckOptions {
    /// Missing and unexpected keys are errors.
    pub strict: bool,
    /// The state to check, on each side that has it; `None` for everything.
    pub state: Option<String>,
    /// The release of the Cerebras library that would load it, if it should be checked.
    pub release: Option<LibraryRelease>,
    /// A checkpoint of a different release is an error.
    pub strict_version: bool,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { strict: true, state: Some("model".into()), release: None, strict_version: true }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CheckReport {
    /// Whether it would load.
    pub loads: bool,
    /// The state that was checked in the file; empty for everything.
    pub file_state: String,
    /// The state that was checked in the reference; empty for everything.
    pub reference_state: String,
    /// Whether `model.` was added to all keys, as the trainer does if not all of them have it.
    pub prefixed: bool,
    /// Number of keys that are on both sides with the same shape.
    pub matching: u64,
    /// Keys that are expected but not in the file.
    pub missing: Vec<Expected>,
    /// Keys that are in the file but not expected.
    pub unexpected: Vec<Expected>,
    /// Keys with different shapes.
    pub shapes: Vec<TypeDifference>,
    /// Keys with different dtypes, which are converted on loading.
    pub dtypes: Vec<TypeDifference>,
    /// The change of prefix that would match most of the missing keys.
    pub rename: Option<PrefixChange>,
    /// Whether none of the file's keys is expected, so that all would be skipped.
    pub nothing: bool,
    /// Damage in the file: missing, damaged or unfinished parts.
    pub damage: Vec<String>,
    /// Why the requested release can't read the format of the file, if it can't.
    pub format: Option<String>,
    /// The trainer's verdict on the release, if requested.
    pub release: Option<ReleaseVerdict>,
}

/// A key whose type in the file is not the expected one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TypeDifference {
    /// The flat key.
    pub key: String,
    /// The type in the file, as in `float32 [2, 3]`.
    pub file: String,
    /// The expected type.
    pub expected: String,
}

/// Returns the leaves of a checkpoint as expected keys.
pub fn expected_of(checkpoint: &Checkpoint, leaves: &[Leaf]) -> Vec<Expected> {
    let item = |leaf: &Leaf| Expected {
        key: leaf.flat.to_lossy().into_owned(),
        dtype: dtype_of(checkpoint, leaf.target).map(ToString::to_string),
        shape: shape_of(checkpoint, leaf.target).map(<[u64]>::to_vec),
    };
    leaves.iter().filter(|leaf| !leaf.outside_state).map(item).collect()
}

/// Returns whether the checkpoint has a top-level state with this name that is a container.
pub fn has_state(checkpoint: &Checkpoint, name: &str) -> bool {
    match checkpoint.value(checkpoint.root()) {
        Value::Dict(dict) => dict.entries.iter().any(|(key, id)| {
            let step = KeyPart::Field(key.clone());
            let key = statelens_checkpoint::Key { parts: vec![step] };
            key.flat() == *name && checkpoint.value(checkpoint.resolve(*id)).is_container()
        }),
        _ => false,
    }
}

/// Top-level states of a trainer's checkpoint, by which such a checkpoint is recognised in a list
/// of keys.
const TRAINER: [&str; 6] =
    ["optimizer", "schedulers", "lr_scheduler", "global_step", "dataloader", "__metadata__"];

/// Returns whether a list of keys has a state with this name, as far as that can be determined from
/// keys: there must also be another state that only a trainer's checkpoint has.
pub fn lists_state(expected: &[Expected], name: &str) -> bool {
    let below = |name: &str| {
        expected.iter().any(|one| {
            one.key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    below(name) && TRAINER.iter().any(|other| *other != name && below(other))
}

/// What a checkpoint is checked against.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    keys: Vec<Expected>,
    /// Whether it has the state that is checked.
    has_state: bool,
}

impl Reference {
    /// Expects the keys of a checkpoint.
    pub fn of(checkpoint: &Checkpoint, state: &str) -> Self {
        let keys = expected_of(checkpoint, &checkpoint.leaves());
        Self { keys, has_state: has_state(checkpoint, state) }
    }

    /// Expects the keys of a list.
    pub fn listed(keys: Vec<Expected>, state: &str) -> Self {
        Self { has_state: lists_state(&keys, state), keys }
    }
}

/// Checks whether a checkpoint would load into `reference`: its keys, release, format and damage.
pub fn check_checkpoint(
    checkpoint: &Checkpoint,
    reference: Reference,
    options: &CheckOptions,
) -> CheckReport {
    let state = options.state.as_deref().unwrap_or_default();
    compare_keys(Reference::of(checkpoint, state), reference, state).judged(checkpoint, options)
}

/// Compares the keys of a file with those of a reference, below `state` on each side that has it.
/// The report has no verdict yet, see [`CheckReport::judged`].
pub fn compare_keys(file: Reference, reference: Reference, state: &str) -> CheckReport {
    let below = |side: Reference| match side.has_state && !state.is_empty() {
        true => (below(side.keys, state), state.to_owned()),
        false => (side.keys, String::new()),
    };
    let ((mut file, file_state), (reference, reference_state)) = (below(file), below(reference));
    // The trainer's wrapper has the model as its attribute `model`.
    let wrapped = |items: &[Expected]| items.iter().all(|one| one.key.starts_with("model."));
    let prefixed =
        file_state == "model" && !reference.is_empty() && wrapped(&reference) && !wrapped(&file);
    if prefixed {
        file.iter_mut().for_each(|one| one.key.insert_str(0, "model."));
    }
    let mut report =
        CheckReport { file_state, reference_state, prefixed, ..CheckReport::default() };
    report.compare(file, reference);
    report.rename = rename::nearest(&report.missing, &report.unexpected);
    report.nothing = report.matching == 0 && !report.has_same_keys() && report.shapes.is_empty();
    report
}

/// Returns the keys below a state, without its name.
fn below(items: Vec<Expected>, state: &str) -> Vec<Expected> {
    let prefix = format!("{state}.");
    let strip = |mut one: Expected| {
        one.key = one.key.strip_prefix(&prefix)?.to_owned();
        Some(one)
    };
    items.into_iter().filter_map(strip).collect()
}

impl CheckReport {
    /// Returns remarks on damage, release and format, as pairs of label and text.
    pub fn remarks(&self) -> Vec<(&'static str, Advice)> {
        let damage = self.damage.iter().map(|damage| ("incomplete", damage.clone().into()));
        let release = self.release.as_ref().map(|release| ("release", release.text.clone().into()));
        let upgrade = |why: &String| ("format", advice![format!("{why}: see "), Setting::Upgrade]);
        damage.chain(release).chain(self.format.as_ref().map(upgrade)).collect()
    }

    /// Returns the report with the verdict on `checkpoint`, the file whose keys were compared.
    #[must_use]
    pub fn judged(mut self, checkpoint: &Checkpoint, options: &CheckOptions) -> Self {
        let damage = checkpoint.findings.iter().filter(|finding| finding.grade == Grade::Damage);
        self.damage = damage.map(|finding| finding.title.clone()).collect();
        self.format = options.release.and_then(|release| release.refuses(checkpoint));
        self.with_verdict(version_of(checkpoint).as_deref(), options)
    }

    fn with_verdict(mut self, version: Option<&str>, options: &CheckOptions) -> Self {
        self.release = options.release.map(|release| release.verdict(version));
        let release = self.release.as_ref().is_none_or(|release| release.compatible);
        self.loads = self.shapes.is_empty()
            && !self.nothing
            && (self.has_same_keys() || !options.strict)
            && (release || !options.strict_version)
            && self.format.is_none()
            && self.damage.is_empty();
        self
    }

    fn has_same_keys(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty()
    }

    /// Returns a short verdict.
    pub fn verdict(&self) -> &'static str {
        match (self.loads, self.nothing, self.damage.is_empty()) {
            (true, ..) => "it would load",
            (_, true, _) => "nothing would be loaded",
            (_, _, true) => "it would not load",
            (.., false) => "it would not load completely",
        }
    }

    fn compare(&mut self, file: Vec<Expected>, reference: Vec<Expected>) {
        let mut by_key: HashMap<&str, &Expected> = HashMap::new();
        for one in &file {
            by_key.entry(&one.key).or_insert(one);
        }
        let mut wanted = std::collections::HashSet::new();
        for one in reference {
            wanted.insert(one.key.clone());
            let Some(found) = by_key.get(one.key.as_str()) else {
                self.missing.push(one);
                continue;
            };
            let difference = || TypeDifference {
                key: found.key.clone(),
                file: found.type_text(),
                expected: one.type_text(),
            };
            match (&found.shape, &one.shape) {
                (Some(has), Some(wants)) if has != wants => {
                    self.shapes.push(difference());
                    continue;
                }
                _ => self.matching += 1,
            }
            if let (Some(has), Some(wants)) = (&found.dtype, &one.dtype)
                && has != wants
            {
                self.dtypes.push(difference());
            }
        }
        self.unexpected = file.into_iter().filter(|one| !wanted.contains(&one.key)).collect();
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> String {
        report_json(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<Expected> {
        parse_list(text).unwrap()
    }

    fn answer(file: &str, reference: &str, options: &CheckOptions) -> CheckReport {
        let of = |text| Reference::listed(list(text), "model");
        compare_keys(of(file), of(reference), options.state.as_deref().unwrap_or_default())
            .with_verdict(Some("2.9.0"), options)
    }

    #[test]
    fn strict_mode_matches_torch() {
        let (file, reference) = ("a f [2]\nb f [3]\nd f [1]", "a f [2]\nb f [3]\nc f [1]");
        let strict = answer(file, reference, &CheckOptions::default());
        assert!(!strict.loads);
        assert_eq!((strict.missing[0].key.as_str(), strict.unexpected[0].key.as_str()), ("c", "d"));
        assert_eq!(strict.matching, 2);
        let loose = CheckOptions { strict: false, ..CheckOptions::default() };
        assert!(answer(file, reference, &loose).loads);
        // The verdict can change without comparing the keys again.
        assert!(strict.clone().with_verdict(None, &loose).loads);
        let nothing = answer("a f [2]", "b f [2]", &loose);
        assert!(!nothing.loads && nothing.nothing);
        assert_eq!(nothing.verdict(), "nothing would be loaded");
        let shapes = answer("a f [2, 1]", "a f [2]", &loose);
        assert!(!shapes.loads);
        assert_eq!(shapes.shapes.len(), 1);
        let dtypes = answer("a float16 [2]", "a float32 [2]", &CheckOptions::default());
        assert!(dtypes.loads);
        assert_eq!(dtypes.dtypes.len(), 1);
    }

    #[test]
    fn compares_the_model_state_of_a_trainer() {
        let file = "model.a f [2]\noptimizer.x f [1]\nglobal_step";
        let bare = answer(file, "a f [2]", &CheckOptions::default());
        assert!(bare.loads, "{bare:?}");
        assert_eq!((bare.file_state.as_str(), bare.reference_state.as_str()), ("model", ""));
        // The wrapper's keys all start with `model.`, those of an old checkpoint don't.
        let wrapped = "model.model.a f [2]\nglobal_step";
        let prefixed = answer(file, wrapped, &CheckOptions::default());
        assert!(prefixed.loads && prefixed.prefixed, "{prefixed:?}");
        let all = CheckOptions { state: None, ..CheckOptions::default() };
        assert!(!answer(file, wrapped, &all).loads);
    }

    #[test]
    fn refuses_another_release_if_strict() {
        let release = Some(LibraryRelease::parse("2.10").unwrap());
        let with_release = CheckOptions { release, ..CheckOptions::default() };
        let refused = answer("a", "a", &with_release);
        assert!(!refused.loads);
        assert!(refused.json().contains("2.9.0"));
        assert!(answer("a", "a", &CheckOptions { strict_version: false, ..with_release }).loads);
    }

    #[test]
    fn suggests_the_nearest_rename() {
        let found =
            answer("w f [2]\nb f [1]", "net.w f [2]\nnet.b f [1]", &CheckOptions::default());
        assert_eq!(
            found.rename.map(|change| (change.option, change.keys)),
            Some(("--prefix net.".into(), 2))
        );
    }
}
