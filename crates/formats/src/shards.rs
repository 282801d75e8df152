//! Splits a checkpoint into several files of one format.
//!
//! Uses the conventions of the Hugging Face libraries: files named
//! `model-00001-of-00003.safetensors` etc., and an index `model.safetensors.index.json` that maps
//! tensors to files, <https://huggingface.co/docs/transformers/big_models>.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::json;
use statelens_checkpoint::{Error, PlannedFile, Result, Segment, Text};

/// How a checkpoint is split into files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Shards {
    /// Not split.
    #[default]
    One,
    /// Into files with at most this many bytes of tensors, in key order. A larger tensor gets a
    /// file of its own. A single file if everything fits.
    BySize(u64),
    /// Like [`Shards::BySize`], but numbered and with an index even for a single file.
    Numbered(u64),
    /// Each tensor goes to the file given for its flat key, the others to the requested file name.
    Named(Arc<HashMap<Text, String>>),
}

/// The assignment of tensors to files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) files: Vec<String>,
    /// For each tensor, the index of its file.
    pub(crate) of: Vec<usize>,
}

impl Shards {
    /// Assigns `tensors`, given by flat key and size in bytes, to files. `name` is the requested
    /// file name.
    ///
    /// Fails if a name is not valid for a file in the same folder, or is the name of the index.
    pub(crate) fn assign(&self, name: &str, tensors: &[(Text, u64)]) -> Result<Assignment> {
        match self {
            Self::One => {
                Ok(Assignment { files: vec![name.to_owned()], of: vec![0; tensors.len()] })
            }
            Self::BySize(most) => Ok(by_size(*most, name, tensors, false)),
            Self::Numbered(most) => Ok(by_size(*most, name, tensors, true)),
            Self::Named(names) => named(names, name, tensors),
        }
    }
}

fn by_size(most: u64, name: &str, tensors: &[(Text, u64)], always: bool) -> Assignment {
    let mut of = Vec::with_capacity(tensors.len());
    let mut file = 0;
    let mut filled: Option<u64> = None;
    for (_, bytes) in tensors {
        match filled.and_then(|filled| filled.checked_add(*bytes)).filter(|sum| *sum <= most) {
            Some(sum) => filled = Some(sum),
            None => {
                file += usize::from(filled.is_some());
                filled = Some(*bytes);
            }
        }
        of.push(file);
    }
    let count = file + 1;
    let files = match count {
        1 if !always => vec![name.to_owned()],
        _ => (1..=count).map(|at| numbered(name, at, count)).collect(),
    };
    Assignment { files, of }
}

/// Returns `model.safetensors` as `model-00001-of-00003.safetensors`.
fn numbered(name: &str, at: usize, count: usize) -> String {
    match name.rsplit_once('.') {
        Some((stem, extension)) => format!("{stem}-{at:05}-of-{count:05}.{extension}"),
        None => format!("{name}-{at:05}-of-{count:05}"),
    }
}

fn named(names: &HashMap<Text, String>, name: &str, tensors: &[(Text, u64)]) -> Result<Assignment> {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let with_extension =
        |shard: &str| match extension.is_empty() || shard.ends_with(&format!(".{extension}")) {
            true => shard.to_owned(),
            false => format!("{shard}.{extension}"),
        };
    let mut files: Vec<String> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut of = Vec::with_capacity(tensors.len());
    for (key, _) in tensors {
        let file = names.get(key).map_or_else(|| name.to_owned(), |shard| with_extension(shard));
        let plain = !file.is_empty() && !file.starts_with('.') && !file.contains(['/', '\\', '\0']);
        if !plain || file == index_name(name) {
            return Err(Error::refused(format!("a shard can't be named `{file}`"))
                .expected("the name of a file in the same folder, and not that of the index"));
        }
        let next = files.len();
        let place = *places.entry(file.clone()).or_insert(next);
        if place == next {
            files.push(file);
        }
        of.push(place);
    }
    if files.is_empty() {
        files.push(name.to_owned());
    }
    // On many file systems, two names that differ only in case are the same file.
    let folded: HashSet<String> = files.iter().map(|file| file.to_lowercase()).collect();
    match folded.len() == files.len() {
        true => Ok(Assignment { files, of }),
        false => {
            Err(Error::refused("two shards have names that differ only in upper and lower case"))
        }
    }
}

