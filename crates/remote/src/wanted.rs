//! Finds the files of a checkpoint where folders can't be listed.

use std::collections::BTreeSet;

use statelens_checkpoint::FileSet;

/// Maximum number of files of a checkpoint.
const MAX_FILES: usize = 1_024;

/// Files that opening a set looked for and did not find.
///
/// The caller opens the set again with the files found, until there are no new names.
#[derive(Debug, Default)]
pub struct WantedFiles(BTreeSet<String>);

impl WantedFiles {
    /// Returns the files that were looked for since the last call, with their place next to the
    /// set; each file is returned once. Names for which `sibling` returns `None` are skipped.
    pub fn next<Place>(
        &mut self,
        files: &FileSet,
        sibling: impl Fn(&str) -> Option<Place>,
    ) -> Vec<(String, Place)> {
        let missed = files.missed().into_iter();
        let new = missed.filter(|name| self.0.insert(name.clone()));
        let placed = new.filter_map(|name| sibling(&name).map(|place| (name, place)));
        placed.take(MAX_FILES.saturating_sub(files.count())).collect()
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::Memory;

    use super::*;

    #[test]
    fn requests_each_missing_file_once() {
        let files = FileSet::single("x", Memory::from(vec![1])).noting_missed();
        let sibling = |name: &str| (!name.starts_with('/')).then_some(());
        let mut wanted = WantedFiles::default();
        assert_eq!(wanted.next(&files, sibling), []);
        for name in ["b", "a", "x", "/c"] {
            files.find(name);
        }
        assert_eq!(wanted.next(&files, sibling), [("a".to_owned(), ()), ("b".to_owned(), ())]);
        files.find("d");
        assert_eq!(wanted.next(&files, sibling), [("d".to_owned(), ())]);
    }
}
