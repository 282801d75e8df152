//! The root component: owns the worker and the state, and chooses the screen and the sheet.

use std::cell::Cell;
use std::rc::Rc;

use wasm_bindgen::prelude::*;
use web_sys::{Event, HtmlInputElement};
use yew::prelude::*;

use crate::compare::model::ComparisonState;
use crate::compare::page::{ChooseComparedDialog, CompareScreen};
use crate::convert::message::WriteMethod;
use crate::convert::page::ConvertSheet;
use crate::family::page::use_families;
use crate::links::page::{use_links, use_open_name};
use crate::matrix::page::{MatrixScreen, use_matrix};
use crate::model_description::page::use_model_description;
use crate::open::message::FetchConsent;
use crate::open::page::address::served_path;
use crate::open::page::address::{use_address_of_page, use_pasted_address};
use crate::open::page::loading::loading_screen;
use crate::open::page::start::start_screen;
use crate::page::bridge::{Bridge, WorkerReply};
use crate::page::drop::{self, DroppedFile};
use crate::page::drop_target::{drop_overlay, handle_files, use_archive, use_drops};
use crate::page::embed::is_embedded;
use crate::page::embedding::{use_embedder, waiting_screen};
use crate::page::error::{OpenFailure, error_screen};
use crate::page::fetch_limit::LimitDialog;
use crate::page::findings::FindingsSheet;
use crate::page::history::use_history;
use crate::page::hooks::{ByAddress, use_small};
use crate::page::keys::use_keys;
use crate::page::marks::hatching;
use crate::page::model::actor::{Actor, VALUES};
use crate::page::model::{ModelUpdate, PageModel, Screen, Sheet};
use crate::page::offline::NewVersion;
use crate::page::recovery::use_recovery;
use crate::page::sheet::TaskSheet;
use crate::page::shortcuts::ShortcutsSheet;
use crate::page::stop_dialog;
use crate::page::stored_files::use_desktop_files;
use crate::page::workspace::Workspace;
use crate::palette::page::Palette;
use crate::protocol::error::{ErrorKind, ErrorText};
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskResult;
use crate::protocol::{FromWorker, ToWorker};
use crate::read_as::message::ReadAs;
use crate::read_as::page::ReadAsChoice;
use crate::run_folder::page::RunScreen;
use crate::share::page::{ShareSheet, use_link_of_page};
use crate::state::fmt;
use crate::state::task::Task;
use crate::values::page::use_values_panel;
use crate::{checkpoint_list, compare, folder_check, open, run_folder};

