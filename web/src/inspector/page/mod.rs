//! The inspector: the selected row, its location in the file, its first values, and its metadata.

pub mod code;

use std::rc::Rc;

use statelens_checkpoint::visible;
use statelens_tensor::ElementPlaces;
use statelens_values::picture::{Chart, Series};
use yew::prelude::*;

use crate::export::page::{SaveAs, export_progress};
use crate::inspector::message::{FormattedValues, RowDetails, TensorLine};
use crate::inspector::page::code::CodeSection;
use crate::model_description::message::ModelDescription;
use crate::page::chart::ChartView;
use crate::page::error::short_error;
use crate::page::hooks::use_size;
use crate::page::marks::{
    Copy, breakable, close_icon, contents_text, copy, cut_text, dtype, value_kind, when,
    wrapped_key,
};
use crate::page::model::actor::{Actor, VALUES};
use crate::pieces::page::PiecesSection;
use crate::protocol::ToWorker;
use crate::read_as::page::{ReadAsChoice, untyped_size};
use crate::rows::{LeafKind, Row};
use crate::state::dtype::{DTypeFamily, family};
use crate::state::fmt;
use crate::state::work::OpenWork;
use crate::state::work::layers::Layer;
use crate::table::state::Fold;
use crate::values::model::ValuesPanel;
use crate::values::page::{GoTo, StatisticsSection};
use crate::values::state::summary_facts;
use crate::{matrix, model_description, quantised, read_as};

#[derive(Properties, PartialEq)]
pub struct InspectorProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The name to show: the folder of a set of shards, else the file.
    pub title: AttrValue,
    /// The worker's description of the model.
    pub description: Option<Rc<ModelDescription>>,
    /// Details of the selected row.
    pub inspected: Option<Rc<RowDetails>>,
    /// Values of the selected row.
    pub values: Option<Rc<FormattedValues>>,
    /// The state of reading values.
    pub values_panel: ValuesPanel,
    /// The dtypes of arrays that are stored without one.
    pub read_as: ReadAsChoice,
}

#[component]
pub fn Inspector(props: &InspectorProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let node = use_node_ref();
    let (width, _) = use_size(&node);
    let work = &props.work;
    let body = if let Some(row) = work.row() {
        leaf(props, &actor, row, width)
    } else if let Some(fold) = work.fold() {
        fold_facts(fold)
    } else {
        checkpoint_facts(props, &actor)
    };
    let row = work.row().map(|row| &work.rows[row as usize].key);
    let key = row.or_else(|| work.fold().map(|fold| &fold.name)).map(|key| visible(key));
    html! { <aside class="insp" data-key={key} aria-label="Inspector" tabindex="0" ref={node}><h2 class="vh">{ "Inspector" }</h2>{ body }</aside> }
}

/// Renders facts of the whole checkpoint, shown when nothing is selected.
fn checkpoint_facts(props: &InspectorProps, actor: &Actor) -> Html {
    let work = &props.work;
    let opened = &work.opened;
    let own = |(label, value): (&str, u64)| (label.to_owned(), fmt::exact(value));
    let shards = (opened.shards > 0).then_some(("shards", opened.shards));
    let counts = [
        ("keys", work.rows.len() as u64),
        ("tensors", work.sums.tensors),
        ("values", work.sums.values),
    ];
    let sizes = [("bytes of tensors", work.sums.bytes), ("bytes on disk", opened.size)];
    // Counts of rows are shown between the program that wrote it and the parameters.
    let before = opened.facts.iter().take_while(|(label, _)| label != "params").count();
    let (before, after) = opened.facts.split_at(before);
    let facts = before
        .iter()
        .cloned()
        .chain(shards.into_iter().chain(counts).map(own))
        .chain(after.iter().cloned())
        .chain(sizes.map(own));
    html! {
        <>
            <section><div class="wrapkey">{ visible(&props.title) }</div></section>
            <section><dl class="kv" id="checkpoint-facts">
                { for facts.map(|(label, value)| html! { <><dt>{ label }</dt><dd>{ value }</dd></> }) }
            </dl></section>
            { read_as::page::section(&props.read_as, work) }
            if !work.dtypes.is_empty() {
                <section>
                    <div class="hd"><h3>{ "Dtypes" }</h3><span class="lab">{ "bytes \u{b7} tensors" }</span></div>
                    <dl class="kv" id="dtypes">{ for work.dtypes.iter().map(|(word, sums)| html! {
                        <><dt class="m">{ word }</dt><dd>{ fmt::bytes(sums.bytes) }<span class="dim">{ format!(" \u{b7} {}", fmt::exact(sums.tensors)) }</span></dd></>
                    }) }</dl>
                </section>
            }
            <section class="quiet"><p class="dim">{ "Select a key to see its values and location." }</p></section>
            // This part arrives later, so it comes last and moves nothing.
            if let Some(description) = &props.description { { model_description::page::all(actor, description) } }
        </>
    }
}

