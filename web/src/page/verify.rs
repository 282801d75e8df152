//! Verifying: what is looked at, how far it is, and what came of it.

use std::rc::Rc;

use statelens_inspect::visible;
use wasm_bindgen::JsValue;
use web_sys::{File, HtmlInputElement};
use yew::prelude::*;

use crate::page::drop::{Dropped, save_text};
use crate::page::error::{higher, what};
use crate::page::marks::{Copy, cap, check, good, key, prose, severity};
use crate::page::model::actor::{Actor, click};
use crate::page::model::verification::{Verification, VerificationStage};
use crate::page::model::{Action, PageModel, Sheet};
use crate::page::running::{figure, figures};
use crate::page::sheet::SheetFrame;
use crate::page::tape::TapeView;
use crate::protocol::ToWorker;
use crate::protocol::conversion::Running;
use crate::protocol::error::ErrorText;
use crate::protocol::finding::Severity;
use crate::protocol::verify::Verified;
use crate::state::fmt;
use crate::state::work::OpenWork;
use crate::text::title;

impl Actor {
    fn verify(&self, change: impl FnOnce(&mut Verification) + 'static) {
        self.act(Action::Verify(Box::new(change)));
    }
}

/// Stops reading.
pub fn stop(actor: &Actor) {
    actor.ask(&ToWorker::Verify(None));
    actor.verify(|verification| verification.stage = VerificationStage::Form);
}

/// Takes a file that is dropped on the sheet as the manifest; false for anything else.
pub fn takes(model: &PageModel, actor: &Actor, dropped: &[Dropped]) -> bool {
    match dropped {
        [one] if model.sheet == Some(Sheet::Verify) => {
            actor.act(Action::Over(None));
            hold(actor, Some(one.file.clone()));
            true
        }
        _ => false,
    }
}

/// Holds the checkpoint against another manifest, which has to be read for then.
fn hold(actor: &Actor, manifest: Option<File>) {
    stop(actor);
    actor.verify(|verification| verification.manifest = manifest);
}

/// The button of the bar at the bottom, which also says how it stands.
pub fn status(actor: &Actor, stage: &VerificationStage) -> Html {
    let actor = actor.clone();
    let onclick = Callback::from(move |_: MouseEvent| actor.act(Action::Show(Some(Sheet::Verify))));
    let text = match stage {
        VerificationStage::Form => html! { { "Verify" } },
        VerificationStage::Now(now, _) => {
            html! { <b>{ format!("verifying {} %", fmt::percent(now.done, now.total.max(1))) }</b> }
        }
        VerificationStage::Done(done) => {
            // The short of `it is not sound: 3 problems`, and all of what is not quite sound.
            let short = done.verdict.strip_prefix("it is ").unwrap_or(&done.verdict);
            let short = match done.sound {
                true => short,
                false => short.split_once([':', ';']).map_or(short, |(short, _)| short),
            };
            let mark = mark(done);
            html! { <>{ mark }<b>{ short }</b></> }
        }
        VerificationStage::Failed(_) => {
            html! { <>{ severity(Severity::Warning) }<b>{ "not verified" }</b></> }
        }
    };
    html! { <button class="textrow" id="verify" title="Verify (V)" {onclick}><span>{ text }</span></button> }
}

/// What stands before the answer.
fn mark(done: &Verified) -> Html {
    match (done.sound, done.grade) {
        (true, Severity::Note) => good(),
        (true, grade) => severity(grade),
        (false, _) => severity(Severity::Danger),
    }
}

/// The sheet.
#[derive(Properties, PartialEq)]
pub struct VerifyProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// What is asked for, and how far it is.
    pub verification: Verification,
    /// How many bytes one action may fetch, if all of it is fetched.
    pub cap: Option<u64>,
    /// Opens what was over a limit within ten times as much.
    pub raise: Option<Callback<MouseEvent>>,
}

/// The sheet.
#[component]
pub fn VerifySheet(props: &VerifyProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let aside = html! { <span class="m dim cut">{ visible(&props.work.opened.name) }</span> };
    let chosen = use_node_ref();
    let body = match &props.verification.stage {
        VerificationStage::Form => form(&actor, props, &chosen),
        VerificationStage::Now(now, past) => running(&actor, &props.work, now, past),
        VerificationStage::Done(done) => result(&actor, &props.work, done),
        VerificationStage::Failed(error) => failed(&actor, error, props.raise.clone()),
    };
    html! { <SheetFrame title="Verify" class="findings" {aside}>{ body }</SheetFrame> }
}