/// The root component.
#[component]
pub fn App() -> Html {
    let model = use_reducer(PageModel::default);
    let bridge = {
        let dispatch = model.dispatcher();
        use_memo((), move |()| {
            Bridge::start(Callback::from(move |reply: WorkerReply| {
                dispatch.dispatch(match reply {
                    WorkerReply::Message(posted, handle) => {
                        let file = finish(&posted.message, handle);
                        ModelUpdate::new(move |model| model.handle_reply(posted.message, file))
                    }
                    WorkerReply::Opened(session, work) => {
                        ModelUpdate::new(move |model| model.opened(session, work.map(|work| *work)))
                    }
                });
            }))
        })
    };
    let actor = Actor {
        dispatch: model.dispatcher(),
        bridge: (*bridge).clone(),
        session: model.session,
        files: use_node_ref(),
        folder: use_node_ref(),
        choosing_compared: (*use_memo((), |()| Rc::new(Cell::new(false)))).clone(),
    };
    use_requests(&model, &actor);
    use_model_description(&model, &actor);
    use_values_panel(&model, &actor);
    use_families(&model, &actor);
    let small = use_small();
    use_matrix(&model, &actor, small);
    compare::page::use_compare(&model, &actor);
    compare::page::use_quantised_pair(&model, &actor);
    run_folder::page::use_run(&model, &actor);
    checkpoint_list::page::use_rail(&model, &actor);
    folder_check::page::use_folder_check(&model, &actor);
    use_title(&model);
    use_open_name(&model);
    stop_dialog::use_close_unshown(&model, &actor);
    stop_dialog::use_unload_guard(&model);
    use_drops(&model, &actor);
    use_archive(&model, &actor);
    use_keys(&model, &actor);
    use_history(&model, &actor);
    use_links(&actor);
    use_recovery(&model, &actor);
    use_address_of_page(&actor);
    use_pasted_address(&model, &actor);
    use_link_of_page(&actor);
    use_embedder(&model, &actor);
    use_desktop_files({
        let model = model.clone();
        actor.on(move |actor, files| handle_files(&model, actor, files))
    });

    let chosen = {
        let model = model.clone();
        actor.on(move |actor, event: Event| {
            if let Some(list) =
                event.target_dyn_into::<HtmlInputElement>().and_then(|input| input.files())
            {
                let files = drop::from_list(&list);
                if actor.choosing_compared.take() && compare::page::can_compare(&model) {
                    compare::page::compare_with(actor, files, None);
                } else {
                    handle_files(&model, actor, files);
                }
            }
        })
    };
    {
        let folder = actor.folder.clone();
        use_effect_with((), move |()| {
            if let Some(input) = folder.cast::<HtmlInputElement>() {
                input.set_webkitdirectory(true);
            }
        });
    }
    html! {
        <ContextProvider<Actor> context={actor.clone()}>
            <input ref={actor.files.clone()} id="choose-files" type="file" multiple={true} hidden={true} onchange={chosen.clone()} />
            <input ref={actor.folder.clone()} id="choose-folder" type="file" multiple={true} hidden={true} onchange={chosen} />
            { hatching() }
            { screen(&model, &actor) }
            { sheet(&model, &actor) }
            { stop_dialog::dialog(&model, &actor) }
            { stop_dialog::notice(&model, &actor) }
            <NewVersion />
            // This element is always present: Yew loses its position behind a component that
            // renders nothing when the following node appears and disappears.
            <div aria-hidden="true">
                if model.dragged.is_some() && !matches!(model.screen, Screen::Start) {
                    { drop_overlay(&model) }
                }
            </div>
        </ContextProvider<Actor>>
    }
}

fn screen(model: &UseReducerHandle<PageModel>, actor: &Actor) -> Html {
    let work = model.work.clone();
    match (model.screen, work) {
        (Screen::Run, _) => match &model.run {
            Some(view) => {
                html! { <RunScreen view={view.clone()} tab={model.tab} check={folder_check::page::button(model, actor, "btn")} /> }
            }
            None => html! {},
        },
        (Screen::Compare, work) => match &model.compare {
            Some(compare) => {
                let model = model.clone();
                let names = side_names(&model, compare);
                let title = title(&model);
                let (tab, compare) = (model.tab, compare.clone());
                let (privacy, grade) = (privacy(&model), model.grade());
                let onswap = (!model.files.is_empty())
                    .then(|| actor.on(move |actor, ()| compare::page::swap(&model, actor)));
                html! { <CompareScreen {work} {grade} {title} {names} {compare} {tab} {onswap} {privacy} /> }
            }
            None => html! {},
        },
        (Screen::Loading, _) if model.loading.shown => {
            let privacy = privacy(model);
            loading_screen(actor, &model.loading, loading_name(model), loading_size(model), privacy)
        }
        (Screen::Error, _) => match &model.error {
            Some(error) => {
                let failed = OpenFailure {
                    error,
                    name: loading_name(model),
                    size: loading_size(model),
                    rail: model
                        .rail
                        .clone()
                        .map(|rail| (rail, model.files.clone(), model.requested)),
                    others: model.files.len(),
                    address: model.address.as_ref(),
                    agreed: model.agreed,
                    raise: raise(model, actor, error),
                    check: folder_check::page::button(model, actor, "btn"),
                };
                error_screen(actor, &failed)
            }
            None => html! {},
        },
        // Files that open quickly never show a loading screen.
        (Screen::Work, Some(work)) if model.matrix.is_some() => match &model.matrix {
            Some(matrix) => html! {
                <MatrixScreen {work} matrix={matrix.clone()} inspected={model.inspected.clone()} export={model.values_panel.export.clone()} privacy={privacy(model)} />
            },
            None => html! {},
        },
        (Screen::Work | Screen::Loading, Some(work)) => html! {
            <Workspace {work} oncompare={oncompare(model, actor)} tab={model.tab} tree_shown={model.tree_shown} description={model.description.clone()} treemap={model.treemap.clone()} inspected={model.inspected.clone()}
                values={model.values.clone()} running={running(model)} fetched={model.fetched.clone()} cap={model.agreed.cap}
                privacy={privacy(model)} verifying={model.verification.task.clone()} grade={model.grade()} kept={model.kept_outputs} values_panel={model.values_panel.clone()}
                title={title(model)} rail={model.rail.clone()} files={model.files.clone()} files_shown={model.files_shown} run={run_name(model)} read_as={read_as(model, actor)} check={folder_check::page::button(model, actor, "textrow only-l")} />
        },
        _ if is_embedded() => waiting_screen(),
        _ => start_screen(actor, model.dragged, model.pending_link.as_deref()),
    }
}

