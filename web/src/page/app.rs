//! The root: the worker, the state, drops, and the keyboard.

use std::cell::Cell;
use std::rc::Rc;

use statelens_checkpoint::order;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::{DragEvent, Event, HtmlInputElement, KeyboardEvent};
use yew::prelude::*;

use crate::page::address::{self, use_address_of_page};
use crate::page::bridge::Bridge;
use crate::page::compare::{self, BesideDialog, CompareScreen};
use crate::page::convert::ConvertSheet;
use crate::page::drop::{self, Dropped};
use crate::page::error::{Failed, error_screen};
use crate::page::findings::FindingsSheet;
use crate::page::hooks::{Same, use_window_event};
use crate::page::loading::loading_screen;
use crate::page::marks::{classes, copy, when};
use crate::page::model::{Action, Model, Pending, Phase, Screen, Sheet};
use crate::page::offers::{self, use_desktop_files};
use crate::page::offline::NewVersion;
use crate::page::run::{self, RunScreen};
use crate::page::share::{self, ShareSheet, use_link_of_page};
use crate::page::shortcuts::ShortcutsSheet;
use crate::page::start::start_screen;
use crate::page::stopping;
use crate::page::verify::{self, VerifySheet};
use crate::page::workspace::Workspace;
use crate::protocol::compare::Told;
use crate::protocol::{
    ErrorKind, ErrorText, FromWorker, How, Kind, Planned, Posted, Sink, ToWorker,
};
use crate::state::fmt;

/// How many values the inspector asks for at a time.
pub const VALUES: u32 = 60;

/// What components use to act: the state's dispatcher, the worker, and the two dialogs.
#[derive(Clone, PartialEq)]
pub struct Actor {
    /// Changes the state.
    pub dispatch: UseReducerDispatcher<Model>,
    /// Speaks to the worker.
    pub bridge: Bridge,
    /// The worker's session that is shown.
    session: u32,
    files: NodeRef,
    folder: NodeRef,
    /// True while a dialog is for a second checkpoint.
    beside: Rc<Cell<bool>>,
}

impl Actor {
    /// Changes the state.
    pub fn act(&self, action: Action) {
        self.dispatch.dispatch(action);
    }

    /// Asks the worker about what is shown.
    pub fn ask(&self, message: &ToWorker) {
        self.bridge.ask(self.session, message);
    }

    /// As [`Actor::ask`], with files or a handle beside the message; whether it was asked.
    pub fn ask_with(&self, message: &ToWorker, files: &JsValue, handle: &JsValue) -> bool {
        self.bridge.ask_with(self.session, message, files, handle)
    }

    /// Does what takes the place of what is open; asks first if a file is being written.
    pub fn instead(&self, then: impl Fn(&Self) + 'static) {
        if self.bridge.is_doing(Kind::Write) {
            self.act(Action::Ask(Some(Pending(Rc::new(then)))));
        } else {
            then(self);
        }
    }

    /// Goes back to what was there before.
    pub fn leave(&self) {
        self.instead(|actor| {
            actor.act(Action::Interrupt(actor.bridge.long_jobs(), false));
            actor.act(Action::Leave);
        });
    }

    /// Changes how the checkpoint is shown.
    pub fn work(&self, change: impl FnOnce(&mut crate::state::work::Work) + 'static) {
        self.act(Action::Work(Box::new(change)));
    }

    /// Changes what is asked of a conversion, and asks for its plan.
    pub fn convert(&self, change: impl FnOnce(&mut crate::page::model::Convert) + 'static) {
        self.act(Action::Convert(Box::new(change)));
    }

    /// A dialog for files.
    pub fn choose_files(&self) {
        self.beside.set(false);
        if offers::remembers() {
            offers::choose();
        } else {
            click(&self.files);
        }
    }

    /// A dialog for a folder.
    pub fn choose_folder(&self) {
        self.beside.set(false);
        click(&self.folder);
    }

    /// A dialog for what is to be compared with the open checkpoint.
    pub fn choose_beside(&self, folder: bool) {
        self.beside.set(true);
        click(if folder { &self.folder } else { &self.files });
    }

