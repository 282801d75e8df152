//! The tape: the state on an exact byte axis in key order, laid out for a given width.

use statelens_checkpoint::slices::{ITEMS, pause, pause_after};
use statelens_checkpoint::visible;

use crate::rows::Row;
use crate::state::dtype::{DTypeFamily, row_family, word};
use crate::state::fmt;
use statelens_checkpoint::order;

/// Width of a character of the tape's 10.5 px mono face.
const CHAR: f64 = 6.33;

/// What a mark on the tape says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapeMarkKind {
    /// A tensor has values that are NaN or infinite.
    NotFinite,
    /// A tensor differs from that of the other checkpoint.
    Differs,
}

/// A mark on the tape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeMark {
    pub kind: TapeMarkKind,
    /// The bytes of the tensor on the tape.
    pub bytes: (u64, u64),
    /// The key of the tensor.
    pub key: String,
}

impl TapeMark {
    /// Returns the mark of a row that begins at `start`; `None` if it takes no room.
    pub fn of(row: &Row, start: u64, kind: TapeMarkKind) -> Option<Self> {
        let bytes = (start, start.saturating_add(row.bytes));
        takes_room(row).then(|| Self { kind, bytes, key: row.key.clone() })
    }
}

/// The part of a tape that is shown, as fractions of the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TapeZoom {
    pub from: f64,
    pub to: f64,
}

impl TapeZoom {
    /// The whole tape.
    pub const WHOLE: Self = Self { from: 0.0, to: 1.0 };
    /// The smallest part that is shown.
    const LEAST: f64 = 1.0 / 256.0;

    /// Returns the magnification, which is 1 for the whole tape.
    pub fn times(self) -> f64 {
        1.0 / (self.to - self.from)
    }

    /// Zooms by a factor around a place, given as a fraction of the visible range.
    pub fn zoomed(self, factor: f64, place: f64) -> Self {
        let wide = self.to - self.from;
        let next = (wide / factor).clamp(Self::LEAST, 1.0);
        let from = (self.from + place * (wide - next)).clamp(0.0, 1.0 - next);
        Self { from, to: from + next }
    }

    /// Returns the byte at a fraction of the visible range.
    pub fn byte(self, place: f64, total: u64) -> u64 {
        ((self.from + place.clamp(0.0, 1.0) * (self.to - self.from)) * total as f64) as u64
    }
}

/// A stretch of one colour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Left edge in CSS pixels.
    pub x: f64,
    /// Width in CSS pixels.
    pub width: f64,
    /// The family; `None` where several share less than a pixel.
    pub family: Option<DTypeFamily>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AxisTick {
    /// Position in CSS pixels.
    pub x: f64,
    /// The length of the tick: 6, 4 or 2.5.
    pub height: f64,
    /// Its label, if there is room.
    pub label: Option<String>,
}

/// A state's name over the tape.
#[derive(Debug, Clone, PartialEq)]
pub struct TapeLabel {
    /// Left edge in CSS pixels.
    pub x: f64,
    pub name: String,
    /// The leading dtype: the short word and the family, if there is room.
    pub dtype: Option<(String, DTypeFamily)>,
    /// The size, if there is room.
    pub size: Option<String>,
}

impl TapeLabel {
    /// Returns the position of the dtype's mark.
    pub fn mark_x(&self) -> f64 {
        self.x + (self.name.chars().count() as f64 + 1.0) * CHAR
    }

    fn width(&self) -> f64 {
        let mut chars = self.name.chars().count() as f64;
        if let Some((word, _)) = &self.dtype {
            chars += 3.0 + word.len() as f64;
        }
        if let Some(size) = &self.size {
            chars += 1.0 + size.len() as f64;
        }
        chars * CHAR
    }
}

/// The layout of a tape.
#[derive(Debug, Default, PartialEq)]
pub struct Tape {
    /// Stretches from left to right.
    pub stretches: Vec<Stretch>,
    /// Positions where layers begin.
    pub layers: Vec<f64>,
    /// The ticks of the axis.
    pub marks: Vec<AxisTick>,
    /// The names of states.
    pub labels: Vec<TapeLabel>,
    pub total: u64,
}

