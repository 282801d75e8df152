//! Columns of the table of differences, from its contents; the key gets the remaining width.

use statelens_compare::diff::DifferenceKind;

use crate::compare::state::{CompareLine, Pairs};
use crate::state::fmt::shortened;
use crate::state::wrap::{CHARACTER, CharacterWidth, text_lines};
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
        let longest =
            lines.iter().map(|line| KeyText::of(pairs, line).text().chars().count()).max();
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

/// The text of the cell of a key.
pub struct KeyText {
    /// The first key of a renamed tensor, or nothing.
    pub old: String,
    pub key: String,
    /// The number of keys that the line represents, or nothing for one.
    pub times: String,
}

impl KeyText {
    /// Returns the text of a line, with invisible characters escaped. Very long keys are shortened.
    pub fn of(pairs: &Pairs, line: &CompareLine) -> Self {
        let old = |old| format!("{} \u{2192} ", shortened(old));
        let times = |times| format!(" \u{d7}{times}");
        let (old, count) = (line.old(pairs).map(old), line.pairs.len());
        let times = (count > 1 && old.is_none()).then(|| times(count));
        Self {
            old: old.unwrap_or_default(),
            key: shortened(&line.key),
            times: times.unwrap_or_default(),
        }
    }

    /// Returns the whole text.
    pub fn text(&self) -> String {
        [&*self.old, &self.key, &self.times].concat()
    }

    /// Returns the lengths in bytes of the lines of text if the column of keys has this width in
    /// pixels.
    pub fn lines(&self, width: f64, measure: CharacterWidth<'_>) -> Vec<usize> {
        let text = self.text();
        let lines = text_lines(&text, &['.', '/', ' '], width, measure);
        lines.into_iter().map(str::len).collect()
    }
}
