//! The verify sheet: the options, the progress, and the result.

pub mod read_all;
mod task;

use std::rc::Rc;

use statelens_checkpoint::{Grade, visible};
use statelens_compare::verify::ReportLine;
use web_sys::{File, HtmlInputElement};
use yew::prelude::*;

use crate::byte_map::page::TapeView;
use crate::page::drop::{DroppedFile, save_text};
use crate::page::error::{error_body, raise_limits_offer};
use crate::page::marks::{Copy, check, classes, key, prose, severity, tick_icon, when};
use crate::page::model::actor::{Actor, click};
use crate::page::model::{PageModel, Sheet};
use crate::page::running::{figure, percent, progress, running_sheet};
use crate::page::sheet::{SheetFrame, TaskSheet};
use crate::protocol::error::ErrorText;
use crate::protocol::job::JobKind;
use crate::protocol::task::JobProgress;
use crate::state::fmt;
use crate::state::task::Task;
use crate::state::work::OpenWork;
use crate::text::title;
use crate::verify::message::VerifyReport;
use crate::verify::model::Verification;
use crate::verify::page::read_all::ReadAll;

/// Maximum number of lines shown; the report has all.
const MAX_LINES: usize = 200;

impl Actor {
    /// Changes the options or the state of the verification.
    pub(crate) fn verify(&self, change: impl FnOnce(&mut Verification) + 'static) {
        self.update(|model| change(&mut model.verification));
    }
}

/// Renders the sheet.
pub(crate) fn sheet(shown: TaskSheet) -> Html {
    let TaskSheet { model, work, title, cap, raise } = shown;
    let rate = model.values_panel.rate;
    let verification = model.verification.clone();
    html! { <VerifySheet {work} {title} {verification} {cap} {rate} {raise} /> }
}

/// Takes a single file that is dropped on the sheet as the manifest. Returns false for anything
/// else.
pub fn accept_manifest(model: &PageModel, actor: &Actor, dropped: &[DroppedFile]) -> bool {
    match dropped {
        [one] if model.sheet == Some(Sheet::Task(JobKind::Verify)) => {
            actor.update(move |model| model.dragged = None);
            set_manifest(actor, Some(one.file.clone()));
            true
        }
        _ => false,
    }
}

/// Sets the manifest. That stops a running verification, since everything must be read again.
fn set_manifest(actor: &Actor, manifest: Option<File>) {
    actor.stop(JobKind::Verify);
    actor
        .verify(|verification| (verification.task, verification.manifest) = (Task::Idle, manifest));
}

/// Renders the button in the status bar, which also shows progress and result.
pub fn status(actor: &Actor, task: &Task<VerifyReport>) -> Html {
    let onclick =
        actor.on(move |actor, _: MouseEvent| actor.show(Some(Sheet::Task(JobKind::Verify))));
    let text = match task {
        Task::Idle => html! { { "Verify" } },
        Task::Running(running) => {
            html! { <b>{ format!("verifying {} %", percent(&running.now)) }</b> }
        }
        Task::Done(done) => {
            // If all is sound, the verdict is shown in full, as it may have a qualification.
            let short = match done.report.answer(done.finite) {
                true => done.report.verdict(done.finite),
                false => done.report.outcome(done.finite).to_owned(),
            };
            let mark = mark(done);
            html! { <>{ mark }<b>{ short }</b></> }
        }
        Task::Failed(_) => {
            html! { <>{ severity(Grade::Warning) }<b>{ "not verified" }</b></> }
        }
    };
    // On wide screens the menu of "Read values" begins it.
    let class = classes(&["textrow", when(matches!(task, Task::Idle), "only-s")]);
    html! { <button {class} id="verify" title="Verify (V)" {onclick}><span>{ text }</span></button> }
}

/// Renders the icon of the result.
fn mark(done: &VerifyReport) -> Html {
    match (done.report.answer(done.finite), done.report.grade(done.finite)) {
        (true, Grade::Note) => tick_icon(),
        (true, grade) => severity(grade),
        (false, _) => severity(Grade::Danger),
    }
}

/// Properties of the sheet.
#[derive(Properties, PartialEq)]
pub struct VerifyProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The name to show: the folder of a set of shards, else the file.
    pub title: AttrValue,
    /// The options and the state of the verification.
    pub verification: Verification,
    /// Maximum bytes that one action may fetch, for a remote checkpoint.
    pub cap: Option<u64>,
    /// Measured speed in bytes per millisecond.
    pub rate: Option<f64>,
    /// Opens the checkpoint again with ten times the limits, if a limit was reached.
    pub raise: Option<Callback<MouseEvent>>,
}

