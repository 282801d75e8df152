//! Widths of the table's columns, from their contents; the key gets the remaining width. If that is
//! too little, columns are left out.
//!
//! Style sheets can't do this alone. Only visible rows are in the document, so a column that fits
//! their contents (subgrid, `max-content`) would change while scrolling. Which columns give way
//! depends on the longest key, and a container query has fixed widths; the menu of columns shows
//! the result. Rows have the height of their wrapped key, and a virtual list needs that before it
//! draws them. Texts of other cells end in an ellipsis, which the style sheet adds.

use crate::rows::{LeafKind, Row};
use crate::state::dtype::short;
use crate::state::wrap::CHARACTER;
use crate::table::state::{DEFAULT_COLUMNS, Table, TableLine};

/// Padding in pixels of a cell, left and right together.
const PADDING: f64 = 12.0;
/// Width in pixels of the gauge before a dtype.
const GAUGE: f64 = 12.0;
/// Characters of a shape, and of the target of a link, beyond which they are truncated.
const MAX_CHARACTERS: (usize, usize) = (26, 20);

/// Characters of a call in a pickle that are shown if the keys leave the room.
const MAX_CALL: usize = 80;
/// Characters of "99,999 missing".
const MISSING: usize = 14;
/// Width in pixels of a character of a number of repetitions, and of the gap before it.
const TIMES: (f64, f64) = (6.7, 8.0);
/// Indentation in pixels of the lines of an open fold, and of its own line, after its button.
pub const INDENT: (f64, f64) = (28.0, 22.0);
/// Width of a key in pixels beyond which no column is left out for it.
const MAX_KEY: f64 = 440.0;
/// Width in pixels that a key has at least: a longer one wraps. Any column is left out for it.
const MIN_KEY: f64 = 160.0;
/// Width in pixels of a table from which keys get no more room than they need, and the gap between
/// a key and the next column.
const WIDE: f64 = 1_000.0;
const KEY_GAP: f64 = 96.0;
/// Padding in pixels of a row of the table, left and right together.
pub const ROW_PADDING: f64 = 20.0;
/// The columns that can be left out, by their index: those of statistics, in their order, then
/// these.
pub const SHAPE: usize = 7;
pub const BYTES: usize = 8;
pub const PARAMS: usize = 9;
/// Widths of these columns in pixels. That of shapes is computed.
const WIDTHS: [f64; 10] = [66.0, 88.0, 66.0, 66.0, 66.0, 56.0, 64.0, 0.0, 82.0, 72.0];
/// The columns that are left out, in this order, until the keys fit into one line; and those that
/// are left out only until the keys have the room that they need if they wrap.
type OptionalColumns = (&'static [usize], &'static [usize]);
/// The optional columns before statistics are known.
const PLAIN: OptionalColumns = (&[PARAMS], &[BYTES, SHAPE]);
/// The optional columns once statistics are known: zeros, the largest magnitude, the bytes and the
/// line over the layers; then the deviation, the shape, and last the number of NaNs, which is what
/// most scans are for.
const SCANNED: OptionalColumns = (&[5, 2, BYTES, BY_LAYER], &[0, SHAPE, 6]);
/// The optional columns if the user chose the columns of statistics.
const CHOSEN: OptionalColumns = (&[], &[BYTES, SHAPE]);
/// The column of the line over the layers, which only folded rows have.
const BY_LAYER: usize = 1;
/// The columns of statistics, one bit each, and those that a narrow table has no room for: minimum,
/// maximum and zeros.
const MEASURES: u16 = 0b111_1111;
const NOT_NARROW: u16 = 0b11_1000;

/// Widths of columns in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnWidths {
    /// The kind; 0 if all rows are tensors of one dtype.
    pub kind: f64,
    pub shape: f64,
    /// The value; 0 if no row has one. The values of rows without a shape also use the preceding
    /// columns.
    pub value: f64,
    /// The longest object, such as a call in a pickle; 0 without objects.
    pub object: f64,
}

/// The columns that can be left out and are shown, one bit each, by their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FittingColumns(u16);

impl Default for FittingColumns {
    fn default() -> Self {
        Self(DEFAULT_COLUMNS | 1 << SHAPE | 1 << BYTES | 1 << PARAMS)
    }
}

