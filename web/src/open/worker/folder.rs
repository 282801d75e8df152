//! A drop of several files without a checkpoint: its likely kind, and its content.

use std::collections::HashMap;

use statelens_checkpoint::{FileSet, grouped};

use crate::protocol::error::{ErrorKind, ErrorText};

/// Number of kinds of files that are counted in the text.
const MAX_KINDS: usize = 4;

/// Returns the name of a format whose files are many, and that Statelens does not read.
pub(super) fn looks_like(files: &FileSet) -> Option<&'static str> {
    let names = || files.names().map(|(_, name)| name.rsplit('/').next().unwrap_or(name));
    let has = |wanted: &[&str]| names().any(|name| wanted.contains(&name));
    let shards = || names().any(|name| name.starts_with("group") && name.contains("-shard"));
    if has(&[".zarray", ".zgroup", "zarr.json"]) {
        Some("a Zarr store")
    } else if has(&["model.json"]) && shards() {
        Some("a model of TensorFlow.js")
    } else if has(&["manifest.ocdbt"]) {
        Some("a checkpoint of Orbax")
    } else {
        None
    }
}

/// Returns the error for several files of which none is a checkpoint.
pub(super) fn nothing_to_open(files: &FileSet) -> ErrorText {
    let looks = looks_like(files);
    let title = match looks {
        Some(name) => format!("This looks like {name}, which Statelens does not read."),
        None => format!(
            "None of these {} files is a checkpoint that Statelens reads.",
            grouped(files.count() as u64)
        ),
    };
    let next = match looks {
        Some("a checkpoint of Orbax") => "Load it with Orbax, and save it as safetensors.",
        Some(_) => "Load it with its own library, and save it as safetensors.",
        None => "Drop the folder that holds the weights.",
    };
    ErrorText {
        kind: ErrorKind::NotACheckpoint,
        title,
        text: format!("It holds {}.", contents(files)),
        file: String::new(),
        offset: None,
        lines: Vec::new(),
        next: vec![(next.to_owned(), String::new())],
    }
}

/// Counts the files by their extensions: "3 .json, 2 .py and 1 other file".
fn contents(files: &FileSet) -> String {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for (_, name) in files.names() {
        let name = name.rsplit('/').next().unwrap_or(name);
        let extension = name.rsplit_once('.').map(|(_, end)| end).filter(|end| {
            !end.is_empty() && end.len() <= 12 && end.chars().any(char::is_alphabetic)
        });
        let kind = extension.map(|end| format!(".{}", end.to_lowercase()));
        *counts.entry(kind.unwrap_or_default()).or_default() += 1;
    }
    let others = counts.remove("").unwrap_or(0);
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    statelens_checkpoint::order::by(&mut counts, |one, other| {
        (other.1, &one.0).cmp(&(one.1, &other.0))
    });
    let rest =
        counts.get(MAX_KINDS..).unwrap_or_default().iter().map(|(_, count)| count).sum::<u64>();
    let mut parts: Vec<String> = counts
        .iter()
        .take(MAX_KINDS)
        .map(|(kind, count)| format!("{} {kind}", grouped(*count)))
        .collect();
    match others + rest {
        0 => {}
        1 => parts.push("1 other file".to_owned()),
        more => parts.push(format!("{} other files", grouped(more))),
    }
    match parts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
        None => "no files".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::Memory;

    use super::*;

    fn set(names: &[&str]) -> FileSet {
        let mut files = FileSet::default();
        for name in names {
            files.push(*name, Arc::new(Memory::from(vec![0u8; 4])));
        }
        files
    }

    #[test]
    fn folders_without_a_checkpoint_say_what_they_hold() {
        let folder = set(&["d/readme.txt", "d/train.py", "d/log.csv", "d/eval.py", "d/LICENSE"]);
        let error = nothing_to_open(&folder);
        assert_eq!(error.title, "None of these 5 files is a checkpoint that Statelens reads.");
        assert_eq!(error.text, "It holds 2 .py, 1 .csv, 1 .txt and 1 other file.");
        assert_eq!(looks_like(&folder), None);
    }

    #[test]
    fn formats_of_many_files_are_named() {
        for (names, expected) in [
            (&["z/.zgroup", "z/a/.zarray", "z/a/0.0", "z/a/0.1"][..], "a Zarr store"),
            (&["z/zarr.json", "z/c/0"], "a Zarr store"),
            (&["m/model.json", "m/group1-shard1of1.bin"], "a model of TensorFlow.js"),
            (&["o/manifest.ocdbt", "o/d/abc"], "a checkpoint of Orbax"),
        ] {
            let error = nothing_to_open(&set(names));
            assert!(error.title.contains(expected), "{}", error.title);
        }
        assert_eq!(looks_like(&set(&["model.json", "model.safetensors"])), None);
        assert_eq!(contents(&set(&["a/0.0", "a/0.1"])), "2 other files");
    }
}
