//! Which files make one checkpoint.
//!
//! [`sort`] takes a folder, or what was dropped, apart into checkpoints, by names and, for files
//! that stand alone, by content. A reader whose format has several files finds them itself, by
//! name, in the [`FileSet`] that it is given; shards that are checkpoints of their own are opened
//! and joined by `Sharded`, whatever their format.

mod join;
mod sharded;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use crate::paths::{base, folder};
pub(crate) use sharded::Sharded;
use statelens_checkpoint::{FileSet, order};

/// One checkpoint among many files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFiles {
    /// What to call it: a file name, or what its files have in common.
    pub name: String,
    /// The file to open; the others are found from it.
    pub main: String,
    /// All its files by name, the main one included, sorted.
    pub members: Vec<String>,
}

/// Finds the checkpoints of several files that one kind of set makes, among names that nobody
/// has claimed.
type SetRule = fn(&UnclaimedNames<'_>) -> Vec<CheckpointFiles>;

/// The kinds of sets. What one has found, the next ones don't see.
const RULES: &[SetRule] =
    &[sharded::find, tensorflow, tensorflow_v1, distributed, keras_shards, orbax, torch_unpacked];

/// Takes many files apart into checkpoints, those of several files first, each lot by name. Files
/// that no format claims are in none.
///
/// Reads indexes of shards, and the first bytes of each file that belongs to no set.
pub fn sort(files: &FileSet) -> Vec<CheckpointFiles> {
    let mut names =
        UnclaimedNames { all: files.iter().map(|(_, file)| file.name.as_str()).collect() };
    order::natural(&mut names.all);
    names.all.dedup();
    let mut found = Vec::new();
    for rule in RULES {
        let sets = rule(&names);
        let claimed: HashSet<&str> =
            sets.iter().flat_map(|set| &set.members).map(String::as_str).collect();
        names.all.retain(|name| !claimed.contains(name));
        found.extend(sets);
    }
    let mut left: HashSet<&str> = names.all.into_iter().collect();
    for set in &mut found {
        let named = sharded::named(files, &set.main).into_iter();
        set.members.extend(named.filter(|name| left.remove(name.as_str())));
        order::natural(&mut set.members);
    }
    order::by(&mut found, |one: &CheckpointFiles, other| one.main.cmp(&other.main));
    for (id, file) in files.iter() {
        if left.remove(file.name.as_str()) && crate::is_claimed(&files.opened_at(id)) {
            let name = base(&file.name).to_owned();
            found.push(CheckpointFiles {
                name,
                main: file.name.clone(),
                members: vec![file.name.clone()],
            });
        }
    }
    found
}

/// The files of a set beside its index: those that an index of shards names, and the data files
/// of a TensorFlow bundle. None for a file that is not an index.
pub fn indexed(files: &FileSet, index: &str) -> Vec<String> {
    let mut found = sharded::named(files, index);
    if let Some(prefix) = index.strip_suffix(".index") {
        let number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_data = |name: &str| {
            let rest = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(".data-"));
            let numbers = rest.and_then(|rest| rest.split_once("-of-"));
            numbers.is_some_and(|(at, of)| number(at) && number(of))
        };
        let names = files.iter().map(|(_, file)| file.name.as_str());
        found.extend(names.filter(|name| is_data(name)).map(str::to_owned));
    }
    found.retain(|name| name != index && files.find(name).is_some());
    found
}

/// The names that nobody has claimed yet, sorted.
pub(crate) struct UnclaimedNames<'a> {
    all: Vec<&'a str>,
}

impl<'a> UnclaimedNames<'a> {
    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a str> {
        self.all.iter().copied()
    }

    /// Whether there is such a file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all.binary_search(&name).is_ok()
    }

    /// The names that begin so, sorted.
    pub(crate) fn starting(&self, start: &'a str) -> impl Iterator<Item = &'a str> {
        let first = self.all.partition_point(|&name| name < start);
        self.all.iter().skip(first).copied().take_while(move |name| name.starts_with(start))
    }
}

/// `PREFIX.index` with `PREFIX.data-00000-of-00001` and on, as the V2 Saver of TensorFlow writes
/// them; as `variables/variables` beside `saved_model.pb`, a SavedModel.
fn tensorflow(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let mut found = Vec::new();
    for main in names.iter() {
        let Some(prefix) = main.strip_suffix(".index") else { continue };
        let data = &main[..main.len() - "index".len()];
        let mut members: Vec<String> = names
            .starting(data)
            .filter(|name| name[data.len()..].starts_with("data-"))
            .map(str::to_owned)
            .collect();
        if members.is_empty() {
            continue;
        }
        members.push(main.to_owned());
        members.extend(Some(format!("{data}meta")).filter(|name| names.has(name)));
        let state = format!("{}checkpoint", folder(main));
        members.extend(Some(state).filter(|name| names.has(name)));
        let model = prefix.strip_suffix("variables/variables");
        let model = model.filter(|model| names.has(&format!("{model}saved_model.pb")));
        let name = match model {
            Some(model) => {
                members
                    .extend(names.starting(model).filter(|name| is_part(name)).map(str::to_owned));
                base(model.trim_end_matches('/'))
            }
            None => base(prefix),
        };
        let name = if name.is_empty() { base(prefix) } else { name }.to_owned();
        order::natural(&mut members);
        members.dedup();
        found.push(CheckpointFiles { name, main: main.to_owned(), members });
    }
    found
}

