//! Line charts as SVG: values by layer or by step. Lines differ in dashes as well as in colour.

use std::fmt::Write as _;

use statelens_checkpoint::{float_repr, grouped, order};

use super::svg::{escaped, text};
use crate::number_text;

/// A line chart with two axes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The label of the horizontal axis: `layer`.
    pub across: String,
    /// The label of the vertical axis, with its unit if it has one: `norm`.
    pub up: String,
    /// Whether the vertical axis is logarithmic; values that are not positive are drawn at the
    /// bottom.
    pub log: bool,
    /// The lines, each with its own colour and dashes.
    pub lines: Vec<Series>,
    /// A label, and counts by position, drawn as bars below the axis.
    pub bars: Option<(String, Vec<(f64, u64)>)>,
    /// Positions without values, and why: dashed vertical lines.
    pub gaps: Vec<(f64, String)>,
    /// Positions with incomplete values, and why: their points are hollow and not connected.
    pub partial: Vec<(f64, String)>,
    /// The horizontal axis, if the chart is drawn below another one and shares its axis.
    pub below: Option<SharedAxis>,
}

/// A horizontal axis that several charts share, one below the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SharedAxis {
    /// The margin on the left.
    pub left: f64,
    /// The margin on the right.
    pub right: f64,
    /// The values at its ends.
    pub ends: (f64, f64),
    /// The values of its ticks.
    pub ticks: Vec<f64>,
}

impl SharedAxis {
    /// Returns `n` so that every `n`th tick has a label, on an axis of this width.
    pub fn every(&self, wide: f64) -> usize {
        self.ticks.len().div_ceil(((wide / 52.0) as usize).max(2)).max(1)
    }
}

/// A line of a [`Chart`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points from left to right. A number that is not finite interrupts the line.
    pub points: Vec<(f64, f64)>,
}

/// Colours and dashes of the lines, in order.
const STYLES: [(&str, &str); 6] = [
    ("#16201c", ""),
    ("#b3541e", "6 3"),
    ("#1f5fa8", "2 3"),
    ("#5f7a12", "9 3 2 3"),
    ("#8a3ea0", "14 4"),
    ("#5f6b65", "1 4"),
];
/// Maximum number of points that are drawn with a marker each.
const MARKED: usize = 64;
/// Maximum number of characters of a label on the vertical axis.
const MAX_LABEL: usize = 9;
/// Line height, character width, and height of the bars, in units of the SVG.
const LINE: f64 = 15.0;
const LETTER: f64 = 6.7;
const BARS: f64 = 28.0;

/// Position and scales of the plot.
struct PlotArea {
    left: f64,
    top: f64,
    wide: f64,
    high: f64,
    across: (f64, f64),
    up: (f64, f64),
    log: bool,
}

impl PlotArea {
    fn x(&self, value: f64) -> f64 {
        let (low, high) = self.across;
        self.left + (value - low) / (high - low).max(f64::MIN_POSITIVE) * self.wide
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.up;
        let part = match self.log {
            true => (value.max(low).log10() - low.log10()) / (high.log10() - low.log10()),
            false => (value - low) / (high - low),
        };
        self.top + (1.0 - part.clamp(0.0, 1.0)) * self.high
    }
}

