//! The convert sheet while a conversion runs, when it is complete, and when it has failed.

use std::rc::Rc;

use statelens_checkpoint::Grade;
use yew::prelude::*;

use crate::byte_map;
use crate::byte_map::page::TapeView;
use crate::byte_map::page::output_parts;
use crate::convert::message::{ConversionResult, PlanSummary, WriteMethod};
use crate::convert::state::Conversion;
use crate::page::drop::DroppedFile;
use crate::page::error::{error_body, raise_limits_offer};
use crate::page::kept_outputs::kept_outputs;
use crate::page::marks::{Copy, key, prose, severity, tick_icon};
use crate::page::model::actor::Actor;
use crate::page::running::{figure, progress, running_sheet};
use crate::protocol::error::{ErrorKind, ErrorText};
use crate::protocol::job::JobKind;
use crate::protocol::task::JobProgress;
use crate::state::fmt;

fn plan_of(convert: &Conversion) -> Option<&Rc<PlanSummary>> {
    match &convert.plan {
        Some(Ok(plan)) => Some(plan),
        _ => None,
    }
}

/// Returns the progress in bytes of the output's tape. `done` counts logical bytes, of which
/// compression makes fewer, so it is scaled.
fn on_tape(plan: &PlanSummary, now: &JobProgress) -> u64 {
    let tape_bytes: u64 = plan.runs.iter().map(|run| run.1).sum();
    (now.done as f64 / now.total.max(1) as f64 * tape_bytes as f64) as u64
}

/// Renders a running conversion.
pub fn running_body(
    actor: &Actor,
    convert: &Conversion,
    now: &JobProgress,
    past: &[(u64, f64)],
) -> Html {
    let cancel = actor.on(move |actor, _: MouseEvent| actor.stop(JobKind::Write));
    let bar = plan_of(convert).map(|plan| {
        html! { <TapeView parts={output_parts(plan)} done={Some(on_tape(plan, now))} /> }
    });
    let content = html! {
        <>
            { progress(Classes::new(), "Writing", Some((now.done, now.total)), bar.unwrap_or_default()) }
            if !now.key.is_empty() { <div class="nowkey">{ key(&now.key) }</div> }
            { chart(past) }
            <p class="dim">{ "Cancel removes the partial output. You can keep browsing the checkpoint; progress stays in the bar at the bottom." }</p>
        </>
    };
    running_sheet(actor, ("convert-run", "written"), (now, past), cancel, content)
}

/// Renders the rate over time once there are enough points.
fn chart(past: &[(u64, f64)]) -> Html {
    if past.len() < 4 {
        return html! {};
    }
    // At most 60 points, each the mean over its interval.
    let step = past.len().div_ceil(60);
    let points: Vec<(f64, f64)> = past
        .iter()
        .step_by(step)
        .collect::<Vec<_>>()
        .windows(2)
        .filter(|pair| pair[1].1 > pair[0].1)
        .map(|pair| {
            (
                pair[1].1,
                (pair[1].0.saturating_sub(pair[0].0)) as f64 / (pair[1].1 - pair[0].1) / 1000.0,
            )
        })
        .collect();
    let Some(&(end, _)) = points.last() else { return html! {} };
    let most = points.iter().map(|point| point.1).fold(1.0, f64::max);
    let ten = byte_map::state::decade(most);
    let top =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * ten).find(|&n| n >= most).unwrap_or(most);
    let line: String = points
        .iter()
        .map(|(at, rate)| {
            format!("{:.1},{:.1} ", 52.0 + at / end * 900.0, 82.0 - rate / top * 77.0)
        })
        .collect();
    let label = format!(
        "Rate over {}: {:.0} MB/s now, peak {most:.0}",
        fmt::seconds(end),
        points.last().map_or(0.0, |point| point.1)
    );
    html! {
        <svg class="ratechart only-l" viewBox="0 0 1022 98" role="img" aria-label={label}>
            <path d="M52 82H952M52 43.5H952M52 5H952" stroke="var(--line)" />
            <text x="46" y="86" text-anchor="end">{ "0" }</text>
            <text x="46" y="47" text-anchor="end">{ format!("{}", top / 2.0) }</text>
            <text x="46" y="12" text-anchor="end">{ format!("{top}") }</text>
            <polyline points={line} fill="none" stroke="var(--accent)" stroke-width="1.5" />
            <text x="960" y="24">{ "MB/s" }</text>
            <text x="52" y="96">{ "0 s" }</text>
            <text x="952" y="96" text-anchor="end">{ fmt::seconds(end) }</text>
        </svg>
    }
}