/// `PREFIX-00000-of-00004` and on, as the V1 Saver of TensorFlow writes them: counted from zero, and
/// without an extension.
fn tensorflow_v1(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    // The data of a bundle without its index is no set.
    let first = |name: &&str| {
        let parts = name.rsplit_once("-00000-of-");
        parts.is_some_and(|(prefix, count)| is_count(count) && !prefix.ends_with(".data"))
    };
    let set = |main: &str| {
        let (prefix, count) = main.rsplit_once("-00000-of-").unwrap_or((main, ""));
        let state = format!("{}checkpoint", folder(main));
        let shards = names.starting(&main[..prefix.len() + 1]).filter(|name| {
            let number = name[prefix.len() + 1..].strip_suffix(count);
            number.and_then(|number| number.strip_suffix("-of-")).is_some_and(is_count)
        });
        let mut members: Vec<String> = shards.map(str::to_owned).collect();
        members.extend(Some(state).filter(|name| names.has(name)));
        order::natural(&mut members);
        CheckpointFiles { name: base(prefix).to_owned(), main: main.to_owned(), members }
    };
    names.iter().filter(first).map(set).collect()
}

/// Five digits or more.
fn is_count(text: &str) -> bool {
    text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a file is one of those that a SavedModel has beside its variables.
fn is_part(name: &str) -> bool {
    ["saved_model.pb", "fingerprint.pb", "keras_metadata.pb"].contains(&base(name))
}

/// `data.pkl` with `data/0` and on: what was a zip file of `torch.save`.
fn torch_unpacked(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let set = |main: &str| {
        let top = folder(main);
        let data = format!("{top}data/");
        let beside = ["version", "byteorder", ".format_version", ".storage_alignment"];
        let is_member = |name: &str| {
            let rest = name.strip_prefix(top).unwrap_or_default();
            rest.starts_with("data/") || rest.starts_with(".data/") || beside.contains(&rest)
        };
        let mut members: Vec<String> =
            names.iter().filter(|name| is_member(name)).map(str::to_owned).collect();
        if !members.iter().any(|name| name.starts_with(&data)) {
            return None;
        }
        members.push(main.to_owned());
        order::natural(&mut members);
        let name = base(top.trim_end_matches('/'));
        let name = if name.is_empty() { base(main) } else { name }.to_owned();
        Some(CheckpointFiles { name, main: main.to_owned(), members })
    };
    names.iter().filter(|name| base(name) == "data.pkl").filter_map(set).collect()
}

/// `.metadata` with `__0_0.distcp` and on, as `torch.distributed.checkpoint` writes them.
fn distributed(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let mains = names.iter().filter(|name| base(name) == ".metadata");
    let set = |main: &str| {
        let top = folder(main);
        let data = names.iter().filter(|name| folder(name) == top && name.ends_with(".distcp"));
        let mut members: Vec<String> = data.map(str::to_owned).collect();
        members.push(main.to_owned());
        order::natural(&mut members);
        let name = base(top.trim_end_matches('/'));
        let name = if name.is_empty() { base(main) } else { name }.to_owned();
        (members.len() > 1).then(|| CheckpointFiles { name, main: main.to_owned(), members })
    };
    mains.filter_map(set).collect()
}

/// `X.weights.json` with `X_00000.weights.h5` and on, as Keras 3 writes weights in shards.
fn keras_shards(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let mut found = Vec::new();
    for main in names.iter() {
        let Some(stem) = main.strip_suffix(".weights.json") else { continue };
        let shards = names.starting(stem).filter(|name| {
            let number = name[stem.len()..].strip_prefix('_');
            let number = number.and_then(|rest| rest.strip_suffix(".weights.h5"));
            number.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        });
        let mut members: Vec<String> = shards.map(str::to_owned).collect();
        if !members.is_empty() {
            members.push(main.to_owned());
            order::natural(&mut members);
            found.push(CheckpointFiles {
                name: base(stem).to_owned(),
                main: main.to_owned(),
                members,
            });
        }
    }
    found
}

/// Files of which an Orbax checkpoint, a folder, has one at least; what says most comes first.
pub const ORBAX: [&str; 3] = ["_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt"];

/// What Orbax writes. Nothing of it is read; its pieces are not checkpoints of their own, though,
/// and opening it says what it is. All that is there, of several steps perhaps, is one.
fn orbax(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let all: Vec<&str> = names.iter().filter(|name| ORBAX.contains(&base(name))).collect();
    let main = ORBAX.iter().find_map(|part| all.iter().find(|name| base(name) == *part));
    let set = |main: &&str| {
        let below = |name: &&str| all.iter().any(|part| name.starts_with(folder(part)));
        let members = names.iter().filter(below).filter(|name| !crate::is_named_so(name));
        let name = base(folder(main).trim_end_matches('/'));
        let name = if name.is_empty() { base(main) } else { name }.to_owned();
        CheckpointFiles {
            name,
            main: main.to_string(),
            members: members.map(str::to_owned).collect(),
        }
    };
    main.map(set).into_iter().collect()
}
