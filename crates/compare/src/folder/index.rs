//! Indexes of shards.

use std::collections::BTreeSet;

use statelens_checkpoint::{Error, FileSet, Result, order};

use super::Findings;
use super::document::JsonFile;
use super::files::{self, id_of};
use super::rules::INDEX_BROKEN;
use super::shard::{report_stand_in, text_of};

/// An index: `model.safetensors.index.json`
/// (<https://huggingface.co/docs/transformers/big_models>).
pub(super) struct Index {
    pub(super) file: String,
    /// Each key with the name of its file, in order.
    pub(super) map: Vec<(String, String)>,
    pub(super) total_size: Option<u64>,
    pub(super) has_total_parameters: bool,
}

impl Index {
    /// Reads an index; reports one that can't be read.
    pub(super) fn read(files: &FileSet, name: &str, findings: &mut Findings<'_>) -> Option<Self> {
        let id = id_of(files, name)?;
        if let Ok(Some(found)) = files::stand_in(files, id) {
            report_stand_in(found, name, findings);
            return None;
        }
        match Self::parse(files, name) {
            Ok(index) => Some(index),
            Err(error) => {
                let text = format!("{name} can't be read: {}", text_of(&error));
                findings.add(&INDEX_BROKEN, name, text);
                None
            }
        }
    }

    /// Returns the shards that an index names, if it can be read.
    pub(super) fn quietly(files: &FileSet, name: &str) -> Option<Vec<String>> {
        Self::parse(files, name).ok().map(|index| index.shards())
    }

    fn parse(files: &FileSet, name: &str) -> Result<Self> {
        let json =
            JsonFile::read(files, name).unwrap_or_else(|| Err(Error::io("it is missing")))?;
        let weights = json.root().get("weight_map").filter(|map| map.is_object());
        let weights = weights.ok_or_else(|| Error::damaged("it has no `weight_map`"))?;
        let mut map = Vec::new();
        for (key, value) in weights.entries() {
            let shard = value.text().ok_or_else(|| {
                Error::damaged(format!("its `weight_map` gives no file name for `{key}`"))
            })?;
            map.push((key, shard.strip_prefix("./").unwrap_or(shard).to_owned()));
        }
        if map.is_empty() {
            return Err(Error::damaged("its `weight_map` is empty"));
        }
        let metadata = json.root().get("metadata");
        let number = |name: &str| metadata.and_then(|it| it.get(name)).and_then(|it| it.number());
        let (total_size, parameters) = (number("total_size"), number("total_parameters"));
        let has_total_parameters = parameters.is_some();
        Ok(Self { file: name.to_owned(), map, total_size, has_total_parameters })
    }

    /// Returns the names of the shards, in natural order.
    pub(super) fn shards(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.map.iter().map(|(_, shard)| shard).collect();
        let mut names: Vec<String> = names.into_iter().cloned().collect();
        order::natural(&mut names);
        names
    }
}