/// The share of a state, with its runs of one dtype.
#[derive(Debug, Clone, PartialEq)]
pub struct StateShare {
    /// The name over it; may be empty.
    pub name: String,
    /// Word, family and bytes of each run, in order.
    pub runs: Vec<(String, DTypeFamily, u64)>,
}

impl StateShare {
    fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.2).sum()
    }

    /// Returns the dtype with the most bytes, and the number of others: `q4_K +10`.
    pub fn lead(&self) -> Option<(String, DTypeFamily)> {
        let mut sums: Vec<(&str, DTypeFamily, u64)> = Vec::new();
        for (word, family, bytes) in &self.runs {
            match sums.iter_mut().find(|sum| sum.0 == word) {
                Some(sum) => sum.2 += bytes,
                None => sums.push((word, *family, *bytes)),
            }
        }
        let others = sums.len().saturating_sub(1);
        let (word, family, _) = sums.into_iter().max_by_key(|sum| sum.2)?;
        let word = if others == 0 { word.to_owned() } else { format!("{word} +{others}") };
        Some((word, family))
    }
}

/// A state with less than this share of the bytes has no room for its name, however far the tape is
/// zoomed in.
const MIN_NAMED: u64 = 10_000;

/// Returns the parts of the tape, in key order; links and plain values take no room. States that are
/// too small for a name share one with their neighbours. Pauses.
pub async fn parts(rows: &[Row], dot: char) -> Vec<StateShare> {
    let with_room: Vec<&Row> = rows.iter().filter(|row| takes_room(row)).collect();
    pause_after(rows.len()).await;
    let bytes = |rows: &[&Row]| rows.iter().map(|row| row.bytes).fold(0, u64::saturating_add);
    let least = bytes(&with_room) / MIN_NAMED;
    let name = |row: &Row| row.key.split(dot).next().unwrap_or_default().to_owned();
    let is_one =
        |one: &&Row, other: &&Row| one.key.split(dot).next() == other.key.split(dot).next();
    let is_alike = |one: &Row, other: &Row| one.kind == other.kind && one.dtype == other.dtype;
    let mut parts: Vec<StateShare> = Vec::new();
    // Whether the last part is shared, and the last row.
    let (mut shared, mut before): (bool, Option<&Row>) = (false, None);
    for (count, state) in with_room.chunk_by(is_one).enumerate() {
        if count % ITEMS == ITEMS - 1 {
            pause().await;
        }
        let is_small = bytes(state) < least;
        if !is_small || !shared {
            let name = if is_small { String::new() } else { name(state[0]) };
            parts.push(StateShare { name, runs: Vec::with_capacity(1) });
            before = None;
        }
        shared = is_small;
        let Some(part) = parts.last_mut() else { continue };
        for run in state.chunk_by(|one, other| is_alike(one, other)) {
            let all = bytes(run);
            let continues = before.is_some_and(|before| is_alike(before, run[0]));
            before = run.last().copied();
            match part.runs.last_mut() {
                Some(last) if continues || last.0 == word(run[0]) => {
                    last.2 = last.2.saturating_add(all);
                }
                _ => part.runs.push((word(run[0]), row_family(run[0]), all)),
            }
        }
    }
    parts
}

/// Returns true if a row has a stretch of its own.
pub fn takes_room(row: &Row) -> bool {
    row.kind.has_shape() && row.link.is_none() && row.bytes > 0
}

/// Returns the row `by` stretches after the one at byte `from`, or before it if `by` is negative;
/// the first one if `from` is `None`.
pub fn neighbour_row(rows: &[Row], starts: &[u64], from: Option<u64>, by: i64) -> Option<u32> {
    let stored: Vec<u32> =
        (0..rows.len()).filter(|&at| takes_room(&rows[at])).map(|at| at as u32).collect();
    let start = |row: &u32| starts.get(*row as usize).copied().unwrap_or_default();
    let Some(from) = from else { return stored.first().copied() };
    let at = stored.partition_point(|row| start(row) < from);
    let next = i64::try_from(at).ok()?.saturating_add(by).max(0);
    stored.get(usize::try_from(next).ok()?.min(stored.len().checked_sub(1)?)).copied()
}

