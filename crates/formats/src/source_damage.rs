//! Damaged sources: the losses of a copy, and a mark in the copy that says it is incomplete.

use std::collections::HashSet;

use statelens_checkpoint::{Checkpoint, Finding, FindingKind, Grade, Loss, LossCode};

use crate::attributes;

/// The name of the mark: a metadata key in safetensors, an attribute in HDF5, a record in a PyTorch
/// archive, a prefix of the comment in a NumPy archive. [`mark`] returns its text. A TensorFlow
/// bundle can't hold it, since it holds only variables.
pub(crate) const MARK: &str = "statelens.incomplete";

/// The maximum length of the text: HDF5 limits the size of attributes.
const MAX_LEN: usize = 2000;

/// Returns the losses for everything that is missing, damaged or unfinished in the source.
pub(crate) fn lost(source: &Checkpoint) -> Vec<Loss> {
    let findings: Vec<&Finding> = damage(source).collect();
    let places: HashSet<&str> = findings.iter().map(|finding| finding.place.as_str()).collect();
    let mut keys: HashSet<String> = HashSet::new();
    if places.iter().any(|place| !place.is_empty()) {
        let leaves = source.leaves();
        let known = leaves.iter().map(|leaf| leaf.flat.to_lossy().into_owned());
        keys.extend(known.filter(|key| places.contains(key.as_str())));
    }
    let of_keys = |finding: &&Finding| keys.contains(&finding.place);
    let mut losses: Vec<Loss> =
        left_out(source).chain(attributes::tensors_left_out(source)).collect();
    let mut reported = HashSet::new();
    for finding in findings.iter().filter(|finding| !of_keys(finding)) {
        if reported.insert(&finding.title) {
            losses.push(Loss {
                code: LossCode::Damage,
                keys: Vec::new(),
                what: finding.title.clone(),
                why: reason(finding).into(),
                harmless: false,
            });
        }
    }
    let keyed: Vec<&Finding> = findings.iter().copied().filter(|found| of_keys(found)).collect();
    let Some(first) = keyed.first() else { return losses };
    let mut keys: Vec<String> = Vec::new();
    for finding in &keyed {
        if !keys.contains(&finding.place) {
            keys.push(finding.place.clone());
        }
    }
    losses.push(Loss {
        code: LossCode::DamagedData,
        keys,
        what: "the data is missing from the source, or damaged in it".into(),
        why: format!("{}. {}", first.title, reason(first)).into(),
        harmless: false,
    });
    losses
}

/// Returns the losses for parts of the file that a copy leaves out.
fn left_out(source: &Checkpoint) -> impl Iterator<Item = Loss> {
    source.findings_of(FindingKind::LeftOut).map(|finding| Loss {
        code: LossCode::SourceLeftOut,
        keys: Vec::new(),
        what: finding.title.clone(),
        why: finding.detail.clone().into(),
        harmless: finding.grade == Grade::Note,
    })
}

fn reason(finding: &Finding) -> String {
    format!("{} The copy would look complete.", finding.detail).trim_start().to_owned()
}

/// Returns the findings about damage to the source that are not covered elsewhere.
fn damage(source: &Checkpoint) -> impl Iterator<Item = &Finding> {
    source.findings.iter().filter(|finding| {
        finding.grade == Grade::Damage
            // If the tensors in missing files are known, writing fails for them. If they are not,
            // `not_a_checkpoint::unlisted` reports the files.
            && finding.missing.is_empty()
            && finding.kind != FindingKind::WrongFile
    })
}

/// Returns the text of the mark for a copy of the source, or `None` if the source is undamaged.
pub(crate) fn mark(source: &Checkpoint) -> Option<String> {
    let unlisted = source.findings_of(FindingKind::UnlistedFiles);
    let reported: Vec<&str> = damage(source)
        .map(|finding| match finding.kind {
            FindingKind::IncompleteSource => finding.detail.as_str(),
            _ => finding.title.as_str(),
        })
        .chain(unlisted.map(|finding| finding.title.as_str()))
        .collect();
    if reported.is_empty() {
        return None;
    }
    let mut text = String::new();
    for one in &reported {
        if !text.is_empty() && text.len() + one.len() > MAX_LEN {
            text.push_str("; and more");
            break;
        }
        text.push_str(if text.is_empty() { "" } else { "; " });
        text.extend(one.chars().take(MAX_LEN));
    }
    Some(text)
}

/// Returns the finding for a checkpoint that carries a mark.
pub(crate) fn carried(text: &str) -> Finding {
    let text: String = text.chars().take(MAX_LEN).collect();
    Finding::new(Grade::Damage, "This was made from an incomplete checkpoint")
        .kind(FindingKind::IncompleteSource)
        .detail(text)
        .advice("Go back to the original, or to a checkpoint that was written to its end.")
}

/// Like [`carried`], for a mark among the attributes of the root in the file.
pub(crate) fn of_root(checkpoint: &Checkpoint) -> Option<Finding> {
    let attributes = checkpoint.raw_attributes(checkpoint.root());
    let (_, text) = attributes.iter().find(|(name, _)| *name == MARK)?;
    Some(carried(&text.to_lossy()))
}