#[component]
pub fn VerifySheet(props: &VerifyProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let note = html! { <span class="m dim cut">{ visible(&props.title) }</span> };
    let chosen = use_node_ref();
    let body = match &props.verification.task {
        Task::Idle => form(&actor, props, &chosen),
        Task::Running(task) => running(&actor, &props.work, &task.now, &task.past),
        Task::Done(done) => result(&actor, &props.work, done),
        Task::Failed(error) => failed(&actor, error, props.raise.clone()),
    };
    html! { <SheetFrame title="Verify" class="findings" {note}>{ body }</SheetFrame> }
}

fn form(actor: &Actor, props: &VerifyProps, chosen: &NodeRef) -> Html {
    let choose = {
        let chosen = chosen.clone();
        Callback::from(move |_: MouseEvent| click(&chosen))
    };
    let onchange = actor.on(move |actor, event: Event| {
        let input = event.target_dyn_into::<HtmlInputElement>();
        let file = input.and_then(|input| input.files()?.get(0));
        set_manifest(actor, file);
    });
    let without = actor.on(move |actor, _: MouseEvent| set_manifest(actor, None));
    let finite = actor.on(move |actor, _: Event| {
        actor.verify(|verification| verification.finite = !verification.finite);
    });
    let unpack_confirmed = actor.on(move |actor, _: Event| {
        actor.verify(|verification| verification.unpack_confirmed = !verification.unpack_confirmed);
    });
    let unfolds = props.work.opened.unfolds;
    html! {
        <>
            <div class="sheetbody" id="verify-form">
                <div class="fs"><span class="lab">{ "Checks" }</span><div>
                    <ul class="changes">
                        <li>{ "every checksum stored in the files" }</li>
                        <li>{ "numbers that are NaN or infinite" }</li>
                        <li>{ "tensors that overlap in the file, or end beyond it" }</li>
                        <li>{ "data that can\u{2019}t be unpacked or decoded" }</li>
                    </ul>
                    <p class="dim">{ "The same read gives the statistics of all tensors, the findings about values, and the fingerprint of the content." }</p>
                </div></div>
                <div class="fs"><span class="lab">{ "Manifest" }</span><div>
                    <input ref={chosen.clone()} id="choose-manifest" type="file" hidden={true} {onchange} />
                    if let Some(file) = &props.verification.manifest {
                        <span class="m">{ file.name() }</span>{ " " }
                        <button class="btn" onclick={without}>{ "Without it" }</button>
                    } else {
                        <button class="btn" onclick={choose}>{ "Choose a manifest\u{2026}" }</button>
                    }
                    <p class="dim">{ prose("Optional. Shows whether the checkpoint has changed since `statelens manifest FILE -o MANIFEST` was run on it.") }</p>
                </div></div>
                <div class="fs"><span class="lab">{ "Numbers" }</span><div>
                    { check("finite", props.verification.finite, "Count NaN and infinity as a problem", finite) }
                    <p class="dim">{ "Unchecked, they are reported as a warning only." }</p>
                </div></div>
                if let Some(unfolds) = unfolds {
                    <div class="fs"><span class="lab">{ "Unfolds" }</span><div>{ unpack_confirmation(unfolds, props.verification.unpack_confirmed, unpack_confirmed) }</div></div>
                }
            </div>
            <footer>
                <span class="grow"></span>
                <ReadAll id="verify-begin" work={props.work.clone()} verification={props.verification.clone()} rate={props.rate} cap={props.cap} />
            </footer>
        </>
    }
}

/// Renders the check box for agreeing to unpack far more bytes than the files hold.
pub fn unpack_confirmation(
    (bytes, stored): (u64, u64),
    unpack_confirmed: bool,
    onchange: Callback<Event>,
) -> Html {
    html! {
        <label class="check one"><input type="checkbox" class="cb far-more" checked={unpack_confirmed} {onchange} />
            <span>{ format!("Unpack {} from {} in the file. This can take very long", fmt::bytes(bytes), fmt::bytes(stored)) }</span></label>
    }
}

