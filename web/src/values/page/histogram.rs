//! A histogram with quantiles and marks at six standard deviations.

use std::rc::Rc;

use statelens_values::Histogram;
use statelens_values::picture::power_of_ten;
use statelens_values::weights::Measured;
use yew::prelude::*;

use crate::page::choice::{choice, store};
use crate::page::marks::classes;
use crate::state::dtype::family;
use crate::state::fmt;
use crate::values::state::{number, percent};

#[derive(Properties, PartialEq)]
pub struct HistogramProps {
    /// The values to draw.
    pub values: Rc<Measured>,
    /// The dtype, which determines the colour.
    pub dtype: String,
    /// Width in pixels.
    pub width: f64,
}

const HEIGHT: f64 = 118.0;
/// Top and bottom of the bars, in pixels.
const TOP: f64 = 18.0;
const BASE: f64 = 98.0;
/// Left end of the axis; the labels of counts are to the left of it.
const LEFT: f64 = 46.0;
/// Minimum distance between labels of marks, in pixels.
const MIN_LABEL_GAP: f64 = 34.0;

#[component]
pub fn HistogramView(props: &HistogramProps) -> Html {
    let log = use_state(|| false);
    let at = use_state(|| None::<usize>);
    let values = &props.values;
    let bins = if *log { &values.log } else { &values.linear };
    let most = bins.counts.iter().copied().max().unwrap_or(0);
    let total: u64 = bins.counts.iter().sum();
    if most == 0 || bins.edges.len() != bins.counts.len() + 1 {
        return html! { <p class="dim">{ "No value is finite." }</p> };
    }
    let right = (props.width - 34.0).max(LEFT + 120.0);
    let axis = HistogramAxis { bins, log: *log, from: LEFT, to: right };
    let count = bins.counts.len();
    let current = at.filter(|at| *at < count);
    let bar = |index: usize, many: u64| {
        let (x, end) = (axis.edge(index), axis.edge(index + 1));
        // A bin that is not empty is at least 1 px high.
        let height =
            if many == 0 { 0.0 } else { (many as f64 / most as f64 * (BASE - TOP)).max(1.0) };
        let gap = if end - x > 3.0 { 1.0 } else { 0.0 };
        let on = current == Some(index);
        html! {
            <rect key={index} class={classes(&["bin", if on { "on" } else { "" }])} x={format!("{x:.2}")} y={format!("{:.2}", BASE - height)}
                width={format!("{:.2}", (end - x - gap).max(0.5))} height={format!("{height:.2}")} />
        }
    };
    let pick = {
        let (axis_from, axis_to) = (LEFT, right);
        let at = at.clone();
        Callback::from(move |event: MouseEvent| {
            let part = (f64::from(event.offset_x()) - axis_from) / (axis_to - axis_from);
            let inside = (0.0..1.0).contains(&part);
            at.set(inside.then_some((part * count as f64) as usize));
        })
    };
    let leave = {
        let at = at.clone();
        Callback::from(move |_: MouseEvent| at.set(None))
    };
    let onkeydown = {
        let at = at.clone();
        Callback::from(move |event: KeyboardEvent| {
            let next = match (event.key().as_str(), *at) {
                ("ArrowLeft", Some(at)) => at.saturating_sub(1),
                ("ArrowRight", Some(at)) => (at + 1).min(count - 1),
                ("ArrowLeft" | "ArrowRight", None) => count / 2,
                _ => return,
            };
            event.prevent_default();
            event.stop_propagation();
            at.set(Some(next));
        })
    };
    let read = match current {
        Some(index) => format!(
            "{} to {}: {}, {}",
            number(bins.edges[index]),
            number(bins.edges[index + 1]),
            fmt::plural(bins.counts[index], "value"),
            percent(bins.counts[index], total)
        ),
        None => fmt::plural(total, "finite value"),
    };
    html! {
        <div class="histogram">
            <div class="scales"><span class="lab">{ format!("histogram, {count} bins") }</span><span class="grow"></span>
                { choice(true, "Scale", &[(false, "linear"), (true, "\u{b1} log")], *log, store(&log)) }</div>
            <svg class={family(&props.dtype).class()} width={format!("{}", right + 2.0)} height={HEIGHT.to_string()} role="img" tabindex="0" aria-label={sentence(values)}
                onmousemove={pick} onmouseleave={leave} {onkeydown}>
                { for ticks(most).into_iter().map(|count| {
                    let y = BASE - count as f64 / most as f64 * (BASE - TOP);
                    html! { <><path class="rule" d={format!("M{LEFT} {y:.1}H{right:.1}")} /><text x={(LEFT - 6.0).to_string()} y={format!("{:.1}", y + 3.5)} text-anchor="end">{ fmt::count(count).replace(".00", "") }</text></> }
                }) }
                { for bins.counts.iter().enumerate().map(|(index, many)| bar(index, *many)) }
                <path class="base" d={format!("M{LEFT} {BASE}H{right:.1}")} />
                { marks(values, &axis) }
                { labels(&axis) }
            </svg>
            <p class="read m dim" aria-live="polite">{ read }</p>
        </div>
    }
}

