//! The handle that components act through: the state, the worker, the file dialogs.

use std::cell::Cell;
use std::rc::Rc;

use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::HtmlInputElement;
use yew::prelude::*;

use crate::convert::message::{PlanSummary, SaveTo, WriteRequest};
use crate::page::bridge::Bridge;
use crate::page::drop::{self, DroppedFile};
use crate::page::embed::is_embedded;
use crate::page::model::{ModelUpdate, PageModel, PendingAction, Screen, Sheet, StopReason, Tab};
use crate::page::stored_files;
use crate::protocol::ToWorker;
use crate::protocol::error::{ErrorKind, ErrorText};
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::read_as::message::ReadAs;

/// Number of values that the inspector requests at a time.
pub const VALUES: u32 = 60;

/// The handle that components act through: the state's dispatcher, the worker, and the two dialogs.
#[derive(Clone, PartialEq)]
pub struct Actor {
    /// Dispatches changes of the state.
    pub dispatch: UseReducerDispatcher<PageModel>,
    /// Sends messages to the worker.
    pub bridge: Bridge,
    /// The worker's session of the checkpoint that is shown.
    pub(crate) session: u32,
    /// The hidden input that opens the dialog for files.
    pub(crate) files: NodeRef,
    /// The hidden input that opens the dialog for a folder.
    pub(crate) folder: NodeRef,
    /// True while a dialog chooses a second checkpoint to compare with.
    pub(crate) choosing_compared: Rc<Cell<bool>>,
}

impl Actor {
    /// Changes the state.
    pub fn update(&self, change: impl FnOnce(&mut PageModel) + 'static) {
        self.dispatch.dispatch(ModelUpdate::new(change));
    }

    /// Shows a sheet; `None` closes it.
    pub fn show(&self, sheet: Option<Sheet>) {
        self.update(move |model| model.sheet = sheet);
    }

    /// Changes the pane of a small screen.
    pub fn tab(&self, tab: Tab) {
        self.update(move |model| model.tab = tab);
    }

    /// Asks for confirmation before the running write is stopped; `None` withdraws the question.
    pub fn confirm(&self, pending: Option<PendingAction>) {
        self.update(move |model| (model.dragged, model.pending) = (None, pending));
    }

    /// Shows an error that did not come from the worker.
    pub fn fail(&self, error: ErrorText) {
        self.update(|model| {
            (model.error, model.screen) = (Some(Rc::new(error)), Screen::Error);
        });
    }

    /// Shows the address dialog with an address; not in an embedded page.
    pub fn show_address_prompt(&self, address: AttrValue) {
        if is_embedded() {
            return;
        }
        self.update(|model| {
            (model.address_prompt, model.sheet) = (address, Some(Sheet::Address));
        });
    }

    /// Reports which jobs are stopped: because another file was opened (true), or because the open
    /// one was closed.
    pub fn interrupt(&self, opened: bool) {
        let jobs = self.bridge.running();
        self.update(move |model| model.interrupt(&jobs, opened));
    }

    /// Returns a callback that runs with this handle.
    pub fn on<E, R>(&self, run: impl Fn(&Self, E) -> R + 'static) -> Callback<E, R> {
        let actor = self.clone();
        Callback::from(move |event| run(&actor, event))
    }

    /// Sends a request about the shown checkpoint to the worker.
    pub fn request(&self, message: &ToWorker) {
        self.bridge.request(self.session, message);
    }

    /// Starts a task about the shown checkpoint.
    pub fn start(&self, task: TaskRequest) {
        self.request(&ToWorker::Start(task));
    }

    pub fn stop(&self, kind: JobKind) {
        self.request(&ToWorker::Stop(kind));
    }

    /// Stops a task, and shows that at once.
    pub fn stop_task(&self, kind: JobKind) {
        self.stop(kind);
        self.update(move |model| model.stop_task(kind));
    }

    /// Like [`Actor::request`], with files or a handle attached. Returns whether the request was sent.
    pub fn request_with(&self, message: &ToWorker, files: &JsValue, handle: &JsValue) -> bool {
        self.bridge.request_with(self.session, message, files, handle)
    }

    /// Runs an action that replaces the open checkpoint. Asks for confirmation first if a file is
    /// being written.
    pub fn replace_open(&self, then: impl Fn(&Self) + 'static) {
        self.confirm_if_writing(StopReason::Open, then);
    }

    fn confirm_if_writing(&self, reason: StopReason, then: impl Fn(&Self) + 'static) {
        if self.bridge.is_running(JobKind::Write) {
            self.confirm(Some(PendingAction::new(reason, then)));
        } else {
            then(self);
        }
    }

    /// Reports which jobs are stopped because the open checkpoint is closed.
    pub fn stop_jobs(&self) {
        self.interrupt(false);
        // Otherwise the checkpoint would be shown when it is ready, although the user left.
        if self.bridge.is_running(JobKind::Open) || self.bridge.is_running(JobKind::CheckRun) {
            self.bridge.restart();
        }
    }

    /// Goes back to the previous screen.
    pub fn leave(&self) {
        self.confirm_if_writing(StopReason::Leave, |actor| {
            actor.stop_jobs();
            actor.update(|model| model.leave());
        });
    }

    /// Closes everything and goes to the start screen.
    pub fn go_home(&self) {
        self.confirm_if_writing(StopReason::Leave, |actor| {
            actor.stop_jobs();
            actor.update(|model| model.go_home());
        });
    }

    /// Shows the list of checkpoints on screens that hide it.
    pub fn show_rail(&self) {
        self.update(|model| {
            (model.tree_shown, model.files_shown) = (!model.tree_shown, true);
        });
        self.tab(Tab::Tree);
    }

