//! Groups files into checkpoints.
//!
//! [`sort`] groups the files of a folder, or dropped files, by name, and standalone files by
//! content. A reader of a multi-file format finds its files by name in the [`FileSet`] that it
//! gets. Shards that are complete checkpoints themselves are opened and joined by `Sharded`, for
//! all formats.

mod join;
mod shard_index;
mod sharded;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};

use crate::cerebras::metadata::NAME as METADATA;
use crate::dcp::detect::is_own;
use crate::fsdp::names::{RankName, are_ranks};
use crate::paths::{base, folder};
use crate::safetensors::pieces::ShardName;
pub use sharded::SECOND_NAME;
pub(crate) use sharded::Sharded;
use statelens_checkpoint::{FileId, FileSet, order};

/// The files of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFiles {
    /// The display name: a file name, or the common part of the file names.
    pub name: String,
    /// The file to open, from which the others are found.
    pub main: String,
    /// The names of all its files, including the main file, sorted.
    pub members: Vec<String>,
}

/// Finds the multi-file checkpoints of one kind among the unclaimed names.
type SetRule = fn(&UnclaimedNames<'_>) -> Vec<CheckpointFiles>;

/// The rules, in order. A rule does not see the files that an earlier one claimed.
const RULES: &[SetRule] = &[
    sharded::find,
    tensorflow,
    tensorflow_v1,
    distributed,
    cerebras_objects,
    deepspeed,
    safetensors_pieces,
    keras_shards,
    orbax,
    torch_unpacked,
];

/// Groups files into checkpoints: first those of several files, then those of one, each sorted by
/// name. Files that no format claims are omitted.
///
/// Reads indexes of shards, and the first bytes of each file that belongs to no set.
pub fn sort(files: &FileSet) -> Vec<CheckpointFiles> {
    sort_where(files, &|id| crate::is_claimed(&files.opened_at(id)))
}

/// Finds the checkpoints of which each file has parts of tensors. Reads indexes of shards, and the
/// first bytes of the main file of each set.
pub fn of_ranks(files: &FileSet) -> Vec<CheckpointFiles> {
    let mut found = sort_where(files, &|_| false);
    found.retain(|set| {
        let format = files.find(&set.main).map(|id| crate::detect(&files.opened_at(id)));
        format.is_some_and(|format| format.ok().flatten().is_some_and(|it| it.traits.joins_ranks))
    });
    found
}

/// Groups files as [`sort`] does. A file that belongs to no set counts as a checkpoint if
/// `is_claimed` accepts its name. This is for files where each read is a request.
pub fn sort_by_name(files: &FileSet, is_claimed: &dyn Fn(&str) -> bool) -> Vec<CheckpointFiles> {
    sort_where(files, &|id| is_claimed(files.name(id)))
}

fn sort_where(files: &FileSet, is_claimed: &dyn Fn(FileId) -> bool) -> Vec<CheckpointFiles> {
    let all = files.names().map(|(_, name)| name).filter(|name| !is_unfinished(name));
    let mut names = UnclaimedNames { all: all.collect() };
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
        // Most sets have no shards but those that are numbered like the index, which is then not read.
        if left.iter().any(|name| sharded::may_be_named(&set.main, name)) {
            let named = sharded::named(files, &set.main).into_iter();
            set.members.extend(named.filter(|name| left.remove(name.as_str())));
        }
        order::natural(&mut set.members);
    }
    found.extend(tensorflow_v1_whole(files, &mut left));
    found.extend(ranks(files, &mut left));
    order::by(&mut found, |one: &CheckpointFiles, other| one.main.cmp(&other.main));
    for (id, file) in files.iter() {
        if left.remove(file.name.as_str()) && is_claimed(id) {
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

/// Returns whether a file is the unfinished output of a conversion by Statelens that was killed.
pub fn is_unfinished(name: &str) -> bool {
    let base = base(name);
    base.starts_with(".statelens-") && base.ends_with(".part")
}

/// Returns the files that were written together with an index: the shards that it names in its own
/// folder and that are numbered under its name, or the data files of a TensorFlow bundle. Empty if
/// the file is not an index.
///
/// An index can name any file, so its word alone does not make a file a part of the set.
pub fn numbered_shards(files: &FileSet, index: &str) -> Vec<String> {
    let mut found = sharded::numbered_shards(files, index);
    let is_bundle =
        |index: &str| files.find(index).is_some_and(|id| crate::is_claimed(&files.opened_at(id)));
    if let Some(prefix) = index.strip_suffix(".index").filter(|_| is_bundle(index)) {
        let number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_data = |name: &str| {
            let rest = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(".data-"));
            let numbers = rest.and_then(|rest| rest.split_once("-of-"));
            numbers.is_some_and(|(at, of)| number(at) && number(of))
        };
        let names = files.names().map(|(_, name)| name);
        found.extend(names.filter(|name| is_data(name)).map(str::to_owned));
    }
    found.retain(|name| name != index && files.find(name).is_some());
    found
}

/// Returns the names of files in subfolders that belong to the checkpoint of the main file, as an
/// index says: shards of the model. They may lead out of the folder.
pub fn below(files: &FileSet) -> Vec<String> {
    sharded::below(files)
}

/// The names that no rule has claimed yet, sorted.
pub(crate) struct UnclaimedNames<'a> {
    all: Vec<&'a str>,
}

impl<'a> UnclaimedNames<'a> {
    /// Returns all names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a str> {
        self.all.iter().copied()
    }

    /// Returns whether there is a file with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all.binary_search(&name).is_ok()
    }

    /// Returns the names with this prefix, sorted.
    pub(crate) fn starting(&self, start: &'a str) -> impl Iterator<Item = &'a str> {
        let first = self.all.partition_point(|&name| name < start);
        self.all.iter().skip(first).copied().take_while(move |name| name.starts_with(start))
    }
}

