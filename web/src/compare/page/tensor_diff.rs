//! Detailed comparison of two tensors: both distributions, the differences, and where they are.

use std::rc::Rc;

use gloo_timers::callback::Timeout;
use statelens_compare::diff::Outlines;
use statelens_values::Statistics;
use statelens_values::picture::{BlockMap, Chart, ColourScaling, Colours, Series, Show};
use statelens_values::weights::Measured;
use web_sys::Element;
use yew::prelude::*;

use super::table::float;
use crate::compare::message::tensor_diff::{TensorDiff, TensorDiffRequest};
use crate::compare::model::ComparisonState;
use crate::compare::state::{Mark, RowPair};
use crate::matrix::page::{Canvas, ColouredCells, Saved};
use crate::page::chart::ChartView;
use crate::page::choice::{choice, store};
use crate::page::error::short_error;
use crate::page::hooks::{use_media, use_size};
use crate::page::model::actor::Actor;
use crate::page::running::{bytes_done, progress_bar, running_line};
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::state::fmt;
use crate::state::task::Task;
use crate::values::page::HistogramView;
use crate::values::state::number;

/// Milliseconds that a pair must stay selected before it is read, so that stepping through pairs
/// does not read each of them.
const DEBOUNCE: u32 = 150;

#[derive(Properties, PartialEq)]
pub(super) struct TensorDiffProps {
    pub(super) compare: Rc<ComparisonState>,
    pub(super) pair: RowPair,
}

impl Actor {
    /// Starts the detailed comparison of a pair of rows. With `on_request`, the user requested it, so it
    /// runs even if it takes long.
    fn request_tensor_diff(&self, pair: (u32, u32), on_request: bool) {
        self.start(TaskRequest::TensorDiff(TensorDiffRequest { pair, on_request }));
        self.compare(move |compare| compare.tensor_diff = Some((pair, Task::started())));
    }

    /// Stops the detailed comparison.
    fn stop_tensor_diff(&self) {
        self.stop(JobKind::TensorDiff);
        self.compare(|compare| compare.tensor_diff = None);
    }
}

/// The section of the detailed comparison; empty unless both rows are tensors of the same shape.
#[component]
pub(super) fn TensorDiffSection(props: &TensorDiffProps) -> Html {
    let actor = use_context::<Actor>();
    let (compare, pair) = (&props.compare, &props.pair);
    let rows = compare.pairs.as_ref().and_then(|pairs| pairs.first(pair).zip(pairs.second(pair)));
    let tensors = rows.is_some_and(|(a, b)| {
        let is_tensor = |row: &crate::rows::Row| row.kind.has_shape() && !row.dtype.is_empty();
        is_tensor(a) && is_tensor(b) && a.shape == b.shape && !a.shape.contains(&0)
    });
    // Pairs that are equal, or not compared yet, are read only on request.
    let differs = matches!(pair.mark, Mark::Changed | Mark::Nan | Mark::Kind);
    let place = (pair.a, pair.b);
    {
        let actor = actor.clone();
        use_effect_with((place, tensors && differs, compare.request), move |(place, wanted, _)| {
            let (place, wanted) = (*place, *wanted);
            let begun = actor.clone().filter(|_| wanted);
            let start = begun.map(|actor| {
                Timeout::new(DEBOUNCE, move || actor.request_tensor_diff(place, false))
            });
            move || {
                drop(start);
                if let Some(actor) = actor {
                    actor.stop_tensor_diff();
                }
            }
        });
    }
    let Some(actor) = actor.filter(|_| tensors) else { return html! {} };
    let request = actor.on(move |actor, _: MouseEvent| actor.request_tensor_diff(place, true));
    let bytes = rows.map_or(0, |(a, b)| a.bytes.saturating_add(b.bytes));
    let button = |bytes: u64| {
        html! { <p><button class="btn" id="read-values" onclick={request.clone()}>{ format!("Read {}", fmt::bytes(bytes)) }</button></p> }
    };
    let tensor_diff = compare.tensor_diff.as_ref().filter(|(of, _)| *of == place).map(|(_, it)| it);
    let (aside, body) = match tensor_diff {
        None if differs => (html! {}, html! { <p class="dim">{ "Reading both\u{2026}" }</p> }),
        None | Some(Task::Idle) => (html! {}, button(bytes)),
        Some(Task::Failed(error)) => (html! {}, short_error(error)),
        Some(Task::Running(task)) => {
            let stop = actor.on(move |actor, _: MouseEvent| {
                actor.stop(JobKind::TensorDiff);
                actor.compare(move |compare| compare.tensor_diff = Some((place, Task::Idle)));
            });
            let now = &task.now;
            (
                running_line("stop-closer", None, bytes_done(now.done, now.total), stop),
                html! {
                    <>
                        { progress_bar(true, "Reading both", (now.done, now.total)) }
                        if let Some(values) = &task.partial { { diff_section(values, props) } }
                    </>
                },
            )
        }
        Some(Task::Done(values)) => (html! {}, diff_section(values, props)),
    };
    html! {
        <section id="closer">
            <div class="hd"><h3>{ "A vs. B" }</h3>{ aside }</div>
            { body }
        </section>
    }
}