impl FittingColumns {
    pub fn has(self, column: usize) -> bool {
        self.0 >> column & 1 == 1
    }

    /// Returns the columns of statistics, one bit each.
    pub fn measures(self) -> u16 {
        self.0 & MEASURES
    }
}

/// Widths of keys in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyWidths {
    /// The widest of all lines of the folded table.
    all: f64,
    /// The widest of a tensor in the folded table.
    folded: f64,
    /// The widest of a tensor in the table that is not folded.
    flat: f64,
}

impl KeyWidths {
    /// Measures the keys of these rows, and the lines of the folded table.
    pub fn of(rows: &[Row], table: &Table) -> Self {
        let mut widths = Self { all: 0.0, folded: 0.0, flat: 0.0 };
        for &line in &table.items {
            let width = key_width(rows, table, line);
            widths.all = width.max(widths.all);
            if table.first_row(line).is_some_and(|id| rows[id as usize].kind.has_shape()) {
                widths.folded = width.max(widths.folded);
            }
        }
        let tensors = rows.iter().filter(|row| row.kind.has_shape());
        let longest = tensors.map(|row| row.key.chars().count()).max().unwrap_or(0);
        widths.flat = pixels(longest);
        widths
    }
}

impl ColumnWidths {
    /// Returns the widths that fit the dtypes, shapes and links of these rows.
    pub fn of(rows: &[Row]) -> Self {
        let (mut kind, mut shape, mut link, mut has_values) = (4, 5, 0, false);
        let mut object = 0.0_f64;
        let first = rows.first().map(|row| (row.kind, &row.dtype));
        let is_mixed = rows.iter().any(|row| Some((row.kind, &row.dtype)) != first);
        let mut before = None;
        for row in rows {
            if row.kind.has_shape() {
                // Nearly all rows have the dtype of the row before.
                if before != Some(&row.dtype) {
                    kind = kind.max(short(&row.dtype).chars().count());
                    before = Some(&row.dtype);
                }
                shape = shape.max(shape_characters(&row.shape));
                let shown = if row.is_missing() { MISSING } else { row.value.chars().count() };
                link = link.max(shown.min(MAX_CHARACTERS.1));
            } else {
                kind = kind.max(row.kind_word().len());
                has_values = true;
                if row.kind == LeafKind::Object {
                    object = object.max(pixels(row.value.chars().count().min(MAX_CALL)));
                }
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
        // A fold of several kinds has no gauge.
        let several = if is_mixed { pixels("several".len()) } else { 0.0 };
        let has_dtype = first.is_some_and(|(_, dtype)| !dtype.is_empty());
        let is_uniform = rows.len() > 1 && !is_mixed && !has_values && has_dtype;
        let kind = if is_uniform { 0.0 } else { several.max(pixels(kind) + GAUGE) };
        Self { kind, shape: pixels(shape), value, object }
    }

    /// Returns which columns to show in a table of this width in pixels, once statistics are known:
    /// those that the user chose, or else those that leave the keys their room. `keys` says whether
    /// repeated layers are folded.
    pub fn fitting(
        &self,
        chosen: Option<u16>,
        keys: (&KeyWidths, bool),
        (room, narrow): (f64, bool),
    ) -> FittingColumns {
        let possible = if narrow { MEASURES & !NOT_NARROW } else { MEASURES };
        let measures = chosen.unwrap_or(DEFAULT_COLUMNS) & possible;
        let optional = if chosen.is_some() { CHOSEN } else { SCANNED };
        FittingColumns(self.leave_out(measures | 1 << SHAPE | 1 << BYTES, optional, keys, room))
    }

    /// Returns which columns to show in a table of this width in pixels before statistics are known.
    /// A `narrow` table has no columns of parameters and values.
    pub fn fitting_plain(
        &self,
        keys: (&KeyWidths, bool),
        (room, narrow): (f64, bool),
    ) -> FittingColumns {
        let room = if narrow { room } else { room - self.value };
        let shown = 1 << SHAPE | 1 << BYTES | u16::from(!narrow) << PARAMS;
        // The columns of statistics are chosen once they are known.
        FittingColumns(self.leave_out(shown, PLAIN, keys, room) | DEFAULT_COLUMNS)
    }

    /// Leaves out columns until the keys fit.
    fn leave_out(
        &self,
        mut shown: u16,
        (optional, essential): OptionalColumns,
        (keys, folded): (&KeyWidths, bool),
        room: f64,
    ) -> u16 {
        let key = if folded { keys.folded } else { keys.flat };
        let width = |column: usize| {
            if column == BY_LAYER && !folded { 0.0 } else { self.width(column, folded) }
        };
        for (list, most) in [(optional, MAX_KEY), (essential, MIN_KEY)] {
            for column in list {
                let wide: f64 =
                    (0..WIDTHS.len()).filter(|at| shown >> at & 1 == 1).map(width).sum();
                if ROW_PADDING + self.kind + wide + key.min(most) <= room {
                    return shown;
                }
                shown &= !(1 << column);
            }
        }
        shown
    }

    /// Returns the width in pixels that a table needs to show the keys in full, before statistics
    /// are known.
    pub fn table(&self, keys: &KeyWidths) -> f64 {
        let columns = [SHAPE, PARAMS, BYTES].map(|column| self.width(column, true));
        let columns = self.kind + columns.iter().sum::<f64>() + self.value;
        ROW_PADDING + columns + keys.all
    }

    /// Widens the last of the columns after the key, by what the keys don't need, for the longest
    /// object. Objects use all columns but the first, which is the kind.
    pub fn widen(&self, columns: &mut [f64], keys: &KeyWidths, room: f64) {
        let all: f64 = columns.iter().sum();
        if let [kind, .., last] = columns {
            let missing = self.object - (all - *kind);
            *last += missing.min(room - ROW_PADDING - all - keys.all.max(MIN_KEY)).max(0.0);
        }
    }

    /// Returns the width in pixels of a column that can be left out.
    pub fn width(&self, column: usize, folded: bool) -> f64 {
        if column == SHAPE { self.shape_width(folded) } else { WIDTHS[column] }
    }

    /// Returns the width of the column of shapes. Folded rows may show "shapes differ".
    pub fn shape_width(&self, folded: bool) -> f64 {
        self.shape.max(pixels(if folded { 13 } else { 6 }))
    }
}

/// Returns the width in pixels of the text of a key, which gets the room that the other columns
/// leave in a table of this width in pixels, and the grid of the columns as CSS. In a wide table,
/// keys get no more than the widest of them needs, so that numbers are close to them. The widths of
/// `others` are those at the usual size of type, which is `scale` times as large.
pub fn grid(room: f64, others: &[f64], keys: &KeyWidths, scale: f64) -> (f64, String) {
    let room = room / scale;
    let wide = ROW_PADDING + others.iter().sum::<f64>();
    let needed = (keys.all.max(keys.flat) + PADDING + KEY_GAP).max(MAX_KEY);
    let most = if room >= WIDE { needed } else { room };
    let key = (room - wide).min(most).max(0.0);
    let others: String = others.iter().map(|width| format!(" {}px", width * scale)).collect();
    let is_compact = wide + key < room;
    let all = (wide + key) * scale;
    let table = if is_compact { format!(";--table:{all}px") } else { String::new() };
    (key * scale - PADDING, format!("--columns:minmax(0,{}px){others}{table}", key * scale))
}

/// Returns the key of a row as the table shows it.
pub fn key_text(row: &Row) -> &str {
    if row.key.is_empty() { "(root object)" } else { &row.key }
}

/// Returns the width in pixels of the key of a line, as the folded table shows it.
fn key_width(rows: &[Row], table: &Table, line: TableLine) -> f64 {
    let text = |text: &str| pixels(text.chars().count());
    match line {
        TableLine::State(_) => 0.0,
        TableLine::Row(id) => text(key_text(&rows[id as usize])),
        TableLine::Member(_, id) => text(&rows[id as usize].key) + INDENT.0,
        TableLine::Fold(fold) => {
            let fold = &table.folds[fold];
            let digits = fold.times.checked_ilog10().map_or(1, |log| log as usize + 1);
            text(&fold.name) + INDENT.1 + TIMES.0 * (digits + 1) as f64 + TIMES.1
        }
        TableLine::Pattern(fold, pattern) => {
            text(&table.folds[fold].patterns[pattern].label) + INDENT.0
        }
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
    use crate::state::fmt;
    use crate::state::sample::{all, tensor, value};
    use crate::table::state::TableView;
    use statelens_describe::fold::Trie;

    fn keys(rows: &[Row]) -> KeyWidths {
        let trie = Trie::new(rows, '.');
        let view = TableView { fold: true, ..TableView::default() };
        KeyWidths::of(rows, &Table::new(rows, &trie, &all(rows), &view, None))
    }

    #[test]
    fn columns_fit_their_contents() {
        let mut rows =
            vec![tensor("a.weight", "bfloat16", &[32000, 4096]), tensor("b", "float32", &[8])];
        let of = ColumnWidths::of(&rows);
        assert_eq!((of.kind, of.shape, of.value), (63.0, 107.0, 0.0));
        assert_eq!((of.shape_width(true), of.shape_width(false)), (107.0, 107.0));
        rows[1].link = Some("model.layers.0.mlp.up_proj.weight".into());
        assert_eq!(ColumnWidths::of(&rows).value, 85.0);
        rows[1].link = None;
        rows[1].kind = LeafKind::Int;
        assert_eq!(ColumnWidths::of(&rows).value, 64.0);
    }

    #[test]
    fn objects_get_the_room_that_keys_leave() {
        let mut call = value("model.payload", &"os.system(...)".repeat(10));
        call.kind = LeafKind::Object;
        let rows = [tensor("model.weight", "float32", &[8]), call];
        let (of, keys) = (ColumnWidths::of(&rows), keys(&rows));
        assert_eq!(of.object, pixels(MAX_CALL));
        let widened = |room| {
            let mut columns =
                [of.kind, of.shape_width(false), WIDTHS[PARAMS], WIDTHS[BYTES], of.value];
            of.widen(&mut columns, &keys, room);
            columns.iter().skip(1).sum::<f64>()
        };
        let own = of.shape_width(false) + WIDTHS[PARAMS] + WIDTHS[BYTES] + of.value;
        assert_eq!(widened(2000.0), of.object);
        assert_eq!(widened(ROW_PADDING + MIN_KEY + of.kind + own + 30.0), own + 30.0);
        assert_eq!(widened(300.0), own);
    }

    #[test]
    fn keys_get_the_room_that_other_columns_leave() {
        let keys = keys(&llama());
        let (text, style) = grid(488.0, &[63.0, 107.0, 66.0], &keys, 1.0);
        assert_eq!(text, 220.0);
        assert_eq!(style, "--columns:minmax(0,232px) 63px 107px 66px");
        assert_eq!(grid(100.0, &[600.0], &keys, 1.0).1, "--columns:minmax(0,0px) 600px");
    }

    #[test]
    fn keys_of_wide_tables_get_no_more_than_they_need() {
        let (keys, others) = (keys(&llama()), [63.0, 107.0]);
        let needed = keys.flat + PADDING + KEY_GAP;
        let (text, style) = grid(2_000.0, &others, &keys, 1.0);
        assert!(needed > MAX_KEY && text == needed - PADDING, "{needed}");
        assert!(style.ends_with(&format!("--table:{}px", ROW_PADDING + needed + 170.0)));
        // Narrower tables are filled.
        assert_eq!(grid(900.0, &others, &keys, 1.0).1, "--columns:minmax(0,710px) 63px 107px");
    }

    /// A model whose longest key is `model.layers.39.post_attention_layernorm.weight`.
    fn llama() -> Vec<Row> {
        let layer = |layer: u64| {
            let names = ["self_attn.q_proj", "mlp.up_proj", "post_attention_layernorm"];
            let key = move |name: &str| format!("model.layers.{layer}.{name}.weight");
            names.map(|name| tensor(&key(name), "float32", &[176, 64]))
        };
        (0..40).flat_map(layer).collect()
    }

    /// Returns the widths of a table of these rows that has a column of kinds.
    fn with_kinds(rows: &[Row]) -> ColumnWidths {
        ColumnWidths { kind: pixels(4) + GAUGE, ..ColumnWidths::of(rows) }
    }

    #[test]
    fn tensors_of_one_dtype_have_no_column_of_kinds() {
        let mut rows = llama();
        assert_eq!(ColumnWidths::of(&rows).kind, 0.0);
        assert!(ColumnWidths::of(&rows[..1]).kind > 0.0, "the dtype of a single array is shown");
        rows.push(tensor("model.norm.weight", "bfloat16", &[64]));
        assert!(ColumnWidths::of(&rows).kind > 0.0);
        rows.pop();
        rows.push(value("step", "1"));
        assert!(ColumnWidths::of(&rows).kind > 0.0);
    }

    #[test]
    fn columns_of_statistics_leave_the_keys_their_room() {
        let rows = llama();
        let (of, keys) = (with_kinds(&rows), keys(&rows));
        let shown = |lines, room| {
            let columns = of.fitting(None, (&keys, lines), (room, false));
            (columns.measures(), columns.has(SHAPE), columns.has(BYTES))
        };
        assert_eq!(shown(true, 1200.0), (DEFAULT_COLUMNS, true, true));
        // Zeros go first, then the largest magnitude, the bytes and the line over the layers.
        assert_eq!(shown(true, 820.0), (0b100_0111, true, true));
        assert_eq!(shown(true, 780.0), (0b100_0011, true, true));
        assert_eq!(shown(true, 680.0), (0b100_0011, true, false));
        assert_eq!(shown(true, 660.0), (0b100_0001, true, false));
        assert_eq!(shown(false, 600.0), (0b100_0001, true, false));
        // Keys wrap before the deviation, the shape and the number of NaNs go.
        assert_eq!(shown(false, 420.0), (0b100_0000, true, false));
        assert_eq!(shown(false, 340.0), (0b100_0000, false, false));
        assert_eq!(shown(false, 260.0), (0, false, false));
        // Without folds there is no line over the layers.
        assert_eq!(shown(false, 820.0), (0b100_0111, true, true));
        let own = Some(0b111_1111);
        let fitting = |room, narrow| {
            let columns = of.fitting(own, (&keys, false), (room, narrow));
            (columns.measures(), columns.has(SHAPE), columns.has(BYTES))
        };
        // The columns that the user chose are shown.
        assert_eq!(fitting(900.0, false), (0b111_1111, true, true));
        assert_eq!(fitting(400.0, false), (0b111_1111, false, false));
        assert_eq!(fitting(620.0, true), (0b100_0111, true, true));
    }

    #[test]
    fn parameters_give_way_to_keys_and_bytes_and_shapes_to_keys_that_wrap() {
        let rows = llama();
        let (of, keys) = (with_kinds(&rows), keys(&rows));
        let shown = |room, narrow| {
            let columns = of.fitting_plain((&keys, false), (room, narrow));
            (columns.has(PARAMS), columns.has(BYTES), columns.has(SHAPE))
        };
        assert_eq!(shown(660.0, false), (true, true, true));
        assert_eq!(shown(600.0, false), (false, true, true));
        assert_eq!(shown(600.0, true), (false, true, true));
        assert_eq!(shown(420.0, true), (false, true, true));
        assert_eq!(shown(380.0, true), (false, false, true));
        assert_eq!(shown(260.0, true), (false, false, false));
    }

    #[test]
    fn keys_of_values_do_not_hide_statistics_of_tensors() {
        let mut rows = llama();
        let alone = keys(&rows);
        rows.push(value(&"long.".repeat(20), "1"));
        let both = keys(&rows);
        assert_eq!((both.folded, both.flat), (alone.folded, alone.flat));
        assert!(both.all > alone.all);
    }

    #[test]
    fn very_long_keys_do_not_hide_statistics_without_gain() {
        let rows = [tensor(&"long.".repeat(100), "float32", &[2])];
        let (of, keys) = (ColumnWidths::of(&rows), keys(&rows));
        let shown = [0, 2, 5, 6, SHAPE, BYTES].map(|column| of.width(column, false));
        let room = ROW_PADDING + of.kind + shown.iter().sum::<f64>() + MAX_KEY;
        let fitting = |room| of.fitting(None, (&keys, false), (room, false));
        assert_eq!(fitting(room), FittingColumns(DEFAULT_COLUMNS | 1 << SHAPE | 1 << BYTES));
        assert_ne!(fitting(room - 1.0), fitting(room));
    }

    #[test]
    fn measures_formatted_shapes() {
        for shape in [&[][..], &[0], &[1, 10], &[32000, 4096], &[u64::MAX, 1, 1]] {
            assert_eq!(shape_characters(shape), fmt::shape(shape).chars().count(), "{shape:?}");
        }
    }
}
