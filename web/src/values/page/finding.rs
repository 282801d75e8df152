//! Findings about values: what, where, the numbers, and a button that goes to the value.

use std::collections::HashMap;

use statelens_checkpoint::numbers::pattern;
use statelens_checkpoint::{Grade, visible};
use statelens_values::weights::{ElementRef, LayerSeries, Noticed};
use yew::prelude::*;

use crate::page::marks::{classes, prose, severity, tick_icon};
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::state::work::OpenWork;
use crate::text::title;
use crate::values::message::ScanReport;
use crate::values::state::number;

/// Maximum number of keys that a finding lists.
const MAX_LISTED: usize = 6;

/// Renders a finding.
pub fn article(actor: &Actor, work: &OpenWork, noticed: &Noticed) -> Html {
    let (class, word) = match noticed.grade {
        Grade::Note => ("note", "Note"),
        _ => ("warn", "Warning"),
    };
    let show = noticed.element.as_ref().map(|ElementRef { tensor, number, index }| {
        let (row, number) = (*tensor as u32, *number);
        let onclick = actor.on(move |actor, _: MouseEvent| actor.go_to(row, number));
        html! { <p><button class="btn pri show-value" {onclick}>{ format!("Show {}", fmt::shape(index)) }</button></p> }
    });
    let key = noticed.tensors.first().filter(|_| show.is_none()).map(|&row| {
        let row = row as u32;
        let onclick = actor.on(move |actor, _: MouseEvent| {
            actor.work(move |work| work.select_row(row));
            actor.show(None);
        });
        html! { <p><button class="btn" {onclick}>{ "Show the key" }</button></p> }
    });
    html! {
        <article class={classes(&["find", "of-values", class])}>
            <div><div class="sev">{ severity(noticed.grade) }<span class={format!("w-{class}")}>{ word }</span></div>
                <div class="tag where">{ "in the values" }</div></div>
            <div>
                <h3>{ prose(&title(&noticed.title)) }</h3>
                if !noticed.text.is_empty() { <p>{ prose(&noticed.text) }</p> }
                if let Some(series) = &noticed.series { { over_depth(series) } }
                if noticed.tensors.len() > 1 { { keys(actor, work, &noticed.tensors) } }
            </div>
            <div class="do">
                if !noticed.advice.is_empty() { <p>{ prose(&noticed.advice) }</p> }
                { show.unwrap_or_default() }
                { key.unwrap_or_default() }
            </div>
        </article>
    }
}

/// Renders the message that nothing was found, with the list of checks.
pub fn no_findings(scanned: &ScanReport) -> Html {
    let whole =
        if scanned.unread_bytes > 0 { "in the values read so far" } else { "in the values" };
    html! {
        <div class="allgood" id="values-good">{ tick_icon() }<div><h3>{ format!("Nothing found {whole}") }</h3>
            <p class="mid-ink">{ format!("Looked for {}.", scanned.checks.join(", ")) }</p></div></div>
    }
}

/// Renders the keys; keys that differ only in numbers are folded into one.
fn keys(actor: &Actor, work: &OpenWork, rows: &[usize]) -> Html {
    let mut folded: Vec<(String, usize, u64)> = Vec::new();
    let mut existing: HashMap<String, usize> = HashMap::new();
    for &row in rows {
        let Some(key) = work.rows.get(row).map(|row| &row.key) else { continue };
        let (name, _) = pattern(key, work.view.dot);
        match existing.get(&name) {
            Some(&at) => folded[at].2 += 1,
            None => {
                existing.insert(name.clone(), folded.len());
                folded.push((name, row, 1));
            }
        }
    }
    let more = folded.len().saturating_sub(MAX_LISTED);
    html! {
        <ul class="keys-of">
            { for folded.iter().take(MAX_LISTED).map(|(name, row, times)| {
                let row = *row;
                let name = if *times == 1 { work.rows[row].key.clone() } else { name.clone() };
                let onclick = actor.on(move |actor, _: MouseEvent| {
                    actor.work(move |work| work.select_row(row as u32));
                    actor.show(None);
                });
                html! { <li><button class="textlink m" {onclick}>{ visible(&name) }</button>
                    if *times > 1 { <span class="x">{ format!("\u{d7}{times}") }</span> }</li> }
            }) }
            if more > 0 { <li class="dim">{ format!("and {} more", fmt::exact(more as u64)) }</li> }
        </ul>
    }
}

/// Renders the standard deviations over layers, with the outlier and its expected value.
fn over_depth(series: &LayerSeries) -> Html {
    const WIDTH: f64 = 320.0;
    const HEIGHT: f64 = 72.0;
    let LayerSeries { depth, values, marked, expected } = series;
    let marked = *marked;
    let all = || values.iter().chain(std::iter::once(expected)).map(|value| value.ln());
    let (least, most) =
        all().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), it| (a.min(it), b.max(it)));
    let (Some(&value), Some(&layer), true) =
        (values.get(marked), depth.get(marked), values.len() > 1)
    else {
        return html! {};
    };
    let x = |at: usize| 4.0 + at as f64 / (values.len() - 1) as f64 * (WIDTH - 8.0);
    let y = |value: f64| {
        let part = if most > least { (value.ln() - least) / (most - least) } else { 0.5 };
        HEIGHT - 18.0 - part * (HEIGHT - 30.0)
    };
    let points: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(at, value)| format!("{:.1} {:.1}", x(at), y(*value)))
        .collect();
    let label = format!(
        "\u{3c3} over {} siblings: number {layer} has {} where {} is expected",
        values.len(),
        number(value),
        number(*expected)
    );
    let ends =
        [depth.first(), depth.last()].map(|layer| layer.copied().unwrap_or_default().to_string());
    let [first, last] = ends;
    let near_end = x(marked) > WIDTH - 90.0;
    html! {
        <svg class="depth" width={WIDTH.to_string()} height={HEIGHT.to_string()} role="img" aria-label={label}>
            <path class="axis" d={format!("M0 {0}H{WIDTH}", HEIGHT - 12.0)} />
            <path class="line" d={format!("M{}", points.join("L"))} />
            <path class="gap" d={format!("M{0:.1} {1:.1}V{2:.1}", x(marked), y(value), y(*expected))} />
            <circle class="expected" cx={format!("{:.1}", x(marked))} cy={format!("{:.1}", y(*expected))} r="3" />
            <circle class="odd" cx={format!("{:.1}", x(marked))} cy={format!("{:.1}", y(value))} r="3.5" />
            <text class="ink" x={format!("{:.1}", x(marked) + if near_end { -8.0 } else { 8.0 })} y={format!("{:.1}", (y(value) + 4.0).max(10.0))} text-anchor={if near_end { "end" } else { "start" }}>{ number(value) }</text>
            <text x="0" y={(HEIGHT - 1.0).to_string()}>{ first }</text>
            <text x={WIDTH.to_string()} y={(HEIGHT - 1.0).to_string()} text-anchor="end">{ last }</text>
        </svg>
    }
}