/// Returns one or two round counts up to the largest one.
fn ticks(most: u64) -> Vec<u64> {
    let power = 10u64.pow(most.max(1).ilog10());
    let step = [5, 2, 1]
        .into_iter()
        .map(|times| power.saturating_mul(times))
        .find(|step| step.saturating_mul(2) <= most);
    match step.or_else(|| Some(power / 2).filter(|step| *step > 0)) {
        Some(step) => vec![step, step * 2],
        None => vec![most],
    }
}

/// The horizontal axis, on which all bins are equally wide, also those by magnitude.
struct HistogramAxis<'a> {
    bins: &'a Histogram,
    log: bool,
    from: f64,
    to: f64,
}

impl HistogramAxis<'_> {
    fn edge(&self, index: usize) -> f64 {
        self.from + index as f64 / self.bins.counts.len().max(1) as f64 * (self.to - self.from)
    }

    /// Returns the x coordinate of a value; `None` beyond the ends.
    fn of(&self, value: f64) -> Option<f64> {
        let edges = &self.bins.edges;
        let (first, last) = (*edges.first()?, *edges.last()?);
        if !(first..=last).contains(&value) {
            return None;
        }
        let above = edges.partition_point(|edge| *edge <= value).min(edges.len() - 1);
        let below = above.saturating_sub(1);
        let (low, high) = (edges[below], edges[above]);
        // Interpolates logarithmically within a bin by magnitude, unless the bin contains zero.
        let part = match self.log && low * high > 0.0 && low != high {
            true => (value / low).ln() / (high / low).ln(),
            false if high > low => (value - low) / (high - low),
            false => 0.0,
        };
        Some(self.edge(below) + part * (self.edge(above) - self.edge(below)))
    }
}

/// Renders quantiles and six standard deviations: a line for each, with a label if there is room.
fn marks(values: &Measured, axis: &HistogramAxis<'_>) -> Html {
    let values = &values.statistics;
    let mut all: Vec<(f64, &str, &str)> = Vec::new();
    if let Some([low, _, middle, _, high]) = values.quantiles {
        all.extend([
            (middle, "50 %", "quantile"),
            (low, "1 %", "quantile"),
            (high, "99 %", "quantile"),
        ]);
    }
    if let (Some(mean), Some(std)) = (values.mean, values.std.filter(|std| *std > 0.0)) {
        all.push((mean - 6.0 * std, "\u{2212}6\u{3c3}", "sigma"));
        all.push((mean + 6.0 * std, "+6\u{3c3}", "sigma"));
    }
    let mut labelled: Vec<f64> = Vec::new();
    let drawn = all.into_iter().filter_map(|(value, label, class)| {
        let x = axis.of(value)?;
        let free = labelled.iter().all(|other| (other - x).abs() >= MIN_LABEL_GAP);
        if free {
            labelled.push(x);
        }
        let place = x.clamp(axis.from + 10.0, axis.to - 12.0);
        Some(html! {
            <>
                <path class={class} d={format!("M{x:.1} {TOP}V{BASE}")} />
                if free { <text x={format!("{place:.1}")} y="11" text-anchor="middle">{ label }</text> }
            </>
        })
    });
    html! { { for drawn } }
}

/// Renders the labels of both ends, and between them zero and, on the scale by magnitude, powers of
/// ten.
fn labels(axis: &HistogramAxis<'_>) -> Html {
    let edges = &axis.bins.edges;
    let (Some(&first), Some(&last)) = (edges.first(), edges.last()) else { return html! {} };
    let zero = (first < 0.0 && last > 0.0).then(|| axis.of(0.0)).flatten();
    let mut between: Vec<(f64, String)> = zero.map(|x| (x, "0".to_owned())).into_iter().collect();
    if axis.log {
        between.extend(powers(axis));
    }
    let mut taken = vec![axis.from + 16.0, axis.to - 16.0];
    between.retain(|(x, _)| {
        let free = (axis.from + 60.0..axis.to - 60.0).contains(x)
            && taken.iter().all(|other| (other - x).abs() >= MIN_LABEL_GAP);
        taken.extend(free.then_some(*x));
        free
    });
    let y = (BASE + 14.0).to_string();
    html! {
        <>
            <text x={axis.from.to_string()} y={y.clone()}>{ number(first) }</text>
            { for between.into_iter().map(|(x, label)| html! {
                <><path class="rule" d={format!("M{x:.1} {BASE}v4")} /><text x={format!("{x:.1}")} y={y.clone()} text-anchor="middle">{ label }</text></>
            }) }
            <text x={format!("{:.1}", axis.to)} {y} text-anchor="end">{ number(last) }</text>
        </>
    }
}