fn begin(actor: &Actor, verification: &Verification) -> Callback<MouseEvent> {
    let (actor, manifest) = (actor.clone(), verification.manifest.clone());
    let finite = verification.finite;
    Callback::from(move |_: MouseEvent| {
        let files: js_sys::Array =
            manifest.iter().map(|file| JsValue::from(file.clone())).collect();
        let verify = ToWorker::Verify(Some(finite));
        if actor.ask_with(&verify, &files, &JsValue::UNDEFINED) {
            let now = Running { done: 0, total: 0, millis: 0.0, key: String::new() };
            actor.verify(|verification| {
                verification.stage = VerificationStage::Now(now, Rc::default())
            });
        }
    })
}

fn form(actor: &Actor, props: &VerifyProps, chosen: &NodeRef) -> Html {
    let choose = {
        let chosen = chosen.clone();
        Callback::from(move |_: MouseEvent| click(&chosen))
    };
    let onchange = {
        let actor = actor.clone();
        Callback::from(move |event: Event| {
            let input = event.target_dyn_into::<HtmlInputElement>();
            let file = input.and_then(|input| input.files()?.get(0));
            hold(&actor, file);
        })
    };
    let without = {
        let actor = actor.clone();
        Callback::from(move |_: MouseEvent| hold(&actor, None))
    };
    let finite = {
        let actor = actor.clone();
        Callback::from(move |_: Event| {
            actor.verify(|verification| verification.finite = !verification.finite);
        })
    };
    let bytes = fmt::bytes(props.work.sums.bytes);
    let sure = {
        let actor = actor.clone();
        Callback::from(move |_: Event| {
            actor.verify(|verification| verification.sure = !verification.sure);
        })
    };
    let unfolds = props.work.opened.unfolds;
    html! {
        <>
            <div class="sheetbody" id="verify-form">
                <div class="fs"><span class="lab">{ "Looks at" }</span><div>
                    <ul class="changes">
                        <li>{ "every checksum that the files have of their bytes" }</li>
                        <li>{ "numbers that are NaN or infinite" }</li>
                        <li>{ "tensors that overlap in the file, or run past its end" }</li>
                        <li>{ "data that can\u{2019}t be unpacked or decoded" }</li>
                    </ul>
                </div></div>
                <div class="fs"><span class="lab">{ "Manifest" }</span><div>
                    <input ref={chosen.clone()} id="choose-manifest" type="file" hidden={true} {onchange} />
                    if let Some(file) = &props.verification.manifest {
                        <span class="m">{ file.name() }</span>{ " " }
                        <button class="btn" onclick={without}>{ "Without it" }</button>
                    } else {
                        <button class="btn" onclick={choose}>{ "Choose a manifest\u{2026}" }</button>
                    }
                    <p class="dim">{ prose("Tells whether the checkpoint has changed since `statelens manifest FILE -o MANIFEST` was run on it. The rest does without.") }</p>
                </div></div>
                <div class="fs"><span class="lab">{ "Numbers" }</span><div>
                    { check("finite", props.verification.finite, "Count NaN and infinity as a problem", finite) }
                    <p class="dim">{ "Unchecked, they are reported as a warning only." }</p>
                </div></div>
                if let Some(unfolds) = unfolds {
                    <div class="fs"><span class="lab">{ "Unfolds" }</span><div>{ far_more(unfolds, props.verification.sure, sure) }</div></div>
                }
                if let Some(cap) = props.cap {
                    <div class="fs"><span class="lab">{ "Fetches" }</span><p>
                        { format!("all of it, from where it is. One action may fetch {} now: at the bottom of the page you can allow more.", fmt::bytes(cap)) }</p></div>
                }
            </div>
            <footer>
                <span class="grow dim">{ "Reads everything once." }</span>
                <button class="btn pri" id="verify-begin" disabled={unfolds.is_some() && !props.verification.sure} onclick={begin(actor, &props.verification)}>{ format!("Verify {bytes}") }</button>
            </footer>
        </>
    }
}

/// Asks before far more is gone through than the files hold.
pub fn far_more((bytes, stored): (u64, u64), sure: bool, onchange: Callback<Event>) -> Html {
    html! {
        <label class="check one"><input type="checkbox" class="cb far-more" checked={sure} {onchange} />
            <span>{ format!("Go through {} that the file has in {}: that can take very long", fmt::bytes(bytes), fmt::bytes(stored)) }</span></label>
    }
}

