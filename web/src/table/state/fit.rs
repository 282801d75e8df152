//! Widths of the table's columns, from their contents; the key gets the remaining width.

use crate::rows::Row;
use crate::state::dtype::short;

/// Width in pixels of a character of the widest monospaced face, at 12 px.
const CHARACTER: f64 = 7.25;
/// Padding in pixels of a cell, left and right together.
const PADDING: f64 = 12.0;
/// Width in pixels of the gauge before a dtype.
const GAUGE: f64 = 12.0;
/// Characters of a shape, and of the target of a link, beyond which they are truncated.
const MAX_CHARACTERS: (usize, usize) = (26, 20);

/// Characters of "99,999 missing".
const MISSING: usize = 14;

/// Widths of columns in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnWidths {
    pub kind: f64,
    pub shape: f64,
    /// The value; 0 if no row has one. The values of rows without a shape also use the preceding
    /// columns.
    pub value: f64,
}

impl ColumnWidths {
    /// Returns the widths that fit the dtypes, shapes and links of these rows.
    pub fn of(rows: &[Row]) -> Self {
        let (mut kind, mut shape, mut link, mut has_values) = (4, 5, 0, false);
        for row in rows {
            if row.kind.has_shape() {
                kind = kind.max(short(&row.dtype).chars().count());
                shape = shape.max(shape_characters(&row.shape));
                let shown = if row.is_missing() { MISSING } else { row.value.chars().count() };
                link = link.max(shown.min(MAX_CHARACTERS.1));
            } else {
                kind = kind.max(row.kind.word().len());
                has_values = true;
            }
            if let Some(target) = &row.link {
                let last = target.rsplit(['.', '/']).next().unwrap_or(target);
                link = link.max(last.chars().count() + 4).min(MAX_CHARACTERS.1);
            }
        }
        let shape = shape.min(MAX_CHARACTERS.0);
        let value = match (link, has_values) {
            (0, false) => 0.0,
            (0, true) => 64.0,
            (link, _) => pixels(link).max(64.0),
        };
        Self { kind: pixels(kind) + GAUGE, shape: pixels(shape), value }
    }

    /// Returns the style properties that the rows of the table use. Folded rows may show "shapes
    /// differ".
    pub fn style(&self, folded: bool) -> String {
        let Self { kind, value, .. } = self;
        let shape = self.shape.max(pixels(if folded { 13 } else { 6 }));
        format!("--cd:{kind:.0}px;--cs:{shape:.0}px;--cv:{value:.0}px;")
    }
}

fn pixels(characters: usize) -> f64 {
    (characters as f64 * CHARACTER + PADDING).ceil()
}

/// Returns the number of characters of a shape such as `[32000, 4096]`.
fn shape_characters(shape: &[u64]) -> usize {
    let digits = |size: &u64| size.checked_ilog10().map_or(1, |log| log as usize + 1);
    shape.iter().map(|size| digits(size) + 2).sum::<usize>().max(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::LeafKind;
    use crate::state::fmt;
    use crate::state::sample::tensor;

    #[test]
    fn columns_fit_their_contents() {
        let mut rows =
            vec![tensor("a.weight", "bfloat16", &[32000, 4096]), tensor("b", "float32", &[8])];
        let widths = ColumnWidths::of(&rows);
        assert_eq!((widths.kind, widths.shape, widths.value), (53.0, 107.0, 0.0));
        assert!(
            widths.style(true).contains("--cs:107px") && widths.style(false).contains("--cs:107px")
        );
        rows[1].link = Some("model.layers.0.mlp.up_proj.weight".into());
        assert_eq!(ColumnWidths::of(&rows).value, 85.0);
        rows[1].link = None;
        rows[1].kind = LeafKind::Int;
        assert_eq!(ColumnWidths::of(&rows).value, 64.0);
    }

    #[test]
    fn measures_formatted_shapes() {
        for shape in [&[][..], &[0], &[1, 10], &[32000, 4096], &[u64::MAX, 1, 1]] {
            assert_eq!(shape_characters(shape), fmt::shape(shape).chars().count(), "{shape:?}");
        }
    }
}
