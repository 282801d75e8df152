//! A picture of a checkpoint to paste into a chat or a model card: SVG, 1,200 by 630 units, as
//! previews of links are.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use statelens_checkpoint::{counted, grouped, size_short, visible};
use statelens_values::picture::escaped;

use super::{LeafSummary, Outline, structure_fingerprint};
use crate::FileGrade;
use crate::model::Fact;
use crate::parameters::short_count;

/// Width and height of the picture.
pub const SIZE: (u32, u32) = (1200, 630);

/// Left and right edge of everything.
const EDGES: (f64, f64) = (56.0, 1144.0);
/// Top and height of the byte map.
const MAP: (f64, f64) = (226.0, 96.0);
/// Top of the part below the map.
const BELOW: f64 = 416.0;
/// Left edges of the findings, and of the lines below the map if there is no chart.
const SECOND: f64 = 628.0;
/// Width of a character relative to the size of its face: monospaced, and others on average.
const WIDTHS: (f64, f64) = (0.602, 0.54);
const MONO: &str = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const SANS: &str = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

/// Background, line, and three shades of text.
const PAPER: &str = "#fbfcfb";
const LINE: &str = "#dbe2de";
const INK: &str = "#16201c";
const INK_2: &str = "#46524c";
const INK_3: &str = "#5f6b65";
const ACCENT: &str = "#0b6b5e";
const DANGER: &str = "#b3231c";
const WARN: &str = "#845400";

/// Families of dtypes: the start of torch's name, the short start that is shown, and the colour.
const FAMILIES: [(&str, &str, &str); 10] = [
    ("bfloat16", "bf16", "#4d8ae3"),
    ("float16", "f16", "#145d7f"),
    ("float32", "f32", "#777b8b"),
    ("float64", "f64", "#521773"),
    ("complex", "c", "#521773"),
    ("bool", "bool", "#705f1a"),
    ("uint", "u", "#b77c2b"),
    ("int", "i", "#b77c2b"),
    ("float8", "f8", "#772139"),
    ("float4", "f4", "#772139"),
];

/// Returns the picture as SVG. Without `names`, it leaves out the texts of findings, which may contain
/// keys.
pub fn write_picture(outline: &Outline, names: bool) -> String {
    let (wide, high) = SIZE;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" width=\"{wide}\" height=\"{high}\" \
         role=\"img\"><title>{}</title>\n<rect width=\"{wide}\" height=\"{high}\" fill=\"{PAPER}\"/>\n",
        escaped(&visible(&outline.name))
    );
    corners(&mut out);
    head(outline, &mut out);
    map(outline, &mut out);
    let has_chart = chart(outline, &mut out);
    findings(outline, names, if has_chart { SECOND } else { EDGES.0 }, &mut out);
    foot(outline, &mut out);
    out + "</svg>\n"
}

/// Marks the corners, as those of a printed sheet.
fn corners(out: &mut String) {
    let (wide, high) = (SIZE.0 - 20, SIZE.1 - 20);
    let _ = writeln!(
        out,
        "<path d=\"M20 38V20H38M{0} 20H{wide}V38M{wide} {1}V{high}H{0}M38 {high}H20V{1}\" fill=\"none\" stroke=\"#7e8a84\"/>",
        wide - 18,
        high - 18
    );
}

/// A face: its family, size, weight, colour and anchor.
#[derive(Clone, Copy)]
struct Face {
    mono: bool,
    size: f64,
    weight: u32,
    fill: &'static str,
    end: bool,
}

impl Face {
    const fn mono(size: f64, fill: &'static str) -> Self {
        Self { mono: true, size, weight: 400, fill, end: false }
    }

    const fn sans(size: f64, fill: &'static str) -> Self {
        Self { mono: false, ..Self::mono(size, fill) }
    }

    const fn bold(self) -> Self {
        Self { weight: 600, ..self }
    }

    const fn at_end(self) -> Self {
        Self { end: true, ..self }
    }

    /// Returns about how wide a text is.
    fn width(self, text: &str) -> f64 {
        let each = if self.mono { WIDTHS.0 } else { WIDTHS.1 };
        text.chars().count() as f64 * each * self.size
    }