/// Returns the byte at which each row begins; a row without room begins where the next one does.
pub fn starts(rows: &[Row]) -> Vec<u64> {
    let mut at = 0u64;
    rows.iter()
        .map(|row| {
            let start = at;
            if takes_room(row) {
                at = at.saturating_add(row.bytes);
            }
            start
        })
        .collect()
}

/// Returns the ranges of bytes of the tape whose data are missing, in order; adjacent ones are joined.
pub fn missing(rows: &[Row], starts: &[u64]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (row, &start) in rows.iter().zip(starts) {
        if !(takes_room(row) && row.is_missing()) {
            continue;
        }
        let end = start.saturating_add(row.bytes);
        match ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

/// Returns the row at a byte of the tape.
pub fn row_at(rows: &[Row], starts: &[u64], byte: u64) -> Option<u32> {
    let end = starts.partition_point(|&start| start <= byte);
    (0..end).rev().find(|&at| takes_room(&rows[at])).map(|at| at as u32)
}

/// Lays out a tape for a width in CSS pixels. `layers` are the bytes at which layers begin.
pub fn lay_out(parts: &[StateShare], layers: &[u64], width: f64) -> Tape {
    let total: u64 = parts.iter().map(StateShare::bytes).fold(0, u64::saturating_add);
    if total == 0 || width < 1.0 {
        return Tape { total, ..Tape::default() };
    }
    let scale = width / total as f64;
    Tape {
        stretches: stretches(parts, scale),
        layers: layer_ticks(layers, scale, width),
        marks: axis(total, width),
        labels: labels(parts, scale, width),
        total,
    }
}

/// Returns one stretch per run. Runs thinner than a pixel are merged with their neighbours until
/// they fill one, so that no run is dropped, and none is drawn more than a pixel too wide.
fn stretches(parts: &[StateShare], scale: f64) -> Vec<Stretch> {
    let mut out: Vec<Stretch> = Vec::new();
    let mut at = 0.0;
    // Pending runs thinner than a pixel, possibly of several states.
    let mut thin: Option<Stretch> = None;
    for (index, part) in parts.iter().enumerate() {
        // States are separated by a hairline of the background.
        let gap =
            if index + 1 < parts.len() && part.bytes() as f64 * scale > 3.0 { 1.0 } else { 0.0 };
        for (run, (_, family, bytes)) in part.runs.iter().enumerate() {
            let mut width = *bytes as f64 * scale;
            let x = at;
            at += width;
            if run + 1 == part.runs.len() {
                width = (width - gap).max(0.0);
            }
            if width < 1.0 {
                let small = thin.get_or_insert(Stretch { x, width: 0.0, family: Some(*family) });
                small.width += width;
                if small.family != Some(*family) {
                    small.family = None;
                }
                if small.width >= 1.0 {
                    out.extend(thin.take());
                }
                continue;
            }
            // The pending stretch takes the rest of its pixel from the next stretch.
            let small = thin.take().map(|small| Stretch { width: 1.0, ..small });
            let shift = small.map_or(0.0, |small| (small.x + 1.0 - x).clamp(0.0, width - 0.5));
            out.extend(small);
            out.push(Stretch { x: x + shift, width: width - shift, family: Some(*family) });
        }
        // A visible state ends at its own end: its pending stretch is not merged with the next
        // state.
        let seen = part.bytes() as f64 * scale >= 1.0 || index + 1 == parts.len();
        if let Some(small) = thin.take_if(|_| seen) {
            out.push(Stretch { width: 1.0, ..small });
        }
    }
    out
}

/// Returns the left edge, the width and the place of stretches of one place, for a width in pixels.
/// Runs thinner than a pixel are merged; the longest of them gives the place.
pub fn place_stretches(runs: &[(u32, u64)], width: f64) -> Vec<(f64, f64, u32)> {
    let total: u64 = runs.iter().map(|run| run.1).fold(0, u64::saturating_add);
    let scale = width / total.max(1) as f64;
    let mut out: Vec<(f64, f64, u32)> = Vec::new();
    let (mut at, mut longest) = (0.0, 0.0);
    for (place, bytes) in runs {
        let wide = *bytes as f64 * scale;
        match out.last_mut() {
            Some(last) if last.1 < 1.0 || last.2 == *place => {
                last.1 += wide;
                if wide > longest {
                    (last.2, longest) = (*place, wide);
                }
            }
            _ => {
                out.push((at, wide, *place));
                longest = wide;
            }
        }
        at += wide;
    }
    out
}

fn layer_ticks(layers: &[u64], scale: f64, width: f64) -> Vec<f64> {
    let mut out: Vec<f64> = Vec::new();
    for &byte in layers {
        let x = byte as f64 * scale;
        let room = out.last().is_none_or(|&before| x - before >= 3.0);
        if x > 1.0 && x < width - 1.0 && room {
            out.push(x);
        }
    }
    out
}

/// Returns ticks at round numbers, with at most one label per 150 px; the end is always labelled.
fn axis(total: u64, width: f64) -> Vec<AxisTick> {
    let units = [
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("PB", 1e15),
        ("EB", 1e18),
    ];
    let (unit, size) =
        units.into_iter().rev().find(|(_, size)| total as f64 >= *size).unwrap_or(units[0]);
    let span = total as f64 / size;
    let least = span * if width < 600.0 { 90.0 } else { 150.0 } / width;
    let ten = decade(least);
    let mut step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|n| n * ten)
        .find(|&step| step >= least)
        .unwrap_or(least);
    if unit == "B" {
        step = step.max(1.0).round();
    }
    let end_label = fmt::bytes(total);
    let end_room = end_label.len() as f64 * CHAR + 24.0;
    let minor = step / 10.0;
    let fine = width / span * minor >= 4.0;
    let mut marks = Vec::new();
    let mut at = 0u32;
    loop {
        let value = f64::from(at) * minor;
        if value > span || at > 2000 {
            break;
        }
        let x = value / span * width;
        let (height, label) = match at % 10 {
            0 => {
                let places = if step < 1.0 { places(step) } else { 0 };
                let text = if at == 0 { format!("0 {unit}") } else { format!("{value:.places$}") };
                (6.0, (at == 0 || x < width - end_room).then_some(text))
            }
            5 if fine => (4.0, None),
            _ if fine => (2.5, None),
            _ => {
                at += 1;
                continue;
            }
        };
        marks.push(AxisTick { x, height, label });
        at += 1;
    }
    marks.push(AxisTick { x: width, height: 6.0, label: Some(end_label) });
    marks
}

/// Places names over the tape: each gets the room up to the next one, the larger states first.
fn labels(parts: &[StateShare], scale: f64, width: f64) -> Vec<TapeLabel> {
    let mut at = 0.0;
    let mut wanted: Vec<(u64, f64, &StateShare)> = Vec::with_capacity(parts.len());
    for part in parts {
        let bytes = part.bytes();
        if !part.name.is_empty() {
            wanted.push((bytes, at, part));
        }
        at += bytes as f64 * scale;
    }
    order::by_key(&mut wanted, |(bytes, ..)| std::cmp::Reverse(*bytes));
    // Ordered from left to right.
    let mut placed: Vec<TapeLabel> = Vec::new();
    for (bytes, x, part) in wanted {
        // A name near the right edge is moved left until it fits.
        let moved = |length: f64| x.min(width - length).max(0.0);
        let free = |x: f64, length: f64| {
            let next = placed.partition_point(|other| other.x < x);
            let before = next.checked_sub(1).map(|at| &placed[at]);
            placed.get(next).is_none_or(|other| x + length + 14.0 <= other.x)
                && before.is_none_or(|other| other.x + other.width() + 14.0 <= x)
        };
        // If the name alone does not fit, no longer label does. This rejects nearly all of a
        // hundred thousand states.
        let length = part.name.chars().count() as f64 * CHAR;
        if !free(moved(length), length) {
            continue;
        }
        let name = visible(&part.name);
        let label = TapeLabel { x, name, dtype: part.lead(), size: Some(fmt::bytes(bytes)) };
        let shorter = [
            label.clone(),
            TapeLabel { size: None, ..label.clone() },
            TapeLabel { size: None, dtype: None, ..label },
        ];
        let fits = shorter.into_iter().find_map(|label| {
            let x = moved(label.width());
            free(x, label.width()).then_some(TapeLabel { x, ..label })
        });
        if let Some(label) = fits {
            placed.insert(placed.partition_point(|other| other.x < label.x), label);
        }
    }
    placed
}

/// Returns the largest power of ten that is not above a positive number.
pub fn decade(number: f64) -> f64 {
    let mut ten = 1.0;
    while ten * 10.0 <= number {
        ten *= 10.0;
    }
    while ten > number && ten > f64::MIN_POSITIVE {
        ten /= 10.0;
    }
    ten
}

/// Returns the number of decimal places that a step below 1 needs.
fn places(step: f64) -> usize {
    (1..16).find(|&places| step >= 0.1_f64.powi(places) * 0.999).unwrap_or(16) as usize
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::slices::finish;

    use super::*;
    use crate::state::sample::{gpt, tensor, value};

    #[test]
    fn zooming_keeps_the_place_under_the_pointer() {
        let half = TapeZoom::WHOLE.zoomed(2.0, 0.25);
        assert_eq!(half, TapeZoom { from: 0.125, to: 0.625 });
        assert_eq!((half.byte(0.25, 1000), half.times()), (250, 2.0));
        assert_eq!(half.zoomed(0.5, 0.25), TapeZoom::WHOLE);
        let end = (0..20).fold(TapeZoom::WHOLE, |zoom, _| zoom.zoomed(2.0, 1.0));
        assert_eq!((end.to, end.times()), (1.0, 256.0));
    }

    #[test]
    fn tape_length_is_the_size_of_the_state() {
        let rows = gpt(32);
        let parts = finish(parts(&rows, '.'));
        assert_eq!(
            parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(),
            ["model", "optimizer"]
        );
        for width in [328.0, 1024.0, 1408.0] {
            let tape = lay_out(&parts, &[], width);
            let end = tape.stretches.last().map(|stretch| stretch.x + stretch.width);
            assert!(end.is_some_and(|end| (end - width).abs() < 1.5), "{end:?}");
            assert!(tape.stretches.iter().all(|stretch| stretch.width >= 0.5));
            assert!(tape.stretches.is_sorted_by(|a, b| a.x <= b.x));
            assert_eq!(
                tape.marks.last().and_then(|mark| mark.label.clone()),
                Some(fmt::bytes(tape.total))
            );
        }
    }

    #[test]
    fn thin_runs_are_merged() {
        let mut rows = vec![tensor("m.big", "float32", &[1_000_000])];
        for at in 0..10 {
            rows.push(tensor(
                &format!("m.{at}"),
                if at % 2 == 0 { "bfloat16" } else { "float32" },
                &[3],
            ));
        }
        let tape = lay_out(&finish(parts(&rows, '.')), &[], 1000.0);
        assert_eq!(tape.stretches.len(), 2);
        assert_eq!(tape.stretches[1].family, None);
        rows.insert(0, tensor("m.step", "int32", &[1]));
        let families: Vec<_> = lay_out(&finish(parts(&rows, '.')), &[], 1000.0)
            .stretches
            .iter()
            .map(|stretch| stretch.family)
            .collect();
        assert_eq!(families, [Some(DTypeFamily::Int), Some(DTypeFamily::F32), None]);
    }

    #[test]
    fn states_below_a_pixel_share_one() {
        let rows: Vec<Row> = (0..100_000u64)
            .map(|at| {
                let dtype = if at < 50_000 { "float32" } else { "bfloat16" };
                tensor(&format!("w_{at}"), dtype, &[if at == 70_000 { 40_000 } else { 4 }])
            })
            .collect();
        let parts = finish(parts(&rows, '.'));
        assert_eq!(parts.len(), 3, "small states share a part on either side of the large one");
        let tape = lay_out(&parts, &[], 1000.0);
        assert!(tape.stretches.len() <= 1000, "{}", tape.stretches.len());
        let wide: f64 = tape.stretches.iter().map(|stretch| stretch.width).sum();
        assert!((wide - 1000.0).abs() < 3.0, "{wide}");
        let (first, last) = (tape.stretches.first(), tape.stretches.last());
        assert_eq!(first.and_then(|stretch| stretch.family), Some(DTypeFamily::F32));
        assert_eq!(last.and_then(|stretch| stretch.family), Some(DTypeFamily::Bf16));
        assert!(tape.labels.iter().any(|label| label.name == "w_70000"), "{:?}", tape.labels);
    }

    #[test]
    fn labels_do_not_overlap() {
        let mut rows = gpt(4);
        rows.push(tensor("grad_scaler.scale", "float32", &[]));
        rows.push(tensor("ema.x", "float32", &[10]));
        for width in [300.0, 800.0, 1408.0] {
            let labels = lay_out(&finish(parts(&rows, '.')), &[], width).labels;
            assert!(labels.len() >= 2);
            for pair in labels.windows(2) {
                assert!(pair[0].x + pair[0].width() <= pair[1].x, "{pair:?}");
            }
            for label in labels {
                assert!(label.x + label.width() <= width + 0.01);
            }
        }
    }

    #[test]
    fn axis_labels_are_round() {
        let labels = |total: u64, width: f64| -> Vec<String> {
            axis(total, width).into_iter().filter_map(|mark| mark.label).collect()
        };
        assert_eq!(
            labels(67_380_000_000, 1408.0),
            ["0 GB", "10", "20", "30", "40", "50", "60", "67.4 GB"]
        );
        assert_eq!(labels(67_380_000_000, 358.0), ["0 GB", "20", "40", "67.4 GB"]);
        assert_eq!(labels(4, 1408.0), ["0 B", "1", "2", "3", "4 B"]);
        assert_eq!(labels(1_250, 1408.0).first(), Some(&"0 kB".to_owned()));
    }

    #[test]
    fn finds_the_row_of_a_byte() {
        let mut tied = tensor("m.tied", "float32", &[10]);
        tied.link = Some("m.a".into());
        let rows = vec![
            tensor("m.a", "float32", &[10]),
            value("m.v", "1"),
            tied,
            tensor("m.b", "float32", &[5]),
        ];
        let starts = starts(&rows);
        assert_eq!(starts, [0, 40, 40, 40]);
        assert_eq!(row_at(&rows, &starts, 0), Some(0));
        assert_eq!(row_at(&rows, &starts, 39), Some(0));
        assert_eq!(row_at(&rows, &starts, 40), Some(3));
        assert_eq!(row_at(&[], &[], 0), None);
    }

    #[test]
    fn ranges_of_missing_data_are_joined() {
        let mut rows = vec![tensor("m.a", "float32", &[10]), tensor("m.b", "float32", &[5])];
        rows.push(value("m.v", "missing: a text"));
        rows.push(tensor("m.c", "float32", &[1]));
        rows.push(tensor("m.d", "float32", &[2]));
        for at in [1, 3] {
            rows[at].value = "missing: the file is cut short".into();
        }
        let starts = starts(&rows);
        assert_eq!(missing(&rows, &starts), [(40, 64)]);
        assert_eq!(missing(&rows[..1], &starts), []);
    }

    #[test]
    fn empty_state_has_an_empty_tape() {
        assert_eq!(lay_out(&finish(parts(&[value("a", "1")], '.')), &[], 1000.0), Tape::default());
    }
}