fn running(actor: &Actor, work: &OpenWork, now: &Running, past: &[(u64, f64)]) -> Html {
    let percent = fmt::percent(now.done, now.total.max(1));
    let done = now.done as f64 / now.total.max(1) as f64 * work.sums.bytes as f64;
    let cancel = {
        let actor = actor.clone();
        Callback::from(move |_: MouseEvent| stop(&actor))
    };
    let browse = {
        let actor = actor.clone();
        Callback::from(move |_: MouseEvent| actor.act(Action::Show(None)))
    };
    html! {
        <>
            <div class="runbody" id="verify-run">
                { figures("read", now, past) }
                <div role="progressbar" aria-label="Verifying" aria-valuemin="0" aria-valuemax="100" aria-valuenow={percent.to_string()}>
                    if work.sums.bytes > 0 { <TapeView parts={work.parts.clone()} done={Some(done as u64)} /> }
                </div>
                <p class="dim">{ "You can look around in the checkpoint meanwhile; progress stays in the bar at the bottom." }</p>
            </div>
            <footer>
                <span class="grow dim">{ "Keep this tab open until it is done." }</span>
                <button class="btn" onclick={browse}>{ "Browse meanwhile" }</button>
                <button class="btn" id="verify-cancel" onclick={cancel}>{ "Cancel " }{ cap("Esc") }</button>
            </footer>
        </>
    }
}

fn again(actor: &Actor) -> Html {
    let actor = actor.clone();
    let onclick = Callback::from(move |_: MouseEvent| {
        actor.verify(|verification| verification.stage = VerificationStage::Form);
    });
    html! { <button class="btn" {onclick}>{ "Verify again" }</button> }
}

fn result(actor: &Actor, work: &OpenWork, done: &Rc<Verified>) -> Html {
    let save = {
        let (done, name) = (done.clone(), work.opened.name.clone());
        Callback::from(move |_: MouseEvent| {
            let name = name.rsplit('/').next().unwrap_or_default();
            save_text(&done.report, &format!("{name}.verify.json"));
        })
    };
    html! {
        <>
            <div class="runbody" id="verify-done">
                <h3 class="failed" role="status">
                    if done.sound && done.grade == Severity::Warning { <span class="w-warn">{ mark(done) }{ " " }{ title(&done.verdict) }</span> }
                    else if done.sound { <span class="w-good">{ good() }{ " " }{ title(&done.verdict) }</span> }
                    else { <span class="w-danger">{ severity(Severity::Danger) }{ " " }{ title(&done.verdict) }</span> }
                </h3>
                if done.sound && done.grade == Severity::Note { <p class="mid-ink">{ "Everything was read, and nothing is wrong with it." }</p> }
                <div class="block runhead">
                    { figure("looked at", fmt::bytes(done.bytes)) }
                    { figure("in", fmt::seconds(done.millis)) }
                    { figure("rate", fmt::rate(done.bytes, done.millis)) }
                </div>
                <dl class="gone">
                    { for done.looked_at.iter().map(|(label, text)| html! { <><dt>{ title(label) }</dt><dd>{ prose(text) }</dd></> }) }
                </dl>
                if !done.lines.is_empty() {
                    <div class="block"><div class="lab">{ "Found" }</div>
                        <dl class="gone found">{ for done.lines.iter().map(|line| found(actor, work, line)) }</dl>
                        { for done.more.iter().map(|more| html! { <p class="dim">{ more }{ ": the report lists them." }</p> }) }
                    </div>
                }
                <div class="block"><div class="lab">{ "The same on the command line" }</div>
                    <div class="cmd"><code>{ &done.command }</code><Copy text={done.command.clone()} what="command" /></div></div>
            </div>
            <footer>
                <span class="grow dim">{ "Nothing was changed." }</span>
                { again(actor) }
                <button class="btn" id="verify-save" onclick={save}>{ "Save report" }</button>
            </footer>
        </>
    }
}

/// A line; its key leads to the row, if it is one.
fn found(
    actor: &Actor,
    work: &OpenWork,
    (grade, word, name, text): &(Severity, String, String, String),
) -> Html {
    let class = match grade {
        Severity::Danger | Severity::UnknownCode | Severity::Damage => "w-danger",
        Severity::Warning => "w-warn",
        Severity::Note => "w-note",
    };
    let name = match work.find(name) {
        Some(row) => {
            let actor = actor.clone();
            let onclick = Callback::from(move |_: MouseEvent| {
                actor.work(move |work| work.look_at_row(row));
                actor.act(Action::Show(None));
            });
            html! { <button class="textlink m" title="Show the key" {onclick}>{ name }</button> }
        }
        None => key(name),
    };
    html! { <><dt>{ severity(*grade) }<span {class}>{ word }</span></dt><dd>{ name }<p>{ prose(text) }</p></dd></> }
}

fn failed(actor: &Actor, error: &ErrorText, raise: Option<Callback<MouseEvent>>) -> Html {
    html! {
        <>
            <div class="runbody" role="alert">
                { what(error, "failed", false) }
                { higher(raise) }
            </div>
            <footer><span class="grow dim">{ "It was not read to its end: this says nothing about the rest." }</span>{ again(actor) }</footer>
        </>
    }
}