    /// Returns the text, shortened in the middle if it is wider than `room`.
    fn fitted(self, text: &str, room: f64) -> String {
        let count = text.chars().count();
        let fits = (room / self.width("0")) as usize;
        if count <= fits {
            return text.to_owned();
        }
        let kept = fits.saturating_sub(1);
        let (head, tail) = (kept / 2, kept - kept / 2);
        let start: String = text.chars().take(head).collect();
        let end: String = text.chars().skip(count - tail).collect();
        format!("{start}\u{2026}{end}")
    }
}

fn text(out: &mut String, (x, y): (f64, f64), face: Face, text: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-family=\"{}\" font-size=\"{}\" font-weight=\"{}\" fill=\"{}\"{}>{}</text>",
        if face.mono { MONO } else { SANS },
        face.size,
        face.weight,
        face.fill,
        if face.end { " text-anchor=\"end\"" } else { "" },
        escaped(text)
    );
}

/// Draws the name, what the model is, and its size.
fn head(outline: &Outline, out: &mut String) {
    let totals = outline.totals();
    let parameters = outline.parameters().model;
    let (number, word) = match parameters {
        0 => (totals.all.elements, "elements"),
        count => (count, "parameters"),
    };
    let figure = Face::sans(52.0, INK).bold().at_end();
    let number = short_count(number);
    text(out, (EDGES.1, 104.0), figure, &number);
    text(out, (EDGES.1, 136.0), Face::sans(21.0, INK_2).at_end(), word);
    let name = Face::mono(42.0, INK).bold();
    let room = EDGES.1 - EDGES.0 - figure.width(&number).max(170.0) - 40.0;
    text(out, (EDGES.0, 100.0), name, &name.fitted(&visible(&outline.name), room));
    let line = Face::sans(22.0, INK_2);
    let mut about = vec![outline.format.text()];
    about.extend(model_facts(outline));
    text(out, (EDGES.0, 136.0), line, &line.fitted(&about.join(" \u{b7} "), room + 20.0));
    let small = Face::sans(19.0, INK_3);
    let sizes = format!(
        "{} \u{b7} {} of tensors \u{b7} {}",
        counted(totals.all.tensors, "tensor"),
        size_short(totals.all.bytes),
        counted(totals.leaves, "key"),
    );
    text(out, (EDGES.0, 168.0), small, &sizes);
}

/// Returns the family of the model, its layers and its width, as far as they are known.
fn model_facts(outline: &Outline) -> Vec<String> {
    let model = outline.model();
    if !model.is_recognised() {
        return Vec::new();
    }
    let family = model.fact("family").filter(|fact| fact.is_known()).map(|fact| fact.text());
    let number = |name: &str, word: &str| {
        let corrected = model.fact(name).and_then(Fact::corrected);
        corrected.or_else(|| model.number(name)).map(|number| match word {
            "hidden" => format!("hidden {}", grouped(number)),
            word => counted(number, word),
        })
    };
    let numbers = [("layers", "layer"), ("hidden_size", "hidden"), ("experts", "expert")];
    family
        .into_iter()
        .chain(numbers.into_iter().filter_map(|(name, word)| number(name, word)))
        .collect()
}

/// Returns the short name of a dtype and its colour.
fn family(dtype: &str) -> (String, &'static str) {
    let known = FAMILIES.iter().find_map(|(start, short, colour)| {
        let rest = dtype.strip_prefix(start)?;
        Some((format!("{short}{rest}"), *colour))
    });
    known.unwrap_or_else(|| (dtype.to_owned(), "#772139"))
}

fn takes_room(entry: &&LeafSummary) -> bool {
    entry.is_tensor() && entry.link.is_none() && entry.bytes > 0
}