fn running(actor: &Actor, work: &OpenWork, now: &JobProgress, past: &[(u64, f64)]) -> Html {
    let done = now.done as f64 / now.total.max(1) as f64 * work.sums.bytes as f64;
    let bar = html! {
        if work.sums.bytes > 0 { <TapeView parts={work.parts.clone()} done={Some(done as u64)} /> }
    };
    let cancel = actor.on(move |actor, _: MouseEvent| actor.stop_task(JobKind::Verify));
    let content = html! {
        <>
            { progress(Classes::new(), "Verifying", Some((now.done, now.total)), bar) }
            <p class="dim">{ "You can keep browsing the checkpoint; progress stays in the bar at the bottom." }</p>
        </>
    };
    running_sheet(actor, ("verify-run", "read"), (now, past), cancel, content)
}

fn verify_again(actor: &Actor) -> Html {
    let onclick = actor.on(move |actor, _: MouseEvent| {
        actor.verify(|verification| verification.task = Task::Idle);
    });
    html! { <button class="btn" {onclick}>{ "Verify again" }</button> }
}

fn result(actor: &Actor, work: &OpenWork, done: &Rc<VerifyReport>) -> Html {
    let (report, finite) = (&done.report, done.finite);
    let class = match (report.answer(finite), report.grade(finite)) {
        (false, _) => "w-danger",
        (true, Grade::Note) => "w-good",
        (true, _) => "w-warn",
    };
    let lines = report.lines(finite);
    let cut = lines.len().checked_sub(MAX_LINES).filter(|cut| *cut > 0);
    let cut = cut.map(|cut| format!("and {} more lines", fmt::exact(cut as u64)));
    let more = cut.into_iter().chain(report.more(finite));
    let save = {
        let (done, name) = (done.clone(), work.opened.name.clone());
        Callback::from(move |_: MouseEvent| {
            let name = name.rsplit('/').next().unwrap_or_default();
            let json = done.report.json(done.report.answer(done.finite)) + "\n";
            save_text(&json, &format!("{name}.verify.json"));
        })
    };
    html! {
        <>
            <div class="runbody" id="verify-done">
                <div role="status"><h3 class="failed">
                    <span {class}>{ mark(done) }{ " " }{ title(&report.verdict(finite)) }</span>
                </h3></div>
                if class == "w-good" { <p class="mid-ink">{ "Everything was read." }</p> }
                <div class="block runhead">
                    { figure("read", fmt::bytes(done.bytes)) }
                    { figure("in", fmt::seconds(done.millis)) }
                    { figure("rate", fmt::rate(done.bytes, done.millis)) }
                </div>
                <dl class="gone">
                    { for report.scope().iter().map(|(label, text)| html! { <><dt>{ title(label) }</dt><dd>{ prose(text) }</dd></> }) }
                </dl>
                if !lines.is_empty() {
                    <div class="block"><div class="lab">{ "Found" }</div>
                        <dl class="gone found">{ for lines.iter().take(MAX_LINES).map(|line| report_line(actor, work, line)) }</dl>
                        { for more.map(|more| html! { <p class="dim">{ more }{ ": the report lists them." }</p> }) }
                    </div>
                }
                <div class="block"><div class="lab">{ "The same on the command line" }</div>
                    <div class="cmd"><code>{ &done.command }</code><Copy text={done.command.clone()} label="command" /></div></div>
            </div>
            <footer>
                <span class="grow dim">{ "Nothing was changed." }</span>
                { verify_again(actor) }
                <button class="btn" id="verify-save" onclick={save}>{ "Save report" }</button>
            </footer>
        </>
    }
}

/// Renders a line of the result, with a link if its name is the key of a row.
fn report_line(actor: &Actor, work: &OpenWork, line: &ReportLine) -> Html {
    let class = match line.grade {
        Grade::Danger | Grade::UnknownCode | Grade::Damage => "w-danger",
        Grade::Warning => "w-warn",
        Grade::Note => "w-note",
    };
    let name = match work.find(&line.key) {
        Some(row) => {
            let onclick = actor.on(move |actor, _: MouseEvent| {
                actor.work(move |work| work.select_row(row));
                actor.show(None);
            });
            html! { <button class="textlink m" title="Show the key" {onclick}>{ &line.key }</button> }
        }
        None => key(&line.key),
    };
    html! { <><dt>{ severity(line.grade) }<span {class}>{ line.word }</span></dt><dd>{ name }<p>{ prose(&line.text) }</p></dd></> }
}

fn failed(actor: &Actor, error: &ErrorText, raise: Option<Callback<MouseEvent>>) -> Html {
    html! {
        <>
            <div class="runbody" role="alert">
                { error_body(error, "failed", false) }
                { raise_limits_offer(raise) }
            </div>
            <footer><span class="grow dim">{ "Reading stopped early. The rest was not checked." }</span>{ verify_again(actor) }</footer>
        </>
    }
}