fn diff_section(values: &TensorDiff, props: &TensorDiffProps) -> Html {
    let (compare, pair) = (&props.compare, &props.pair);
    let row = compare.pairs.as_ref().and_then(|pairs| pairs.row(pair));
    let Some(row) = row else { return html! {} };
    let side = |label: &'static str, figure: fn(&Statistics) -> Option<f64>| {
        let sides = values.sides.iter().chain([&values.differences.statistics]);
        let cell = |of| figure(of).map_or_else(|| "\u{2013}".to_owned(), number);
        html! { <tr><th scope="row">{ label }</th>{ for sides.map(|of| html! { <td>{ cell(of) }</td> }) }</tr> }
    };
    let [both, a, b] = values.nan;
    html! {
        <>
            <table class="sides three">
                <thead><tr><td></td><th scope="col">{ "A" }</th><th scope="col">{ "B" }</th><th scope="col">{ "B \u{2212} A" }</th></tr></thead>
                <tbody>{ side("mean", |of| of.mean) }{ side("\u{3c3}", |of| of.std) }{ side("norm", |of| of.l2) }</tbody>
            </table>
            if both + a + b > 0 { <p class="mid-ink">{ format!("NaN in both {}, in A only {}, in B only {}", fmt::exact(both), fmt::exact(a), fmt::exact(b)) }</p> }
            <HistogramPairView outlines={values.outlines.clone()} name={row.key.clone()} />
            <h4 class="sub">{ "B \u{2212} A" }</h4>
            <Differences values={Rc::new(values.differences.clone())} dtype={row.dtype.clone()} />
            if let Some(map) = values.map.as_ref().and_then(crate::matrix::message::PackedOverview::map) {
                <DifferenceMap map={Rc::new(map)} shape={values.shape.clone()} row={pair.a} name={row.key.clone()} />
            }
        </>
    }
}

#[derive(Properties, PartialEq)]
struct DifferencesProps {
    values: Rc<Measured>,
    dtype: String,
}

/// The histogram of the differences, as wide as the section.
#[component]
fn Differences(props: &DifferencesProps) -> Html {
    let node = use_node_ref();
    let (width, _) = use_size(&node);
    html! {
        <div id="differences" ref={node}>
            <HistogramView values={props.values.clone()} dtype={props.dtype.clone()} {width} />
        </div>
    }
}

#[derive(Properties, PartialEq)]
struct HistogramPairProps {
    outlines: [Outlines; 2],
    name: String,
}

/// Both distributions in one chart.
#[component]
fn HistogramPairView(props: &HistogramPairProps) -> Html {
    let log = use_state(|| false);
    let of = &props.outlines[usize::from(*log)];
    if of.edges.len() < 2 {
        return html! {};
    }
    // On the scale by magnitude, all bins are drawn equally wide.
    let place = |at: usize| if *log { at as f64 } else { of.edges[at] };
    let line = |name: &str, counts: &[u64]| {
        let all = counts.iter().sum::<u64>().max(1) as f64;
        let mut points = vec![(place(0), 0.0)];
        for (at, count) in counts.iter().enumerate() {
            let part = *count as f64 / all * 100.0;
            points.extend([(place(at), part), (place(at + 1), part)]);
        }
        points.push((place(counts.len()), 0.0));
        Series { name: name.into(), points }
    };
    let chart = Chart {
        title: "A and B".into(),
        across: if *log { "bin by magnitude" } else { "value" }.into(),
        up: "% of values per bin".into(),
        lines: vec![line("A", &of.left), line("B", &of.right)],
        ..Chart::default()
    };
    let ends = of.edges.first().zip(of.edges.last());
    let mut csv = "from,to,A,B\n".to_owned();
    for (edges, (a, b)) in of.edges.windows(2).zip(of.left.iter().zip(&of.right)) {
        csv += &format!("{:?},{:?},{a},{b}\n", edges[0], edges[1]);
    }
    html! {
        <div id="outlines">
            <div class="scales">
                <span class="lab">{ ends.map(|(low, high)| format!("{} to {}", number(*low), number(*high))) }</span><span class="grow"></span>
                { choice(true, "Scale of both", &[(false, "linear"), (true, "\u{b1} log")], *log, store(&log)) }</div>
            <ChartView {chart} height={190} name={format!("{} A and B", props.name)} {csv} />
        </div>
    }
}

#[derive(Properties, PartialEq)]
struct DifferenceMapProps {
    map: Rc<BlockMap>,
    shape: Vec<u64>,
    /// Row of the tensor in A.
    row: u32,
    name: String,
}