/// Draws the bytes in key order, coloured by dtype, with marks where values are not finite, and the
/// dtypes below.
fn map(outline: &Outline, out: &mut String) {
    let (left, right) = EDGES;
    let (top, high) = MAP;
    let tensors: Vec<&LeafSummary> = outline.entries.iter().filter(takes_room).collect();
    let total: u64 = tensors.iter().map(|entry| entry.bytes).fold(0, u64::saturating_add);
    let _ = writeln!(
        out,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{high}\" fill=\"{LINE}\"/>",
        right - left
    );
    if total == 0 {
        return text(out, (left, top + high + 34.0), Face::sans(19.0, INK_3), "no tensors");
    }
    let columns = (right - left) as usize;
    let scale = columns as f64 / total as f64;
    // Each column has the colour of most of its bytes, so that no dtype is dropped for being thin.
    let mut shares: Vec<BTreeMap<&'static str, f64>> = vec![BTreeMap::new(); columns];
    let mut dtypes: Vec<(String, &'static str, u64)> = Vec::new();
    let (mut at, mut ticks, mut marks) = (0u64, String::new(), Vec::new());
    let (mut layer, mut last_tick) = (None, f64::MIN);
    let dot = outline.separator();
    for entry in &tensors {
        let (name, colour) = family(&entry.dtype);
        match dtypes.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., bytes)) => *bytes = bytes.saturating_add(entry.bytes),
            None => dtypes.push((name, colour, entry.bytes)),
        }
        let next = at.saturating_add(entry.bytes);
        let (start, end) = (at as f64 * scale, next as f64 * scale);
        let last = columns.saturating_sub(1);
        let covers = (start as usize).min(last)..(end as usize).min(last) + 1;
        for (column, share) in shares.iter_mut().enumerate().take(covers.end).skip(covers.start) {
            let covered = end.min(column as f64 + 1.0) - start.max(column as f64);
            *share.entry(colour).or_default() += covered.max(0.0);
        }
        let own = entry.key.split(dot).find_map(|part| part.parse::<u64>().ok());
        if own != layer && own.is_some() && start - last_tick >= 5.0 && start > 1.0 {
            let _ = write!(ticks, "M{:.1} {top}v{high}", left + start);
            last_tick = start;
        }
        layer = own;
        if entry.statistics.as_ref().is_some_and(|of| of.nan + of.infinite > 0) {
            marks.push((start + end) / 2.0);
        }
        at = next;
    }
    let colours: Vec<&str> = shares
        .iter()
        .map(|share| {
            let most = share.iter().max_by(|one, other| one.1.total_cmp(other.1));
            most.map_or(LINE, |(colour, _)| colour)
        })
        .collect();
    let mut start = 0;
    for run in colours.chunk_by(|one, other| one == other) {
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{top}\" width=\"{}\" height=\"{high}\" fill=\"{}\"/>",
            left + start as f64,
            run.len(),
            run[0]
        );
        start += run.len();
    }
    let _ = writeln!(
        out,
        "<path d=\"{ticks}\" stroke=\"{PAPER}\" stroke-width=\"1.2\" opacity=\".55\"/>"
    );
    for x in marks.iter().take(60) {
        let x = left + x;
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {:.1}l8 -14h-16zM{x:.1} {top}v{high}\" fill=\"{WARN}\" stroke=\"{WARN}\" stroke-width=\"1.5\"/>",
            top - 3.0
        );
    }
    scale_below(total, out);
    legend(dtypes, total, out);
}

/// Draws the ends of the scale of bytes.
fn scale_below(total: u64, out: &mut String) {
    let y = MAP.0 + MAP.1;
    let _ = writeln!(
        out,
        "<path d=\"M{0} {y}v8M{1} {y}v8M{2} {y}v6M{3} {y}v6M{4} {y}v6\" stroke=\"#7e8a84\"/>",
        EDGES.0 + 0.5,
        EDGES.1 - 0.5,
        EDGES.0 + 272.0,
        EDGES.0 + 544.0,
        EDGES.0 + 816.0
    );
    let face = Face::mono(16.0, INK_3);
    text(out, (EDGES.0, y + 26.0), face, "0");
    text(out, (EDGES.1, y + 26.0), face.at_end(), &size_short(total));
}

/// Draws the dtypes with their shares, the largest first.
fn legend(mut dtypes: Vec<(String, &'static str, u64)>, total: u64, out: &mut String) {
    statelens_checkpoint::order::by_key(&mut dtypes, |(.., bytes)| std::cmp::Reverse(*bytes));
    let (mut x, y) = (EDGES.0, MAP.0 + MAP.1 + 62.0);
    let face = Face::mono(19.0, INK);
    for (name, colour, bytes) in dtypes {
        let share = bytes as f64 / total as f64 * 100.0;
        let share = match share {
            part if part >= 99.95 => "100 %".to_owned(),
            part if part < 0.1 => "< 0.1 %".to_owned(),
            part => format!("{part:.1} %"),
        };
        let label = format!("{name} {share}");
        let wide = 22.0 + face.width(&label) + 30.0;
        if x + wide > EDGES.1 + 30.0 {
            return text(out, (x, y), face, "\u{2026}");
        }
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"16\" fill=\"{colour}\"/>",
            y - 14.0
        );
        text(out, (x + 22.0, y), face, &label);
        x += wide;
    }
}