/// Renders a complete conversion.
pub fn done_body(actor: &Actor, convert: &Conversion, done: &ConversionResult, kept: u64) -> Html {
    let convert_again = actor.on(move |actor, _: MouseEvent| actor.convert(Conversion::reopen));
    let open = convert.file.as_ref().map(|file| {
        let file = file.clone();
        actor.on(move |actor, _: MouseEvent| actor.open(vec![DroppedFile::new(file.clone())], None))
    });
    let losses = convert.losses();
    let method = match done.method {
        WriteMethod::Composed => {
            "Saved by the browser from your file; see its download list for progress."
        }
        WriteMethod::Private => {
            "Written by the page, then saved by the browser with your downloads."
        }
        WriteMethod::InMemory => {
            "Kept in memory, then saved by the browser with your downloads: here the page has no private storage."
        }
        WriteMethod::Saved => "Written to the file that you chose.",
    };
    html! {
        <>
            <div class="runbody" id="convert-done">
                <div class="runhead">
                    { figure("written", format!("{} bytes", fmt::exact(done.bytes))) }
                    { figure("in", fmt::seconds(done.millis)) }
                    if done.method != WriteMethod::Composed { { figure("rate", fmt::rate(done.bytes, done.millis)) } }
                </div>
                if let Some(plan) = plan_of(convert) { <TapeView parts={output_parts(plan)} /> }
                <p class="verdict"><span class="w-good">{ tick_icon() }{ format!(" {} complete. ", match done.names.as_slice() {
                    [name] => format!("{name} is"),
                    names => format!("{} files are", names.len()),
                }) }</span><span class="mid-ink">{ method }</span></p>
                { read_back(done.read_back.as_ref()) }
                if let Some(plan) = plan_of(convert) {
                    <div class="block"><div class="lab">{ "The same on the command line" }</div>
                        <div class="cmd"><code>{ &plan.command }</code><Copy text={plan.command.clone()} label="command" /></div></div>
                    if !losses.is_empty() {
                        <div class="block"><div class="lab">{ "Lost, as acknowledged" }</div>
                            <dl class="gone">{ for losses.iter().map(|loss| html! { <><dt>{ prose(&loss.title) }</dt><dd>{ prose(&loss.reason) }</dd></> }) }</dl></div>
                    }
                    if !done.casts.is_empty() {
                        <div class="block" id="casts"><div class="lab">{ "Effects of casting" }</div>
                            { for done.casts.iter().map(|line| html! { <p>{ line }</p> }) }</div>
                    }
                    <div class="block"><div class="lab">{ "Content" }</div>
                        <dl class="gone">
                            <dt>{ "Keys" }</dt><dd>{ format!("{} ({})", fmt::exact(plan.keys), fmt::plural(plan.tensors, "tensor")) }</dd>
                            <dt>{ "Weights" }</dt><dd>{ &plan.weights }</dd>
                        </dl></div>
                }
            </div>
            <footer>
                <span class="grow dim">{ "The source was not changed." }</span>
                { kept_outputs(actor, kept) }
                <button class="btn" onclick={convert_again}>{ "Convert again" }</button>
                if let Some(onclick) = open { <button class="btn pri" id="open-result" {onclick}>{ "Open the result" }</button> }
            </footer>
        </>
    }
}

/// Renders the result of reading the written file back, and claims no more than was checked.
fn read_back(problem: Option<&ErrorText>) -> Html {
    match problem {
        Some(error) => html! {
            <p class="verdict" id="read-back" role="alert"><span class="w-danger">{ severity(Grade::Danger) }{ " It differs from the plan: do not use it. " }</span>
                <span class="mid-ink">{ prose(&error.title) }{ " " }{ prose(&error.text) }</span></p>
        },
        None => html! {
            <p class="verdict" id="read-back"><span class="w-good">{ tick_icon() }{ " Checked. " }</span>
                <span class="mid-ink">{ "Keys, dtypes, shapes, plain values and ties are as planned. The values of tensors were written once, and not read back." }</span></p>
        },
    }
}

/// Renders a failed conversion.
pub fn failed_body(
    actor: &Actor,
    convert: &Conversion,
    error: &Rc<ErrorText>,
    raise: Option<Callback<MouseEvent>>,
) -> Html {
    let back = actor.on(move |actor, _: MouseEvent| actor.convert(Conversion::reopen));
    let keep = plan_of(convert).filter(|_| error.kind == ErrorKind::Falsified).map(|plan| {
        let (plan, request) = (plan.clone(), convert.request);
        actor.on(move |actor, _: MouseEvent| actor.run(request, &plan, true))
    });
    html! {
        <>
            <div class="runbody" id="convert-failed" role="alert">
                { error_body(error, "failed", true) }
                { raise_limits_offer(raise) }
            </div>
            <footer>
                <span class="grow dim">{ "No partial output is left, and the source was not changed." }</span>
                if let Some(onclick) = keep { <button class="btn" id="falsify" {onclick}>{ "Write it anyway" }</button> }
                <button class="btn" onclick={back}>{ "Back to the plan" }</button>
            </footer>
        </>
    }
}
