//! The cell of a key in the table.

use statelens_checkpoint::visible;
use statelens_describe::fold::join;

use crate::page::wrapping_key::WrappingKey;
use crate::state::fmt::key_parts;
use crate::state::work::OpenWork;
use crate::table::state::TableLine;

/// Indentation in pixels of a line of an open fold, and width of the button of a fold, which is
/// wider on small screens.
const INDENT: (f64, f64) = (28.0, 22.0);

/// Returns the key of a line of the table; of a state, which has a cell of its own, nothing.
pub(super) fn key_cell(work: &OpenWork, line: TableLine) -> WrappingKey {
    let table = &work.table;
    let is_sorted = work.view.sort.is_some();
    let two = |head: &str, tail: &str| vec![("a", visible(head)), ("z", visible(tail))];
    match line {
        TableLine::State(_) => WrappingKey::default(),
        TableLine::Row(id) | TableLine::Member(_, id) => {
            let key = match &*work.rows[id as usize].key {
                "" => "(root object)",
                key => key,
            };
            let indent = if matches!(line, TableLine::Row(_)) { 0.0 } else { INDENT.0 };
            WrappingKey::new(key, indent)
        }
        TableLine::Fold(fold) => {
            let fold = &table.folds[fold];
            let cut = fold.name.len() - fold.label.len();
            let cut = if fold.container.is_empty() { cut } else { cut - fold.container.len() - 1 };
            let (head, tail) = fold.name.split_at(cut);
            WrappingKey { indent: INDENT.1, parts: two(head, tail), times: Some(fold.times) }
        }
        TableLine::Pattern(fold, pattern) => {
            let fold = &table.folds[fold];
            let pattern = &fold.patterns[pattern];
            if is_sorted {
                let label = join(&fold.name, &pattern.label, work.view.dot);
                let (head, tail) = key_parts(&label);
                let times = Some(pattern.rows.len() as u64);
                WrappingKey { indent: 0.0, parts: two(head, tail), times }
            } else {
                let (head, tail) = key_parts(&pattern.label);
                WrappingKey { indent: INDENT.0, parts: two(head, tail), times: None }
            }
        }
    }
}