/// Draws the deviation over the layers. Returns false if it is not known, or if there are fewer than
/// three layers.
fn chart(outline: &Outline, out: &mut String) -> bool {
    let dot = outline.separator();
    let mut layers: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for entry in outline.entries.iter().filter(takes_room) {
        let layer = entry.key.split(dot).find_map(|part| part.parse::<u64>().ok());
        let Some((layer, of)) = layer.zip(entry.statistics.as_ref()) else { continue };
        // Norms have another scale than matrices.
        if let Some(std) = of.std.filter(|std| std.is_finite() && entry.shape.len() > 1) {
            let (squares, count) = layers.entry(layer).or_default();
            *squares += std * std * of.count as f64;
            *count += of.count as f64;
        }
    }
    let points: Vec<(u64, f64)> = layers
        .into_iter()
        .filter(|(_, (_, count))| *count > 0.0)
        .map(|(layer, (squares, count))| (layer, (squares / count).sqrt()))
        .collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    if points.len() < 3 {
        return false;
    }
    let values = || points.iter().map(|(_, value)| *value);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let low = if low > high * 0.6 { low } else { 0.0 };
    let (left, wide, top, tall) = (EDGES.0, 500.0, BELOW + 26.0, 92.0);
    let place = |layer: u64, value: f64| {
        let across = (layer - first.0) as f64 / (last.0 - first.0).max(1) as f64;
        let up = if high > low { (value - low) / (high - low) } else { 0.5 };
        (left + across * wide, top + (1.0 - up) * tall)
    };
    let line: String = points
        .iter()
        .enumerate()
        .map(|(at, (layer, value))| {
            let (x, y) = place(*layer, *value);
            format!("{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" })
        })
        .collect();
    let bottom = top + tall;
    text(out, (left, BELOW + 4.0), Face::sans(17.0, INK_2), "\u{3c3} over depth");
    let _ = writeln!(
        out,
        "<path d=\"M{left} {bottom}H{}M{left} {top}H{}\" stroke=\"{LINE}\"/>\n\
         <path d=\"{line}\" fill=\"none\" stroke=\"{ACCENT}\" stroke-width=\"3\" stroke-linejoin=\"round\"/>",
        left + wide,
        left + wide
    );
    let small = Face::mono(15.0, INK_3);
    text(out, (left, bottom + 20.0), small, &format!("layer {}", first.0));
    text(out, (left + wide, bottom + 20.0), small.at_end(), &last.0.to_string());
    text(out, (left + wide, top - 6.0), small.at_end(), &format!("{high:.3}"));
    true
}

/// Draws the grade, and the worst findings in words.
fn findings(outline: &Outline, names: bool, left: f64, out: &mut String) {
    let grade = outline.grade();
    let colour = match grade {
        FileGrade::Dangerous | FileGrade::UnknownCode | FileGrade::Damaged => DANGER,
        FileGrade::NotFinite | FileGrade::Incomplete => WARN,
        FileGrade::Whole | FileGrade::Checked => ACCENT,
    };
    let (x, y) = (left, BELOW + 4.0);
    let mark = match grade {
        FileGrade::Whole | FileGrade::Checked => {
            format!(
                "<path d=\"M{x} {}l6 7 12 -15\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"3\"/>",
                y - 7.0
            )
        }
        FileGrade::NotFinite | FileGrade::Incomplete => {
            format!("<path d=\"M{} {}l10 18h-20z\" fill=\"{colour}\"/>", x + 10.0, y - 16.0)
        }
        _ => format!(
            "<path d=\"M{} {}h8l6 6v8l-6 6h-8l-6 -6v-8z\" fill=\"{colour}\"/>",
            x + 6.0,
            y - 17.0
        ),
    };
    out.push_str(&mark);
    text(out, (x + 28.0, y), Face { fill: colour, ..Face::sans(22.0, INK).bold() }, grade.word());
    let line = Face::sans(18.0, INK_2);
    let worst = super::markdown::worst_first(outline);
    let room = EDGES.1 - left;
    let shown = if names { 3 } else { 0 };
    for (at, finding) in worst.iter().take(shown).enumerate() {
        let title = line.fitted(&visible(&finding.title), room);
        text(out, (left, y + 34.0 + 26.0 * at as f64), line, &title);
    }
    let read = outline.entries.iter().any(|entry| entry.statistics.is_some());
    let note = match (worst.len().saturating_sub(shown), read) {
        (count, _) if count > 0 && shown == 0 => counted(count as u64, "finding"),
        (more, _) if more > 0 => format!("and {more} more"),
        (_, true) if worst.is_empty() => "No findings. All values were read.".to_owned(),
        (_, false) if worst.is_empty() => "No findings. Values were not read.".to_owned(),
        _ => String::new(),
    };
    let below = y + 34.0 + 26.0 * worst.len().min(shown) as f64;
    text(out, (left, below), Face::sans(18.0, INK_3), &note);
}

