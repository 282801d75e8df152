//! Attributes of the dicts and files that are merged.

use statelens_checkpoint::{Checkpoint, FindingKind, Limits};
use statelens_convert::Merging;

use super::*;

fn merge(names: &[&str]) -> (Checkpoint, Vec<String>) {
    let mut merging = Merging::new(&Limits::default());
    for name in names {
        merging.add(name, files("reports/merged_attributes", &[name]), &mut open).unwrap();
    }
    let (merged, collisions) = merging.finish().unwrap();
    assert!(collisions.is_empty());
    let lost = merged.findings_of(FindingKind::LeftOut);
    let lost = lost.map(|finding| format!("{}: {}", finding.title, finding.detail)).collect();
    (merged, lost)
}

fn metadata(checkpoint: &Checkpoint) -> Vec<String> {
    let attributes = checkpoint.raw_attributes(checkpoint.root());
    attributes.iter().map(|(name, text)| format!("{name}={text}")).collect()
}

#[test]
fn versions_of_modules_are_merged() {
    let (merged, lost) = merge(&["a.pt", "b.pt"]);
    assert_eq!(versions(&merged, merged.root()), ["=1", "a=2", "b=3"]);
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn metadata_is_merged_and_contradictions_are_losses() {
    let (merged, lost) = merge(&["a.safetensors", "b.safetensors"]);
    let expected = ["format=pt", "ss_network_dim=32", "modelspec.title=x", "only_b=1"];
    assert_eq!(metadata(&merged), expected);
    assert!(lost.len() == 1 && lost[0].contains("`__metadata__.ss_network_dim` is 16 and 32"));
    let (merged, lost) = merge(&["b.safetensors", "a.safetensors"]);
    assert_eq!(metadata(&merged).len(), 4);
    assert!(lost.len() == 1 && lost[0].contains("is 32 and 16"), "{lost:?}");
}

#[test]
fn metadata_without_a_place_is_a_loss() {
    let (_, lost) = merge(&["a.pt", "b.safetensors"]);
    assert!(lost.len() == 1 && lost[0].contains("`__metadata__.only_b`"), "{lost:?}");
}
