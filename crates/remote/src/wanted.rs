//! Which files belong to a checkpoint, where nobody can list the folder that it is in.

use std::collections::BTreeSet;

use statelens_checkpoint::FileSet;

/// Files that a checkpoint may name.
const MOST: usize = 1_024;

/// The files that were asked for, because opening a set looked for them in vain.
///
/// A set is opened again with what was found, until nothing new is wanted.
#[derive(Debug, Default)]
pub struct WantedFiles(BTreeSet<String>);

impl WantedFiles {
    /// What was looked for since, by name and where it is beside the set: each is told once. What
    /// `beside` knows no place for is not.
    pub fn next<Place>(
        &mut self,
        files: &FileSet,
        beside: impl Fn(&str) -> Option<Place>,
    ) -> Vec<(String, Place)> {
        let missed = files.missed().into_iter();
        let new = missed.filter(|name| self.0.insert(name.clone()));
        let placed = new.filter_map(|name| beside(&name).map(|place| (name, place)));
        placed.take(MOST.saturating_sub(files.count())).collect()
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::Memory;

    use super::*;

    #[test]
    fn each_file_is_wanted_once() {
        let files = FileSet::single("x", Memory::from(vec![1])).noting_missed();
        let beside = |name: &str| (!name.starts_with('/')).then_some(());
        let mut wanted = WantedFiles::default();
        assert_eq!(wanted.next(&files, beside), []);
        for name in ["b", "a", "x", "/c"] {
            files.find(name);
        }
        assert_eq!(wanted.next(&files, beside), [("a".to_owned(), ()), ("b".to_owned(), ())]);
        files.find("d");
        assert_eq!(wanted.next(&files, beside), [("d".to_owned(), ())]);
    }
}
