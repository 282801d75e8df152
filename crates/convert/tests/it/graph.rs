//! TensorFlow's object graph.

use statelens_checkpoint::{Checkpoint, FindingKind, Text};
use statelens_convert::Edit;

use super::*;

fn fixture(prefix: &str) -> Checkpoint {
    let names = [".index", ".data-00000-of-00001"].map(|end| format!("{prefix}{end}"));
    open(files("reports/tf_graph", &[&*names[0], &*names[1]])).unwrap()
}

/// Returns the bytes of the graph as text.
fn graph(checkpoint: &Checkpoint) -> String {
    let leaves = checkpoint.leaves();
    let leaf = leaves.iter().find(|leaf| leaf.flat == "_CHECKPOINTABLE_OBJECT_GRAPH").unwrap();
    let Value::Bytes { data, .. } = checkpoint.value(leaf.id) else { panic!() };
    String::from_utf8_lossy(data).into_owned()
}

fn lost(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.findings_of(FindingKind::LeftOut).map(|finding| finding.title.clone()).collect()
}

#[test]
fn names_the_keys_of_an_edited_checkpoint() {
    let source = fixture("ckpt-12");
    assert!(graph(&source).contains("model/"));
    let refused = source.findings.iter().find(|one| one.refused);
    assert_eq!(refused, None);
    let exclude = vec!["it/*".parse().unwrap()];
    let edited = Edit { exclude, ..rename(&["^model/=>net/"]) }.apply(&source).unwrap();
    let graph_now = graph(&edited);
    assert!(!graph_now.contains("model/") && !graph_now.contains("it/.ATTRIBUTES"));
    for key in keys(&edited).iter().filter(|key| key.ends_with("VARIABLE_VALUE")) {
        assert!(graph_now.contains(key.as_str()), "{key}");
    }
    assert_eq!(lost(&edited), ["the object graph follows the new keys"]);
    // A prefix is not added to the name of the graph itself.
    let prefix = Edit { prefix: "run/".into(), ..Edit::default() }.apply(&source).unwrap();
    assert!(graph(&prefix).contains("run/model/"));
    let back = strip("run/").apply(&prefix).unwrap();
    assert_eq!(keys(&back), keys(&source));
}

#[test]
fn with_missing_keys_is_a_finding() {
    let stale = fixture("stale");
    let named = |finding: &&statelens_checkpoint::Finding| finding.refused;
    let found: Vec<_> = stale.findings.iter().filter(named).collect();
    assert!(found.len() == 1 && found[0].title.contains("graph"), "{found:?}");
    assert_eq!(Text::from(&*found[0].place), "_CHECKPOINTABLE_OBJECT_GRAPH");
}
