//! Findings about the checkpoint, the most severe first.

use std::cmp::Reverse;

use statelens_checkpoint::{Finding, Grade, LoaderCall, order, visible};
use statelens_describe::grade_word;
use statelens_values::weights::Noticed;
use yew::prelude::*;

use crate::page::error::error_body;
use crate::page::marks::{self, cap, chip, classes, prose, severity, when};
use crate::page::model::Sheet;
use crate::page::model::actor::Actor;
use crate::page::sheet::SheetFrame;
use crate::protocol::job::JobKind;
use crate::read_as::page::{ReadAsChoice, untyped_size};
use crate::repair::message::RewriteOffer;
use crate::state::task::Task;
use crate::state::work::OpenWork;
use crate::text::title;
use crate::values::message::ScanReport;
use crate::{read_as, repair, values};

/// Properties of the sheet.
#[derive(Properties, PartialEq)]
pub struct FindingsProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The name to show: the folder of a set of shards, else the file.
    pub title: AttrValue,
    /// Progress or result of scanning the values.
    pub scan: Task<ScanReport>,
    /// The dtypes of arrays that are stored without one.
    pub read_as: ReadAsChoice,
    /// Whether everything was read.
    pub read_all: bool,
    /// The button that shows the check of the folder.
    pub check: Html,
}

#[component]
pub fn FindingsSheet(props: &FindingsProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let only = use_state(|| None::<Grade>);
    let opened = &props.work.opened;
    let mut findings: Vec<(u32, &Finding)> = (0..).zip(&opened.findings).collect();
    order::by_key(&mut findings, |(_, finding)| Reverse(finding.grade));
    let noticed: Vec<&Noticed> = props.work.noticed.iter().flat_map(|all| all.iter()).collect();
    let count = |grade: Grade| {
        let noticed = noticed.iter().filter(|noticed| noticed.grade == grade).count();
        findings.iter().filter(|(_, finding)| finding.grade == grade).count() + noticed
    };
    let clean_scan = match &props.scan {
        Task::Done(scanned) if noticed.is_empty() => Some(scanned),
        _ => None,
    };
    let read = match &props.scan {
        Task::Done(scanned) if scanned.unread_bytes == 0 => {
            "The structure and all values were read."
        }
        Task::Done(_) => "The structure and some of the values were read.",
        _ => "Only the structure was read, not the values of tensors.",
    };
    let failed = match &props.scan {
        Task::Failed(error) => {
            html! { <article class="find warn scan-error"><div></div><div>{ error_body(error, "", false) }</div></article> }
        }
        _ => html! {},
    };
    let chip = |grade: Option<Grade>, name: &'static str, number: usize| {
        let only = only.clone();
        let on = *only == grade;
        let onclick = Callback::from(move |_: MouseEvent| only.set(grade));
        let content = html! {
            <>
                if let Some(grade) = grade { { severity(grade) } }
                { name }<span class="m">{ number }</span>
            </>
        };
        chip(on, None, onclick, content)
    };
    let verify =
        actor.on(move |actor, _: MouseEvent| actor.show(Some(Sheet::Task(JobKind::Verify))));
    let copy_all = {
        let text = findings_text(&props.title, &props.work);
        Callback::from(move |_: MouseEvent| marks::copy(&text))
    };
    html! {
        <SheetFrame title="Findings" class="findings" note={html! { <span class="m dim">{ visible(&props.title) }</span> }}>
            <div class="sheetbody">
                { failed }
                if findings.is_empty() && noticed.is_empty() {
                    <div class="allgood">{ marks::tick_icon() }<div><h3>{ "No findings" }</h3>
                        <p class="mid-ink">{ "The structure is intact, and loading would run no code." }</p></div></div>
                } else {
                    <div class="summary"><span class="chips" role="group" aria-label="Show">
                        { chip(None, "all", findings.len() + noticed.len()) }
                        { for Grade::ALL.into_iter().filter(|&grade| count(grade) > 0)
                            .map(|grade| chip(Some(grade), grade_word(grade), count(grade))) }
                    </span></div>
                    { for noticed.iter().filter(|noticed| noticed.grade != Grade::Note && only.is_none_or(|grade| grade == noticed.grade))
                        .map(|noticed| values::page::article(&actor, &props.work, noticed)) }
                    { for findings.iter().filter(|(_, finding)| only.is_none_or(|grade| grade == finding.grade))
                        .map(|(at, finding)| article(&actor, props, *at, finding)) }
                    { for noticed.iter().filter(|noticed| noticed.grade == Grade::Note && only.is_none_or(|grade| grade == noticed.grade))
                        .map(|noticed| values::page::article(&actor, &props.work, noticed)) }
                }
                if let Some(scanned) = clean_scan { { values::page::no_findings(scanned) } }
                { for opened.offers.iter().filter(|offer| offer.finding.is_none()).map(|offer| repair::page::article(&actor, &props.work, offer)) }
            </div>
            <footer><span class="grow dim">{ read }</span>
                { props.check.clone() }
                if !(findings.is_empty() && noticed.is_empty()) { <button class="btn quiet" id="copy-findings" onclick={copy_all}>{ "Copy as text" }</button> }
                if !opened.summary && !props.read_all { <button class="btn" onclick={verify}>{ "Verify " }{ cap("V") }</button> }</footer>
        </SheetFrame>
    }
}

