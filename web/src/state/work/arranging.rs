//! Arranging the table of an open checkpoint: at once, or in slices if it has very many rows. The
//! table that was shown stays until the next one is complete.

use std::cell::RefCell;
use std::rc::Rc;

use statelens_checkpoint::slices::Sliced;

use crate::state::work::OpenWork;
use crate::table::state::{SortedRows, Table, TableView};

/// Number of pauses in a slice of arranging the table: in the first, after which the table that was
/// shown stays for now, and in the others.
const PAUSES: (usize, usize) = (96, 48);

/// The table, and all rows by the column that it is sorted by.
type ArrangedTable = (Rc<Table>, Option<Rc<SortedRows>>);

/// A table that is being arranged in slices. Clones share it.
#[derive(Clone)]
pub(super) struct Arranging {
    table: Rc<RefCell<Sliced<'static, ArrangedTable>>>,
    /// How it is arranged.
    view: TableView,
    /// The number of slices so far.
    slices: usize,
    /// Whether the table scrolls to the selection when it is complete.
    reveals: bool,
}

impl std::fmt::Debug for Arranging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arranging").field("slices", &self.slices).finish_non_exhaustive()
    }
}

impl OpenWork {
    /// Returns the number of slices in which the table has been arranged; `None` if it is complete.
    pub fn arranging(&self) -> Option<usize> {
        self.arranging.as_ref().map(|arranging| arranging.slices)
    }

    /// Scrolls the table to the selection: at once, and again when it is arranged.
    pub(super) fn reveal(&mut self) {
        self.scroll += 1;
        if let Some(arranging) = &mut self.arranging {
            arranging.reveals = true;
        }
    }

    /// Arranges the table in another way.
    pub(super) fn change_view(&mut self, change: impl FnOnce(&mut TableView)) {
        let mut view = self.next_view();
        change(&mut view);
        self.arrange(view);
    }

    pub(super) fn rearrange(&mut self) {
        self.arrange(self.next_view());
    }

    /// Returns how the table will be arranged, with the statistics known by now.
    fn next_view(&self) -> TableView {
        let next = self.arranging.as_ref().map_or(&self.view, |arranging| &arranging.view);
        TableView { weights: self.view.weights.clone(), ..next.clone() }
    }

    /// Arranges the table: at once, or in slices if there are very many rows.
    fn arrange(&mut self, view: TableView) {
        let (rows, trie, chosen) = (self.rows.clone(), self.trie.clone(), self.chosen.clone());
        let mut sorted = self.sorted.clone();
        let next = view.clone();
        let table = Sliced::new(async move {
            if sorted.as_ref().map(|sorted| sorted.by()) != view.sort {
                sorted = match view.sort {
                    Some(by) => Some(Rc::new(SortedRows::new(&rows, by, &view.weights).await)),
                    None => None,
                };
            }
            let by = sorted.as_deref();
            let table = Table::new_in_slices(&rows, &trie, &chosen, &view, by).await;
            (Rc::new(table), sorted)
        });
        let table = Rc::new(RefCell::new(table));
        let reveals = self.arranging.as_ref().is_some_and(|before| before.reveals);
        self.arranging = Some(Arranging { table, view: next, slices: 0, reveals });
        self.run_slice(PAUSES.0);
    }

    /// Continues for one slice.
    pub(super) fn continue_arranging(&mut self) {
        self.run_slice(PAUSES.1);
    }

    fn run_slice(&mut self, pauses: usize) {
        let Some(mut arranging) = self.arranging.take() else { return };
        let Some((table, sorted)) = arranging.table.borrow_mut().run(pauses) else {
            arranging.slices += 1;
            self.arranging = Some(arranging);
            return;
        };
        let TableView { fold, sort, by_member, toggled, .. } = arranging.view;
        self.view = TableView { fold, sort, by_member, toggled, ..self.view.clone() };
        (self.table, self.sorted) = (table, sorted);
        self.scroll += u32::from(arranging.reveals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sample::{tensor, work as of};
    use crate::table::state::Column;

    #[test]
    fn very_many_rows_are_arranged_in_slices() {
        let rows = (0..300_000).map(|at| tensor(&format!("t_{at}_w"), "float32", &[at % 7 + 1]));
        let mut work = of(rows.collect());
        let complete = |work: &mut OpenWork| {
            let slices = (0..1000).take_while(|_| {
                work.continue_slices();
                work.arranging().is_some()
            });
            slices.count()
        };
        let before = work.table.clone();
        work.sort_by(Column::Bytes);
        assert!(work.arranging().is_some());
        assert!(
            Rc::ptr_eq(&work.table, &before) && work.view.sort.is_none(),
            "what was shown stays"
        );
        // Another click before it is complete sorts the other way.
        work.sort_by(Column::Bytes);
        assert!(complete(&mut work) > 3);
        assert_eq!(work.view.sort, Some((Column::Bytes, false)));
        assert_eq!(work.table.first_row(work.table.items[0]), Some(0));
        assert_eq!(work.table.first_row(work.table.items[299_999]), Some(299_998));
        // A row that the filter hides is revealed once all rows are arranged.
        work.set_filter("t_7");
        complete(&mut work);
        let scroll = work.scroll;
        work.select_row(8);
        assert!(work.arranging().is_some());
        complete(&mut work);
        assert!(work.cursor().is_some() && work.scroll > scroll + 1);
    }
}
