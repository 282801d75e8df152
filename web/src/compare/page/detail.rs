//! Details of the selected pair: both sides, how far apart they are, and whether one checkpoint
//! would load into the other.

use std::rc::Rc;

use statelens_checkpoint::visible;
use statelens_compare::diff::{DifferenceKind, ElementDifference};
use yew::prelude::*;

use super::layers::LayersSection;
use super::load_check::load_check;
use super::table::{float, mark, share};
use super::tensor_diff::TensorDiffSection;
use crate::compare::message::Difference;
use crate::compare::model::ComparisonState;
use crate::compare::state::{Mark, Pairs, RowPair};
use crate::page::marks::{Copy, dtype, value_kind, wrapped_key};
use crate::page::model::actor::Actor;
use crate::rows::Row;
use crate::state::fmt;

/// Properties of the pane.
#[derive(Properties, PartialEq)]
pub(super) struct DetailProps {
    pub compare: Rc<ComparisonState>,
}

/// The right pane, with the details of the selected pair.
#[component]
pub(super) fn Detail(props: &DetailProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let compare = &props.compare;
    let selected = compare.pairs.as_ref().zip(compare.pair());
    html! {
        <aside class="insp" aria-label="Details">
            <h2 class="vh">{ "Details" }</h2>
            if let Some((pairs, pair)) = selected { { of_pair(&actor, compare, pairs, &pair) } }
            else if compare.listed.is_none() { <section><p class="dim">{ "Select a key to see its differences." }</p></section> }
            { load_check(&actor, compare) }
        </aside>
    }
}

fn of_pair(actor: &Actor, compare: &Rc<ComparisonState>, pairs: &Pairs, pair: &RowPair) -> Html {
    let Some(row) = pairs.row(pair) else { return html! {} };
    let (a, b) = (pairs.first(pair), pairs.second(pair));
    let old = a.filter(|a| a.key != row.key);
    html! {
        <>
            <section>
                <div class="hd">
                    if compare.members() > 1 { { stepper(actor, compare) } } else { { mark(pair.mark) } }
                    <span class="tools"><Copy text={row.key.clone()} label="key" /></span>
                </div>
                if let Some(old) = old { <div class="old">{ wrapped_key(&old.key) }</div><div class="lab">{ "is in B" }</div> }
                { wrapped_key(&row.key) }
            </section>
            <section>{ sides(a, b) }
                if a.is_none() { <p class="lab">{ "only in B" }</p> }
                if b.is_none() { <p class="lab">{ "only in A" }</p> }
            </section>
            if let Some(of) = pairs.difference(pair).filter(|found| !found.parameter.is_empty()) {
                <section><dl class="kv"><dt>{ "parameter" }</dt><dd class="wrap" id="parameter">{ visible(&of.parameter.replace('`', "")) }</dd></dl></section>
            }
            { for pairs.differences(pair).map(|found| difference(found, row)) }
            <TensorDiffSection compare={compare.clone()} pair={*pair} />
            <LayersSection compare={compare.clone()} pair={*pair} />
            // Always present: Yew loses the position of a node behind components that render
            // nothing.
            <section hidden={pair.mark != Mark::Waiting}>
                if pair.mark == Mark::Waiting { <p class="dim">{ "Its values are not read yet." }</p> }
            </section>
            { by_member(actor, compare, pairs) }
        </>
    }
}

/// Renders the buttons that step through the keys folded into a line.
fn stepper(actor: &Actor, compare: &ComparisonState) -> Html {
    let by = |by: isize| {
        actor.on(move |actor, _: MouseEvent| actor.compare(move |compare| compare.step_member(by)))
    };
    let (at, count) = (compare.member, compare.members());
    html! {
        <span class="step" role="group" aria-label="Key of this line">
            <button aria-label="Previous" title="Previous (,)" disabled={at == 0} onclick={by(-1)}>{ "\u{2039}" }</button>
            <span>{ format!("{} of {}", fmt::exact(at as u64 + 1), fmt::exact(count as u64)) }</span>
            <button aria-label="Next" title="Next (.)" disabled={at + 1 == count} onclick={by(1)}>{ "\u{203a}" }</button>
        </span>
    }
}