/// Returns a callback that opens the checkpoint again with ten times the limits, if the error is
/// that a limit was reached.
fn raise(
    model: &UseReducerHandle<PageModel>,
    actor: &Actor,
    error: &ErrorText,
) -> Option<Callback<MouseEvent>> {
    let can = model.address.is_some() || !model.files.is_empty();
    (error.kind == ErrorKind::Limit && can).then(|| {
        let model = model.clone();
        actor.on(move |actor, _: MouseEvent| match &model.address {
            Some(address) => {
                let times = model.agreed.times.max(1).saturating_mul(10);
                actor.open_address(address, FetchConsent { times, ..model.agreed });
            }
            None => {
                let times = model.times.saturating_mul(10);
                let files = model.files.as_ref().clone();
                actor.open_within(files, model.requested, times, model.read_as);
            }
        })
    })
}

/// Returns the choice of dtypes for arrays that are stored without one.
fn read_as(model: &UseReducerHandle<PageModel>, actor: &Actor) -> ReadAsChoice {
    let current = match &model.address {
        Some(_) => model.agreed.read_as,
        None => model.read_as,
    };
    let (model, actor) = (model.clone(), actor.clone());
    let onchange = Callback::from(move |read_as: ReadAs| match &model.address {
        Some(address) => {
            actor.open_address(address, FetchConsent { read_as, ..model.agreed });
        }
        None => {
            let (files, at) = (model.files.clone(), model.requested);
            let times = model.times;
            actor.replace_open(move |actor| {
                actor.open_within(files.as_ref().clone(), at, times, read_as);
            });
        }
    });
    ReadAsChoice { current, onchange }
}

/// Returns distinct names for the two sides of a comparison.
fn side_names(model: &PageModel, second: &ComparisonState) -> (AttrValue, AttrValue) {
    if let (Some((a, b)), Some(work)) = (second.picked, &model.work) {
        let key =
            |row: u32| work.rows.get(row as usize).map(|row| AttrValue::from(row.key.clone()));
        return (key(a).unwrap_or_default(), key(b).unwrap_or_default());
    }
    let file = model.files.get(model.requested.unwrap_or(0) as usize);
    let path =
        |file: Option<&DroppedFile>| file.map(|file| file.name.path.clone()).unwrap_or_default();
    let first = compare::page::SideName {
        name: model
            .work
            .as_ref()
            .map_or_else(|| loading_name(model), |work| work.opened.name.clone()),
        path: model.address.as_ref().map_or_else(|| path(file), ToString::to_string),
        file,
    };
    let file = second.files.get(second.main.unwrap_or(0) as usize);
    let second = compare::page::SideName { name: second.name(), path: path(file), file };
    let (first, second) = compare::page::distinct_names(&first, &second);
    (first.into(), second.into())
}

/// Returns the name of the open checkpoint: the entry's name if the drop has several checkpoints,
/// the path in the folder that the command serves, the folder's name for shards, else the file's
/// name.
fn title(model: &PageModel) -> AttrValue {
    let Some(work) = &model.work else { return AttrValue::default() };
    let opened = &work.opened;
    let entry = model.rail.as_ref().and_then(|rail| rail.entries.get(rail.find(opened.main)?));
    if let Some(entry) = entry {
        return entry.name.clone().into();
    }
    let address = model.address.as_ref();
    if let Some(path) = address.and_then(|address| served_path(address)) {
        return path.into();
    }
    let file = model.files.get(opened.main as usize).filter(|_| opened.shards > 0);
    let folder = file.and_then(|file| file.name.path.rsplit_once('/'));
    let folder = folder.map(|(folder, _)| folder.rsplit('/').next().unwrap_or(folder));
    folder.map_or_else(|| opened.name.clone(), |folder| format!("{folder}/")).into()
}