fn fold_facts(fold: &Fold) -> Html {
    html! {
        <>
            <section>
                <div class="hd"><span class="lab">{ format!("{} identical layers", fold.times) }</span>
                    <Copy text={fold.name.clone()} label="key" /></div>
                { wrapped_key(&fold.name) }
            </section>
            <section><dl class="kv">
                <dt>{ "members" }</dt><dd>{ format!("{} {}", fold.container, fold.label) }</dd>
                <dt>{ "keys in each" }</dt><dd>{ fmt::exact(fold.patterns.len() as u64) }</dd>
                <dt>{ "in all" }</dt><dd>{ contents_text(&fold.sums) }</dd>
                if fold.sums.tensors > 0 {
                    <dt>{ "params" }</dt><dd>{ fmt::exact(fold.sums.params) }</dd>
                    <dt>{ "bytes" }</dt><dd>{ fmt::exact(fold.sums.bytes) }</dd>
                }
            </dl></section>
        </>
    }
}

fn leaf(props: &InspectorProps, actor: &Actor, id: u32, width: f64) -> Html {
    let work = &props.work;
    let row = &work.rows[id as usize];
    let inspected = props.inspected.as_ref().filter(|inspected| inspected.row == id);
    let values = props.values.as_ref().filter(|values| values.row == id);
    html! {
        <>
            <section>
                <div class="hd">
                    if let Some(layer) = work.layer() { { stepper(actor, &layer) } }
                    else { <span class="lab">{ kind_text(row) }</span> }
                    <span class="tools"><Copy text={row.key.clone()} label="key" /></span>
                </div>
                { wrapped_key(&row.key) }
                if let Some(path) = inspected.map(|inspected| &inspected.path).filter(|path| !path.is_empty()) {
                    <div class="path m dim" title="Path in Python">{ cut_text(path) }</div>
                }
            </section>
            <section><dl class="kv facts">
                { kind_fact(row, inspected.is_some_and(|inspected| inspected.text.is_some())) }
                if row.kind.has_shape() {
                    <dt>{ "shape" }</dt><dd>{ fmt::shape(&row.shape) }</dd>
                    <dt>{ "params" }</dt><dd>{ fmt::exact(row.params) }</dd>
                    <dt>{ "bytes" }</dt><dd>{ fmt::exact(row.bytes) }</dd>
                }
                if let Some(target) = &row.link {
                    <dt>{ "is" }</dt><dd>{ target_link(work, actor, target) }</dd>
                }
                if let Some((key, basis)) = inspected.and_then(|inspected| inspected.parameter.as_ref()) {
                    <dt>{ "belongs to" }</dt><dd>{ target_link(work, actor, key) } <span class="dim">{ format!(" {basis}") }</span></dd>
                }
                if let Some(inspected) = inspected {
                    { for inspected.facts.iter().map(|fact| html! {
                        <><dt>{ &fact.label }</dt><dd>{ &fact.value }
                            if !fact.note.is_empty() { <span class="dim">{ format!(" {}", fact.note) }</span> }</dd></>
                    }) }
                }
            </dl></section>
            if untyped_size(row).is_some() { { read_as::page::section(&props.read_as, work) } }
            if let Some(text) = inspected.and_then(|inspected| inspected.text.clone()) {
                <section>
                    <div class="hd"><h3>{ "Value" }</h3><span class="tools"><Copy text={text.clone()} label="value" /></span></div>
                    <pre class="whole" tabindex="0">{ text }</pre>
                </section>
            }
            if let Some(statistics) = inspected.and_then(|inspected| inspected.statistics) {
                <section id="statistics">
                    <div class="hd"><h3>{ "Statistics" }</h3><span class="lab">{ format!("of {}", fmt::plural(row.params, "value")) }</span></div>
                    <dl class="kv">{ for summary_facts(&statistics, family(&row.dtype) == DTypeFamily::Int).into_iter().map(|(label, value)| html! { <><dt>{ label }</dt><dd>{ value }</dd></> }) }</dl>
                </section>
            }
            if let Some(details) = inspected.and_then(|inspected| inspected.quantised.as_ref()) {
                { quantised::page::section(actor, work, &row.key, details) }
            }
            if let Some(inspected) = inspected.filter(|inspected| inspected.pieces.is_some()) {
                <PiecesSection key={id} row={row.clone()} inspected={inspected.clone()} places={work.places.clone()} values_panel={props.values_panel.clone()} />
            }
            if let Some(inspected) = inspected {
                <StatisticsSection row={row.clone()} inspected={inspected.clone()} values_panel={props.values_panel.clone()} {width} />
            }
            if work.opened.summary {
                <section class="quiet" id="no-values"><p class="dim">{ "This summary has no values or offsets; the file has them." }</p></section>
            }
            if let Some(inspected) = inspected.filter(|inspected| inspected.has_values) {
                { value_section(actor, work, (row, id), inspected, values, &props.values_panel, width) }
            }
            if let Some(inspected) = inspected.filter(|inspected| !inspected.code.is_empty()) {
                <CodeSection code={code_of(inspected, values, props.values_panel.slice_of(id))} />
            }
            if let Some(inspected) = inspected.filter(|inspected| !inspected.attributes.is_empty()) {
                <section>
                    <div class="hd"><h3>{ "Attributes" }</h3><span class="lab">{ "as stored" }</span></div>
                    <dl class="kv l">
                        { for inspected.attributes.iter().map(|(name, value)| html! {
                            <><dt class="m" title={name.clone()}>{ name }</dt><dd title={value.clone()}>{ value }</dd></>
                        }) }
                    </dl>
                </section>
            }
        </>
    }
}

