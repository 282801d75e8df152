//! The inspector's section on a tensor's values: not read, being read, or read.

use std::rc::Rc;

use statelens_checkpoint::float_repr;
use statelens_values::Statistics;
use statelens_values::weights::Measured;
use yew::prelude::*;

use crate::inspector::message::RowDetails;
use crate::page::error::short_error;
use crate::page::marks::copy;
use crate::page::model::actor::Actor;
use crate::page::running::{bytes_done, progress_bar, running_line};
use crate::protocol::task::JobProgress;
use crate::rows::Row;
use crate::state::fmt;
use crate::state::task::Task;
use crate::values::message::TensorValues;
use crate::values::model::ValuesPanel;
use crate::values::page::histogram::HistogramView;
use crate::values::state::{number, whole};

/// Properties of the section.
#[derive(Properties, PartialEq)]
pub struct StatisticsProps {
    /// The row of the tensor.
    pub row: Row,
    /// Details of the row.
    pub inspected: Rc<RowDetails>,
    /// The state of reading values.
    pub values_panel: ValuesPanel,
    /// Width of the inspector in pixels.
    pub width: f64,
}

#[component]
pub fn StatisticsSection(props: &StatisticsProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let inspected = &props.inspected;
    let one = props
        .values_panel
        .one
        .as_ref()
        .filter(|(row, _)| *row == inspected.row)
        .map(|(_, task)| task);
    let (body, aside) = match (&inspected.values, one, inspected.unread) {
        (Some(values), ..) => (numbers(&actor, props, &values.measured), aside(values)),
        (None, Some(Task::Failed(error)), _) => (short_error(error), html! {}),
        (None, Some(Task::Running(task)), _) => (
            html! {
                <>
                    { progress_bar(true, "Reading the values", (task.now.done, task.now.total)) }
                    if let Some(values) = &task.partial { { numbers(&actor, props, &values.measured) } }
                </>
            },
            reading(&actor, &task.now),
        ),
        (None, _, Some(_)) if props.values_panel.scan.is_running() => {
            (html! { <p class="dim">{ "Not read yet: all values are being read." }</p> }, html! {})
        }
        (None, _, Some(bytes)) => (not_read(&actor, props, bytes), html! {}),
        (None, _, None) => return html! {},
    };
    html! {
        <section id="statistics">
            <div class="hd"><h3>{ "Statistics" }</h3>{ aside }</div>
            { body }
        </section>
    }
}

fn aside(values: &TensorValues) -> Html {
    let all = fmt::plural(values.measured.statistics.count, "value");
    let text = match values.millis {
        0.0 => format!("of {all}"),
        millis => format!("all {all}, {}", fmt::seconds(millis)),
    };
    html! { <span class="lab">{ text }</span> }
}

fn reading(actor: &Actor, now: &JobProgress) -> Html {
    let stop = actor.on(move |actor, _: MouseEvent| actor.stop_reading());
    let words = if now.total > 0 { bytes_done(now.done, now.total) } else { String::new() };
    running_line("stop-reading", None, words, stop)
}

fn not_read(actor: &Actor, props: &StatisticsProps, bytes: u64) -> Html {
    let row = props.inspected.row;

    let onclick = actor.on(move |actor, _: MouseEvent| actor.read_values(row));
    let verb = if props.inspected.remote { "Fetch and read" } else { "Read" };
    let about = props.values_panel.rate.filter(|rate| *rate > 0.0 && !props.inspected.remote);
    let about = about.map(|rate| format!(" \u{b7} about {}", fmt::time_left(bytes as f64 / rate)));
    html! {
        <p><button class="btn" id="read-values" {onclick}>{ format!("{verb} {}{}", fmt::bytes(bytes), about.unwrap_or_default()) }</button></p>
    }
}

/// Number of values below which a histogram and the place of the largest value say nothing new.
const MIN_DRAWN: u64 = 8;

/// Returns whether the numbers of a dtype are complex; their statistics are those of |x|.
fn is_complex(dtype: &str) -> bool {
    dtype.starts_with("complex")
}

/// The title of a figure that a click copies.
const COPY: &str = "Copy";

