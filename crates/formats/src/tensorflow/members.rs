//! Finds the files of a checkpoint by their names.

use statelens_checkpoint::{Error, FileId, FileSet, Finding, Grade, Result, order};

use super::state::{self, StateFile};
use super::table::is_table;
use crate::{Probe, not_a_checkpoint};

/// The tables to open for a checkpoint.
#[derive(Debug)]
pub(super) struct BundleTables {
    /// All shards of a V1 checkpoint, else a single table.
    pub(super) ids: Vec<FileId>,
    /// The common prefix of a bundle's names, including the folder.
    pub(super) prefix: String,
    /// The content of the state file, if that was opened.
    pub(super) state: Option<StateFile>,
    pub(super) findings: Vec<Finding>,
}

/// Returns the name of the index of the bundle that the file `name` belongs to, judging by its
/// name.
pub(super) fn index_of(name: &str) -> Option<String> {
    let (folder, file) = split(name);
    if matches!(file, "saved_model.pb" | "saved_model.pbtxt" | "fingerprint.pb") {
        return Some(format!("{folder}variables/variables.index"));
    }
    if let Some((prefix, _)) = data_shard(name) {
        return Some(format!("{prefix}.index"));
    }
    Some(format!("{}.index", name.strip_suffix(".meta")?))
}

/// Returns whether a file has the name of an index, and there are data files with the same prefix.
pub(super) fn is_index(files: &FileSet, name: &str) -> bool {
    name.strip_suffix(".index").is_some_and(|prefix| {
        files.names().any(|(_, name)| data_shard(name).is_some_and(|(of, _)| of == prefix))
    })
}

/// Returns the prefix of a data file, its shard number and the number of shards:
/// `PREFIX.data-00001-of-00004`.
pub(super) fn data_shard(name: &str) -> Option<(&str, (u64, u64))> {
    let (prefix, numbers) = name.rsplit_once(".data-")?;
    Some((prefix, shard_numbers(numbers)?))
}

pub(super) fn data_name(prefix: &str, shard: u64, shards: u64) -> String {
    format!("{prefix}.data-{shard:05}-of-{shards:05}")
}

/// Finds the tables of the checkpoint to which the main file belongs.
pub(super) fn find(files: &FileSet) -> Result<BundleTables> {
    let main = files.main()?;
    let name = files.name(main).to_owned();
    if is_table(files, main) {
        return Ok(tables(files, main));
    }
    let head = files.read_vec(main, 0, files.len(main).min(4096))?;
    if state::is_state(&head) {
        return from_state(files, main);
    }
    let Some(index) = index_of(&name) else {
        return Err(Error::damaged(
            "the file does not end as the index of a TensorFlow checkpoint",
        )
        .advice("It may be cut short: compare its size with the original."));
    };
    match files.find(&index) {
        Some(id) if not_a_checkpoint::is_pointer(files, id) => {
            Err(not_a_checkpoint::explain(&Probe::new(&files.opened_at(id))?))
        }
        Some(id) => Ok(tables(files, id)),
        None if split(&name).1.starts_with("saved_model.") || name.ends_with("fingerprint.pb") => {
            Err(Error::unsupported(
                "this is the graph of a TensorFlow SavedModel, which holds no weights",
            )
            .in_file(name)
            .advice(format!(
                "Open the folder, or {index} next to it with its data files: the weights are there."
            )))
        }
        None => Err(Error::unsupported(
            "this is part of a TensorFlow checkpoint, whose index is not here",
        )
        .in_file(name)
        .advice(format!("Open {index} as well: it has the offsets of the tensors."))),
    }
}