/// Returns Python code that reads the row, or the slice of it that is shown.
fn code_of(
    inspected: &RowDetails,
    values: Option<&Rc<FormattedValues>>,
    slice: &str,
) -> Vec<(String, String)> {
    let sliced = values.filter(|values| !slice.is_empty() && values.slice == slice);
    sliced.map_or(&inspected.code, |values| &values.code).clone()
}

fn kind_text(row: &Row) -> &'static str {
    if row.kind.has_shape() { "tensor" } else { "value" }
}

/// Renders the dtype, or the kind and the value unless it is long; long values have their own
/// section.
fn kind_fact(row: &Row, long: bool) -> Html {
    html! {
        if row.kind.has_shape() && !row.dtype.is_empty() {
            <dt>{ "dtype" }</dt><dd>{ dtype(&row.dtype) }</dd>
        } else {
            <dt>{ "kind" }</dt><dd>{ value_kind(row.kind_word()) }</dd>
            if !row.value.is_empty() && !long { <dt>{ "value" }</dt><dd class="wrap">{ fmt::minus(&row.value) }</dd> }
        }
    }
}

fn target_link(work: &OpenWork, actor: &Actor, target: &str) -> Html {
    let Some(row) = work.find(target) else {
        return html! { <span class="dim">{ target.to_owned() }</span> };
    };

    let onclick =
        actor.on(move |actor, _: MouseEvent| actor.work(move |work| work.select_row(row)));
    html! { <button class="textlink m keylink" {onclick}>{ breakable(target) }</button> }
}

