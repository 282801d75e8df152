//! Filters all rows: words in all keys at once, regular expressions in batches.

use memchr::memmem::Finder;
use statelens_checkpoint::slices::{ITEMS, pause};

use crate::filter::state::{Filter, Word, is_whole};
use crate::rows::Row;
use crate::values::state::Weights;

/// Bytes of keys to match regular expressions against at a time, so that the page keeps up with
/// typing.
const BATCH_SIZE: usize = 96 << 10;
/// Number of matching rows that are shown before the search is complete: more than fit on the
/// largest screens.
const PREVIEW_ROWS: usize = 200;
/// Cost of matching an expression against a key, in addition to the key's length.
const KEY_COST: usize = 24;

/// All keys in lower case, concatenated, so that a word can be searched in all of them at once.
#[derive(Debug)]
pub struct SearchText {
    text: String,
    ends: Vec<usize>,
}

impl SearchText {
    /// Concatenates the keys of the rows, with pauses.
    pub async fn new(rows: &[Row]) -> Self {
        let mut text = String::with_capacity(rows.iter().map(|row| row.key.len() + 1).sum());
        let mut ends = Vec::with_capacity(rows.len());
        for (at, row) in rows.iter().enumerate() {
            if at % (8 * ITEMS) == 8 * ITEMS - 1 {
                pause().await;
            }
            if row.key.is_ascii() {
                let start = text.len();
                text.push_str(&row.key);
                text[start..].make_ascii_lowercase();
            } else {
                text.push_str(&row.key.to_lowercase());
            }
            // No word contains a newline, so that no match spans two keys.
            text.push('\n');
            ends.push(text.len());
        }
        Self { text, ends }
    }

    /// Returns the rows whose keys contain a word.
    fn holding(&self, word: &Word) -> Vec<u32> {
        let (mut found, mut from, mut row) = (Vec::new(), 0, 0);
        let (finder, text) = (Finder::new(&word.text), self.text.as_bytes());
        while row < self.ends.len() {
            let Some(at) = finder.find(&text[from..]) else { break };
            let at = from + at;
            if word.whole_numbers && !is_whole(text, at, at + word.text.len()) {
                from = at + 1;
                continue;
            }
            while self.ends[row] <= at {
                row += 1;
            }
            found.push(row as u32);
            from = self.ends[row];
            row += 1;
        }
        found
    }

    /// Returns whether the key of a row contains a word.
    fn has(&self, row: u32, word: &Word, finder: &Finder<'_>) -> bool {
        let key = self.of(row);
        finder
            .find_iter(key)
            .any(|at| !word.whole_numbers || is_whole(key, at, at + word.text.len()))
    }

    fn of(&self, row: u32) -> &[u8] {
        let at = row as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text.as_bytes()[start..self.ends[at]]
    }
}

/// A running search.
#[derive(Debug, Clone)]
pub struct Search {
    /// The terms still to be tested on the candidates.
    filter: Filter,
    candidates: Vec<u32>,
    at: usize,
    found: Vec<u32>,
    /// Whether the first matching rows were taken.
    shows_first: bool,
}

impl Search {
    /// Begins a search.
    pub fn new(mut filter: Filter, keys: &SearchText) -> Self {
        let mut words = filter.take_words().into_iter();
        let first = words.next();
        let all = 0..keys.ends.len() as u32;
        let mut candidates = match &first {
            Some((false, word)) if !word.text.is_empty() => keys.holding(word),
            _ => all.collect(),
        };
        let rest = first.filter(|(negative, word)| *negative || word.text.is_empty());
        for (negative, word) in rest.into_iter().chain(words) {
            let finder = Finder::new(&word.text);
            candidates.retain(|&row| keys.has(row, &word, &finder) != negative);
        }
        Self { filter, candidates, at: 0, found: Vec::new(), shows_first: false }
    }

    /// Continues for one batch; returns true if it was the last.
    pub fn run_batch(&mut self, rows: &[Row], weights: &Weights) -> bool {
        if self.filter.is_empty() {
            self.found = std::mem::take(&mut self.candidates);
            return true;
        }
        let (slow, mut cost) = (self.filter.is_slow(), 0);
        while let Some(&id) = self.candidates.get(self.at) {
            if slow && cost > BATCH_SIZE {
                return false;
            }
            let row = &rows[id as usize];
            if self.filter.passes(row, weights.get(id)) {
                self.found.push(id);
            }
            cost += row.key.len() + KEY_COST;
            self.at += 1;
        }
        true
    }

    /// Returns the first matching rows, once there are enough of them to fill the screen; only
    /// once.
    pub fn first(&mut self) -> Option<Vec<u32>> {
        if self.shows_first || self.found.len() < PREVIEW_ROWS {
            return None;
        }
        self.shows_first = true;
        Some(self.found.clone())
    }

    /// Returns whether the first matching rows are shown.
    pub fn is_shown(&self) -> bool {
        self.shows_first
    }

    /// Returns the number of rows tested.
    pub fn tested(&self) -> usize {
        self.at
    }

    /// Returns the matching rows of a completed search.
    pub fn found(self) -> Vec<u32> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::slices::finish;

    use super::*;
    use crate::state::sample::{gpt, value};

    fn found(rows: &[Row], text: &str) -> (Vec<u32>, usize) {
        let filter = Filter::parse(text).expect("a filter");
        let mut search = Search::new(filter, &finish(SearchText::new(rows)));
        let mut pieces = 1;
        while !search.run_batch(rows, &Weights::default()) {
            pieces += 1;
        }
        (search.found(), pieces)
    }

    #[test]
    fn search_matches_filter() {
        let mut rows = gpt(40);
        rows.extend(["Übung.W", "a\nb", "", "IO.x"].map(|key| value(key, "1")));
        for text in [
            "w",
            "",
            "weight",
            "fc weight",
            "-fc weight",
            "-weight",
            "-weight -bias",
            "Weight",
            "W",
            "übung",
            "io -w",
            "blocks.*.bias",
            "fc /[13]\\.fc/ -bias",
            "-/fc/ bl",
            "dtype:bf16 ln",
            "shape:[256, *] fc",
            "a",
            "b",
            "nothing_like_it",
        ] {
            let filter = Filter::parse(text).expect("a filter");
            let one_by_one: Vec<u32> = (0u32..)
                .zip(&rows)
                .filter_map(|(id, row)| filter.matches(row).then_some(id))
                .collect();
            assert_eq!(found(&rows, text).0, one_by_one, "{text}");
        }
    }

    #[test]
    fn only_regular_expressions_need_several_batches() {
        let rows = gpt(4_000);
        let (found_so, pieces) = found(&rows, "/[.]fc[.]/");
        assert!(pieces > 5, "{pieces}");
        assert_eq!((found_so, 1), found(&rows, ".fc."));
        let keys = finish(SearchText::new(&rows));
        let mut search = Search::new(Filter::parse("/[.]fc[.]/").expect("a filter"), &keys);
        assert_eq!(search.first(), None);
        assert!(!search.run_batch(&rows, &Weights::default()));
        let first = search.first().expect("enough to look at");
        assert!(first.len() >= PREVIEW_ROWS && search.first().is_none());
        while !search.run_batch(&rows, &Weights::default()) {}
        assert_eq!(search.found()[..first.len()], first);
        assert_eq!(found(&rows, "model.model.blocks.7.fc.w /e/").1, 1);
    }
}