/// Renders kind, shape, value and size on both sides.
fn sides(a: Option<&Row>, b: Option<&Row>) -> Html {
    let kind = |row: &Row| match row.dtype.as_str() {
        "" => value_kind(row.kind_word()),
        name => dtype(name),
    };
    let shape = |row: &Row| match row.kind.has_shape() {
        true => html! { { fmt::shape(&row.shape) } },
        false => html! {},
    };
    let value =
        |row: &Row| html! { <span title={row.value.clone()}>{ fmt::minus(&row.value) }</span> };
    let bytes = |row: &Row| match row.kind.has_shape() {
        true => html! { { fmt::bytes(row.bytes) } },
        false => html! {},
    };
    let any = |of: fn(&Row) -> bool| [a, b].into_iter().flatten().any(of);
    let line = |label: &'static str, cell: &dyn Fn(&Row) -> Html| {
        let of = |side: Option<&Row>| match side {
            Some(row) => cell(row),
            None => html! { <span class="dim">{ "\u{2013}" }</span> },
        };
        html! { <tr><th scope="row">{ label }</th><td>{ of(a) }</td><td>{ of(b) }</td></tr> }
    };
    html! {
        <table class="sides">
            <thead><tr><td></td><th scope="col">{ "A" }</th><th scope="col">{ "B" }</th></tr></thead>
            <tbody>
                { line("kind", &kind) }
                if any(|row| row.kind.has_shape()) { { line("shape", &shape) }{ line("bytes", &bytes) } }
                if any(|row| !row.value.is_empty()) { { line("value", &value) } }
            </tbody>
        </table>
    }
}

fn difference(found: &Difference, row: &Row) -> Html {
    let elements = found.kind.elements();
    let (left, right) = found.kind.sides();
    let title = match found.kind {
        _ if found.kind.has_one_sided_nan() => "NaN on one side",
        DifferenceKind::OnlyLeft { .. } | DifferenceKind::OnlyRight { .. } => "Only on one side",
        DifferenceKind::Type { .. } => "Different kinds",
        DifferenceKind::Shape { .. } => "Different shapes",
        DifferenceKind::DType { .. } => "Different dtypes",
        DifferenceKind::Value { .. } => "Different values",
        DifferenceKind::Elements(_) | DifferenceKind::Nan(_) => "Element differences",
        DifferenceKind::Unreadable { .. } => "Can\u{2019}t be compared",
    };
    let of = match found.part.as_str() {
        "" => String::new(),
        part => format!(" of its {part}"),
    };
    // The two sides already show the difference, except for parts of a tensor and long values.
    let shown = match found.kind {
        DifferenceKind::Value { .. } => !row.value.is_empty(),
        DifferenceKind::DType { .. } => elements.is_none(),
        DifferenceKind::Shape { .. } => elements.is_none(),
        DifferenceKind::Type { .. } => true,
        DifferenceKind::OnlyLeft { .. } | DifferenceKind::OnlyRight { .. } => true,
        _ => false,
    };
    if shown && found.part.is_empty() {
        return html! {};
    }
    html! {
        <section>
            <div class="hd"><h3>{ format!("{title}{of}") }</h3>
                if let Some(of) = elements { <span class="lab">{ share(of.differing, of.count) }</span> }</div>
            if !left.is_empty() { <p class="mid-ink wrap">{ &left }
                if !right.is_empty() { { format!(" \u{2192} {right}") } }</p> }
            if let Some(elements) = elements { { facts(&found.kind, elements) } }
        </section>
    }
}

