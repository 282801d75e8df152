//! The check of a folder or a repository: its button, and the sheet with the findings as a table.

use std::rc::Rc;

use statelens_checkpoint::{Grade, counted, visible};
use statelens_compare::folder::{FolderReport, Level, RuleFinding};
use statelens_remote::hub::{Endpoint, HubLocation};
use wasm_bindgen::JsValue;
use web_sys::File;
use yew::prelude::*;

use crate::folder_check::message::FolderCheckRequest;
use crate::open::page::address::hub_token;
use crate::page::drop;
use crate::page::drop::{DroppedFile, save_text};
use crate::page::error::error_body;
use crate::page::marks::{prose, severity, tick_icon};
use crate::page::model::actor::Actor;
use crate::page::model::tasks::TaskSlot;
use crate::page::model::{PageModel, Screen, Sheet};
use crate::page::sheet::SheetFrame;
use crate::protocol::ToWorker;
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::state::task::{Task, TaskState};
use crate::text::title;

/// Maximum number of files of a dropped folder that is checked without a request.
const MAX_UNASKED: usize = 200;

impl TaskSlot for FolderReport {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.folder_check)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, _: Option<File>) {
        model.folder_check.set(*self, done);
    }
}

/// Returns whether several files or a repository are open, or could not be opened.
fn can_check(model: &PageModel) -> bool {
    match &model.address {
        Some(address) => HubLocation::is_hub(address, &Endpoint::default()),
        None => files(model).len() > 1,
    }
}

/// Returns the files of the folder: those of the run that is shown, or of the open checkpoint.
fn files(model: &PageModel) -> &Rc<Vec<DroppedFile>> {
    match (model.screen, &model.run) {
        (Screen::Run, Some(run)) => &run.files,
        _ => &model.files,
    }
}

fn start(model: &PageModel, actor: &Actor) {
    let address = model.address.as_ref().map(ToString::to_string).unwrap_or_default();
    let request = FolderCheckRequest {
        files: files(model).iter().map(|dropped| dropped.name.clone()).collect(),
        token: hub_token(&address),
        address,
        agreed: model.agreed,
    };
    let handles = drop::handles(files(model));
    actor.update(|model| model.folder_check = Task::started());
    let task = ToWorker::Start(TaskRequest::CheckFolder(request));
    actor.bridge.post_with(&task, &handles, &JsValue::UNDEFINED);
}

/// Checks a dropped folder once it is open, or could not be opened.
#[hook]
pub fn use_folder_check(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let is_folder = model.files.iter().all(|dropped| dropped.name.path.contains('/'));
    let is_small = (2..=MAX_UNASKED).contains(&model.files.len());
    let is_settled = matches!(model.screen, Screen::Work | Screen::Error);
    let due = is_folder && is_small && is_settled && matches!(model.folder_check, Task::Idle);
    let (model, actor) = (model.clone(), actor.clone());
    use_effect_with((due, model.session), move |(due, _)| {
        if *due {
            start(&model, &actor);
        }
    });
}

/// Renders the button that shows the check, with its result.
pub(crate) fn button(
    model: &UseReducerHandle<PageModel>,
    actor: &Actor,
    class: &'static str,
) -> Html {
    if !can_check(model) {
        return html! {};
    }
    let text = match &model.folder_check {
        Task::Idle => html! { { "Check folder" } },
        Task::Running(_) => html! { { "checking the folder\u{2026}" } },
        Task::Failed(_) => html! { <>{ severity(Grade::Warning) }{ " folder not checked" }</> },
        Task::Done(report) => html! { <>{ mark(report) }{ " " }{ short(report) }</> },
    };
    let model = model.clone();
    let onclick = actor.on(move |actor, _: MouseEvent| {
        if !matches!(model.folder_check, Task::Running(_) | Task::Done(_)) {
            start(&model, actor);
        }
        actor.show(Some(Sheet::Task(JobKind::CheckFolder)));
    });
    html! { <button {class} data-check="folder" title="Files, index, shards, layers, config and tokenizer: the rules of statelens check" {onclick}><span>{ text }</span></button> }
}

/// Renders the sheet, if it is to be shown.
pub(crate) fn sheet(model: &PageModel) -> Option<Html> {
    if model.sheet != Some(Sheet::Task(JobKind::CheckFolder)) {
        return None;
    }
    let report = model.folder_check.result();
    let save = report
        .cloned()
        .map(|report| Callback::from(move |_: MouseEvent| save_text(&report.json(), "check.json")));
    let body = match &model.folder_check {
        Task::Done(report) => table(report),
        Task::Failed(error) => error_body(error, "", false),
        _ => html! { <p role="status">{ "Checking the folder\u{2026}" }</p> },
    };
    Some(html! {
        <SheetFrame title="Folder" class="foldercheck">
            <div class="sheetbody">{ body }</div>
            <footer><span class="grow dim">{ "Structure only, no weights. The same as " }<code>{ "statelens check" }</code></span>
                if let Some(onclick) = save { <button class="btn quiet" {onclick}>{ "Save JSON" }</button> }</footer>
        </SheetFrame>
    })
}

fn table(report: &FolderReport) -> Html {
    let row = |finding: &RuleFinding| {
        html! {
            <tr data-rule={finding.rule.clone()}>
                <td>{ severity(grade(finding.level)) }{ " " }{ finding.level.word() }<code>{ &finding.rule }</code></td>
                <td class="m">{ visible(&finding.file) }if !finding.key.is_empty() { <span>{ visible(&finding.key) }</span> }</td>
                <td>{ prose(&title(&finding.text)) }</td>
                <td>{ prose(&finding.fix) }</td>
            </tr>
        }
    };
    html! {
        <>
            <h3 id="folder-verdict" data-whole={report.whole.to_string()}>{ mark(report) }{ title(&format!("The folder is {}", report.verdict())) }</h3>
            if !report.findings.is_empty() {
                <table aria-label="Findings about the folder">
                    <thead><tr>{ for ["Level and rule", "Where", "What", "How to fix it"].map(|name| html! { <th scope="col">{ name }</th> }) }</tr></thead>
                    <tbody>{ for report.findings.iter().map(row) }</tbody>
                </table>
            }
        </>
    }
}

/// Renders the mark of the worst finding.
fn mark(report: &FolderReport) -> Html {
    match (report.errors, report.warnings) {
        (0, 0) => tick_icon(),
        (0, _) => severity(Grade::Warning),
        _ => severity(Grade::Damage),
    }
}

fn short(report: &FolderReport) -> String {
    match (report.errors, report.warnings) {
        (0, 0) => "folder whole".to_owned(),
        (0, warnings) => format!("folder: {}", counted(warnings, "warning")),
        (errors, _) => format!("folder: {}", counted(errors, "error")),
    }
}

fn grade(level: Level) -> Grade {
    match level {
        Level::Error => Grade::Damage,
        Level::Warning => Grade::Warning,
        Level::Note | Level::Off => Grade::Note,
    }
}
