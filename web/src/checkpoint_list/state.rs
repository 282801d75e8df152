//! The checkpoints of a drop, as a list to choose from.

use std::rc::Rc;

use statelens_checkpoint::natural_order;
use statelens_describe::FileGrade;

use crate::open::message::{FileName, FoundCheckpoint};

/// A checkpoint among the dropped files.
#[derive(Debug, Clone, PartialEq)]
pub struct RailEntry {
    /// The file to open it by, as an index into the dropped files.
    pub main: u32,
    pub members: Rc<Vec<u32>>,
    /// Its path without the folders that all entries share.
    pub name: String,
    /// The training step in its path.
    pub step: Option<u64>,
    /// The total length of its files in bytes.
    pub bytes: u64,
    pub files: u64,
    /// Whether it can be used; `None` until it was opened.
    pub check: Option<RailCheck>,
}

/// The result of opening a checkpoint of the drop.
#[derive(Debug, Clone, PartialEq)]
pub struct RailCheck {
    /// `None` if Statelens can't judge it.
    pub grade: Option<FileGrade>,
    /// What the grade is because of; may be empty.
    pub reason: String,
}

/// The checkpoints of a drop, ordered by step and name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rail {
    pub entries: Vec<RailEntry>,
    /// Those ticked for a comparison, at most two, by [`RailEntry::main`].
    pub ticked: Vec<u32>,
}

/// The order in which the list is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RailOrder {
    /// By step, then by name.
    #[default]
    Name,
    /// The largest first.
    Size,
    /// The worst grade first, then files that were not checked.
    Grade,
}

impl RailOrder {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::Name, Self::Size, Self::Grade];

    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Name => "step, name",
            Self::Size => "size",
            Self::Grade => "grade",
        }
    }
}

impl Rail {
    /// Returns the indices of the entries to show: those whose names have all words of the filter,
    /// whatever their case.
    pub fn shown(&self, order: RailOrder, filter: &str) -> Vec<usize> {
        let filter = filter.to_lowercase();
        let has = |at: &usize| {
            let name = self.entries[*at].name.to_lowercase();
            filter.split_whitespace().all(|word| name.contains(word))
        };
        let mut shown: Vec<usize> = (0..self.entries.len()).filter(has).collect();
        let grade = |at: usize| self.entries[at].check.as_ref().map(|check| check.grade);
        match order {
            RailOrder::Name => {}
            RailOrder::Size => order_by(&mut shown, |at| std::cmp::Reverse(self.entries[at].bytes)),
            RailOrder::Grade => order_by(&mut shown, |at| {
                // What can't be read comes first.
                std::cmp::Reverse(grade(at).map(|grade| (grade.is_none(), grade)))
            }),
        }
        shown
    }

    /// Lists the checkpoints found among files; `None` if there is only one.
    pub fn new(found: Vec<FoundCheckpoint>, files: &[FileName]) -> Option<Self> {
        if found.len() < 2 {
            return None;
        }
        let shared = shared_folders(&found);
        let entry = |found: FoundCheckpoint| RailEntry {
            main: found.main,
            step: step(&found.name),
            name: found.name.get(shared..).unwrap_or(&found.name).to_owned(),
            bytes: found
                .members
                .iter()
                .filter_map(|member| files.get(*member as usize))
                .fold(0, |sum, file| sum.saturating_add(file.size)),
            files: found.members.len() as u64,
            members: Rc::new(found.members),
            check: None,
        };
        let mut entries: Vec<RailEntry> = found.into_iter().map(entry).collect();
        statelens_checkpoint::order::by(&mut entries, |one, other| {
            one.step
                .cmp(&other.step)
                .then_with(|| natural_order(one.name.as_bytes(), other.name.as_bytes()))
        });
        Some(Self { entries, ticked: Vec::new() })
    }

    /// Returns the entry that a file belongs to.
    pub fn find(&self, file: u32) -> Option<usize> {
        let is_it = |entry: &RailEntry| entry.main == file || entry.members.contains(&file);
        self.entries.iter().position(is_it)
    }

    /// Returns the next or previous entry, wrapping around at the ends.
    pub fn neighbour(&self, file: u32, forward: bool) -> Option<u32> {
        let count = self.entries.len();
        let at = self.find(file).unwrap_or(0);
        let next = if forward { at + 1 } else { (at + count).saturating_sub(1) };
        self.entries.get(next.checked_rem(count)?).map(|entry| entry.main)
    }

    /// Stores the grade of a file's checkpoint, and the reason for it.
    pub fn set_grade(&mut self, file: u32, grade: Option<FileGrade>, reason: String) {
        if let Some(entry) = self.find(file).and_then(|at| self.entries.get_mut(at)) {
            entry.check = Some(RailCheck { grade, reason });
        }
    }