/// Map of |B − A| by blocks. A click shows the largest difference in a block.
#[component]
fn DifferenceMap(props: &DifferenceMapProps) -> Html {
    let actor = use_context::<Actor>();
    let node = use_node_ref();
    let at = use_state(|| None::<usize>);
    let dark = use_media("(prefers-color-scheme: dark)");
    let map = &props.map;
    let cells = use_memo((map.clone(), dark), |(map, dark)| {
        let colours = Colours::new(map, Show::Magnitude, ColourScaling::Linear, *dark);
        let all = (0..map.largest.len()).map(|at| colours.block(map, at)).collect();
        ColouredCells { width: map.size.1, colours: all }
    });
    let Some(actor) = actor else { return html! {} };
    let (down, across) = map.size;
    let onclick = {
        let (node, at) = (node.clone(), at.clone());
        Callback::from(move |event: MouseEvent| {
            let Some(rect) = node.cast::<Element>().map(|it| it.get_bounding_client_rect()) else {
                return;
            };
            let part = |from: f64, size: f64, of: i32, count: usize| {
                let part = ((f64::from(of) - from) / size.max(1.0)).clamp(0.0, 0.999_999);
                (part * count as f64) as usize
            };
            let row = part(rect.top(), rect.height(), event.client_y(), down);
            let column = part(rect.left(), rect.width(), event.client_x(), across);
            at.set(Some(row * across + column));
        })
    };
    let onkeydown = {
        let at = at.clone();
        Callback::from(move |event: KeyboardEvent| {
            let now = at.unwrap_or(0);
            let (row, column) = (now / across, now % across);
            let (row, column) = match event.key().as_str() {
                "ArrowUp" => (row.saturating_sub(1), column),
                "ArrowDown" => ((row + 1).min(down - 1), column),
                "ArrowLeft" => (row, column.saturating_sub(1)),
                "ArrowRight" => (row, (column + 1).min(across - 1)),
                _ => return,
            };
            event.prevent_default();
            event.stop_propagation();
            at.set(Some(row * across + column));
        })
    };
    let place = at.and_then(|at| {
        let number = map.at.get(at).copied().filter(|number| *number != u64::MAX)?;
        let value = map.largest.get(at).copied().filter(|value| value.is_finite());
        let index = fmt::shape(&statelens_values::index(&props.shape, number));
        let text = match value {
            _ if map.marks.get(at).is_some_and(|marks| marks & !1 != 0) => {
                format!("NaN or infinite at {index}")
            }
            Some(0.0) => format!("no difference here; {index}"),
            Some(value) => format!("|B \u{2212} A| {} at {index}", float(value.abs())),
            None => index,
        };
        Some((number, text))
    });
    let go = place.as_ref().map(|(number, _)| {
        let (row, number) = (props.row, *number);
        actor.on(move |actor, _: MouseEvent| {
            super::leave(actor);
            actor.go_to(row, number);
        })
    });
    let marked = (*at).map(|at| {
        let percent = |at: usize, of: usize| at as f64 / of.max(1) as f64 * 100.0;
        format!(
            "left:{:.3}%;top:{:.3}%;width:{:.3}%;height:{:.3}%",
            percent(at % across, across),
            percent(at / across, down),
            percent(1, across),
            percent(1, down)
        )
    });
    let saved = |kind: &'static str| {
        let (map, name) = (map.clone(), props.name.clone());
        let axes = if props.shape.len() < 2 { ("-", "elements") } else { ("rows", "columns") };
        Callback::from(move |_: MouseEvent| {
            let title = format!("|B - A| of {name}");
            let (show, scaling) = (Show::Magnitude, ColourScaling::Linear);
            Saved { map: &map, title: &title, axes, show, scaling }.save(kind);
        })
    };
    html! {
        <div id="where">
            <h4 class="sub">{ "Where: |B \u{2212} A|, each cell the largest of its block" }</h4>
            <div class="map wheremap" ref={node} role="group" tabindex="0" aria-label={format!("|B \u{2212} A|: {}", map.text())} style={format!("--rows:{down}")} {onclick} {onkeydown}>
                <Canvas cells={(*cells).clone()} />
                if let Some(style) = marked { <i class="frame" {style}></i> }
            </div>
            <p class="read m dim" role="status">
                if let Some((_, text)) = place { { text } if let Some(go) = go { { " " }<button class="textlink" id="go-there" onclick={go}>{ "Show in A" }</button> } }
                else { { map.text() } }
            </p>
            <p class="saves"><span class="lab">{ "Save" }</span>
                { for ["png", "svg", "csv"].into_iter().map(|kind| html! { <button class="textlink" onclick={saved(kind)}>{ kind.to_uppercase() }</button> }) }</p>
        </div>
    }
}