fn tables(files: &FileSet, id: FileId) -> BundleTables {
    let name = files.name(id);
    let mut ids = vec![id];
    // All shards of a V1 checkpoint are tables: `PREFIX-00001-of-00004`.
    if let Some((prefix, (_, shards))) = v1_shard(name) {
        ids = files
            .iter()
            .filter(|(other, file)| {
                v1_shard(&file.name).is_some_and(|(p, (_, n))| p == prefix && n == shards)
                    && (*other == id || is_table(files, *other))
            })
            .map(|(id, _)| id)
            .collect();
        order::by_key(&mut ids, |id| files.name(*id).to_owned());
    }
    let prefix = name.strip_suffix(".index").unwrap_or(name).to_owned();
    BundleTables { ids, prefix, state: None, findings: Vec::new() }
}

/// Returns the prefix of a shard of a V1 checkpoint, its number and the number of shards.
pub(super) fn v1_shard(name: &str) -> Option<(&str, (u64, u64))> {
    let at = name.len().checked_sub("-00000-of-00000".len())?;
    let (prefix, numbers) = (name.get(..at)?, name.get(at..)?);
    if prefix.ends_with(".data") {
        return None;
    }
    Some((prefix, shard_numbers(numbers.strip_prefix('-')?)?))
}

fn shard_numbers(text: &str) -> Option<(u64, u64)> {
    let (shard, shards) = text.split_once("-of-")?;
    let number = |digits: &str| {
        let plain = digits.len() >= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    };
    Some((number(shard)?, number(shards)?))
}

/// Finds the checkpoint that a state file names: the latest, or if that is missing, the last of the
/// others that exists.
fn from_state(files: &FileSet, main: FileId) -> Result<BundleTables> {
    let state = StateFile::read(files, main)?;
    let (folder, _) = split(files.name(main));
    // The path may be absolute and from another machine. In that case only the file name is used.
    let table = |path: &str| {
        // For shards of a V1 checkpoint, the path is the pattern `PREFIX-?????-of-00004`.
        let path = path.split_once("-?????-of-").map_or(path, |(prefix, _)| prefix);
        let relative = format!("{folder}{path}");
        let sibling = format!("{folder}{}", split(path).1);
        [relative, sibling].iter().find_map(|prefix| {
            let id = files.find(&format!("{prefix}.index")).or_else(|| files.find(prefix));
            let shard = || {
                files
                    .iter()
                    .map(|(id, _)| id)
                    .find(|id| v1_shard(files.name(*id)).is_some_and(|(of, _)| of == prefix))
            };
            id.or_else(shard).filter(|id| is_table(files, *id))
        })
    };
    let others = state.all.iter().rev().filter(|path| **path != state.latest);
    let found = [&state.latest]
        .into_iter()
        .chain(others)
        .find_map(|path| table(path).map(|id| (path.clone(), id)));
    let Some((path, id)) = found else {
        return Err(Error::unsupported(format!(
            "this names the latest TensorFlow checkpoint, {:?}, which is not here",
            state.latest
        ))
        .in_file(files.name(main))
        .advice("Open its .index file and its data files as well."));
    };
    let mut tables = tables(files, id);
    if path != state.latest {
        tables.findings.push(
            Finding::new(
                Grade::Warning,
                format!("The latest checkpoint, {}, is not here: this is {path}", state.latest),
            )
            .place(files.name(main)),
        );
    }
    tables.state = Some(state);
    Ok(tables)
}

/// Splits a name into the folder with its slash and the rest. A state file may come from Windows.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.split_at(name.rfind(['/', '\\']).map_or(0, |at| at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_related_file_names() {
        assert_eq!(index_of("a/m.ckpt.data-00001-of-00002").unwrap(), "a/m.ckpt.index");
        assert_eq!(index_of("a/m.meta").unwrap(), "a/m.index");
        assert_eq!(index_of("m/saved_model.pb").unwrap(), "m/variables/variables.index");
        assert_eq!(index_of("m.data-1-of-2"), None);
        assert_eq!(index_of("model.bin"), None);
        assert_eq!(v1_shard("old-00000-of-00002"), Some(("old", (0, 2))));
        assert_eq!(v1_shard("m.data-00000-of-00002"), None);
        assert_eq!(v1_shard("é0000-of-00002"), None);
    }
}
