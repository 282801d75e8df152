//! The cell of a key in the table.

use statelens_describe::fold::join;

use crate::page::wrapping_key::WrappingKey;
use crate::state::work::OpenWork;
use crate::table::state::TableLine;
use crate::table::state::fit::{INDENT, key_text};

/// Returns the key of a line of the table; of a state, which has a cell of its own, nothing.
pub(super) fn key_cell(work: &OpenWork, line: TableLine) -> WrappingKey<'_> {
    let folds = &work.table.folds;
    match line {
        TableLine::State(_) => WrappingKey::default(),
        TableLine::Row(id) | TableLine::Member(_, id) => {
            let indent = if matches!(line, TableLine::Row(_)) { 0.0 } else { INDENT.0 };
            WrappingKey::new(key_text(&work.rows[id as usize]), indent)
        }
        TableLine::Fold(fold) => {
            let fold = &folds[fold];
            let cut = fold.name.len() - fold.label.len();
            let cut = if fold.container.is_empty() { cut } else { cut - fold.container.len() - 1 };
            let (dimmed, times) = (Some(cut), Some(fold.times));
            WrappingKey { dimmed, times, ..WrappingKey::new(&fold.name, INDENT.1) }
        }
        TableLine::Pattern(fold, pattern) => {
            let fold = &folds[fold];
            let pattern = &fold.patterns[pattern];
            if work.view.sort.is_none() {
                return WrappingKey::new(&pattern.label, INDENT.0);
            }
            let text = join(&fold.name, &pattern.label, work.view.dot).into();
            WrappingKey { text, times: Some(pattern.rows.len() as u64), ..WrappingKey::default() }
        }
    }
}
