//! `_metadata` of state dicts, as torch itself renames it.

use statelens_checkpoint::{Checkpoint, DictClass, FindingKind, Value};
use statelens_convert::Edit;

use super::*;

fn fixture(name: &str) -> Checkpoint {
    open(files("reports/versions", &[name])).unwrap()
}

fn root_versions(checkpoint: &Checkpoint) -> Vec<String> {
    versions(checkpoint, checkpoint.root())
}

fn is_ordered(checkpoint: &Checkpoint) -> bool {
    matches!(
        checkpoint.value(checkpoint.root()),
        Value::Dict(dict) if dict.class == DictClass::Ordered
    )
}

/// `expected_*.pt` are what `consume_prefix_in_state_dict_if_present` makes of the others.
#[test]
fn follow_a_prefix_that_is_removed() {
    for name in ["bn", "quantised"] {
        let expected = fixture(&format!("expected_{name}.pt"));
        let whole = Edit { strip_prefix: "state_dict.module.".into(), ..select("state_dict.*") };
        let edits = [
            (format!("{name}.pt"), strip("module.")),
            (format!("{name}.pt"), rename(&[r"^module\.=>"])),
            (format!("{name}_train.pt"), whole),
        ];
        for (file, edit) in edits {
            let edited = edit.apply(&fixture(&file)).unwrap();
            assert_eq!(root_versions(&edited), root_versions(&expected), "{file}");
            assert!(is_ordered(&edited), "{file}");
            let mut expected = keys(&expected);
            expected.sort();
            let mut found = keys(&edited);
            found.sort();
            assert_eq!(found, expected, "{file}");
            assert!(edited.findings_of(FindingKind::LeftOut).next().is_none());
        }
    }
}

#[test]
fn move_with_their_dict() {
    let source = fixture("bn_train.pt");
    let before = root_versions(&fixture("bn.pt"));
    let edit = Edit { strip_prefix: "state_dict.".into(), ..select("state_dict.*") };
    let edited = edit.apply(&source).unwrap();
    assert_eq!((root_versions(&edited), is_ordered(&edited)), (before.clone(), true));
    let renamed = rename(&[r"^state_dict\.=>model."]).apply(&source).unwrap();
    let Value::Dict(root) = renamed.value(renamed.root()) else { panic!() };
    assert_eq!(versions(&renamed, root.entries[0].1), before);
    // Next to other values, too.
    let joined = rename(&[r"^state_dict\.=>"]).apply(&source).unwrap();
    assert_eq!((root_versions(&joined), is_ordered(&joined)), (before, true));
}

#[test]
fn follow_a_prefix_that_is_added_and_return() {
    for name in ["bn.pt", "quantised.pt"] {
        let source = fixture(name);
        let stripped = strip("module.").apply(&source).unwrap();
        let prefix = Edit { prefix: "module.".into(), ..Edit::default() };
        let prefixed = prefix.apply(&stripped).unwrap();
        assert_eq!(root_versions(&prefixed), root_versions(&source));
        // The names stay flat, though quantised modules have tuples.
        let names = |checkpoint: &Checkpoint| match checkpoint.value(checkpoint.root()) {
            Value::Dict(dict) => dict.entries.iter().map(|(key, _)| key.to_string()).collect(),
            _ => Vec::new(),
        };
        assert_eq!(names(&prefixed), names(&source));
    }
    let source = fixture("bn.pt");
    let stripped = strip("module.").apply(&source).unwrap();
    let nested = Edit { nest: true, ..strip("module.") }.apply(&source).unwrap();
    assert_eq!(root_versions(&nested), root_versions(&stripped));
}

#[test]
fn follow_renamed_modules() {
    let source = fixture("expected_bn.pt");
    assert_eq!(root_versions(&source), ["=1", "0=1", "1=2"]);
    let edited = rename(&[r"^1\.=>norm.", r"\.weight$=>.w"]).apply(&source).unwrap();
    assert_eq!(root_versions(&edited), ["=1", "0=1", "norm=2"]);
    // Only the names of parameters change.
    let edited = rename(&[r"^1\.bias$=>1.beta"]).apply(&source).unwrap();
    assert_eq!(root_versions(&edited), ["=1", "0=1", "1=2"]);
    // The keys of one module go to two places, so no name fits.
    let edited = rename(&[r"^1\.(bias|weight)=>a.$1", r"^1\.(r|n)=>b.$1"]).apply(&source).unwrap();
    assert_eq!(root_versions(&edited), ["=1", "0=1"]);
    let lost: Vec<_> = edited.findings_of(FindingKind::LeftOut).collect();
    assert!(lost.len() == 1 && lost[0].detail.contains('1'), "{lost:?}");
}

#[test]
fn stay_if_keys_are_only_left_out() {
    let source = fixture("expected_bn.pt");
    let exclude = Edit { exclude: vec!["1.*".parse().unwrap()], ..Edit::default() };
    assert_eq!(root_versions(&exclude.apply(&source).unwrap()), ["=1", "0=1", "1=2"]);
    // The name of a module that is left out may mean another one afterwards.
    let one = Edit { strip_prefix: "1.".into(), ..select("1.*") };
    assert_eq!(root_versions(&one.apply(&source).unwrap()), ["=2"]);
}
