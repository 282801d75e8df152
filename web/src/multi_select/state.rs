//! Several rows picked for a joint action.

use std::collections::BTreeSet;
use std::rc::Rc;

use statelens_describe::fold::{Sums, sums};

use crate::rows::Row;
use crate::table::state::{Table, TableLine};

/// Maximum number of rows that a filter is made for.
const MAX_FILTERED: usize = 500;

/// The picked rows, and the line that a range is picked from.
#[derive(Debug, Clone, Default)]
pub struct PickedRows {
    rows: Rc<BTreeSet<u32>>,
    anchor: Option<usize>,
}

impl PartialEq for PickedRows {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.rows, &other.rows) || self.rows == other.rows
    }
}

impl PickedRows {
    /// Returns the number of picked rows.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Returns the picked rows in file order.
    pub fn rows(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().copied()
    }

    /// Returns the sums over the picked rows.
    pub fn sums(&self, rows: &[Row]) -> Sums {
        sums(self.rows.iter().filter_map(|row| rows.get(*row as usize)))
    }

    /// Returns a filter that exactly the picked rows pass; empty for too many rows.
    pub fn filter(&self, rows: &[Row]) -> String {
        if self.rows.is_empty() || self.rows.len() > MAX_FILTERED {
            return String::new();
        }
        let keys = self.rows.iter().filter_map(|row| rows.get(*row as usize));
        let mut text = String::new();
        for key in keys.map(|row| &row.key) {
            text.push(if text.is_empty() { '(' } else { '|' });
            for letter in key.chars() {
                if letter.is_ascii_punctuation() && letter != '_' {
                    text.push('\\');
                }
                text.push(letter);
            }
        }
        format!("/^{text})$/")
    }

    /// Returns whether all rows of a line are picked.
    pub fn has(&self, table: &Table, line: TableLine) -> bool {
        let mut rows = table.all_rows_of(line).peekable();
        !self.rows.is_empty() && rows.peek().is_some() && rows.all(|row| self.rows.contains(&row))
    }

    /// Picks the rows of a line, or unpicks them if all were picked.
    pub fn toggle(&mut self, table: &Table, line: usize) {
        let Some(&item) = table.items.get(line) else { return };
        let had = self.has(table, item);
        let rows = Rc::make_mut(&mut self.rows);
        for row in table.all_rows_of(item) {
            if had {
                rows.remove(&row);
            } else {
                rows.insert(row);
            }
        }
        self.anchor = Some(line);
    }

    /// Picks exactly the lines from the last one picked, or else `from`, to this one.
    pub fn extend(&mut self, table: &Table, from: usize, line: usize) {
        let anchor = *self.anchor.get_or_insert(from);
        let lines = anchor.min(line)..=anchor.max(line);
        let items = table.items.get(lines).unwrap_or_default();
        self.rows = Rc::new(items.iter().flat_map(|item| table.all_rows_of(*item)).collect());
    }

    /// Picks all lines.
    pub fn all(&mut self, table: &Table) {
        self.rows = Rc::new(table.items.iter().flat_map(|item| table.all_rows_of(*item)).collect());
        self.anchor = Some(0);
    }

    /// Unpicks all rows.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::state::Filter;
    use crate::state::sample::{gpt, work};

    #[test]
    fn picks_single_lines_and_ranges() {
        let work = work(gpt(4));
        let table = &work.table;
        let fold = table.items.iter().position(|item| matches!(item, TableLine::Fold(_))).unwrap();
        let mut picked = PickedRows::default();
        picked.toggle(table, fold - 1);
        assert_eq!((picked.count(), picked.rows().next()), (1, Some(0)));
        picked.toggle(table, fold);
        let all = table.all_rows_of(table.items[fold]).count();
        assert_eq!(picked.count(), 1 + all);
        assert!(picked.has(table, table.items[fold]) && picked.has(table, table.items[fold + 1]));
        let sums = picked.sums(&work.rows);
        assert_eq!(sums.tensors, picked.count() as u64);
        assert!(sums.bytes > 0);
        // A pattern of the fold is unpicked, so the fold is no longer picked as a whole.
        picked.toggle(table, fold + 1);
        assert!(!picked.has(table, table.items[fold]));
        picked.toggle(table, fold - 1);
        picked.extend(table, 0, fold);
        assert_eq!(picked.count(), 1 + all, "from the line that was touched last");
        picked.extend(table, 0, fold - 1);
        assert_eq!(picked.count(), 1, "and back");
        picked.toggle(table, fold + 1);
        let filter = Filter::parse(&picked.filter(&work.rows)).unwrap();
        let passed = work.rows.iter().filter(|row| filter.matches(row)).count();
        assert_eq!(passed, picked.count());
        picked.clear();
        assert_eq!(
            (picked == PickedRows::default(), picked.filter(&work.rows)),
            (true, String::new())
        );
        picked.all(table);
        assert_eq!(picked.count(), work.rows.len());
    }
}