    /// Returns how many checkpoints have each grade that is not good, the worst first.
    pub fn counts(&self) -> Vec<(FileGrade, u64)> {
        let grades = || self.entries.iter().filter_map(|entry| entry.check.as_ref()?.grade);
        let count = |of: FileGrade| (of, grades().filter(|grade| *grade == of).count() as u64);
        let bad = FileGrade::ALL.into_iter().filter(|grade| !grade.is_good());
        bad.map(count).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the main files of the entries that were not opened yet.
    pub fn unchecked(&self) -> Vec<u32> {
        let unknown = self.entries.iter().filter(|entry| entry.check.is_none());
        unknown.map(|entry| entry.main).collect()
    }

    /// Ticks or unticks an entry. A third tick removes the oldest one.
    pub fn tick(&mut self, main: u32) {
        match self.ticked.iter().position(|one| *one == main) {
            Some(at) => drop(self.ticked.remove(at)),
            None => self.ticked.push(main),
        }
        if self.ticked.len() > 2 {
            self.ticked.remove(0);
        }
    }

    /// Returns the two to compare, in the order of the list: those that are ticked, or the only
    /// two.
    pub fn pair(&self) -> Option<(u32, u32)> {
        let wanted = |entry: &&RailEntry| {
            self.ticked.contains(&entry.main) || self.entries.len() == 2 && self.ticked.is_empty()
        };
        let mut both = self.entries.iter().filter(wanted).map(|entry| entry.main);
        Some((both.next()?, both.next()?))
    }
}

fn order_by<K: Ord>(shown: &mut [usize], key: impl Fn(usize) -> K) {
    statelens_checkpoint::order::by(shown, |one, other| key(*one).cmp(&key(*other)));
}

/// Returns the length of the folders that all names begin with, including the last slash.
fn shared_folders(found: &[FoundCheckpoint]) -> usize {
    let Some(first) = found.first() else { return 0 };
    let shared = |length: usize, other: &FoundCheckpoint| {
        let pairs = first.name.bytes().zip(other.name.bytes()).take(length);
        pairs.take_while(|(one, other)| one == other).count()
    };
    let length = found.iter().fold(first.name.len(), shared);
    first.name.as_bytes()[..length].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)
}

/// Returns the training step in a path: the number after `step`, `checkpoint` or `iter`, of the
/// last component that has one.
pub fn step(path: &str) -> Option<u64> {
    const WORDS: [&str; 5] = ["global_step", "step", "checkpoint", "ckpt", "iter"];
    let lower = path.to_ascii_lowercase();
    let of = |part: &str| {
        WORDS.iter().find_map(|word| {
            let (_, rest) = part.rsplit_once(word)?;
            let rest = rest.trim_start_matches(['-', '_', '=']);
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            rest[..digits].parse().ok()
        })
    };
    lower.rsplit('/').find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rail(names: &[&str]) -> Option<Rail> {
        let file = |path: &&str| FileName { path: (*path).to_owned(), size: 10 };
        let found = names.iter().enumerate().map(|(at, name)| FoundCheckpoint {
            main: at as u32,
            name: (*name).to_owned(),
            members: vec![at as u32],
        });
        Rail::new(found.collect(), &names.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn single_checkpoint_has_no_list() {
        assert_eq!(rail(&["a.pt"]), None);
    }

    #[test]
    fn names_are_distinct_and_sorted_by_step() {
        let rail = rail(&["run/checkpoint-1000/model.pt", "run/checkpoint-200/model.pt"]).unwrap();
        let found: Vec<_> = rail.entries.iter().map(|one| (&*one.name, one.step)).collect();
        assert_eq!(
            found,
            [("checkpoint-200/model.pt", Some(200)), ("checkpoint-1000/model.pt", Some(1000))]
        );
        assert_eq!(rail.neighbour(1, true), Some(0));
        assert_eq!(rail.neighbour(0, true), Some(1), "the first follows the last");
        assert_eq!(rail.neighbour(1, false), Some(0));
    }

    #[test]
    fn parses_steps_in_paths() {
        for (path, expected) in [
            ("run/checkpoint_100.pt", Some(100)),
            ("run/checkpoint-500/pytorch_model.bin", Some(500)),
            ("epoch=3-step=1200.ckpt", Some(1200)),
            ("ds/global_step20/mp_rank_00_model_states.pt", Some(20)),
            ("iter_0000100/mp_rank_00/model.pt", Some(100)),
            ("model-00001-of-00002.safetensors", None),
            ("steps.pt", None),
        ] {
            assert_eq!(step(path), expected, "{path}");
        }
    }

    #[test]
    fn list_is_filtered_and_sorted() {
        let mut rail = rail(&["a/One.pt", "a/two.pt", "b/one.bin"]).unwrap();
        rail.set_grade(1, Some(FileGrade::Dangerous), String::new());
        rail.set_grade(2, None, String::new());
        for (at, bytes) in [(0, 5), (1, 9), (2, 7)] {
            rail.entries[at].bytes = bytes;
        }
        assert_eq!(rail.shown(RailOrder::Name, "ONE"), [0, 2]);
        assert_eq!(rail.shown(RailOrder::Size, ""), [1, 2, 0]);
        assert_eq!(rail.shown(RailOrder::Grade, ""), [2, 1, 0], "unreadable, dangerous, unknown");
    }

    #[test]
    fn compares_the_only_two_or_the_ticked_two() {
        let mut two = rail(&["a.pt", "b.pt"]).unwrap();
        assert_eq!(two.pair(), Some((0, 1)));
        two.tick(1);
        assert_eq!(two.pair(), None);
        let mut three = rail(&["a.pt", "b.pt", "c.pt"]).unwrap();
        assert_eq!(three.pair(), None);
        [2, 0, 1].into_iter().for_each(|main| three.tick(main));
        assert_eq!((three.pair(), &three.ticked[..]), (Some((0, 1)), &[0, 1][..]));
        three.set_grade(2, Some(FileGrade::Damaged), "cut".into());
        assert_eq!(three.unchecked(), [0, 1]);
        three.set_grade(0, Some(FileGrade::Dangerous), "Loading would call eval".into());
        three.set_grade(1, Some(FileGrade::Whole), String::new());
        let counts = [(FileGrade::Dangerous, 1), (FileGrade::Damaged, 1)];
        assert_eq!(three.counts(), counts, "what is good is not counted");
    }
}
