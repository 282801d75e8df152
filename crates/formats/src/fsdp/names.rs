//! Names of the files that the ranks of a job write: `model_world_size_8_rank_3.pt`.

use std::collections::BTreeMap;

use statelens_checkpoint::{FileId, FileSet};

use crate::paths::{base, folder};

/// The parts of a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankName<'a> {
    /// The name before the rank, with the folder.
    pub(crate) before: &'a str,
    pub(crate) rank: u64,
    /// The name after the rank.
    pub(crate) after: &'a str,
}

impl<'a> RankName<'a> {
    /// Parses a name in which `rank` and a number follow each other.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let top = folder(name).len();
        let word = top + base(name).rfind("rank")? + "rank".len();
        let digits = word + name[word..].find(|c: char| c.is_ascii_digit())?;
        if !name[word..digits].bytes().all(|byte| b"_-=.".contains(&byte)) || digits > word + 1 {
            return None;
        }
        let rest = &name[digits..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let rank = rest[..end].parse().ok()?;
        Some(Self { before: &name[..digits], rank, after: &rest[end..] })
    }

    /// Returns the number of ranks, where the name says it: `world_size_8`.
    pub(crate) fn world(&self) -> Option<u64> {
        Some(self.stated()?.1)
    }

    /// Returns the state in the file, as the name says: `model`, `optim`, `extra_state`.
    pub(crate) fn state(&self) -> Option<&'a str> {
        Some(self.stated()?.0).filter(|state| !state.is_empty())
    }

    /// Splits `model_world_size_8_rank_`.
    fn stated(&self) -> Option<(&'a str, u64)> {
        let (state, rest) = base(self.before).split_once("world_size_")?;
        let world = rest.strip_suffix("_rank_")?.parse().ok()?;
        Some((state.trim_end_matches('_'), world))
    }

    /// Returns the name of the file of another rank.
    pub(crate) fn of_rank(&self, rank: u64) -> String {
        format!("{}{rank}{}", self.before, self.after)
    }

    /// Returns whether the names differ only in the rank.
    pub(crate) fn is_like(&self, other: &RankName<'_>) -> bool {
        (self.before, self.after) == (other.before, other.after)
    }
}

/// Returns the files of all ranks that are named like this one.
pub(super) fn ranks(files: &FileSet, name: &RankName<'_>) -> BTreeMap<u64, FileId> {
    let same = files.names().filter_map(|(id, other)| {
        let other = RankName::parse(other).filter(|other| other.is_like(name))?;
        Some((other.rank, id))
    });
    same.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_of_ranks() {
        let name = RankName::parse("a/optim_world_size_16_rank_12.pt").unwrap();
        assert_eq!((name.state(), name.world(), name.rank), (Some("optim"), Some(16), 12));
        assert_eq!(name.of_rank(3), "a/optim_world_size_16_rank_3.pt");
        let name = RankName::parse("ckpt-rank0.pth").unwrap();
        assert_eq!((name.state(), name.world(), name.rank), (None, None, 0));
        for other in ["rank.pt", "franky2.pt", "rank0/model.pt", "rank_of_3.pt"] {
            assert_eq!(RankName::parse(other), None, "{other}");
        }
    }
}