/// Returns the name of the run folder that is open, if any.
fn run_name(model: &PageModel) -> Option<AttrValue> {
    let view = model.run.as_ref()?;
    let folder = view.folder.rsplit('/').next().unwrap_or_default();
    Some(if folder.is_empty() { "run".into() } else { folder.to_owned().into() })
}

fn oncompare(model: &UseReducerHandle<PageModel>, actor: &Actor) -> Callback<()> {
    let model = model.clone();
    actor.on(move |actor, ()| compare::page::offer(&model, actor))
}

fn running(model: &PageModel) -> Option<u32> {
    let now = model.convert.as_ref()?.task.now()?;
    Some(fmt::percent(now.done, now.total))
}

fn loading_name(model: &PageModel) -> String {
    if let Some(address) = &model.address {
        return address.split('?').next().unwrap_or_default().to_owned();
    }
    loading(model).map(|dropped| dropped.name.path.clone()).unwrap_or_default()
}

fn loading_size(model: &PageModel) -> u64 {
    loading(model).map_or(0, |dropped| dropped.name.size)
}

/// Renders the status bar's note on where bytes go, with the server's name for a remote checkpoint.
fn privacy(model: &PageModel) -> Html {
    let host = model.address.as_ref().map(|address| stop_dialog::host(address));
    stop_dialog::privacy(host.as_deref())
}

/// Returns the file that is being opened, or that the error is about.
fn loading(model: &PageModel) -> Option<&DroppedFile> {
    let error = model.error.as_deref().filter(|_| model.screen == Screen::Error);
    let about =
        |error: &ErrorText| model.files.iter().find(|dropped| dropped.name.path == error.file);
    let first = || model.files.get(model.requested.unwrap_or(0) as usize);
    error.and_then(about).or_else(first)
}

fn sheet(model: &UseReducerHandle<PageModel>, actor: &Actor) -> Html {
    if let Some(sheet) = open::page::address::sheet(model) {
        return sheet;
    }
    if let Some(sheet) = folder_check::page::sheet(model) {
        return sheet;
    }
    let Some(work) = &model.work else {
        return match model.sheet {
            Some(Sheet::Keys) => html! { <ShortcutsSheet /> },
            Some(Sheet::Palette) => html! { <Palette model={model.clone()} /> },
            _ => html! {},
        };
    };
    match (model.sheet, &model.convert) {
        (Some(Sheet::Convert), Some(convert)) => {
            let raise = convert.task.error().and_then(|error| raise(model, actor, error));
            html! { <ConvertSheet work={work.clone()} title={title(model)} convert={convert.clone()} {raise} kept={model.kept_outputs} /> }
        }
        (Some(Sheet::Share), _) => {
            let cap = model.address.as_ref().map(|_| model.agreed.cap);
            let scanned = matches!(model.values_panel.scan, Task::Done(_));
            html! { <ShareSheet work={work.clone()} title={title(model)} shared={model.shared.clone()} verification={model.verification.clone()} {scanned} rate={model.values_panel.rate} {cap}
            host={model.fetched.as_ref().map(|fetched| AttrValue::from(fetched.host.clone()))} /> }
        }
        (Some(Sheet::Findings), _) => {
            html! { <FindingsSheet work={work.clone()} title={title(model)} scan={model.values_panel.scan.clone()} read_as={read_as(model, actor)} read_all={matches!(model.verification.task, Task::Done(_))} check={folder_check::page::button(model, actor, "btn quiet")} /> }
        }
        (Some(Sheet::Task(kind)), _) => {
            let error = model.task_error(kind);
            task_sheet(
                kind,
                TaskSheet {
                    model,
                    work: work.clone(),
                    title: title(model),
                    cap: model.address.as_ref().map(|_| model.agreed.cap),
                    raise: error.and_then(|error| raise(model, actor, &error)),
                },
            )
        }
        (Some(Sheet::Keys), _) => html! { <ShortcutsSheet /> },
        (Some(Sheet::Palette), _) => {
            let work = Some(work.clone()).filter(|_| model.screen == Screen::Work);
            html! { <Palette model={model.clone()} {work} /> }
        }
        (Some(Sheet::Limit), _) => {
            html! { <LimitDialog needed={work.sums.bytes} cap={model.agreed.cap} /> }
        }
        (Some(Sheet::ChooseCompared), _) => {
            html! { <ChooseComparedDialog work={work.clone()} files={model.files.clone()} /> }
        }
        _ => html! {},
    }
}