/// Renders the buttons that step through the layers of a fold.
fn stepper(actor: &Actor, layer: &Layer) -> Html {
    let (at, count) = (layer.at, layer.count);
    let by = |by: isize| {
        actor.on(move |actor, _: MouseEvent| actor.work(move |work| work.step_layer(by)))
    };
    html! {
        <span class="step" role="group" aria-label="Member of the fold">
            <button aria-label="Previous" title="Previous (,)" disabled={at == 0} onclick={by(-1)}>{ "\u{2039}" }</button>
            <span>{ layer.text.clone() }</span>
            <button aria-label="Next" title="Next (.)" disabled={at + 1 == count} onclick={by(1)}>{ "\u{203a}" }</button>
        </span>
    }
}

/// Renders the buttons that save the tensor, or the shown slice of it, as a file of its own.
fn save_as(actor: &Actor, values_panel: &ValuesPanel, work: &OpenWork, row: &Row, id: u32) -> Html {
    if row.kind != LeafKind::Tensor && row.kind != LeafKind::Array || work.opened.summary {
        return html! {};
    }
    let slice = values_panel.slice_of(id);
    html! {
        <>
            if slice.is_empty() {
                <SaveAs key={id} row={id} tensor={row.key.clone()} dtype={row.dtype.clone()} sheet=true />
            } else {
                <SaveAs key={id} row={id} tensor={row.key.clone()} slice={slice.to_owned()} label="save the slice as" dtype={row.dtype.clone()} />
            }
            { export_progress(actor, &values_panel.export) }
        </>
    }
}

/// Renders the shown slice, with a button to go back to the whole tensor.
fn slice_line(actor: &Actor, slice: &str, places: &ElementPlaces) -> Html {
    let onclick = actor.on(move |actor, _: MouseEvent| actor.values_panel(|it| it.slice = None));
    html! {
        <p class="slice-of" id="slice"><span class="lab">{ "slice" }</span>
            <span class="m">{ format!("[{slice}]") }</span><span class="m dim">{ fmt::shape(places.shape()) }</span>
            <button class="textlink" id="slice-whole" {onclick}>{ "whole tensor" }</button></p>
    }
}

fn value_section(
    actor: &Actor,
    work: &OpenWork,
    (row, id): (&Row, u32),
    inspected: &RowDetails,
    values: Option<&Rc<FormattedValues>>,
    values_panel: &ValuesPanel,
    width: f64,
) -> Html {
    let selected = values_panel.at.filter(|(row, _)| *row == id).map(|(_, number)| number);
    let slice = values_panel.slice_of(id);
    let shown = values_panel.shown_of(id);
    let values = values.filter(|values| values.slice == slice && values.shown.as_ref() == shown);
    let other = values.filter(|values| values.shown.is_some() && values.values.is_ok());
    let other = other.map(|values| {
        let (dtype, shape) = (values.dtype.clone(), values.shape.clone());
        Row { dtype, shape, params: values.shape.iter().product(), ..row.clone() }
    });
    let usual = row;
    let row = other.as_ref().unwrap_or(row);
    let stored = inspected.quantised.as_ref().filter(|details| !details.dtype.is_empty());
    let stored = stored.and_then(|details| details.parts.first());
    let stored = stored.map_or(&usual.dtype, |part| &part.dtype);
    let show_as = quantised::page::shown_as(actor, usual, id, stored, shown);
    let places = slice.parse().and_then(|slice| ElementPlaces::new(&slice, &row.shape));
    let (Some(values), Ok(places)) = (values, places) else {
        return html! { <section><div class="hd"><h3>{ "Values" }</h3></div><p class="dim">{ "not read yet" }</p></section> };
    };
    let texts = match &values.values {
        Ok(texts) => texts,
        Err(error) => {
            return html! { <section><div class="hd"><h3>{ "Values" }</h3></div>{ show_as }{ short_error(error) }</section> };
        }
    };
    if texts.is_empty() {
        // The statistics say so.
        return html! {};
    }
    let (start, end) = (values.start, values.start + texts.len() as u64);
    let go = |start: u64| {
        let (slice, shown) = (slice.to_owned(), shown.cloned());
        actor.on(move |actor, _: MouseEvent| {
            actor.request(&ToWorker::Values {
                row: id,
                slice: slice.clone(),
                start,
                count: VALUES,
                shown: shown.clone(),
            });
        })
    };
    let count = places.count();
    let text = texts.join("\n");
    let copied = text.clone();
    let onclick = Callback::from(move |_: MouseEvent| copy(&copied));
    html! {
        <section>
            <div class="hd"><h3>{ "Values" }</h3>
                <span class="lab">{ "copy as " }<button class="textlink" {onclick}>{ "text" }</button></span>
                { matrix::page::button(actor) }</div>
            if shown.is_none() { { save_as(actor, values_panel, work, row, id) } }
            { show_as }
            if row.params > 1 { <GoTo key={id} row={id} shape={row.shape.clone()} /> }
            if !slice.is_empty() { { slice_line(actor, slice, &places) } }
            { grid(actor, (row, id), &places, start, texts, selected, width) }
            { value_bar(actor, (row, id), &places, values, texts, selected) }
            if let Some(line) = values_panel.line.as_ref().filter(|line| line.row == id) { { line_plot(actor, row, line) } }
            if count > u64::from(VALUES) {
                <div class="pager">
                    <span class="step">
                        <button aria-label="Earlier values" disabled={start == 0} onclick={go(start.saturating_sub(u64::from(VALUES)))}>{ "\u{2039}" }</button>
                        <span>{ format!("{}\u{2013}{}", fmt::exact(start), fmt::exact(end - 1)) }</span>
                        <button aria-label="Later values" disabled={end >= count} onclick={go(end)}>{ "\u{203a}" }</button>
                    </span>
                    <span class="lab">{ format!("of {}", fmt::exact(count)) }</span>
                    <span class="grow"></span>
                    <button class="textlink" disabled={end >= count}
                        onclick={go(count.saturating_sub(u64::from(VALUES)))}>{ "last" }</button>
                </div>
            }
        </section>
    }
}