impl Chart {
    /// Returns all finite points.
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let all = self.lines.iter().flat_map(|line| &line.points).copied();
        all.filter(|(x, y)| x.is_finite() && y.is_finite())
    }

    fn is_partial(&self, place: f64) -> bool {
        self.partial.iter().any(|(x, _)| *x == place)
    }

    fn frame(&self, width: f64, height: f64) -> PlotArea {
        let bars = self.bars.iter().flat_map(|(_, bars)| bars).map(|(x, _)| *x);
        let gaps = self.gaps.iter().chain(&self.partial).map(|(x, _)| *x);
        let mut across = match &self.below {
            Some(axis) => axis.ends,
            None => range(self.points().map(|(x, _)| x).chain(bars).chain(gaps)),
        };
        if across.0 == across.1 {
            across = (across.0 - 0.5, across.1 + 0.5);
        }
        let log = self.log && self.points().any(|(_, y)| y > 0.0);
        let mut up = range(self.points().map(|(_, y)| y).filter(|y| !log || *y > 0.0));
        if log {
            // The axis covers at least a power of two, so that rounding does not look like a
            // mountain.
            up = (up.0.min(up.1 / 2.0).max(up.1 * 1e-12), up.1);
        } else if up.0 > 0.0 && up.0 < up.1 * 0.1 {
            up.0 = 0.0;
        }
        if up.0 == up.1 {
            let half = if up.0 == 0.0 { 0.5 } else { up.0.abs() * 0.5 };
            up = (up.0 - half, up.1 + half);
        }
        let labels = labels_up(up, log, 4).into_iter().map(|(_, label)| label.chars().count());
        let (left, right) = match &self.below {
            Some(axis) => (axis.left, axis.right),
            None => (labels.max().unwrap_or(1) as f64 * LETTER + 14.0, 12.0),
        };
        let top = LINE * (self.heads() + self.legend(width).1 as f64) + 6.0;
        let below = LINE * 2.0 + 10.0 + if self.bars.is_some() { BARS + 6.0 } else { 0.0 };
        let wide = (width - left - right).max(40.0);
        PlotArea { left, top, wide, high: (height - top - below).max(40.0), across, up, log }
    }

    /// Returns whether the label of the vertical axis says more than the title.
    fn names_axis(&self) -> bool {
        !self.title.starts_with(&self.up)
    }

    /// Returns the number of lines of text above the legend.
    fn heads(&self) -> f64 {
        if self.names_axis() { 2.0 } else { 1.0 }
    }

    /// Returns the positions of the line names in the legend, and the number of rows that they
    /// take.
    fn legend(&self, width: f64) -> (Vec<(f64, usize)>, usize) {
        let (mut left, mut row) = (8.0, 0);
        let mut places = Vec::new();
        for line in &self.lines {
            let wide = line.name.chars().count() as f64 * LETTER + 44.0;
            if left + wide > width && left > 8.0 {
                (left, row) = (8.0, row + 1);
            }
            places.push((left, row));
            left += wide;
        }
        (places, row + usize::from(!self.lines.is_empty()))
    }

    /// Draws the chart with this width and height. Colours also have classes (`l0`, `l1` …), so
    /// that a style sheet can override them.
    pub fn svg(&self, width: u32, height: u32) -> String {
        let (wide, high) = (f64::from(width), f64::from(height));
        let frame = self.frame(wide, high);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{label}\" font-family=\"ui-monospace, monospace\" \
             font-size=\"11\" fill=\"#5f6b65\" class=\"chart\">\n<desc>{label}</desc>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
            label = escaped(&self.text()),
        );
        let most = ((wide - 16.0) / LETTER) as usize;
        text(&mut out, 8, 14, "start", &ending(&self.title, most), true);
        if self.names_axis() {
            text(&mut out, 8, 14 + LINE as u64, "start", &format!("y: {}", self.up), false);
        }
        self.draw_axes(&frame, &mut out);
        for ((line, style), (left, row)) in self.lines.iter().zip(0..).zip(self.legend(wide).0) {
            let y = 14.0 + LINE * (row as f64 + self.heads());
            let _ = writeln!(out, "<path {} d=\"M{left} {:.1}h26\"/>", stroke(style), y - 4.0);
            text(&mut out, left as u64 + 32, y as u64, "start", &line.name, false);
            self.draw_line(&frame, line, style, &mut out);
        }
        out + "</svg>\n"
    }

    fn draw_axes(&self, frame: &PlotArea, out: &mut String) {
        let (right, bottom) = (frame.left + frame.wide, frame.top + frame.high);
        for (value, label) in labels_up(frame.up, frame.log, (frame.high / 34.0) as usize) {
            let y = frame.y(value);
            let _ = writeln!(
                out,
                "<path class=\"grid\" stroke=\"#dfe5e2\" d=\"M{:.1} {y:.1}H{right:.1}\"/>",
                frame.left
            );
            text(out, (frame.left - 6.0) as u64, (y + 4.0) as u64, "end", &label, false);
        }
        let (ticks, every) = match &self.below {
            Some(axis) => (axis.ticks.clone(), axis.every(frame.wide)),
            None => (nice(frame.across, (frame.wide / 70.0) as usize, true), 1),
        };
        for (at, value) in ticks.into_iter().enumerate() {
            let x = frame.x(value);
            let _ = writeln!(
                out,
                "<path class=\"tick\" stroke=\"#7e8a84\" d=\"M{x:.1} {bottom:.1}v4\"/>"
            );
            if at % every == 0 {
                text(out, x as u64, (bottom + LINE) as u64, "middle", &number(value), false);
            }
        }
        let _ = writeln!(
            out,
            "<path class=\"tick\" stroke=\"#7e8a84\" fill=\"none\" d=\"M{:.1} {:.1}V{bottom:.1}H{right:.1}\"/>",
            frame.left, frame.top
        );
        text(out, right as u64, (bottom + LINE * 2.0) as u64, "end", &self.across, false);
        for (place, why) in &self.gaps {
            let x = frame.x(*place);
            let _ = writeln!(
                out,
                "<path class=\"gap\" stroke=\"#7e8a84\" stroke-dasharray=\"3 3\" d=\"M{x:.1} {:.1}V{bottom:.1}\">\
                 <title>{} {}: {}</title></path>",
                frame.top,
                escaped(&self.across),
                number(*place),
                escaped(why)
            );
        }
        let Some((what, bars)) = &self.bars else { return };
        let floor = bottom + LINE * 2.0 + 8.0 + BARS;
        let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
        text(out, frame.left as u64, (bottom + LINE * 2.0) as u64, "start", what, false);
        let _ = writeln!(
            out,
            "<path class=\"tick\" stroke=\"#7e8a84\" d=\"M{:.1} {floor:.1}H{right:.1}\"/>",
            frame.left
        );
        for (place, count) in bars.iter().filter(|(_, count)| *count > 0) {
            // Logarithmic, so that one NaN is visible next to a million.
            let part = ((*count as f64).ln_1p() / (most as f64).ln_1p()).clamp(0.2, 1.0);
            let _ = writeln!(
                out,
                "<rect class=\"bar\" fill=\"#a3182f\" x=\"{:.1}\" y=\"{:.1}\" width=\"5\" height=\"{:.1}\">\
                 <title>{} {}: {} {}</title></rect>",
                frame.x(*place) - 2.5,
                floor - part * BARS,
                part * BARS,
                escaped(&self.across),
                number(*place),
                statelens_checkpoint::grouped(*count),
                escaped(what)
            );
        }
    }

    fn draw_line(&self, frame: &PlotArea, line: &Series, style: usize, out: &mut String) {
        let mut path = String::new();
        let mut parted = true;
        for (x, y) in &line.points {
            if !(x.is_finite() && y.is_finite()) || self.is_partial(*x) {
                parted = true;
                continue;
            }
            let letter = if parted { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", frame.x(*x), frame.y(*y));
            parted = false;
        }
        let _ = writeln!(out, "<path {} d=\"{path}\"/>", stroke(style));
        let many = line.points.len() > MARKED;
        let colour = STYLES[style % STYLES.len()].0;
        for (x, y) in line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
            if let Some((_, why)) = self.partial.iter().find(|(place, _)| place == x) {
                let _ = writeln!(
                    out,
                    "<circle class=\"l{} partial\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"2 1.5\" \
                     cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}, {} {}: {}, incomplete: {}</title></circle>",
                    style % STYLES.len(),
                    frame.x(*x),
                    frame.y(*y),
                    escaped(&line.name),
                    escaped(&self.across),
                    number(*x),
                    number(*y),
                    escaped(why)
                );
                continue;
            }
            if many {
                continue;
            }
            let _ = writeln!(
                out,
                "<circle class=\"l{} dot\" fill=\"{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.2\">\
                 <title>{}, {} {}: {}</title></circle>",
                style % STYLES.len(),
                frame.x(*x),
                frame.y(*y),
                escaped(&line.name),
                escaped(&self.across),
                number(*x),
                number(*y)
            );
        }
    }

    /// Describes the chart, with a sentence per line.
    pub fn text(&self) -> String {
        let mut out = format!("{}: {} by {}.", self.title, self.up, self.across);
        for line in &self.lines {
            let finite = || {
                let finite = line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
                finite.filter(|(x, _)| !self.is_partial(*x))
            };
            let (Some(first), Some(last)) = (finite().next(), finite().next_back()) else {
                let _ = write!(out, " {}: no numbers.", line.name);
                continue;
            };
            let by = |one: &&(f64, f64), two: &&(f64, f64)| one.1.total_cmp(&two.1);
            let _ = write!(
                out,
                " {}: {} at {}, {} at {}",
                line.name,
                number(first.1),
                number(first.0),
                number(last.1),
                number(last.0)
            );
            if let (Some(low), Some(high)) = (finite().min_by(by), finite().max_by(by)) {
                let _ = write!(
                    out,
                    "; least {} at {}, most {} at {}.",
                    number(low.1),
                    number(low.0),
                    number(high.1),
                    number(high.0)
                );
            }
        }
        if let Some((what, bars)) = &self.bars {
            let some: Vec<String> = bars
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(place, count)| {
                    format!("{} at {}", statelens_checkpoint::grouped(*count), number(*place))
                })
                .collect();
            let some = if some.is_empty() {
                "none".into()
            } else {
                statelens_checkpoint::listed(&some, 8)
            };
            let _ = write!(out, " {what}: {some}.");
        }
        for (place, why) in &self.gaps {
            let _ = write!(out, " No values at {}: {why}.", number(*place));
        }
        for (place, why) in &self.partial {
            let _ = write!(out, " Incomplete at {}: {why}.", number(*place));
        }
        out
    }

    /// Returns the numbers as CSV: a row per position, a column per line; if there are partial
    /// positions, a last column has the reason.
    pub fn csv(&self) -> String {
        let mut places: Vec<f64> =
            self.lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).collect();
        places.extend(self.bars.iter().flat_map(|(_, bars)| bars.iter().map(|(x, _)| *x)));
        places.extend(self.gaps.iter().map(|(x, _)| *x));
        order::by(&mut places, f64::total_cmp);
        places.dedup();
        let mut out = cell(&self.across);
        let names = self.lines.iter().map(|line| &line.name);
        for name in names.chain(self.bars.iter().map(|(what, _)| what)) {
            let _ = write!(out, ",{}", cell(name));
        }
        if !self.partial.is_empty() {
            out += ",incomplete";
        }
        out.push('\n');
        // Points are sorted by position, so each line is traversed once.
        let mut at = vec![0; self.lines.len()];
        for place in places {
            out += float_repr(place).trim_end_matches(".0");
            for (line, at) in self.lines.iter().zip(&mut at) {
                let point = line.points.get(*at).filter(|(x, _)| *x == place);
                *at += usize::from(point.is_some());
                let value = point.map(|(_, y)| *y).filter(|y| !y.is_nan());
                let _ = write!(out, ",{}", value.map(float_repr).unwrap_or_default());
            }
            if let Some((_, bars)) = &self.bars {
                let count = bars.iter().find(|(x, _)| *x == place).map(|(_, count)| *count);
                let _ = write!(out, ",{}", count.map(|it| it.to_string()).unwrap_or_default());
            }
            if !self.partial.is_empty() {
                let why = self.partial.iter().find(|(x, _)| *x == place);
                let _ = write!(out, ",{}", why.map(|(_, why)| cell(why)).unwrap_or_default());
            }
            out.push('\n');
        }
        out
    }
}