macro_rules! sheets {
    ($($(#[$doc:meta])* $kind:ident($request:ty) -> $result:ty, starts $start:path $(, sheet $sheet:path)?;)*) => {
        /// Renders the sheet of a task, if it has one.
        fn task_sheet(kind: JobKind, shown: TaskSheet<'_>) -> Html {
            match kind {
                $($(JobKind::$kind => $sheet(shown),)?)*
                _ => html! {},
            }
        }
    };
}

tasks!(sheets);

/// Saves the files that a reply brings. Returns the file of a conversion if it is a single one, so
/// that it can be opened.
fn finish(message: &FromWorker, handle: JsValue) -> Option<web_sys::File> {
    if let FromWorker::Summary { name, text } = message {
        drop::save_text(text, name);
    }
    if let FromWorker::Done(TaskResult::Export(exported)) = message {
        let blob = handle.dyn_ref::<js_sys::Array>().map(|blobs| blobs.get(0));
        if let Some(Ok(blob)) = blob.map(JsCast::dyn_into) {
            drop::save(&blob, &exported.name);
        }
        return None;
    }
    let FromWorker::Done(TaskResult::Write(done)) = message else { return None };
    for (name, text) in &done.texts {
        drop::save_text(text, name);
    }
    let blobs: js_sys::Array = handle.dyn_into().ok()?;
    for (blob, name) in blobs.iter().zip(&done.names) {
        if let (Ok(blob), true) = (blob.dyn_into(), done.method != WriteMethod::Saved) {
            drop::save(&blob, name);
        }
    }
    match done.names.as_slice() {
        [name] => web_sys::File::new_with_blob_sequence(&blobs, name).ok(),
        _ => None,
    }
}

/// Requests details and values when the selection changes, and a plan when the options of the
/// conversion change.
#[hook]
fn use_requests(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let row = model.work.as_ref().and_then(crate::state::work::OpenWork::row);
    let opened = model.work.as_ref().map(|work| ByAddress(work.rows.clone()));
    let sender = actor.clone();
    use_effect_with((opened.clone(), row), move |(_, row)| {
        if let Some(row) = *row {
            sender.request(&ToWorker::Inspect { row });
        }
    });
    let at = model.values_panel.at.filter(|(of, _)| Some(*of) == row).map(|(_, number)| number);
    let sender = actor.clone();
    let slice = row.map_or("", |row| model.values_panel.slice_of(row)).to_owned();
    let shown = row.and_then(|row| model.values_panel.shown_of(row)).cloned();
    // A value that was selected by a click stays where it is.
    let is_shown = model.values.as_ref().is_some_and(|shown| {
        let end = shown.start + shown.values.as_ref().map_or(0, |texts| texts.len() as u64);
        let inside = |at: u64| !slice.is_empty() || (shown.start..end).contains(&at);
        Some(shown.row) == row && shown.slice == slice && at.is_some_and(inside)
    });
    use_effect_with((opened.clone(), row, at, slice), move |(_, row, at, slice)| {
        if let Some(row) = row.filter(|_| !is_shown) {
            // Places the selected value in the middle of the window.
            let start = at.map_or(0, |number| number.saturating_sub(u64::from(VALUES) / 2));
            let slice = slice.clone();
            sender.request(&ToWorker::Values { row, slice, start, count: VALUES, shown });
        }
    });
    let requested =
        model.convert.as_ref().map(|convert| (convert.request, convert.options.clone()));
    let sender = actor.clone();
    use_effect_with((opened, requested), move |(_, requested)| {
        if let Some((request, options)) = requested.clone() {
            sender.request(&ToWorker::Plan { request, options: Box::new(options) });
        }
    });
}

/// Sets the window's title to the name of the open checkpoint.
#[hook]
fn use_title(model: &UseReducerHandle<PageModel>) {
    let title = match (&model.screen, &model.work) {
        (Screen::Work, Some(work)) => format!("{} \u{b7} Statelens", work.opened.name),
        _ => "Statelens".to_owned(),
    };
    use_effect_with(title, |title| {
        if let Some(document) = web_sys::window().and_then(|window| window.document()) {
            document.set_title(title);
        }
    });
}