/// Draws the fingerprint and who drew the picture.
fn foot(outline: &Outline, out: &mut String) {
    let y = 588.0;
    let _ = writeln!(out, "<path d=\"M{} {}H{}\" stroke=\"{LINE}\"/>", EDGES.0, y - 30.0, EDGES.1);
    let print = match &outline.content {
        Some(content) => format!("content {}", content.short),
        None => format!("structure {}", structure_fingerprint(&outline.entries).short),
    };
    text(out, (EDGES.0, y), Face::mono(18.0, INK_2), &print);
    let _ = writeln!(
        out,
        "<g transform=\"translate({} {}) scale(1.05)\" fill=\"none\"><path d=\"M2.5 3v18M2.5 5h9M2.5 12h5M2.5 19h9\" stroke=\"{INK}\" stroke-width=\"1.5\"/>\
         <circle cx=\"15\" cy=\"12\" r=\"7\" stroke=\"{ACCENT}\" stroke-width=\"1.75\"/>\
         <path d=\"M8.5 12h10.5\" stroke=\"{ACCENT}\" stroke-width=\"3\"/></g>",
        EDGES.1 - 142.0,
        y - 19.0
    );
    text(out, (EDGES.1, y), Face::sans(20.0, INK).bold().at_end(), "Statelens");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeafKind;
    use crate::info::FormatName;
    use statelens_values::SummaryStatistics;

    fn outline(layers: u64, not_finite: u64) -> Outline {
        let entry = |at: u64| LeafSummary {
            key: format!("model.layers.{at}.<w>"),
            kind: LeafKind::Tensor,
            dtype: if at == 0 { "float32" } else { "bfloat16" }.to_owned(),
            shape: vec![10, 10],
            params: 100,
            bytes: if at == 0 { 400 } else { 200 },
            statistics: Some(SummaryStatistics {
                count: 100,
                nan: if at == 1 { not_finite } else { 0 },
                std: Some(0.02 + at as f64 / 100.0),
                ..SummaryStatistics::default()
            }),
            ..LeafSummary::default()
        };
        Outline {
            name: "a <b> & a very long name of a checkpoint that does not fit into its line.safetensors".into(),
            format: FormatName { title: "safetensors".into(), ..FormatName::default() },
            entries: (0..layers).map(entry).collect(),
            ..Outline::default()
        }
    }

    #[test]
    fn shows_dtypes_depth_grade_and_fingerprint() {
        let picture = write_picture(&outline(4, 0), true);
        for part in ["bf16 60.0 %", "f32 40.0 %", "\u{3c3} over depth", ">whole<", "structure "] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
        assert!(picture.contains("a &lt;b&gt; &amp; a"), "names are escaped");
        assert!(!picture.contains(
            "very long name of a checkpoint that does not fit into its line.safetensors</text>"
        ));
        let odd = write_picture(&outline(4, 1), true);
        assert!(odd.contains(">not finite<"), "{odd}");
        assert!(!picture.contains(WARN) && odd.contains(WARN), "a mark on the map");
    }

    #[test]
    fn empty_and_flat_checkpoints_have_a_picture() {
        let empty = write_picture(&outline(0, 0), true);
        assert!(empty.contains("no tensors") && empty.ends_with("</svg>\n"));
        assert!(!write_picture(&outline(2, 0), true).contains("over depth"));
    }

    #[test]
    fn numbers_have_three_digits() {
        for (number, expected) in [
            (999, "999"),
            (1_000, "1.00 k"),
            (124_439_808, "124 M"),
            (6_738_415_616, "6.74 B"),
            (999_600_000, "1.00 B"),
        ] {
            assert_eq!(short_count(number), expected);
        }
    }
}