impl Assignment {
    /// Returns the index, if there are several files or a single file does not have the requested
    /// name. `tensors` are the assigned tensors.
    pub(crate) fn index(&self, name: &str, tensors: &[(Text, u64)]) -> Option<PlannedFile> {
        if self.files.len() == 1 && self.files[0] == name {
            return None;
        }
        let total: u64 = tensors.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let mut text = format!(
            "{{\n  \"metadata\": {{\n    \"total_size\": {total}\n  }},\n  \"weight_map\": {{"
        );
        for (index, ((key, _), file)) in tensors.iter().zip(&self.of).enumerate() {
            text.push_str(if index > 0 { ",\n    " } else { "\n    " });
            json::quote(key, &mut text);
            text.push_str(": ");
            json::quote_str(&self.files[*file], &mut text);
        }
        text.push_str("\n  }\n}\n");
        Some(PlannedFile {
            name: index_name(name),
            segments: vec![Segment::Bytes(text.into_bytes().into())],
            head_last: false,
        })
    }
}

fn index_name(name: &str) -> String {
    format!("{name}.index.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(sizes: &[u64]) -> Vec<(Text, u64)> {
        sizes.iter().enumerate().map(|(at, bytes)| (format!("t{at}").into(), *bytes)).collect()
    }

    #[test]
    fn fills_shards_up_to_the_size() {
        let assign = |most, sizes: &[u64]| {
            Shards::BySize(most).assign("m.safetensors", &tensors(sizes)).unwrap()
        };
        assert_eq!(assign(10, &[4, 6, 1, 20, 3, 0, 8]).of, [0, 0, 1, 2, 3, 3, 4]);
        let two = assign(5, &[5, 1]);
        assert_eq!(two.files, ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"]);
        let one = assign(100, &[5, 1]);
        assert_eq!(one.files, ["m.safetensors"]);
        assert!(one.index("m.safetensors", &tensors(&[5, 1])).is_none());
        assert_eq!(assign(0, &[]).files, ["m.safetensors"]);
        assert_eq!(assign(9, &[u64::MAX, u64::MAX, 1]).of, [0, 1, 2]);
    }

    #[test]
    fn assigns_shards_by_name() {
        let by = |names: &[(&str, &str)]| {
            let names = names.iter().map(|(key, file)| ((*key).into(), (*file).to_owned()));
            Shards::Named(Arc::new(names.collect())).assign("m.pt", &tensors(&[1, 2, 3]))
        };
        let found = by(&[("t0", "emb"), ("t2", "emb.pt")]).unwrap();
        assert_eq!((found.files, found.of), (vec!["emb.pt".into(), "m.pt".into()], vec![0, 1, 0]));
        for bad in ["../up", "a/b", "", ".hidden", "EMB"] {
            assert!(by(&[("t0", bad), ("t1", "emb")]).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_a_single_file_on_request() {
        let tensors = tensors(&[4]);
        let assignment = Shards::Numbered(100).assign("m.bin", &tensors).unwrap();
        assert_eq!(assignment.files, ["m-00001-of-00001.bin"]);
        assert_eq!(assignment.index("m.bin", &tensors).unwrap().name, "m.bin.index.json");
    }

    #[test]
    fn index_names_each_tensor() {
        let tensors = tensors(&[5, 6]);
        let assignment = Shards::BySize(6).assign("m.bin", &tensors).unwrap();
        let index = assignment.index("m.bin", &tensors).unwrap();
        assert_eq!(index.name, "m.bin.index.json");
        let Segment::Bytes(bytes) = &index.segments[0] else { panic!("bytes") };
        let json: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        assert_eq!(json["metadata"]["total_size"], 11);
        assert_eq!(json["weight_map"]["t1"], "m-00002-of-00002.bin");
    }
}