/// Returns the x coordinates and labels of powers of ten and their negatives, the largest first.
fn powers(axis: &HistogramAxis<'_>) -> Vec<(f64, String)> {
    let edges = axis.bins.edges.iter().map(|edge| edge.abs()).filter(|edge| *edge > 0.0);
    let (least, most) = edges.fold((f64::INFINITY, 0.0), |(a, b), it| (it.min(a), it.max(b)));
    if !(least < most && most.is_finite()) {
        return Vec::new();
    }
    let (low, high) = (least.log10().ceil() as i32, most.log10().floor() as i32);
    let signed = |power: i32| [(power, 1.0), (power, -1.0)];
    let label = |(power, sign): (i32, f64)| {
        let value = 10f64.powi(power);
        let text = power_of_ten(value)?;
        let text = if sign < 0.0 { format!("\u{2212}{text}") } else { text };
        Some((axis.of(sign * value)?, text))
    };
    (low..=high).rev().flat_map(signed).filter_map(label).collect()
}

/// Describes the histogram in a sentence, for screen readers.
fn sentence(values: &Measured) -> String {
    let finite = values.linear.counts.iter().sum();
    let mut text = format!("Histogram of {}", fmt::plural(finite, "value"));
    let values = &values.statistics;
    if let (Some(min), Some(max)) = (values.min, values.max) {
        text += &format!(" from {} to {}", number(min), number(max));
    }
    if let Some([_, low, _, high, _]) = values.quantiles {
        text += &format!("; half lie between {} and {}", number(low), number(high));
    }
    text + "."
}

#[cfg(test)]
mod tests {
    use statelens_values::Statistics;

    use super::*;

    #[test]
    fn screen_readers_get_a_sentence() {
        let statistics = Statistics {
            min: Some(-0.2168),
            max: Some(0.2451),
            quantiles: Some([-0.05, -0.0126, 0.0, 0.0126, 0.05]),
            ..Statistics::default()
        };
        let linear = Histogram { edges: vec![0.0, 1.0], counts: vec![45_088_768] };
        let values = Measured { statistics, linear, ..Measured::default() };
        assert_eq!(
            sentence(&values),
            "Histogram of 45,088,768 values from \u{2212}0.2168 to 0.2451; half lie between \u{2212}0.0126 and 0.0126."
        );
    }

    #[test]
    fn counts_on_the_axis_are_round() {
        let texts = [1, 3, 9, 13_250, 4_100_000, 999].map(ticks);
        let expected: [&[u64]; 6] =
            [&[1], &[1, 2], &[2, 4], &[5_000, 10_000], &[2_000_000, 4_000_000], &[200, 400]];
        assert_eq!(texts.each_ref().map(Vec::as_slice), expected);
    }

    #[test]
    fn values_map_to_axis_positions() {
        let bins = Histogram { edges: vec![-100.0, -1.0, 1.0, 100.0], counts: vec![1, 1, 1] };
        let axis = HistogramAxis { bins: &bins, log: true, from: 0.0, to: 300.0 };
        assert_eq!(axis.of(0.0), Some(150.0));
        assert!((axis.of(10.0).unwrap() - 250.0).abs() < 1e-9);
        assert!((axis.of(-10.0).unwrap() - 50.0).abs() < 1e-9);
        assert_eq!((axis.of(100.0), axis.of(100.1)), (Some(300.0), None));
        let texts = powers(&axis).into_iter().map(|(x, text)| format!("{text} {x:.0}"));
        assert_eq!(
            texts.collect::<Vec<_>>().join(", "),
            "10\u{b2} 300, \u{2212}10\u{b2} 0, 10\u{b9} 250, \u{2212}10\u{b9} 50, 10\u{2070} 200, \u{2212}10\u{2070} 100"
        );
        let plain = Histogram { edges: vec![0.0, 0.0], counts: vec![1] };
        assert!(powers(&HistogramAxis { bins: &plain, ..axis }).is_empty());
    }
}
