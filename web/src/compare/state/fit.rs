//! Columns of the table of differences, from its contents; the key gets the remaining width. They
//! are computed for the same reasons as those of [`crate::table::state::fit`].

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
/// Width in pixels that the first of two dtypes takes at least, such as `bf16`.
const FIRST_DTYPE: f64 = 54.0;
/// Width in pixels that a second dtype takes.
const SECOND_DTYPE: f64 = 72.0;
/// Padding in pixels of a cell, left and right together.
const PADDING: f64 = 12.0;
/// Width of a key in pixels beyond which columns are not left out for it: longer keys wrap. It is a
/// share of the table, between these limits.
const MAX_KEY: (f64, f64) = (240.0, 480.0);
const KEY_SHARE: f64 = 0.4;
/// Width in pixels of a table from which keys get no more room than they need, and the gap between
/// a key and the next column.
const WIDE: f64 = 1_000.0;
const KEY_GAP: f64 = 96.0;
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
    /// Width in pixels of the column of changes.
    mark: f64,
    /// Width in pixels of all columns.
    table: f64,
}

impl CompareColumns {
    /// Returns the columns of a table of this width in pixels, if type is `scale` times as large as
    /// usual.
    pub fn of(pairs: &Pairs, lines: &[CompareLine], room: f64, scale: f64) -> Self {
        let room = room / scale;
        let of = ColumnWidths::of(&pairs.a);
        let casts = pairs.found.iter().any(|one| matches!(one.kind, DifferenceKind::DType { .. }));
        let charts = lines.iter().any(|line| line.spread.iter().any(|count| *count > 0));
        // The table of one checkpoint has no column for a dtype that all its tensors have.
        let kind = if casts { of.kind.max(FIRST_DTYPE) + SECOND_DTYPE } else { of.kind };
        let change = if charts { CHANGE.0 } else { CHANGE.1 };
        let mut widths = [kind, of.shape_width(true), NUMBER, NUMBER, change];
        let longest =
            lines.iter().map(|line| KeyText::of(pairs, line).text().chars().count()).max();
        let most = (room * KEY_SHARE).clamp(MAX_KEY.0, MAX_KEY.1);
        let wanted = (longest.unwrap_or(0) as f64 * CHARACTER).min(most);
        let left =
            |widths: &[f64; 5]| room - ROW_PADDING - MARK - PADDING - widths.iter().sum::<f64>();
        for column in OPTIONAL {
            if wanted <= left(&widths) {
                break;
            }
            widths[column] = 0.0;
        }
        // In a wide table, keys get no more than they need, so that numbers are close to them.
        let needed = longest.unwrap_or(0) as f64 * CHARACTER + KEY_GAP;
        let most = if room >= WIDE { needed.max(MAX_KEY.1) } else { f64::INFINITY };
        let key = left(&widths).min(most);
        let table = ROW_PADDING + MARK + PADDING + widths.iter().sum::<f64>() + key;
        Self {
            widths: widths.map(|width| width * scale),
            key: key * scale,
            mark: MARK * scale,
            table: table * scale,
        }
    }

    /// Returns the grid of the columns as CSS.
    pub fn style(&self) -> String {
        let shown = self.widths.iter().filter(|width| **width > 0.0);
        let widths: String = shown.map(|width| format!(" {width:.0}px")).collect();
        let Self { mark, table, .. } = self;
        format!("--columns:{mark:.0}px minmax(0,1fr){widths};--table:{table:.0}px")
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