/// Largest size in bytes of a tensor whose columns are read on request.
const MAX_COLUMN: u64 = 64_000_000;

/// Renders the selected value: its index, all its digits, its bits and its byte, with buttons that
/// copy it, step, and draw its row and its column.
fn value_bar(
    actor: &Actor,
    (row, id): (&Row, u32),
    places: &ElementPlaces,
    values: &FormattedValues,
    texts: &[String],
    selected: Option<u64>,
) -> Html {
    let start = values.start;
    let is_it = |at: &usize| Some(places.place(start + *at as u64)) == selected;
    let Some(at) = (0..texts.len()).find(is_it) else { return html! {} };
    let number = start + at as u64;
    let place = places.place(number);
    let index = statelens_values::index(&row.shape, place);
    let step = |to: Option<u64>, name: &'static str, sign: &'static str| {
        let to = to.filter(|to| *to < places.count()).map(|to| places.place(to));
        let onclick = actor.on(move |actor, _: MouseEvent| {
            if let Some(to) = to {
                actor.values_panel(move |panel| panel.at = Some((id, to)));
            }
        });
        html! { <button aria-label={name} disabled={to.is_none()} {onclick}>{ sign }</button> }
    };
    let byte = values.stored.and_then(|(first, size)| first.checked_add(place.checked_mul(size)?));
    html! {
        <div class="valuebar" id="value-bar" role="status">
            <span class="m dim">{ fmt::shape(&index) }</span>
            <b class="m">{ texts[at].clone() }</b>
            { dtype(&row.dtype) }
            <Copy text={texts[at].clone()} label="value" />
            <span class="grow"></span>
            <span class="step">
                { step(number.checked_sub(1), "Previous value", "\u{2039}") }
                { step(number.checked_add(1), "Next value", "\u{203a}") }
            </span>
            <span class="valueplace">
                if let Some(bits) = values.bits.get(at) { <span class="m dim" title="Bits, the highest first">{ format!("0x{bits}") }</span> }
                if let Some(byte) = byte { <span class="m dim" title="Its place in the file">{ fmt::in_file(byte) }</span> }
                { along(actor, row, id, &index) }
            </span>
        </div>
    }
}

