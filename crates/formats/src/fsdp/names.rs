//! Names of the files that the ranks of a job write: `model_world_size_8_rank_3.pt`, and other names
//! with a number.

use std::collections::BTreeMap;

use statelens_checkpoint::{FileId, FileSet};

use crate::paths::{base, folder};

/// The parts of a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankName<'a> {
    /// The name before the rank, with the folder.
    pub(crate) before: &'a str,
    pub(crate) rank: u64,
    /// The number of digits of the rank, if it begins with zeros; else 1.
    digits: usize,
    /// The name after the rank.
    pub(crate) after: &'a str,
    /// Whether the name says that the number is a rank.
    pub(crate) is_stated: bool,
}

impl<'a> RankName<'a> {
    /// Parses a name in which `rank` and a number follow each other.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let top = folder(name).len();
        let word = top + base(name).rfind("rank")? + "rank".len();
        let between = name[word..].find(|c: char| c.is_ascii_digit())?;
        let is_separator = |byte: u8| b"_-=.".contains(&byte);
        // `__rank__3`, but not `rank_of_3`.
        if between > 2 || !name[word..word + between].bytes().all(is_separator) {
            return None;
        }
        Self::at(name, word + between, true)
    }

    /// Parses a name in which `rank` and a number follow each other, or else one that ends in a
    /// number. The second kind counts only if the content of the files says that they are of ranks.
    pub(crate) fn guess(name: &'a str) -> Option<Self> {
        let top = folder(name).len();
        let stem = top + base(name).rfind('.')?;
        let last = name[top..stem].trim_end_matches(|c: char| c.is_ascii_digit());
        Self::parse(name).or_else(|| Self::at(name, top + last.len(), false))
    }

    fn at(name: &'a str, digits: usize, is_stated: bool) -> Option<Self> {
        let rest = &name[digits..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let rank = rest[..end].parse().ok()?;
        let digits_of_rank = if rest.starts_with('0') { end } else { 1 };
        let (before, after) = (&name[..digits], &rest[end..]);
        Some(Self { before, rank, digits: digits_of_rank, after, is_stated })
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
        format!("{}{rank:0digits$}{}", self.before, self.after, digits = self.digits)
    }

    /// Returns whether the names differ only in the rank.
    pub(crate) fn is_like(&self, other: &RankName<'_>) -> bool {
        (self.before, self.after) == (other.before, other.after)
    }
}

/// Returns the files of all ranks that are named like this one.
pub(super) fn ranks(files: &FileSet, name: &RankName<'_>) -> BTreeMap<u64, FileId> {
    let same = files.names().filter_map(|(id, other)| {
        let other = RankName::guess(other).filter(|other| other.is_like(name))?;
        Some((other.rank, id))
    });
    let mut found: BTreeMap<u64, FileId> = same.collect();
    if !name.is_stated && !are_ranks(found.keys().copied()) {
        found.retain(|rank, _| *rank == name.rank);
    }
    found
}

/// Returns whether numbers, in order, are those of all ranks: from 0 on, without a gap. Numbers of
/// steps are not.
pub(crate) fn are_ranks(numbers: impl IntoIterator<Item = u64>) -> bool {
    numbers.into_iter().zip(0..).all(|(number, rank)| number == rank)
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
        let name = RankName::parse("a/__rank__07.pt").unwrap();
        assert_eq!((name.rank, name.of_rank(12)), (7, "a/__rank__12.pt".to_owned()));
        assert_eq!(name.of_rank(3), "a/__rank__03.pt");
    }

    #[test]
    fn guesses_other_names_with_a_number() {
        let of = |name| RankName::guess(name).map(|it| (it.rank, it.is_stated));
        assert_eq!(of("a/consolidated.05.pth"), Some((5, false)));
        assert_eq!(of("a/12.pt"), Some((12, false)));
        assert_eq!(of("a5/rank3_step10.pt"), Some((3, true)));
        assert_eq!(of("a5/model.pt"), None);
        assert!(are_ranks([0, 1, 2]) && !are_ranks([0, 2]) && !are_ranks([100, 200]));
    }
}