    /// Opens files.
    pub fn open(&self, files: Vec<Dropped>, main: Option<u32>) {
        if files.is_empty() {
            self.act(Action::Over(None));
            return;
        }
        self.instead(move |actor| actor.open_now(files.clone(), main));
    }

    /// Opens files, whatever is going on.
    pub fn open_now(&self, files: Vec<Dropped>, main: Option<u32>) {
        let handles: js_sys::Array =
            files.iter().map(|dropped| JsValue::from(dropped.file.clone())).collect();
        let names = files.iter().map(|dropped| dropped.name.clone()).collect();
        let open = ToWorker::Open { files: names, main };
        self.begin(&open, &handles, Action::Open(files, main));
    }

    /// Something is being opened: shows that, if it takes longer than a moment.
    pub fn begin(&self, message: &ToWorker, files: &JsValue, action: Action) {
        self.act(Action::Interrupt(self.bridge.long_jobs(), true));
        self.bridge.post_with(message, files, &JsValue::UNDEFINED);
        match &action {
            Action::Open(files, _) if !files.is_empty() => share::leave_link(false),
            Action::OpenAddress(..) => share::leave_link(true),
            _ => {}
        }
        self.act(action);
        let dispatch = self.dispatch.clone();
        gloo_timers::callback::Timeout::new(100, move || dispatch.dispatch(Action::ShowLoading))
            .forget();
    }

    /// Opens a bundled example.
    pub fn open_example(&self, name: &'static str) {
        let actor = self.clone();
        spawn_local(async move {
            match drop::example(name).await {
                Some(dropped) => actor.open(vec![dropped], None),
                None => actor.act(Action::Fail(ErrorText {
                    kind: ErrorKind::Io,
                    title: format!("The example {name} is not where the page is."),
                    text: "The site was copied without its folder examples.".into(),
                    place: String::new(),
                    lines: Vec::new(),
                    next: Vec::new(),
                })),
            }
        });
    }

    /// Stops opening.
    pub fn stop_opening(&self) {
        self.bridge.restart();
        self.act(Action::Leave);
    }

    /// Runs the plan: asks where to save where the browser can ask, before anything is read.
    /// Several files are saved one by one, as downloads.
    pub fn run(&self, request: u32, plan: &Planned, falsify: bool) {
        let actor = self.clone();
        let name = match plan.names.as_slice() {
            [name] if !plan.zero_copy && can_pick() => name.clone(),
            _ => {
                actor.act(Action::Run);
                actor.ask(&ToWorker::Run { request, sink: Sink::Download, falsify });
                return;
            }
        };
        spawn_local(async move {
            // Without a handle the dialog was left: nothing was asked for.
            if let Some(handle) = pick(&name).await {
                let run = ToWorker::Run { request, sink: Sink::Handle, falsify };
                // Else something else was opened while the dialog was there.
                if actor.ask_with(&run, &JsValue::UNDEFINED, &handle) {
                    actor.act(Action::Run);
                }
            }
        });
    }
}

/// Opens the dialog of an input for files.
pub(super) fn click(input: &NodeRef) {
    if let Some(input) = input.cast::<HtmlInputElement>() {
        input.set_value("");
        input.click();
    }
}

/// True where the browser has a save dialog for streams.
fn can_pick() -> bool {
    web_sys::window()
        .is_some_and(|window| crate::page::bridge::get(&window, "showSaveFilePicker").is_function())
}

async fn pick(name: &str) -> Option<JsValue> {
    let window = web_sys::window()?;
    let show: js_sys::Function =
        crate::page::bridge::get(&window, "showSaveFilePicker").dyn_into().ok()?;
    let options = js_sys::Object::new();
    crate::page::bridge::set(&options, "suggestedName", &name.into());
    let promise: js_sys::Promise = show.call1(&window, &options).ok()?.dyn_into().ok()?;
    wasm_bindgen_futures::JsFuture::from(promise).await.ok()
}