fn facts(kind: &DifferenceKind, elements: &ElementDifference) -> Html {
    let mut facts = Vec::new();
    if let DifferenceKind::Shape { left, right, .. } = kind {
        let common: Vec<u64> = left.iter().zip(right).map(|(one, other)| *one.min(other)).collect();
        facts.push(("compared", format!("the common part {}", fmt::shape(&common))));
    }
    if let DifferenceKind::DType { values: Some(values), .. } = kind {
        facts.push(("values", values.word.clone()));
    }
    let (differing, count) = (fmt::exact(elements.differing), fmt::exact(elements.count));
    facts.push(("differ", format!("{differing} of {count}")));
    facts.extend(elements.first.as_ref().map(|first| ("first at", fmt::shape(first))));
    if let Some(distance) = &elements.distance {
        let number = |value: Option<f64>| value.map_or_else(|| "undefined".to_owned(), float);
        if distance.one_nan > 0 {
            facts.push(("NaN on one side", fmt::exact(distance.one_nan)));
        }
        if let (None, Some(Some(largest))) = (distance.max_abs, distance.finite_max_abs) {
            // Elements without a distance must not hide the others.
            facts.push(("max |B \u{2212} A|", float(largest)));
            let finite = fmt::exact(distance.finite);
            let without = fmt::exact(elements.count.saturating_sub(distance.finite));
            facts.push(("of", format!("the {finite} that are finite in both, without {without}")));
        } else {
            facts.push(("max |B \u{2212} A|", number(distance.max_abs)));
            facts.push(("max relative to B", number(distance.max_rel)));
            facts.push(("root mean square error", number(distance.mse.map(f64::sqrt))));
            facts.push(("mean squared error", number(distance.mse)));
            facts.push(("relative change", number(distance.change)));
            let cosine = distance.cosine.map(|cosine| fmt::minus(&format!("{cosine:.7}")));
            facts.push(("cosine", cosine.unwrap_or_else(|| "undefined".to_owned())));
        }
        let (a, b) = (distance.left_nan, distance.right_nan);
        if (a, b) != (0, 0) {
            facts
                .push(("NaN in A \u{b7} B", format!("{} \u{b7} {}", fmt::exact(a), fmt::exact(b))));
        }
    }
    html! {
        <dl class="kv">{ for facts.into_iter().map(|(label, value)| html! { <><dt>{ label }</dt><dd>{ value }</dd></> }) }</dl>
    }
}

/// Renders the largest difference for each key folded into a line.
fn by_member(actor: &Actor, compare: &ComparisonState, pairs: &Pairs) -> Html {
    let Some(line) = compare.line().filter(|line| line.pairs.len() > 1) else { return html! {} };
    let values: Vec<f64> = line
        .pairs
        .iter()
        .map(|at| {
            let found = pairs.pairs.get(*at as usize).and_then(|pair| pairs.difference(pair));
            found.and_then(|found| found.kind.distance()?.max_abs).unwrap_or(0.0)
        })
        .collect();
    let most = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    if most <= 0.0 || values.len() > 166 {
        return html! {};
    }
    let wide = 332.0 / values.len() as f64;
    let bar = |(at, value): (usize, &f64)| {
        let height = if value.is_finite() { value / most * 72.0 } else { 72.0 };

        let onclick = actor.on(move |actor, _: MouseEvent| {
            actor.compare(move |compare| compare.member = at);
        });
        let fill = if at == compare.member { "var(--accent)" } else { "var(--ink-3)" };
        html! {
            <g {onclick}>
                <rect x={format!("{:.2}", at as f64 * wide)} y="0" width={format!("{wide:.2}")} height="76" fill="transparent" />
                <rect x={format!("{:.2}", at as f64 * wide)} y={format!("{:.2}", 76.0 - height)} width={format!("{:.2}", (wide - 1.0).max(0.7))}
                    height={format!("{height:.2}")} {fill} />
            </g>
        }
    };
    let at = values.iter().position(|value| *value == most).unwrap_or(0);
    let label = format!(
        "Largest difference of each of {} keys; the maximum, {}, is in key {}",
        fmt::exact(values.len() as u64),
        float(most),
        fmt::exact(at as u64 + 1)
    );
    html! {
        <section>
            <div class="hd"><h3>{ "max |B \u{2212} A| by key" }</h3><span class="lab">{ format!("up to {}", float(most)) }</span></div>
            <svg viewBox="0 0 332 78" width="100%" role="img" aria-label={label}>
                { for values.iter().enumerate().map(bar) }
                <path d="M0 77H332" stroke="var(--line-2)" />
            </svg>
        </section>
    }
}