/// Returns all findings as Markdown, for a ticket.
fn findings_text(name: &str, work: &OpenWork) -> String {
    let noticed = work.noticed.iter().flat_map(|noticed| noticed.iter());
    let noticed =
        noticed.map(|one| (one.grade, &one.title, [one.text.clone(), one.advice.clone()].to_vec()));
    let found = work.opened.findings.iter().map(|one| {
        let texts = [one.detail.clone(), one.place.clone(), one.advice.to_string()];
        (one.grade, &one.title, texts.to_vec())
    });
    let mut all: Vec<(Grade, &String, Vec<String>)> = noticed.chain(found).collect();
    order::by_key(&mut all, |(grade, ..)| std::cmp::Reverse(*grade));
    let mut out = format!("## {}\n\n", visible(name));
    for (grade, title, texts) in all {
        out.push_str(&format!("- **{}**: {}\n", grade_word(grade), visible(title)));
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            out.push_str(&format!("  {}\n", visible(&text)));
        }
    }
    out
}

fn article(actor: &Actor, props: &FindingsProps, at: u32, finding: &Finding) -> Html {
    let work = &props.work;
    let row = work.find(&finding.place).and_then(|row| work.rows.get(row as usize));
    let untyped = finding.call.is_none() && row.is_some_and(|row| untyped_size(row).is_some());
    let (class, word) = match finding.grade {
        Grade::Danger => ("danger", "Danger"),
        Grade::UnknownCode => ("danger", "Unknown code"),
        Grade::Damage => ("danger", "Damage"),
        Grade::Warning => ("warn", "Warning"),
        Grade::Note => ("note", "Note"),
    };
    let shows_key = finding.call.is_none() && work.opened.finding_keys.contains(&finding.place);
    let show = shows_key.then(|| {
        let key = finding.place.clone();
        actor.on(move |actor, _: MouseEvent| {
            let key = key.clone();
            actor.work(move |work| {
                if let Some(row) = work.find(&key) {
                    work.select_row(row);
                }
            });
            actor.show(None);
        })
    });
    let add = (!finding.missing.is_empty())
        .then(|| actor.on(move |actor, _: MouseEvent| actor.choose_files()));
    let offers: Vec<&RewriteOffer> =
        work.opened.offers.iter().filter(|offer| offer.finding == Some(at)).collect();
    let acts = !offers.is_empty()
        || show.is_some()
        || add.is_some()
        || !finding.advice.is_empty()
        || finding.call.is_some();
    html! {
        <article class={classes(&["find", class])}>
            <div><div class="sev">{ severity(finding.grade) }<span class={format!("w-{class}")}>{ word }</span></div>
                if finding.call.is_none() && !finding.place.is_empty() { <div class="tag where">{ &finding.place }</div> }
            </div>
            <div>
                <h3>{ prose(&title(&finding.title)) }</h3>
                if !finding.detail.is_empty() { <p>{ prose(&finding.detail) }</p> }
                if untyped { { read_as::page::choices(&props.read_as, work) } }
                { for offers.iter().filter(|offer| !offer.lines.is_empty()).map(|offer| repair::page::list(&offer.lines)) }
                if let Some(call) = &finding.call { { describe_call(finding, call) } }
            </div>
            if acts {
                <div class="do">
                    if finding.call.is_some() { <span class="never">{ marks::tick_icon() }{ "never run" }</span> }
                    if !finding.advice.is_empty() { <p>{ prose(&finding.advice.to_string()) }</p> }
                    { for offers.iter().map(|offer| repair::page::action(actor, work, offer)) }
                    if let Some(onclick) = show { <p><button class="btn" {onclick}>{ "Show the key" }</button></p> }
                    if let Some(onclick) = add { <p><button class="btn" {onclick}>{ "Add the file\u{2026}" }</button></p> }
                </div>
            }
        </article>
    }
}

/// Renders the call that a pickle would have made.
fn describe_call(finding: &Finding, call: &LoaderCall) -> Html {
    let lines = [
        ("module", &call.module),
        ("name", &call.name),
        ("arguments", &call.arguments),
        ("seen at", &finding.place),
    ];
    let lines = lines.into_iter().filter(|(_, text)| !text.is_empty()).map(|(label, text)| {
        let hot = finding.grade == Grade::Danger && matches!(label, "module" | "name");
        html! { <><dt>{ label }</dt><dd class={classes(&[when(hot, "hot")])}>{ text }</dd></> }
    });
    html! { <dl class="glob">{ for lines }</dl> }
}