/// Finds TensorFlow bundles of the V2 Saver, `PREFIX.index` with `PREFIX.data-00000-of-00001` etc.,
/// and SavedModels, which are bundles `variables/variables` next to `saved_model.pb`.
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

/// Finds sharded checkpoints of TensorFlow's V1 Saver, `PREFIX-00000-of-00004` etc. They are
/// numbered from zero and have no extension.
fn tensorflow_v1(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    // The data files of a bundle without its index are not a set.
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

/// Finds checkpoints of TensorFlow's V1 Saver that are one file: a table that the state file of its
/// folder names, or that has a graph next to it, `PREFIX.meta`.
fn tensorflow_v1_whole(files: &FileSet, left: &mut HashSet<&str>) -> Vec<CheckpointFiles> {
    let states = files.iter().filter(|(_, file)| base(&file.name) == "checkpoint");
    let states = states.filter(|(_, file)| left.contains(file.name.as_str()));
    let kept: HashSet<String> =
        states.flat_map(|(id, _)| crate::tensorflow::kept(files, id)).collect();
    let mut found = Vec::new();
    for (id, file) in files.iter() {
        let name = file.name.as_str();
        let graph = format!("{name}.meta");
        let is_named = kept.contains(name) || left.contains(graph.as_str());
        if !left.contains(name) || !is_named || !crate::tensorflow::is_table(files, id) {
            continue;
        }
        let state = format!("{}checkpoint", folder(name));
        let mut members = vec![name.to_owned(), graph, state];
        members.retain(|name| left.contains(name.as_str()));
        order::natural(&mut members);
        found.push(CheckpointFiles { name: base(name).to_owned(), main: name.to_owned(), members });
    }
    for set in &found {
        for name in &set.members {
            left.remove(name.as_str());
        }
    }
    found
}

/// Finds files of `torch.save` of all ranks of a job, whose names differ in the rank: with the number
/// of ranks in their names, or with distributed tensors in the first one. Without the word `rank`,
/// they are numbered from 0 on, without a gap.
fn ranks(files: &FileSet, left: &mut HashSet<&str>) -> Vec<CheckpointFiles> {
    let mut families: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut all: Vec<&str> = left.iter().copied().collect();
    order::natural(&mut all);
    for name in all {
        let Some(of) = RankName::guess(name) else { continue };
        if !of.is_stated && !crate::has_known_extension(name) {
            continue;
        }
        families.entry((of.before, of.after)).or_default().push(name);
    }
    families.retain(|_, names| {
        let of: Vec<RankName<'_>> = names.iter().filter_map(|name| RankName::guess(name)).collect();
        of.first().is_some_and(|of| of.is_stated)
            || of.len() > 1 && are_ranks(of.iter().map(|of| of.rank))
    });
    // The optimizer and the extra state belong to the model.
    let is_model = |before: &str| {
        RankName::parse(&format!("{before}0")).is_some_and(|of| of.state() == Some("model"))
    };
    let mut found: Vec<CheckpointFiles> = Vec::new();
    let mut keys: Vec<(&str, &str)> = families.keys().copied().collect();
    keys.sort_by_key(|(before, _)| !is_model(before));
    for key in keys {
        let Some(members) = families.get(&key) else { continue };
        let is_ours = |name: &&&str| {
            files.find(name).is_some_and(|id| {
                let format = crate::detect(&files.opened_at(id)).ok().flatten();
                format.is_some_and(|format| std::ptr::eq(format, &crate::fsdp::FORMAT))
            })
        };
        // The first file may be damaged.
        let mut left_of = members.iter().filter(|name| left.contains(**name)).take(2);
        let Some(main) = left_of.find(is_ours).copied() else { continue };
        let Some(of) = RankName::guess(main) else { continue };
        let mut members: Vec<String> = members.iter().map(|name| (*name).to_owned()).collect();
        if of.state() == Some("model") {
            let is_further = |name: &&&str| {
                folder(name) == folder(main)
                    && RankName::parse(name).is_some_and(|other| {
                        other.world() == of.world()
                            && matches!(other.state(), Some("optim" | "extra_state"))
                    })
            };
            members.extend(left.iter().filter(is_further).map(|name| (*name).to_owned()));
            let config = format!("{}fsdp_config.json", folder(main));
            members.extend(Some(config).filter(|name| left.contains(name.as_str())));
        }
        for name in &members {
            left.remove(name.as_str());
        }
        order::natural(&mut members);
        let top = base(folder(main).trim_end_matches('/'));
        let name = if top.is_empty() { base(main) } else { top }.to_owned();
        found.push(CheckpointFiles { name, main: main.to_owned(), members });
    }
    found
}

/// Returns whether a text consists of five or more digits.
fn is_count(text: &str) -> bool {
    text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a file is one of those next to the variables of a SavedModel.
fn is_part(name: &str) -> bool {
    ["saved_model.pb", "fingerprint.pb", "keras_metadata.pb"].contains(&base(name))
}

/// Finds unpacked zip files of `torch.save`: `data.pkl` with `data/0` etc.
fn torch_unpacked(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let set = |main: &str| {
        let top = folder(main);
        let data = format!("{top}data/");
        let siblings = ["version", "byteorder", ".format_version", ".storage_alignment"];
        let is_member = |name: &str| {
            let rest = name.strip_prefix(top).unwrap_or_default();
            rest.starts_with("data/") || rest.starts_with(".data/") || siblings.contains(&rest)
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

/// Finds folders of `torch.distributed.checkpoint`: `.metadata` with `__0_0.distcp` etc.
fn distributed(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    // The ranks may each have metadata of their own: `__0.metadata`.
    let mains = names.iter().filter(|name| match base(name) == ".metadata" {
        true => true,
        false => {
            let top = folder(name);
            let is_first = |main: &&str| folder(main) == top && is_own(main);
            is_own(name)
                && !names.has(&format!("{top}.metadata"))
                && names.starting(top).find(is_first) == Some(*name)
        }
    });
    let set = |main: &str| {
        let top = folder(main);
        let of_megatron = format!("{top}common.pt");
        let is_own = |name: &&str| {
            folder(name) == top
                && (name.ends_with(".distcp") || is_own(name) || **name == *of_megatron)
        };
        let data = names.iter().filter(is_own).filter(|name| *name != main);
        let mut members: Vec<String> = data.map(str::to_owned).collect();
        members.push(main.to_owned());
        order::natural(&mut members);
        let name = base(top.trim_end_matches('/'));
        let name = if name.is_empty() { base(main) } else { name }.to_owned();
        (members.len() > 1).then(|| CheckpointFiles { name, main: main.to_owned(), members })
    };
    let mut found: Vec<CheckpointFiles> = mains.filter_map(set).collect();
    found.extend(without_metadata(names, &found));
    found
}

/// Finds the files of ranks in folders that have lost their `.metadata`: the reader names it.
fn without_metadata(names: &UnclaimedNames<'_>, found: &[CheckpointFiles]) -> Vec<CheckpointFiles> {
    let tops: HashSet<&str> = found.iter().map(|set| folder(&set.main)).collect();
    let mut by_folder: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in names.iter().filter(|name| name.ends_with(".distcp")) {
        if !tops.contains(folder(name)) {
            by_folder.entry(folder(name)).or_default().push(name.to_owned());
        }
    }
    let set = |(top, mut members): (&str, Vec<String>)| {
        order::natural(&mut members);
        let main = members.first().filter(|_| members.len() > 1)?.clone();
        let name = base(top.trim_end_matches('/'));
        let name = if name.is_empty() { base(&main) } else { name }.to_owned();
        Some(CheckpointFiles { name, main, members })
    };
    by_folder.into_iter().filter_map(set).collect()
}

/// Finds copies of Cerebras checkpoints in S3: `__METADATA__` with the objects next to it and below.
/// The deepest come first, since a checkpoint may be in the folder of another one.
fn cerebras_objects(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let mut mains: Vec<&str> = names.iter().filter(|name| base(name) == METADATA).collect();
    mains.sort_by_key(|main| std::cmp::Reverse(folder(main).matches('/').count()));
    let mut claimed: HashSet<&str> = HashSet::new();
    let mut found = Vec::new();
    for main in mains {
        let top = folder(main);
        let is_object = |name: &&str| *name == main || !crate::has_known_extension(name);
        let objects = names.starting(top).filter(is_object);
        let members: Vec<&str> = objects.filter(|name| claimed.insert(name)).collect();
        let mut members: Vec<String> = members.into_iter().map(str::to_owned).collect();
        order::natural(&mut members);
        let name = base(top.trim_end_matches('/'));
        let name = if name.is_empty() { base(main) } else { name }.to_owned();
        found.push(CheckpointFiles { name, main: main.to_owned(), members });
    }
    found
}

/// Finds folders of DeepSpeed, `mp_rank_00_model_states.pt` with the optimizer's states of all ranks.
fn deepspeed(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let mut folders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in names.iter().filter(|name| crate::deepspeed::is_member(name)) {
        folders.entry(folder(name)).or_default().push(name.to_owned());
    }
    let set = |(top, mut members): (&str, Vec<String>)| {
        order::natural(&mut members);
        // The first rank's file with the names of the parameters.
        let is_model = |name: &&String| {
            name.contains("mp_rank_00_model_states") && !base(name).starts_with("layer_")
        };
        let main = members.iter().find(is_model).or(members.first())?.clone();
        let parameters = format!("{top}{}/", crate::deepspeed::UNIVERSAL);
        members
            .extend(names.iter().filter(|name| name.starts_with(&parameters)).map(str::to_owned));
        let name = base(top.trim_end_matches('/'));
        let name = if name.is_empty() { base(&main) } else { name }.to_owned();
        Some(CheckpointFiles { name, main, members })
    };
    folders.into_iter().filter_map(set).collect()
}

/// Finds safetensors of the ranks of a job: `shard-00001-model-00001-of-00002.safetensors`.
fn safetensors_pieces(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let mut folders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in names.iter().filter(|name| ShardName::parse(name).is_some()) {
        folders.entry(folder(name)).or_default().push(name.to_owned());
    }
    let set = |(top, mut members): (&str, Vec<String>)| {
        order::natural(&mut members);
        let main = members.first()?.clone();
        let name = base(top.trim_end_matches('/'));
        let name = if name.is_empty() { base(&main) } else { name }.to_owned();
        Some(CheckpointFiles { name, main, members })
    };
    folders.into_iter().filter_map(set).collect()
}

/// Finds sharded weights of Keras 3: `X.weights.json` with `X_00000.weights.h5` etc.
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

/// Files of which an Orbax checkpoint, a folder, has at least one; the most specific first.
pub const ORBAX: [&str; 3] = ["_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt"];

/// Finds files of Orbax, which are not read. They are grouped so that its parts do not appear as
/// checkpoints of their own, and opening the group says what it is. All Orbax files form one group,
/// even if they are from several steps.
fn orbax(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let all: Vec<&str> = names.iter().filter(|name| ORBAX.contains(&base(name))).collect();
    let main = ORBAX.iter().find_map(|part| all.iter().find(|name| base(name) == *part));
    let set = |main: &&str| {
        let below = |name: &&str| all.iter().any(|part| name.starts_with(folder(part)));
        let members = names.iter().filter(below).filter(|name| !crate::has_known_extension(name));
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