/// Renders the links that draw the row and the column of a value.
fn along(actor: &Actor, row: &Row, id: u32, index: &[u64]) -> Html {
    let [.., down, across] = index else { return html! {} };
    let last = index.len() - 1;
    let link = |whole: usize, name: String, off: bool| {
        let slice: Vec<String> = index
            .iter()
            .enumerate()
            .map(|(at, number)| if at == whole { ":".to_owned() } else { number.to_string() })
            .collect();
        let slice = slice.join(", ");
        let onclick = actor.on(move |actor, _: MouseEvent| {
            actor.request(&ToWorker::Line(id, slice.clone()));
        });
        let title =
            if off { "Its column is spread over more than 64 MB" } else { "Draw its values" };
        html! { <button class="textlink" disabled={off} {title} {onclick}>{ name }</button> }
    };
    html! {
        <>
            { link(last, format!("row {}", fmt::exact(*down)), false) }
            { link(last - 1, format!("column {}", fmt::exact(*across)), row.bytes > MAX_COLUMN) }
        </>
    }
}

/// Renders the values along one dimension.
fn line_plot(actor: &Actor, row: &Row, line: &TensorLine) -> Html {
    let close = actor.on(move |actor, _: MouseEvent| actor.values_panel(|panel| panel.line = None));
    let title = format!("[{}]", line.slice);
    let body = match &line.points {
        Err(error) => short_error(error),
        Ok(points) => {
            let of = |name: &str, value: fn(&(u64, f64, f64)) -> f64| Series {
                name: name.into(),
                points: points.iter().map(|point| (point.0 as f64, value(point))).collect(),
            };
            // With more values than points, a point is a range.
            let ranges = points.iter().any(|(_, low, high)| low < high);
            let lines = match ranges {
                true => vec![of("largest", |point| point.2), of("smallest", |point| point.1)],
                false => vec![of("value", |point| point.1)],
            };
            let chart = Chart {
                title: "value".into(),
                across: "index".into(),
                up: "value".into(),
                lines,
                ..Chart::default()
            };
            html! { <ChartView {chart} height={220} name={format!("{} {}", row.key, line.slice)} /> }
        }
    };
    html! {
        <div class="lineplot" id="line-plot" data-slice={line.slice.clone()}>
            <div class="hd"><h3 class="m">{ title }</h3><button class="ico" aria-label="Close the plot" onclick={close}>{ close_icon() }</button></div>
            { body }
        </div>
    }
}

/// Renders values in C order, a few per line, each line with the index of its first value. A click
/// selects a value.
fn grid(
    actor: &Actor,
    (row, id): (&Row, u32),
    places: &ElementPlaces,
    start: u64,
    texts: &[String],
    selected: Option<u64>,
    width: f64,
) -> Html {
    let cells: Vec<String> = texts.iter().map(|text| fmt::cell(text)).collect();
    let widest = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(1) as f64;
    let fit = ((width.max(300.0) - 96.0) / (widest * 6.7 + 8.0)).floor().clamp(1.0, 8.0) as usize;
    // If a row of the innermost dimension fits, a line is as long as that row.
    let inner = places.shape().last().copied().unwrap_or(1);
    let per_line = if inner > 0 && inner <= fit as u64 { inner as usize } else { fit };
    let index = |at: u64| {
        let index = statelens_values::index(&row.shape, places.place(at));
        index.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
    };
    html! {
        <table class="vals"><tbody>
            { for cells.chunks(per_line).enumerate().map(|(line, chunk)| html! {
                <tr>
                    // A scalar has no index.
                    if !row.shape.is_empty() { <th scope="row">{ index(start + (line * per_line) as u64) }</th> }
                    { for chunk.iter().enumerate().map(|(at, cell)| {
                        let number = places.place(start + (line * per_line + at) as u64);
                        let on = selected == Some(number);
                        let onclick = actor.on(move |actor, _: MouseEvent| {
                            actor.values_panel(move |panel| panel.at = Some((id, number)));
                        });
                        html! { <td class={when(on, "here")} tabindex={on.then_some("-1")} aria-current={on.then_some("location")} title={texts[line * per_line + at].clone()} {onclick}>{ cell }</td> }
                    }) }
                    { for (chunk.len()..per_line.min(cells.len())).map(|_| html! { <td></td> }) }
                </tr>
            }) }
        </tbody></table>
    }
}
