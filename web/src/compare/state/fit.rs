//! Columns of the table of differences, from its contents; the key gets the remaining width.

use statelens_compare::diff::DifferenceKind;

use crate::compare::state::{CompareLine, Pairs};
use crate::state::fmt::{CHARACTER, text_lines};
use crate::table::state::fit::{ColumnWidths, ROW_PADDING};

/// Width in pixels of the column of changes, before the key.
const MARK: f64 = 92.0;
/// Width in pixels of the columns of the largest difference and of the cosine.
const NUMBER: f64 = 82.0;
/// Width in pixels of the relative change: with a chart, and without.
const CHANGE: (f64, f64) = (212.0, 184.0);
/// Width in pixels that a second dtype takes.
const SECOND_DTYPE: f64 = 72.0;
/// Padding in pixels of a cell, left and right together.
const PADDING: f64 = 12.0;
/// Width of a key in pixels beyond which columns are not left out for it.
const MAX_KEY: f64 = 480.0;
/// Maximum number of lines that a key wraps into.
const MAX_LINES: usize = 8;
/// The columns that are left out, in this order, until the keys fit: cosine, relative change,
/// shape, and kind.
const OPTIONAL: [usize; 4] = [3, 4, 1, 0];

/// The columns after the key, and its width.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareColumns {
    /// Widths in pixels of kind, shape, largest difference, cosine and relative change; 0 for a
    /// column that is left out.
    pub widths: [f64; 5],
    /// Width in pixels of the text of a key.
    pub key: f64,
}

impl CompareColumns {
    /// Returns the columns of a table of this width in pixels.
    pub fn of(pairs: &Pairs, lines: &[CompareLine], room: f64) -> Self {
        let of = ColumnWidths::of(&pairs.a);
        let casts = pairs.found.iter().any(|one| matches!(one.kind, DifferenceKind::DType { .. }));
        let charts = lines.iter().any(|line| line.spread.iter().any(|count| *count > 0));
        let kind = of.kind + if casts { SECOND_DTYPE } else { 0.0 };
        let change = if charts { CHANGE.0 } else { CHANGE.1 };
        let mut widths = [kind, of.shape_width(true), NUMBER, NUMBER, change];
        let longest = lines.iter().map(|line| key_text(pairs, line).chars().count()).max();
        let wanted = (longest.unwrap_or(0) as f64 * CHARACTER).min(MAX_KEY);
        let left =
            |widths: &[f64; 5]| room - ROW_PADDING - MARK - PADDING - widths.iter().sum::<f64>();
        for column in OPTIONAL {
            if wanted <= left(&widths) {
                break;
            }
            widths[column] = 0.0;
        }
        Self { widths, key: left(&widths) }
    }

    /// Returns the grid of the columns as CSS.
    pub fn style(&self) -> String {
        let shown = self.widths.iter().filter(|width| **width > 0.0);
        let widths: String = shown.map(|width| format!(" {width:.0}px")).collect();
        format!("--columns:{MARK}px minmax(0,1fr){widths}")
    }
}

/// Returns the text of the cell of a key: both keys of a renamed tensor, and the number of keys
/// that the line represents.
fn key_text(pairs: &Pairs, line: &CompareLine) -> String {
    match (line.old(pairs), line.pairs.len()) {
        _ if line.rest => String::new(),
        (Some(old), _) => format!("{old} \u{2192} {}", line.key),
        (None, 1) => line.key.clone(),
        (None, times) => format!("{} \u{d7}{times}", line.key),
    }
}

/// Returns the number of lines of text that the key of a line takes if its column has this width in
/// pixels.
pub fn key_lines(pairs: &Pairs, line: &CompareLine, width: f64) -> usize {
    text_lines(&key_text(pairs, line), &['.', '/', ' '], width).min(MAX_LINES)
}