/// Returns the SVG attributes of a line with this index.
fn stroke(style: usize) -> String {
    let at = style % STYLES.len();
    let (colour, dashes) = STYLES[at];
    let dashes = match dashes {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    };
    format!("class=\"l{at}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes}")
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let all = values.fold(None, |all: Option<(f64, f64)>, value| {
        Some(all.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    });
    all.unwrap_or((0.0, 1.0))
}

/// Returns the ticks with their labels, written as powers of ten if all of them are.
fn labels_up(up: (f64, f64), log: bool, most: usize) -> Vec<(f64, String)> {
    let ticks = ticks_up(up, log, most);
    let powers: Option<Vec<String>> = ticks.iter().map(|tick| power_of_ten(*tick)).collect();
    match powers.filter(|_| log && ticks.len() > 1) {
        Some(powers) => ticks.into_iter().zip(powers).collect(),
        None => {
            // Longer labels would not fit into a shared margin.
            let long = ticks.iter().any(|tick| number(*tick).chars().count() > MAX_LABEL);
            let tick_text = |tick: f64| {
                if long { number_text(tick).replace('-', "\u{2212}") } else { number(tick) }
            };
            ticks.into_iter().map(|tick| (tick, tick_text(tick))).collect()
        }
    }
}

/// Formats a power of ten: `10\u{207b}\u{b3}`; `None` for other numbers.
pub fn power_of_ten(value: f64) -> Option<String> {
    const DIGITS: [char; 10] = [
        '\u{2070}', '\u{b9}', '\u{b2}', '\u{b3}', '\u{2074}', '\u{2075}', '\u{2076}', '\u{2077}',
        '\u{2078}', '\u{2079}',
    ];
    let power = value.log10().round();
    let is_one = value > 0.0 && (value / 10f64.powf(power) - 1.0).abs() < 1e-9;
    let raised = |c: char| match c.to_digit(10) {
        Some(digit) => DIGITS[digit as usize],
        None => '\u{207b}',
    };
    is_one.then(|| format!("10{}", format!("{power:.0}").chars().map(raised).collect::<String>()))
}

fn ticks_up(up: (f64, f64), log: bool, most: usize) -> Vec<f64> {
    if !log {
        return nice(up, most, false);
    }
    let (low, high) = (up.0.log10(), up.1.log10());
    let powers = |step: i32, parts: &[f64]| -> Vec<f64> {
        let from = (low.floor() as i32).div_euclid(step) * step;
        let powers = (from..=high.ceil() as i32).step_by(step.max(1) as usize);
        let all = powers.flat_map(|power| parts.iter().map(move |it| it * 10f64.powi(power)));
        // Includes ticks at the ends that are off by rounding.
        all.filter(|it| (up.0 * (1.0 - 1e-9)..=up.1 * (1.0 + 1e-9)).contains(it)).collect()
    };
    let fine = powers(1, &[1.0, 2.0, 5.0]);
    match (high - low).ceil() as i32 {
        0..=2 if fine.len() > 1 => fine,
        0..=2 => nice(up, most, false),
        decades => powers((decades / most.max(1) as i32).max(1), &[1.0]),
    }
}

/// Returns about `most` round numbers in a range.
fn nice((low, high): (f64, f64), most: usize, whole: bool) -> Vec<f64> {
    let rough = (high - low) / most.max(1) as f64;
    if !(rough > 0.0 && rough.is_finite()) {
        return vec![low];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|it| it * power).find(|it| *it >= rough);
    let step = step.unwrap_or(power * 10.0);
    let step = if whole { step.max(1.0) } else { step };
    let first = (low / step).ceil();
    let count = ((high / step).floor() - first).clamp(0.0, 100.0) as usize;
    (0..=count).map(|at| (first + at as f64) * step).filter(|it| *it <= high).collect()
}

fn number(value: f64) -> String {
    let text = match value.abs() {
        // Steps and counts, formatted as elsewhere on the page.
        size @ 1e3..1e12 if size.fract() == 0.0 => {
            format!("{}{}", if value < 0.0 { "-" } else { "" }, grouped(size as u64))
        }
        _ => number_text(value),
    };
    text.replace('-', "\u{2212}")
}

/// Shortens a text to `most` characters, keeping its end.
fn ending(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let end: String = text.chars().skip(count + 1 - most.max(1)).collect();
    format!("\u{2026}{end}")
}

fn cell(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let line = |name: &str, points: &[(f64, f64)]| Series {
            name: name.into(),
            points: points.to_vec(),
        };
        Chart {
            title: "w<1>".into(),
            across: "layer".into(),
            up: "norm".into(),
            lines: vec![
                line("A", &[(0.0, 1.0), (1.0, 3.0), (2.0, 2.0)]),
                line("B", &[(0.0, 1.5), (1.0, f64::NAN), (2.0, -0.5)]),
            ],
            ..Chart::default()
        }
    }

    #[test]
    fn second_line_is_dashed_and_split_at_gaps() {
        let svg = chart().svg(400, 200);
        let paths: Vec<&str> =
            svg.lines().filter(|line| line.starts_with("<path class=\"l")).collect();
        // A sample in the legend, and the line itself.
        assert_eq!(paths.len(), 4, "{svg}");
        assert!(!paths[0].contains("dasharray") && paths[2].contains("dasharray"), "{svg}");
        let of = |path: &str, letter| path.rsplit("d=\"").next().unwrap().matches(letter).count();
        assert_eq!((of(paths[1], 'M'), of(paths[1], 'L')), (1, 2));
        assert_eq!((of(paths[3], 'M'), of(paths[3], 'L')), (2, 0));
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(svg.contains("w&lt;1&gt;") && svg.contains(">layer</text>"), "{svg}");
    }

    #[test]
    fn places_points_on_the_axes() {
        let chart = chart();
        let frame = chart.frame(400.0, 200.0);
        assert_eq!(frame.across, (0.0, 2.0));
        assert_eq!((frame.x(1.0) - frame.left) / frame.wide, 0.5);
        assert_eq!(frame.up, (-0.5, 3.0));
        assert_eq!(frame.y(3.0), frame.top);
        let log = Chart { log: true, ..chart };
        let frame = log.frame(400.0, 200.0);
        assert_eq!(frame.up, (1.0, 3.0));
        let middle = frame.y(3f64.sqrt());
        assert!((middle - frame.top - frame.high / 2.0).abs() < 1e-9, "{middle}");
        assert_eq!(frame.y(-0.5), frame.top + frame.high);
    }

    #[test]
    fn partial_points_are_drawn_at_their_heights() {
        let points = vec![(1.0, 56.65), (2.0, 56.81), (3.0, 57.2), (4.0, 56.02)];
        let partial = [3.0, 4.0].map(|place| (place, "cut short".to_owned())).to_vec();
        let lines = vec![Series { name: "model".into(), points }];
        let chart = Chart { lines, partial, ..Chart::default() };
        let frame = chart.frame(400.0, 200.0);
        assert_eq!(frame.up, (56.02, 57.2));
        assert_eq!([frame.y(57.2), frame.y(56.02)], [frame.top, frame.top + frame.high]);
    }

    #[test]
    fn shared_axis_aligns_two_charts() {
        let ends = (0.0, 8.0);
        let below = SharedAxis { left: 74.0, right: 20.0, ends, ticks: vec![0.0, 2.0, 4.0] };
        let chart = Chart { below: Some(below), ..chart() };
        let frame = chart.frame(494.0, 200.0);
        assert_eq!([0.0, 2.0, 8.0].map(|value| frame.x(value)), [74.0, 174.0, 474.0]);
        let ticks = |width: u32| {
            let svg = chart.svg(width, 200);
            let ticks = svg.lines().filter(|line| line.contains("v4\"/>")).count();
            let labels = svg.lines().filter(|line| line.contains("\"middle\"")).count();
            (ticks, labels)
        };
        // If there is not enough room for all labels, the ticks stay.
        assert_eq!((ticks(494), ticks(214)), ((3, 3), (3, 2)));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(nice((0.0, 31.0), 6, true), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(nice((0.5, 2.0), 3, true), [1.0, 2.0]);
        assert_eq!(nice((0.0, 1.0), 4, false), [0.0, 0.5, 1.0]);
        assert_eq!(ticks_up((1e-6, 1.0), true, 3).len(), 4);
        assert_eq!(ticks_up((1.0, 20.0), true, 3), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(nice((1.0, 1.0), 4, false), [1.0]);
        let labels = |up, log| {
            let labels = labels_up(up, log, 3).into_iter().map(|(_, label)| label);
            labels.collect::<Vec<String>>().join(" ")
        };
        assert_eq!(
            labels((1e-6, 100.0), true),
            "10\u{207b}\u{2076} 10\u{207b}\u{2074} 10\u{207b}\u{b2} 10\u{2070} 10\u{b2}"
        );
        assert_eq!(labels((1.0, 20.0), true), "1 2 5 10 20");
        assert_eq!(labels((0.0, 1.0), false), "0 0.5 1");
        assert_eq!(labels((-60_000.0, 60_000.0), false), "\u{2212}50,000 0 50,000");
        // With all digits they would not fit.
        assert_eq!(labels((0.0, 1e9), false), "0 5e+08 1e+09");
        assert_eq!(labels((0.0, 4e6), false), "0 2,000,000 4,000,000");
        for other in [0.0, -10.0, 2.0, f64::INFINITY, f64::NAN] {
            assert_eq!(power_of_ten(other), None, "{other}");
        }
    }

    #[test]
    fn describes_the_chart_as_text_and_csv() {
        let mut chart = chart();
        chart.bars = Some(("NaN".into(), vec![(0.0, 0), (2.0, 1_234)]));
        chart.gaps = vec![(1.5, "cut short".into())];
        assert_eq!(
            chart.text(),
            "w<1>: norm by layer. A: 1 at 0, 2 at 2; least 1 at 0, most 3 at 1. B: 1.5 at 0, \
             \u{2212}0.5 at 2; least \u{2212}0.5 at 2, most 1.5 at 0. NaN: 1,234 at 2. No values at 1.5: cut short."
        );
        assert_eq!(chart.csv(), "layer,A,B,NaN\n0,1.0,1.5,0\n1,3.0,,\n1.5,,,\n2,2.0,-0.5,1234\n");
        let svg = chart.svg(400, 240);
        assert_eq!(svg.matches("<rect class=\"bar\"").count(), 1);
        assert!(svg.contains("layer 1.5: cut short"), "{svg}");
    }

    #[test]
    fn draws_an_empty_chart_without_numbers() {
        let empty = Chart { lines: vec![Series::default()], ..Chart::default() };
        assert!(empty.svg(100, 50).ends_with("</svg>\n"));
        let same = Chart {
            lines: vec![Series { name: "A".into(), points: vec![(3.0, 0.0); 2] }],
            log: true,
            ..Chart::default()
        };
        assert!(!same.svg(100, 50).contains("NaN"), "{}", same.svg(100, 50));
    }
}