/// The page.
#[component]
pub fn App() -> Html {
    let model = use_reducer(Model::default);
    let bridge = {
        let dispatch = model.dispatcher();
        use_memo((), move |()| {
            Bridge::start(Callback::from(move |(posted, handle): (Posted<FromWorker>, JsValue)| {
                let file = finish(&posted.message, handle);
                dispatch.dispatch(Action::Heard(Box::new(posted), file));
            }))
        })
    };
    let actor = Actor {
        dispatch: model.dispatcher(),
        bridge: (*bridge).clone(),
        session: model.session,
        files: use_node_ref(),
        folder: use_node_ref(),
        beside: (*use_memo((), |()| Rc::new(Cell::new(false)))).clone(),
    };
    use_questions(&model, &actor);
    compare::use_compare(&model, &actor);
    run::use_run(&model, &actor);
    use_title(&model);
    stopping::use_closing(&model, &actor);
    stopping::use_staying(&model);
    use_drops(&model, &actor);
    use_keys(&model, &actor);
    use_address_of_page(&actor);
    use_link_of_page(&actor);
    use_desktop_files({
        let (model, actor) = (model.clone(), actor.clone());
        Callback::from(move |files| take(&model, &actor, files))
    });

    let chosen = {
        let actor = actor.clone();
        let model = model.clone();
        Callback::from(move |event: Event| {
            if let Some(list) =
                event.target_dyn_into::<HtmlInputElement>().and_then(|input| input.files())
            {
                let files = drop::from_list(&list);
                if actor.beside.take() && compare::can_compare(&model) {
                    compare::begin(&actor, files, None);
                } else {
                    take(&model, &actor, files);
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
            { screen(&model, &actor) }
            { sheet(&model) }
            { stopping::dialog(&model, &actor) }
            { stopping::notice(&model, &actor) }
            <NewVersion />
            // Always there: Yew loses its place behind a component that shows nothing when what
            // follows it comes and goes.
            <div aria-hidden="true">
                if model.over.is_some() && !matches!(model.screen, Screen::Start) {
                    { dropover(&model) }
                }
            </div>
        </ContextProvider<Actor>>
    }
}

/// What is said while things are dragged over the page.
pub fn over_text(over: Option<usize>) -> String {
    match over {
        Some(0) | None => "Release to open.".into(),
        Some(1) => "Release to open 1 item.".into(),
        Some(count) => format!("Release to open {count} items."),
    }
}

/// What a drop would do. Where a checkpoint is open, the right half is for comparing.
fn dropover(model: &Model) -> Html {
    let Some(work) = model.work.as_ref().filter(|_| compare::can_compare(model)) else {
        let text = match model.sheet {
            Some(Sheet::Verify) => "Release to take it as the manifest.".to_owned(),
            _ => over_text(model.over),
        };
        return html! { <div class="dropover"><b>{ text }</b></div> };
    };
    let half = |beside: bool| classes(&[when(beside == model.over_beside, "on")]);
    html! {
        <div class="dropover halves">
            <div class={half(false)}><b>{ over_text(model.over) }</b><span>{ "It takes the place of what is open." }</span></div>
            <div class={half(true)}><b>{ "Release to compare." }</b><span>{ format!("Beside {}.", work.opened.name) }</span></div>
        </div>
    }
}

fn screen(model: &UseReducerHandle<Model>, actor: &Actor) -> Html {
    let work = model.work.clone();
    match (model.screen, work) {
        (Screen::Run, _) => match &model.run {
            Some(view) => html! { <RunScreen view={view.clone()} tab={model.tab} /> },
            None => html! {},
        },
        (Screen::Compare, work) => match &model.compare {
            Some(compare) => {
                let (model, actor) = (model.clone(), actor.clone());
                let name = work
                    .as_ref()
                    .map_or_else(|| loading_name(&model), |work| work.opened.name.clone());
                let (tab, compare) = (model.tab, compare.clone());
                let privacy = privacy(&model);
                let onswap = (!model.files.is_empty())
                    .then(|| Callback::from(move |()| compare::swap(&model, &actor)));
                html! { <CompareScreen {work} {name} {compare} {tab} {onswap} {privacy} /> }
            }
            None => html! {},
        },
        (Screen::Loading, _) if model.loading.shown => {
            let privacy = privacy(model);
            loading_screen(actor, &model.loading, loading_name(model), loading_size(model), privacy)
        }
        (Screen::Error, _) => match &model.error {
            Some(error) => {
                let failed = Failed {
                    error,
                    name: loading_name(model),
                    size: loading_size(model),
                    others: model.files.len(),
                    address: model.address.as_ref(),
                    agreed: model.agreed,
                };
                error_screen(actor, &failed)
            }
            None => html! {},
        },
        // Files that open within a moment never show a loading screen.
        (Screen::Work | Screen::Loading, Some(work)) => html! {
            <Workspace {work} oncompare={oncompare(model, actor)} tab={model.tab} tree_shown={model.tree_shown} inspected={model.inspected.clone()}
                values={model.values.clone()} running={running(model)} fetched={model.fetched.clone()} cap={model.agreed.cap}
                privacy={privacy(model)} verifying={model.verification.stage.clone()} />
        },
        _ => start_screen(actor, model.over),
    }
}

fn oncompare(model: &UseReducerHandle<Model>, actor: &Actor) -> Callback<()> {
    let (model, actor) = (model.clone(), actor.clone());
    Callback::from(move |()| compare::offer(&model, &actor))
}

fn running(model: &Model) -> Option<u32> {
    match model.convert.as_ref().map(|convert| &convert.phase) {
        Some(Phase::Running { now, .. }) => Some(fmt::percent(now.done, now.total)),
        _ => None,
    }
}

fn loading_name(model: &Model) -> String {
    if let Some(address) = &model.address {
        return address.split('?').next().unwrap_or_default().to_owned();
    }
    loading(model).map(|dropped| dropped.name.path.clone()).unwrap_or_default()
}

fn loading_size(model: &Model) -> u64 {
    loading(model).map_or(0, |dropped| dropped.name.size)
}

/// What the bar at the bottom says of where bytes go: which server is asked, if one is.
fn privacy(model: &Model) -> Html {
    let host = model.address.as_ref().map(|address| stopping::host(address));
    stopping::privacy(host.as_deref())
}

/// The file that is opened, or that an error is about.
fn loading(model: &Model) -> Option<&Dropped> {
    let error = model.error.as_deref().filter(|_| model.screen == Screen::Error);
    let about = |error: &ErrorText| {
        let name = error.place.split(", at byte").next();
        model.files.iter().find(|dropped| Some(dropped.name.path.as_str()) == name)
    };
    let first = || model.files.get(model.asked.unwrap_or(0) as usize);
    error.and_then(about).or_else(first)
}

fn sheet(model: &UseReducerHandle<Model>) -> Html {
    if let Some(sheet) = address::sheet(model) {
        return sheet;
    }
    let Some(work) = &model.work else {
        return match model.sheet {
            Some(Sheet::Keys) => html! { <ShortcutsSheet /> },
            _ => html! {},
        };
    };
    match (model.sheet, &model.convert) {
        (Some(Sheet::Convert), Some(convert)) => {
            html! { <ConvertSheet work={work.clone()} convert={convert.clone()} /> }
        }
        (Some(Sheet::Share), _) => {
            html! { <ShareSheet work={work.clone()} shared={model.shared.clone()} measure={model.measure.clone()}
            host={model.fetched.as_ref().map(|fetched| AttrValue::from(fetched.host.clone()))} /> }
        }
        (Some(Sheet::Findings), _) => html! { <FindingsSheet work={work.clone()} /> },
        (Some(Sheet::Verify), _) => {
            let cap = model.address.as_ref().map(|_| model.agreed.cap);
            html! { <VerifySheet work={work.clone()} verification={model.verification.clone()} {cap} /> }
        }
        (Some(Sheet::Keys), _) => html! { <ShortcutsSheet /> },
        (Some(Sheet::Beside), _) => {
            html! { <BesideDialog work={work.clone()} files={model.files.clone()} /> }
        }
        _ => html! {},
    }
}

/// Takes files: what the open checkpoint misses joins it, anything else replaces it.
fn take(model: &Model, actor: &Actor, dropped: Vec<Dropped>) {
    if verify::takes(model, actor, &dropped) {
        return;
    }
    if model.joins(&dropped) {
        let mut all = model.files.as_ref().clone();
        for mut file in dropped {
            if let Some(path) = model.missing(&file.name.path) {
                file.name.path = path.to_owned();
            }
            // One that comes again may be another one by now.
            match all.iter_mut().find(|known| known.name.path == file.name.path) {
                Some(known) => *known = file,
                None => all.push(file),
            }
        }
        actor.open(all, model.asked);
    } else if let Err(dropped) = run::begin(actor, dropped) {
        actor.open(dropped, None);
    }
}

/// A finished conversion: saves what is to be saved, and keeps a single file for opening.
fn finish(message: &FromWorker, handle: JsValue) -> Option<web_sys::File> {
    if let FromWorker::Summary { name, text } = message {
        drop::save_text(text, name);
    }
    if let FromWorker::Compare(Told::Report(report)) = message {
        drop::save_text(report, "comparison.json");
    }
    let FromWorker::Done(done) = message else { return None };
    let blobs: js_sys::Array = handle.dyn_into().ok()?;
    for (blob, name) in blobs.iter().zip(&done.names) {
        if let (Ok(blob), true) = (blob.dyn_into(), done.how != How::Saved) {
            drop::save(&blob, name);
        }
    }
    match done.names.as_slice() {
        [name] => web_sys::File::new_with_blob_sequence(&blobs, name).ok(),
        _ => None,
    }
}

/// Asks for facts and first values whenever another row is looked at, and for a plan whenever
/// something else is asked of a conversion.
#[hook]
fn use_questions(model: &UseReducerHandle<Model>, actor: &Actor) {
    let row = model.work.as_ref().and_then(crate::state::work::Work::row);
    let opened = model.work.as_ref().map(|work| Same(work.rows.clone()));
    let asker = actor.clone();
    use_effect_with((opened.clone(), row), move |(_, row)| {
        if let Some(row) = *row {
            asker.ask(&ToWorker::Inspect { row });
            asker.ask(&ToWorker::Values { row, start: 0, count: VALUES });
        }
    });
    let asked = model.convert.as_ref().map(|convert| (convert.request, convert.options.clone()));
    let asker = actor.clone();
    use_effect_with((opened, asked), move |(_, asked)| {
        if let Some((request, options)) = asked.clone() {
            asker.ask(&ToWorker::Plan { request, options: Box::new(options) });
        }
    });
}

/// The window's title is the file's name.
#[hook]
fn use_title(model: &UseReducerHandle<Model>) {
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

#[hook]
fn use_drops(model: &UseReducerHandle<Model>, actor: &Actor) {
    let over = {
        let (model, actor) = (model.clone(), actor.clone());
        Callback::from(move |event: Event| {
            let Some(transfer) = event.dyn_ref::<DragEvent>().and_then(DragEvent::data_transfer)
            else {
                return;
            };
            if drop::has_files(&transfer) {
                event.prevent_default();
                transfer.set_drop_effect("copy");
                let count = drop::count(&transfer);
                if model.over != Some(count) {
                    actor.act(Action::Over(Some(count)));
                }
                let beside = on_right(&event);
                if model.over_beside != beside {
                    actor.act(Action::OverBeside(beside));
                }
            }
        })
    };
    use_window_event("dragenter", over.clone());
    use_window_event("dragover", over);
    let leave = {
        let (model, actor) = (model.clone(), actor.clone());
        Callback::from(move |event: Event| {
            // The pointer left the window, not one element for another.
            let outside =
                event.dyn_ref::<DragEvent>().is_some_and(|drag| drag.related_target().is_none());
            if outside && model.over.is_some() {
                actor.act(Action::Over(None));
            }
        })
    };
    use_window_event("dragleave", leave);
    let dropped = {
        let (model, actor) = (model.clone(), actor.clone());
        Callback::from(move |event: Event| {
            let Some(transfer) = event.dyn_ref::<DragEvent>().and_then(DragEvent::data_transfer)
            else {
                return;
            };
            if drop::has_files(&transfer) {
                event.prevent_default();
                let files = drop::from_drop(&transfer);
                let beside = compare::can_compare(&model) && on_right(&event);
                let (model, actor) = (model.clone(), actor.clone());
                spawn_local(async move {
                    let files = files.await;
                    if beside && !model.joins(&files) {
                        compare::begin(&actor, files, None);
                    } else {
                        take(&model, &actor, files);
                    }
                });
            }
        })
    };
    use_window_event("drop", dropped);
}

/// Whether the pointer is in the right half of the window.
fn on_right(event: &Event) -> bool {
    let width = web_sys::window().and_then(|window| window.inner_width().ok()?.as_f64());
    let at = event.dyn_ref::<DragEvent>().map_or(0, |drag| drag.client_x());
    f64::from(at) > width.unwrap_or(f64::MAX) / 2.0
}

#[hook]
fn use_keys(model: &UseReducerHandle<Model>, actor: &Actor) {
    let (model, actor) = (model.clone(), actor.clone());
    let listen = Callback::from(move |event: Event| {
        if let Some(event) = event.dyn_ref::<KeyboardEvent>()
            && !event.default_prevented()
            && press(&model, &actor, event)
        {
            event.prevent_default();
        }
    });
    use_window_event("keydown", listen);
}

/// Acts on a key; true if it did.
fn press(model: &Model, actor: &Actor, event: &KeyboardEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let tag = target.as_ref().map(|target| target.tag_name()).unwrap_or_default();
    let key = event.key();
    if key == "Escape" {
        return escape(model, actor, target.as_ref());
    }
    if matches!(tag.as_str(), "INPUT" | "SELECT" | "TEXTAREA") || event.alt_key() {
        return false;
    }
    if model.pending.is_some() {
        return false;
    }
    if event.ctrl_key() || event.meta_key() {
        return key == "c" && copy_values(model);
    }
    match key.as_str() {
        "?" => actor.act(Action::Show(if model.sheet == Some(Sheet::Keys) {
            None
        } else {
            Some(Sheet::Keys)
        })),
        "Enter" if model.sheet == Some(Sheet::Share) && tag != "BUTTON" && tag != "A" => {
            return share::copy_link(model.shared.as_ref());
        }
        _ if model.sheet.is_some() => return false,
        "o" => actor.choose_files(),
        "O" => actor.choose_folder(),
        "u" => actor.act(Action::AskAddress(AttrValue::default())),
        _ if matches!(model.screen, Screen::Compare | Screen::Run) => {
            let inside = target.as_ref().is_some_and(|node| {
                node.closest("[role=tablist], .insp, .matching").ok().flatten().is_some()
            });
            return match model.screen {
                Screen::Run => run::press(model, actor, &key, &tag, inside),
                _ => compare::press(model, actor, &key, &tag, inside),
            };
        }
        _ if model.screen != Screen::Work => return false,
        "d" => compare::offer(model, actor),
        "c" => actor.act(Action::StartConvert),
        "f" => actor.act(Action::Show(Some(Sheet::Findings))),
        "s" => actor.act(Action::Show(Some(Sheet::Share))),
        "v" if compare::can_compare(model) => actor.act(Action::Show(Some(Sheet::Verify))),
        "[" | "]" => return step_file(model, actor, key == "]"),
        _ => return press_in_table(model, actor, &key, &tag, target.as_ref()),
    }
    true
}

fn press_in_table(
    model: &Model,
    actor: &Actor,
    key: &str,
    tag: &str,
    target: Option<&web_sys::Element>,
) -> bool {
    let Some(work) = &model.work else { return false };
    // Arrows belong to the tree, the tabs and the tape while they have the focus.
    let elsewhere = target.is_some_and(|node| {
        node.closest("[role=tree], [role=tablist], .insp").ok().flatten().is_some()
    });
    match key {
        "j" => actor.work(|work| work.step(1)),
        "k" => actor.work(|work| work.step(-1)),
        "ArrowDown" if !elsewhere => actor.work(|work| work.step(1)),
        "ArrowUp" if !elsewhere => actor.work(|work| work.step(-1)),
        "PageDown" if !elsewhere => actor.work(|work| work.step(20)),
        "PageUp" if !elsewhere => actor.work(|work| work.step(-20)),
        "ArrowRight" if !elsewhere => actor.work(|work| work.unfold(true)),
        "ArrowLeft" if !elsewhere => actor.work(|work| work.unfold(false)),
        "Home" if !elsewhere => actor.work(|work| work.step_to_end(false)),
        "End" if !elsewhere => actor.work(|work| work.step_to_end(true)),
        "Enter" if !elsewhere && tag != "BUTTON" && tag != "A" => return enter(work, actor),
        "," => actor.work(|work| work.step_layer(-1)),
        "." => actor.work(|work| work.step_layer(1)),
        "l" => actor.work(crate::state::work::Work::toggle_folding),
        "/" => return focus_filter(),
        "y" => match work.row() {
            Some(row) => copy(&work.rows[row as usize].key),
            None => return false,
        },
        "Y" => match work.row() {
            Some(row) => copy(&fmt::shape(&work.rows[row as usize].shape)),
            None => return false,
        },
        _ => return false,
    }
    true
}

/// Enter opens or shuts the fold that is looked at.
fn enter(work: &crate::state::work::Work, actor: &Actor) -> bool {
    let Some(fold) = work.fold() else { return false };
    let name = fold.name.clone();
    actor.work(move |work| work.toggle_fold(&name));
    true
}

/// Escape closes what is on top: a sheet, the filter, a file that is being opened.
fn escape(model: &Model, actor: &Actor, target: Option<&web_sys::Element>) -> bool {
    if model.pending.is_some() {
        actor.act(Action::Ask(None));
        return true;
    }
    if model.sheet.is_some() {
        let running = model.convert.as_ref().is_some_and(crate::page::model::Convert::is_running);
        if model.sheet == Some(Sheet::Convert) && running {
            actor.ask(&ToWorker::Cancel);
        } else if model.sheet == Some(Sheet::Verify)
            && matches!(model.verification.stage, verify::Stage::Now(..))
        {
            verify::stop(actor);
        } else {
            actor.act(Action::Show(None));
        }
        return true;
    }
    match model.screen {
        Screen::Loading => actor.stop_opening(),
        Screen::Error => actor.act(Action::Leave),
        Screen::Compare => compare::escape(model, actor),
        Screen::Run => run::escape(model, actor),
        Screen::Work => {
            let clear = model.work.as_ref().is_none_or(|work| work.filter.is_empty());
            if model.run.is_some() && clear && !model.tree_shown {
                actor.leave();
                return true;
            }
            if model.tree_shown {
                actor.act(Action::ToggleTree);
            }
            actor.work(|work| work.set_filter(""));
            if let Some(input) = target.and_then(|target| target.dyn_ref::<web_sys::HtmlElement>())
            {
                let _ = input.blur();
            }
        }
        Screen::Start => return false,
    }
    true
}

/// Puts the cursor into the filter box.
pub fn focus_filter() -> bool {
    let input = web_sys::window()
        .and_then(|window| window.document())
        .and_then(|document| document.get_element_by_id("filter"))
        .and_then(|node| node.dyn_into::<HtmlInputElement>().ok());
    match input {
        Some(input) => {
            input.select();
            input.focus().is_ok()
        }
        None => false,
    }
}

/// Opens the next checkpoint of the same drop.
fn step_file(model: &Model, actor: &Actor, forward: bool) -> bool {
    let Some(work) = &model.work else { return false };
    let mut all = work.opened.others.clone();
    all.push(work.opened.main);
    order::natural(&mut all);
    let at = all.iter().position(|&file| file == work.opened.main).unwrap_or(0);
    let next = if forward { (at + 1) % all.len() } else { (at + all.len() - 1) % all.len() };
    if all.len() < 2 {
        return false;
    }
    actor.open(model.files.as_ref().clone(), Some(all[next]));
    true
}

/// Copies the first values as text, unless some text of the page is selected.
fn copy_values(model: &Model) -> bool {
    let selected = web_sys::window()
        .and_then(|window| window.get_selection().ok().flatten())
        .is_some_and(|selection| !selection.is_collapsed());
    let row = model.work.as_ref().and_then(crate::state::work::Work::row);
    match &model.values {
        Some(values) if !selected && Some(values.row) == row => match &values.values {
            Ok(texts) => {
                copy(&texts.join("\n"));
                true
            }
            Err(_) => false,
        },
        _ => false,
    }
}