    /// Changes the view of the open checkpoint.
    pub fn work(&self, change: impl FnOnce(&mut crate::state::work::OpenWork) + 'static) {
        self.update(|model| {
            if let Some(work) = &mut model.work {
                change(work);
            }
        });
    }

    /// Changes the state of the conversion. A new plan is requested if its options change.
    pub fn convert(&self, change: impl FnOnce(&mut crate::convert::state::Conversion) + 'static) {
        self.update(|model| {
            if let Some(convert) = &mut model.convert {
                change(convert);
            }
        });
    }

    /// Opens the dialog for files; not in an embedded page.
    pub fn choose_files(&self) {
        if is_embedded() {
            return;
        }
        self.choosing_compared.set(false);
        if stored_files::remembers() {
            stored_files::show_file_dialog();
        } else {
            click(&self.files);
        }
    }

    /// Opens the dialog for a folder.
    pub fn choose_folder(&self) {
        self.choosing_compared.set(false);
        click(&self.folder);
    }

    /// Opens a dialog for the second checkpoint of a comparison.
    pub fn choose_compared(&self, folder: bool) {
        self.choosing_compared.set(true);
        click(if folder { &self.folder } else { &self.files });
    }

    /// Opens files. Asks for confirmation first if a file is being written.
    pub fn open(&self, files: Vec<DroppedFile>, main: Option<u32>) {
        if files.is_empty() {
            self.update(move |model| model.dragged = None);
            return;
        }
        self.replace_open(move |actor| actor.open_now(files.clone(), main));
    }

    /// Opens files without asking for confirmation.
    pub fn open_now(&self, files: Vec<DroppedFile>, main: Option<u32>) {
        self.open_within(files, main, 1, ReadAs::default());
    }

    /// Like [`Actor::open_now`], with the usual limits multiplied by `times`, and with the dtypes of
    /// arrays that are stored without one.
    pub fn open_within(
        &self,
        files: Vec<DroppedFile>,
        main: Option<u32>,
        times: u64,
        read_as: ReadAs,
    ) {
        let handles = drop::handles(&files);
        let names = files.iter().map(|dropped| dropped.name.clone()).collect();
        let open = ToWorker::Open { files: names, main, times, read_as };
        self.update(move |model| (model.times, model.read_as) = (times, read_as));
        self.begin_session(&open, &handles, move |model| model.begin_opening(files, main));
    }

    /// Posts a message that opens something, and shows the loading screen if that takes over 150
    /// ms.
    pub fn begin_session(
        &self,
        message: &ToWorker,
        files: &JsValue,
        change: impl FnOnce(&mut PageModel) + 'static,
    ) {
        self.interrupt(true);
        self.bridge.post_with(message, files, &JsValue::UNDEFINED);
        self.update(change);
        let actor = self.clone();
        gloo_timers::callback::Timeout::new(150, move || {
            actor.update(|model| model.loading.shown = true);
        })
        .forget();
    }

    /// Opens a bundled example.
    pub fn open_example(&self, name: &'static str) {
        let actor = self.clone();
        spawn_local(async move {
            match drop::example(name).await {
                Some(dropped) => actor.open(vec![dropped], None),
                None => actor.fail(ErrorText {
                    kind: ErrorKind::Io,
                    title: format!("The example {name} is missing from this site."),
                    text: "The site was copied without its folder examples.".into(),
                    file: String::new(),
                    offset: None,
                    lines: Vec::new(),
                    next: Vec::new(),
                }),
            }
        });
    }

    /// Cancels opening.
    pub fn stop_opening(&self) {
        self.bridge.restart();
        self.update(|model| model.leave());
    }

    /// Runs the plan. Where the browser has a save dialog, the user chooses the target before
    /// anything is read. Several files are saved one by one, as downloads.
    pub fn run(&self, request: u32, plan: &PlanSummary, falsify: bool) {
        let actor = self.clone();
        let name = match plan.names.as_slice() {
            [name] if !plan.zero_copy && has_save_dialog() => name.clone(),
            _ => {
                actor.update(|model| model.begin_writing());
                actor.start(TaskRequest::Write(WriteRequest {
                    request,
                    sink: SaveTo::Download,
                    falsify,
                }));
                return;
            }
        };
        spawn_local(async move {
            // Without a handle the user cancelled the dialog.
            if let Some(handle) = show_save_dialog(&name).await {
                let write = WriteRequest { request, sink: SaveTo::Handle, falsify };
                let run = ToWorker::Start(TaskRequest::Write(write));
                // If this fails, another checkpoint was opened while the dialog was shown.
                if actor.request_with(&run, &JsValue::UNDEFINED, &handle) {
                    actor.update(|model| model.begin_writing());
                }
            }
        });
    }
}

/// Opens the dialog of a file input. An embedded page opens offered files only.
pub(crate) fn click(input: &NodeRef) {
    if is_embedded() {
        return;
    }
    if let Some(input) = input.cast::<HtmlInputElement>() {
        input.set_value("");
        input.click();
    }
}

/// Returns whether the browser has a save dialog whose file can be written as a stream.
pub(crate) fn has_save_dialog() -> bool {
    web_sys::window()
        .is_some_and(|window| crate::messages::get(&window, "showSaveFilePicker").is_function())
}

async fn show_save_dialog(name: &str) -> Option<JsValue> {
    let window = web_sys::window()?;
    let show: js_sys::Function =
        crate::messages::get(&window, "showSaveFilePicker").dyn_into().ok()?;
    let options = js_sys::Object::new();
    crate::messages::set(&options, "suggestedName", &name.into());
    let promise: js_sys::Promise = show.call1(&window, &options).ok()?.dyn_into().ok()?;
    wasm_bindgen_futures::JsFuture::from(promise).await.ok()
}
