//! The metadata of a file, whose texts may name keys.

use statelens_checkpoint::FindingKind;

use super::*;

/// Returns a safetensors file with two tensors of one byte, one of them under a second name.
fn source() -> Checkpoint {
    let header = r#"{"__metadata__":{"format":"pt","tied":"a.w","bits":"{\"a.w\":4,\"b.w\":8}",
        "list":"[1,[{\"x\":\"b.w\"}]]","b.w":"second","title":"a.w is great","broken":"{\"a.w\":"},
        "a.w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
        "b.w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 2]].concat();
    let mut files = FileSet::default();
    files.push("model.safetensors", Arc::new(Memory::from(bytes)));
    open(files).unwrap()
}

#[test]
fn texts_that_name_lost_keys_are_listed() {
    let source = source();
    assert_eq!(keys(&source), ["a.w", "b.w", "tied"]);
    let named = |edit: Edit| -> Vec<String> {
        let edited = edit.apply(&source).unwrap();
        edited.findings_of(FindingKind::LeftOut).map(|found| found.detail.clone()).collect()
    };
    let unchanged = "the texts are written unchanged.";
    assert_eq!(named(rename(&[r"^a\.=>c."])), [format!("`bits`: {unchanged}")]);
    let expected = [format!("`bits`, `list`, `b.w`: {unchanged}")];
    assert_eq!(named(rename(&[r"^b\.=>c."])), expected);
    assert_eq!(named(select("a.*")), expected);
    assert!(named(rename(&["^tied=>other"])).is_empty());
    assert!(named(Edit { untie: true, ..Edit::default() }).is_empty());
}