fn numbers(actor: &Actor, props: &StatisticsProps, measured: &Measured) -> Html {
    let of = &measured.statistics;
    if of.count == 0 {
        return html! { <p class="dim" id="no-values">{ "No values: a dimension is 0." }</p> };
    }
    let infinite = of.pos_inf + of.neg_inf;
    let complex = is_complex(&props.row.dtype);
    if of.count == 1 && !complex {
        return single(of);
    }
    let median = of.quantiles.map(|quantiles| quantiles[2]);
    let integers = of.whole.is_some();
    let figure = |label: &'static str, value: Option<f64>, integer: bool, title: &'static str| {
        let text = value.map_or_else(|| "\u{2013}".into(), |value| number_text(value, integer));
        (label, text, value.map(float_repr).unwrap_or_default(), title, false)
    };
    let nan = format!("{} \u{b7} {}", fmt::exact(of.nan), fmt::exact(infinite));
    let copied_nan = format!("{} {infinite}", of.nan);
    let of_median = match of.exact {
        true => "Copy \u{b7} of two middle values the lower, as torch.median",
        false => "Copy \u{b7} within 1/256",
    };
    let all = [
        figure(if complex { "|x| min" } else { "min" }, of.min, integers, COPY),
        figure(if complex { "|x| max" } else { "max" }, of.max, integers, COPY),
        figure(if complex { "|x| mean" } else { "mean" }, of.mean, false, COPY),
        figure(if complex { "|x| \u{3c3}" } else { "\u{3c3}" }, of.std, false, COPY),
        figure(if complex { "|x| median" } else { "median" }, median, integers, of_median),
        figure("|x| mean", of.abs_mean.filter(|_| !complex), false, COPY),
        ("zeros", fmt::exact(of.zeros), of.zeros.to_string(), COPY, false),
        ("NaN \u{b7} Inf", nan, copied_nan, COPY, of.nan + infinite > 0),
    ];
    let largest =
        of.abs_max.map(|(_, at)| at).filter(|_| of.count >= MIN_DRAWN && of.min != of.max);
    let chips = [
        ("first NaN", of.first_nan, true),
        ("first Inf", of.first_inf, true),
        ("largest |x|", largest, false),
    ];
    let shape = &props.row.shape;
    let texts = all.iter().map(|(label, text, ..)| (*label, text.as_str()));
    let columns = if fits_twice(props.width, texts) { "kv two" } else { "kv two one" };
    html! {
        <>
            <dl class={columns}>
                { for all.into_iter().filter(|(label, text, ..)| !(complex && *label == "|x| mean" && text == "\u{2013}")).map(|(label, text, copied, title, warns)| {
                    html! {
                        <div><dt>{ label }</dt><dd><button class={if warns { "w-warn" } else { "" }} {title} onclick={Callback::from(move |_: MouseEvent| copy(&copied))}>{ text }</button></dd></div>
                    }
                }) }
            </dl>
            if complex { <p class="dim">{ "Of the magnitudes |x|: complex numbers have no order." }</p> }
            if of.count >= MIN_DRAWN && (of.min != of.max || of.min.is_none()) {
                <HistogramView values={Rc::new(measured.clone())} dtype={props.row.dtype.clone()} width={props.width} />
            }
            <div class="chips places">
                { for chips.into_iter().filter_map(|(label, number, warns)| {
                    let number = number?;
                    let index = statelens_values::index(shape, number);
                    let row = props.inspected.row;
                    let onclick = actor.on(move |actor, _: MouseEvent| actor.go_to(row, number));
                    Some(html! { <button class={if warns { "chip warn" } else { "chip" }} {onclick}>{ label }<span class="m">{ format!("{} \u{203a}", fmt::shape(&index)) }</span></button> })
                }) }
            </div>
        </>
    }
}

/// Renders the only value of a tensor: it is its own minimum, maximum, mean and median.
fn single(of: &Statistics) -> Html {
    let text = match of.min {
        Some(value) => number_text(value, of.whole.is_some()),
        None if of.nan > 0 => "NaN".to_owned(),
        None => if of.pos_inf > 0 { "inf" } else { "\u{2212}inf" }.to_owned(),
    };
    let class = if of.min.is_none() { "w-warn" } else { "" };
    html! { <dl class="kv"><dt>{ "value" }</dt><dd {class}>{ text }</dd></dl> }
}

/// Width in pixels of a character of a label and of a number.
const LABEL: f64 = 6.6;
const DIGIT: f64 = 7.3;
/// Widths in pixels of the space around the text: margins, scroll bar and column gap of a narrow and of
/// a wide inspector; the width from which on it is wide; the gap before a number.
const MARGINS: (f64, f64) = (55.0, 67.0);
const WIDE: f64 = 320.0;
const GAP: f64 = 8.0;

/// Returns whether two columns of labels and numbers fit into an inspector of this width in pixels,
/// or its width is not known yet.
fn fits_twice<'a>(width: f64, mut texts: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    let margins = if width < WIDE { MARGINS.0 } else { MARGINS.1 };
    let room = (width - margins) / 2.0 - GAP;
    let count = |text: &str| text.chars().count() as f64;
    width <= 0.0 || texts.all(|(label, text)| count(label) * LABEL + count(text) * DIGIT <= room)
}

/// Formats a number; integers below 2^53 are shown exactly.
fn number_text(value: f64, integer: bool) -> String {
    whole(value).filter(|_| integer).unwrap_or_else(|| number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_get_one_column() {
        let long = [("min", "\u{2212}2,102,381,765"), ("median", "\u{2212}1,901,732,434")];
        let short = [("|x| mean", "1.179e9"), ("NaN \u{b7} Inf", "0 \u{b7} 0")];
        assert!(!fits_twice(280.0, long.into_iter()));
        assert!(fits_twice(280.0, short.into_iter()));
        assert!(!fits_twice(364.0, long.into_iter()));
        assert!(fits_twice(520.0, long.into_iter()));
        assert!(fits_twice(0.0, long.into_iter()), "not measured yet");
    }

    #[test]
    fn integers_are_formatted_exactly() {
        assert_eq!(number_text(-12_000.0, true), "\u{2212}12,000");
        assert_eq!(number_text(-0.33333, false), "\u{2212}0.3333");
        assert_eq!(number_text(1e300, true), "1e300");
        assert_eq!(number_text(-0.000_026_75, false), "\u{2212}2.675e\u{2212}5");
    }
}
