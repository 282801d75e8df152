//! Sources that are not whole: what of them is lost in a copy, and the mark that the copy carries
//! so that it does not pass for a whole checkpoint.

use std::collections::HashSet;

use statelens_checkpoint::{Checkpoint, Finding, Grade, Loss};

use crate::stray::IMPOSTOR;

/// The name of the mark: in the metadata of safetensors, as an attribute of HDF5, as a record of
/// a PyTorch archive, in front of the comment of a NumPy one. What it says is [`mark`]. A bundle of
/// TensorFlow has room for variables only.
pub(crate) const MARK: &str = "statelens.incomplete";

/// The longest text of a mark: the room for attributes of HDF5 is limited.
const LONGEST: usize = 2000;

/// What begins the finding of a mark.
const CARRIED: &str = "This was made from a checkpoint that was not whole";

/// A loss for all that is missing, damaged or unfinished in the source.
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
    let mut losses: Vec<Loss> = left_out(source).collect();
    let mut told = HashSet::new();
    for finding in findings.iter().filter(|finding| !of_keys(finding)) {
        if told.insert(&finding.title) {
            losses.push(Loss {
                keys: Vec::new(),
                what: finding.title.clone(),
                why: why(finding),
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
        keys,
        what: "the data is missing from the source, or damaged in it".into(),
        why: format!("{}. {}", first.title, why(first)),
        harmless: false,
    });
    losses
}

/// A loss for what a copy leaves out of the file.
fn left_out(source: &Checkpoint) -> impl Iterator<Item = Loss> {
    source.findings.iter().filter(|finding| finding.left_out).map(|finding| Loss {
        keys: Vec::new(),
        what: finding.title.clone(),
        why: finding.detail.clone(),
        harmless: false,
    })
}

fn why(finding: &Finding) -> String {
    format!("{} The copy would look whole.", finding.detail).trim_start().to_owned()
}

/// What says that the source is not whole, but for what is told elsewhere.
fn damage(source: &Checkpoint) -> impl Iterator<Item = &Finding> {
    source.findings.iter().filter(|finding| {
        finding.grade == Grade::Damage
            // Of missing files it is known which tensors are in them, and those can't be written
            // at all; or it is not, and `stray::unlisted` says so.
            && finding.missing.is_empty()
            && !finding.title.starts_with(IMPOSTOR)
    })
}

/// What a copy of the source says of it where the format has room; nothing if it is whole.
pub(crate) fn mark(source: &Checkpoint) -> Option<String> {
    let unlisted = source.findings.iter().filter(|finding| finding.unlisted);
    let told: Vec<&str> = damage(source)
        .map(|finding| match finding.title.as_str() {
            CARRIED => finding.detail.as_str(),
            title => title,
        })
        .chain(unlisted.map(|finding| finding.title.as_str()))
        .collect();
    if told.is_empty() {
        return None;
    }
    let mut text = String::new();
    for one in &told {
        if !text.is_empty() && text.len() + one.len() > LONGEST {
            text.push_str("; and more");
            break;
        }
        text.push_str(if text.is_empty() { "" } else { "; " });
        text.extend(one.chars().take(LONGEST));
    }
    Some(text)
}

/// What is to be said of a checkpoint that carries a mark.
pub(crate) fn carried(text: &str) -> Finding {
    let text: String = text.chars().take(LONGEST).collect();
    Finding::new(Grade::Damage, CARRIED)
        .detail(text)
        .advice("Go back to the original, or to a checkpoint that was written to its end.")
}

/// The same, of a mark among the attributes that its root has in the file.
pub(crate) fn of_root(checkpoint: &Checkpoint) -> Option<Finding> {
    let attributes = checkpoint.raw_attributes(checkpoint.root());
    let (_, text) = attributes.iter().find(|(name, _)| *name == MARK)?;
    Some(carried(&text.to_lossy()))
}
