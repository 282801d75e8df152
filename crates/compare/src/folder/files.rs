//! What the files of a folder are, by name and by their first bytes.

use statelens_checkpoint::{FileId, FileSet, Result};

/// Returns whether files with this extension may be shards of a model.
fn is_sharded(extension: &str) -> bool {
    let models = statelens_formats::formats().filter(|one| !one.weights_extensions.is_empty());
    models.flat_map(|one| one.shard_extensions).any(|one| *one == extension)
}

/// Prefixes of the names of a trainer's states, which are not weights of the model.
const STATES: [&str; 11] = [
    "optimizer",
    "scheduler",
    "rng_state",
    "random_states",
    "scaler",
    "training_args",
    "lr_scheduler",
    "trainer_state",
    "sampler",
    "custom_checkpoint",
    "zero_pp_rank",
];

/// Ends of the names of interrupted downloads.
const UNFINISHED: [&str; 7] =
    [".incomplete", ".part", ".partial", ".crdownload", ".download", ".aria2", ".tmp"];

/// Maximum length in bytes of a server's response that was saved in place of a file.
const MAX_ANSWER: u64 = 4 << 20;

pub(super) fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Returns whether a file may have weights of the model.
pub(super) fn is_weights(name: &str) -> bool {
    is_sharded(extension(name)) && !is_state(name)
}

pub(super) fn is_state(name: &str) -> bool {
    STATES.iter().any(|start| name.starts_with(start))
}

pub(super) fn is_index(name: &str) -> bool {
    name.ends_with(".json") && name.contains(".index.")
}

pub(super) fn is_unfinished(name: &str) -> bool {
    let known = |end: &str| name.ends_with(end) && name.len() > end.len();
    UNFINISHED.iter().any(|end| known(end)) && name.contains('.')
}

/// Returns the file with this name.
pub(super) fn id_of(files: &FileSet, name: &str) -> Option<FileId> {
    files.names().find(|(_, known)| *known == name).map(|(id, _)| id)
}

/// A small file in place of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StandIn {
    Empty,
    Pointer,
    WebPage,
    Answer,
}

/// Recognises by its first bytes a file that is something other than its name says.
pub(super) fn stand_in(files: &FileSet, id: FileId) -> Result<Option<StandIn>> {
    let len = files.len(id);
    if len == 0 {
        return Ok(Some(StandIn::Empty));
    }
    let head = files.read_vec(id, 0, len.min(512))?;
    let text = String::from_utf8_lossy(&head).trim_start().to_ascii_lowercase();
    Ok(match () {
        () if text.starts_with("version https://git-lfs") => Some(StandIn::Pointer),
        () if len > MAX_ANSWER => None,
        () if ["<!doctype html", "<html", "<head"].iter().any(|start| text.starts_with(start)) => {
            Some(StandIn::WebPage)
        }
        () if text.starts_with("<?xml") && text.contains("<error>") => Some(StandIn::Answer),
        () if [
            "{\"error\"",
            "entry not found",
            "access to model",
            "invalid username",
            "not found",
        ]
        .iter()
        .any(|start| text.starts_with(start)) =>
        {
            Some(StandIn::Answer)
        }
        () => None,
    })
}

/// The parts of a shard's name: `model-00001-of-00003.safetensors`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) stem: String,
    separator: char,
    pub(super) number: u64,
    digits: usize,
    pub(super) count: u64,
    of: String,
    pub(super) extension: String,
}

/// Maximum number of shards of a set.
const MAX_SHARDS: u64 = 100_000;

impl Numbered {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (rest, extension) = name.rsplit_once('.')?;
        let (rest, of) = rest.rsplit_once("-of-")?;
        let cut = rest.rfind(|c: char| !c.is_ascii_digit())?;
        let separator = rest[cut..].chars().next().filter(|c| matches!(c, '-' | '_'))?;
        let (stem, at) = (&rest[..cut], &rest[cut + 1..]);
        let (number, count) = (at.parse().ok()?, of.parse().ok()?);
        let is_known = is_sharded(extension) && !stem.is_empty();
        (is_known && number <= count && (2..=MAX_SHARDS).contains(&count)).then(|| Self {
            stem: stem.to_owned(),
            separator,
            number,
            digits: at.len(),
            count,
            of: of.to_owned(),
            extension: extension.to_owned(),
        })
    }

    pub(super) fn name(&self, number: u64) -> String {
        let Self { stem, separator, digits, of, extension, .. } = self;
        format!("{stem}{separator}{number:0digits$}-of-{of}.{extension}")
    }

    pub(super) fn is_family_of(&self, other: &Self) -> bool {
        (&self.stem, self.separator, &self.of, &self.extension)
            == (&other.stem, other.separator, &other.of, &other.extension)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_of_shards() {
        let shard = Numbered::parse("model-00002-of-00003.safetensors").unwrap();
        assert_eq!((shard.stem.as_str(), shard.number, shard.count), ("model", 2, 3));
        assert_eq!(shard.name(3), "model-00003-of-00003.safetensors");
        assert!(Numbered::parse("model-00001-of-00001.safetensors").is_none(), "one file");
        assert!(Numbered::parse("model-00004-of-00003.safetensors").is_none());
        assert!(Numbered::parse("x.data-00000-of-00001").is_none());
    }

    #[test]
    fn tells_weights_from_states_and_leftovers() {
        assert!(is_weights("pytorch_model-00001-of-00002.bin") && is_weights("a.gguf"));
        assert!(!is_weights("optimizer.pt") && !is_weights("training_args.bin"));
        assert!(
            is_unfinished("model.safetensors.incomplete") && !is_unfinished("model.safetensors")
        );
    }
}
