//! The page's state, and the actions that change it.

pub mod actor;
pub mod comparison;
pub mod folder;
mod join;
mod replies;
pub mod verification;

use std::rc::Rc;

use web_sys::File;
use yew::prelude::*;

use self::actor::Actor;
use self::comparison::ComparisonState;
use self::folder::RunView;
use self::verification::Verification;
use crate::page::conversion::Conversion;
use crate::page::drop::DroppedFile;
use crate::protocol::error::ErrorText;
use crate::protocol::inspected::{FormattedValues, RowDetails};
use crate::protocol::job::JobKind;
use crate::protocol::model_description::ModelDescription;
use crate::protocol::opened::{FetchConsent, FetchStats};
use crate::protocol::read_as::ReadAs;
use crate::protocol::share::SharedSummary;
use crate::protocol::{FromWorker, JobMessage};
use crate::state::link::PageLink;
use crate::state::matrix::MatrixState;
use crate::state::rail::Rail;
use crate::state::task::Task;
use crate::state::treemap::TreemapView;
use crate::state::values_panel::ValuesPanel;
use crate::state::view::MatrixView;
use crate::state::work::OpenWork;
use crate::text;

/// The screen that fills the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// Nothing is open.
    Start,
    /// A file is being opened.
    Loading,
    /// A checkpoint is open.
    Work,
    /// A file could not be opened.
    Error,
    /// Two checkpoints are compared.
    Compare,
    /// A run folder is shown.
    Run,
}

/// A dialog or panel shown on top of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sheet {
    Convert,
    Findings,
    Share,
    /// The list of keyboard shortcuts.
    Keys,
    /// Opening from an address.
    Address,
    /// Choosing a second checkpoint to compare with.
    ChooseCompared,
    Verify,
    /// A scan would fetch more bytes than one action may.
    Limit,
}

/// The pane that a small screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    Tree,
    Keys,
    Tensor,
}

/// Progress of opening a checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadingState {
    /// The current step, in words.
    pub doing: String,
    /// Number of keys found so far.
    pub keys: u64,
    /// Bytes read so far.
    pub read: u64,
    /// Number of reads made so far.
    pub calls: u64,
    /// True once opening has taken long enough to show the loading screen.
    pub shown: bool,
    /// A preview of the first keys, sent before opening is complete.
    pub first: Option<OpenWork>,
}

/// The reason why the running write would be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The user opens something else.
    Open,
    /// The user closes the open checkpoint.
    Leave,
    /// The user cancels the write.
    Stop,
}

/// An action deferred until the user confirms it, since it would stop the running write.
#[derive(Clone)]
pub struct PendingAction {
    /// The reason to show in the question.
    pub reason: StopReason,
    then: Rc<dyn Fn(&Actor)>,
}

impl PendingAction {
    /// Defers `then`, with the reason to show in the question.
    pub fn new(reason: StopReason, then: impl Fn(&Actor) + 'static) -> Self {
        Self { reason, then: Rc::new(then) }
    }

    /// Runs the deferred action.
    pub fn go(&self, actor: &Actor) {
        (self.then)(actor);
    }
}

impl PartialEq for PendingAction {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.then, &other.then)
    }
}

impl std::fmt::Debug for PendingAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// The page's state.
#[derive(Debug, Clone, PartialEq)]
pub struct PageModel {
    pub screen: Screen,
    /// Number of items being dragged over the page; `None` while nothing is.
    pub dragged: Option<usize>,
    /// The files of the last drop.
    pub files: Rc<Vec<DroppedFile>>,
    /// The address of the remote checkpoint that is open or being opened. `files` is empty then.
    pub address: Option<AttrValue>,
    /// The address that the address dialog starts with.
    pub address_prompt: AttrValue,
    /// The limits that the user agreed to for the remote checkpoint.
    pub agreed: FetchConsent,
    /// Factor on the usual limits for opening the files.
    pub times: u64,
    /// The dtypes of arrays of the files that are stored without one.
    pub read_as: ReadAs,
    /// Bytes and requests fetched from the remote checkpoint so far.
    pub fetched: Option<FetchStats>,
    /// The file, by its index in `files`, that the user chose to open.
    pub requested: Option<u32>,
    /// Progress of opening.
    pub loading: LoadingState,
    /// The open checkpoint.
    pub work: Option<OpenWork>,
    /// The worker's session in which the checkpoint is open.
    pub session: u32,
    /// An action that waits for confirmation because a file is being written.
    pub pending: Option<PendingAction>,
    /// The notice to show until the user dismisses it, such as which jobs were stopped and why.
    pub notice: Option<AttrValue>,
    /// The error to show on the error screen.
    pub error: Option<Rc<ErrorText>>,
    /// The sheet that is shown, if any.
    pub sheet: Option<Sheet>,
    pub tab: Tab,
    /// True while the tree is shown over the table, on screens of middle width.
    pub tree_shown: bool,
    /// Details of the selected row.
    pub inspected: Option<Rc<RowDetails>>,
    /// Values of the selected row.
    pub values: Option<Rc<FormattedValues>>,
    /// The worker's description of the model.
    pub description: Option<Rc<ModelDescription>>,
    /// The treemap that is shown instead of the table, if any.
    pub treemap: Option<TreemapView>,
    /// The summary to share.
    pub shared: Option<Rc<SharedSummary>>,
    /// The state of the verification.
    pub verification: Verification,
    /// The state of reading tensor values.
    pub values_panel: ValuesPanel,
    /// The matrix shown as a heatmap, if any.
    pub matrix: Option<MatrixState>,
    /// The state of the convert sheet.
    pub convert: Option<Conversion>,
    /// The checkpoints of the last drop, if there are several.
    pub rail: Option<Rc<Rail>>,
    /// The comparison with a second checkpoint.
    pub compare: Option<Rc<ComparisonState>>,
    /// The run folder that was dropped. It is kept while one of its checkpoints is open.
    pub run: Option<Rc<RunView>>,
    /// True while releasing the dragged items would compare them rather than open them.
    pub over_compare: bool,
    /// The link to follow once the checkpoint that it leads to is open.
    pub pending_link: Option<Rc<PageLink>>,
    /// True while a checkpoint is being opened again after the worker crashed.
    pub crashed: bool,
    /// When the worker last crashed.
    pub stopped_at: f64,
    /// The notice to show once the checkpoint is open again after a crash.
    pub revived: Option<AttrValue>,
}

/// A change of the state.
pub enum Action {
    /// Sets the number of items being dragged over the page.
    Over(Option<usize>),
    /// Starts opening files, optionally with the index of the file chosen by the user.
    Open(Vec<DroppedFile>, Option<u32>),
    /// Sets how the files are opened next: the factor on the usual limits, and the dtypes of arrays
    /// that are stored without one.
    Within(u64, ReadAs),
    /// Shows the address dialog with an address.
    PromptAddress(AttrValue),
    /// Starts opening a remote checkpoint.
    OpenAddress(AttrValue, FetchConsent),
    /// Sets how many bytes one action may fetch.
    Allow(u64),
    /// Shows the loading screen, since opening takes a while.
    ShowLoading,
    /// Goes back to the previously open checkpoint or run folder, or to the start screen.
    Leave,
    /// Closes everything and goes to the start screen.
    Home,
    /// Applies a reply of the worker, with the finished file if the reply brings one.
    Reply(Box<JobMessage<FromWorker>>, Option<File>),
    /// Reports that jobs are stopped. The flag is true if another file was opened, false if the
    /// open one was closed.
    Interrupt(Vec<JobKind>, bool),
    /// Dismisses the notice.
    DismissNotice,
    /// Shows a notice until it is dismissed.
    Notify(AttrValue),
    /// Asks for confirmation before the running write is stopped; `None` withdraws the question.
    Confirm(Option<PendingAction>),
    /// Shows an error that did not come from the worker.
    Fail(ErrorText),
    /// Shows or hides a sheet.
    Show(Option<Sheet>),
    /// Changes the pane of a small screen.
    Tab(Tab),
    /// Shows or hides the tree on screens of middle width.
    ToggleTree,
    /// Changes the view of the open checkpoint.
    Work(Box<dyn FnOnce(&mut OpenWork)>),
    /// Changes the options or the stage of the verification.
    Verify(Box<dyn FnOnce(&mut Verification)>),
    /// Changes the state of reading values.
    ValuesPanel(Box<dyn FnOnce(&mut ValuesPanel)>),
    /// Shows the selected row as a heatmap, or closes the heatmap.
    ShowMatrix(bool),
    /// Changes the state of the heatmap.
    Matrix(Box<dyn FnOnce(&mut MatrixState)>),
    /// Selects a row and one of its values, by the value's index in C order.
    GoTo(u32, u64),
    /// Shows the treemap instead of the table; `None` shows the table.
    Treemap(Option<TreemapView>),
    /// Opens the convert sheet.
    StartConvert,
    /// Opens the convert sheet for one row, with the id of a target and whether numbers are cast to
    /// float32.
    SaveKey(u32, String, bool),
    /// Opens the convert sheet for the rows picked in the table, with the id of a target if given.
    SavePicked(Option<String>),
    /// Changes the state of the conversion.
    Convert(Box<dyn FnOnce(&mut Conversion)>),
    /// Marks the conversion as running.
    Run,
    /// Ticks or unticks a checkpoint of the drop for comparing.
    Tick(u32),
    /// Starts opening a second checkpoint to compare with.
    BeginComparison(Vec<DroppedFile>, Option<u32>),
    /// Starts comparing two rows of the open checkpoint.
    CompareRows(u32, u32),
    /// Sets whether releasing the dragged items would compare them (true) or open them (false).
    OverCompare(bool),
    /// Changes the comparison.
    Compare(Box<dyn FnOnce(&mut ComparisonState)>),
    /// Shows a run folder.
    OpenRun(Box<RunView>),
    /// Remembers a link, to follow once its checkpoint is open.
    DeferLink(Rc<PageLink>),
    /// Follows a link in the open checkpoint if the link is about that one; remembers it otherwise.
    Follow(Rc<PageLink>),
    /// Changes the view of the run folder.
    RunFolder(Box<dyn FnOnce(&mut RunView)>),
}

impl Default for PageModel {
    fn default() -> Self {
        Self {
            screen: Screen::Start,
            dragged: None,
            files: Rc::new(Vec::new()),
            address: None,
            address_prompt: AttrValue::default(),
            agreed: FetchConsent::default(),
            times: 1,
            read_as: ReadAs::default(),
            fetched: None,
            requested: None,
            loading: LoadingState::default(),
            work: None,
            session: 0,
            pending: None,
            notice: None,
            error: None,
            sheet: None,
            tab: Tab::Keys,
            tree_shown: false,
            inspected: None,
            values: None,
            description: None,
            treemap: None,
            shared: None,
            verification: Verification::default(),
            values_panel: ValuesPanel::default(),
            matrix: None,
            convert: None,
            rail: None,
            compare: None,
            run: None,
            over_compare: false,
            pending_link: None,
            crashed: false,
            stopped_at: 0.0,
            revived: None,
        }
    }
}

impl Reducible for PageModel {
    type Action = Action;

    fn reduce(self: Rc<Self>, action: Action) -> Rc<Self> {
        let mut next = (*self).clone();
        match action {
            Action::Over(dragged) => next.dragged = dragged,
            Action::Open(files, main) => {
                next.dragged = None;
                next.sheet = None;
                if !next.is_of_run(&files) {
                    next.run = None;
                }
                if *next.files != files {
                    next.rail = None;
                }
                next.files = Rc::new(files);
                (next.address, next.fetched) = (None, None);
                next.requested = main;
                (next.compare, next.crashed) = (None, false);
                next.pending_link = next.pending_link.filter(|link| !link.file.is_empty());
                next.begin_loading();
            }
            Action::Within(times, read_as) => (next.times, next.read_as) = (times, read_as),
            Action::PromptAddress(address) => {
                next.address_prompt = address;
                next.sheet = Some(Sheet::Address);
            }
            Action::OpenAddress(address, agreed) => {
                next.sheet = None;
                next.files = Rc::default();
                (next.fetched, next.rail) = (None, None);
                (next.address, next.agreed) = (Some(address), agreed);
                (next.requested, next.crashed) = (None, false);
                (next.compare, next.run) = (None, None);
                next.pending_link = next.pending_link.filter(|link| link.file.is_empty());
                next.begin_loading();
            }
            Action::Allow(cap) => next.agreed.cap = cap,
            Action::Interrupt(jobs, opened) => next.interrupt(&jobs, opened),
            Action::DismissNotice => next.notice = None,
            Action::Notify(text) => next.notice = Some(text),
            Action::Confirm(pending) => {
                next.dragged = None;
                next.pending = pending;
            }
            Action::ShowLoading => next.loading.shown = true,
            Action::Tick(main) => {
                if let Some(rail) = &mut next.rail {
                    Rc::make_mut(rail).tick(main);
                }
            }
            Action::BeginComparison(files, main) => next.begin_comparison(files, main),
            Action::CompareRows(a, b) => next.compare_rows(a, b),
            Action::OpenRun(view) => next.open_run(*view),
            Action::RunFolder(change) => {
                if let Some(view) = &mut next.run {
                    change(Rc::make_mut(view));
                }
            }
            Action::DeferLink(link) => next.pending_link = Some(link),
            Action::Follow(link) => match &next.work {
                Some(work) if link.file.is_empty() || work.opened.name == link.file => {
                    next.follow(&link);
                }
                Some(_) => {
                    let text = format!("The link points to {}. Open that file.", link.file);
                    (next.notice, next.pending_link) = (Some(text.into()), Some(link));
                }
                None => next.pending_link = Some(link),
            },
            Action::OverCompare(dragged) => next.over_compare = dragged,
            Action::Compare(change) => {
                if let Some(compare) = &mut next.compare {
                    change(Rc::make_mut(compare));
                }
            }
            Action::Leave => {
                next.error = None;
                next.compare = None;
                let shown = next.screen;
                next.screen = match shown {
                    Screen::Error | Screen::Compare if next.work.is_some() => Screen::Work,
                    Screen::Run | Screen::Start => Screen::Start,
                    _ if next.run.is_some() => Screen::Run,
                    _ => Screen::Start,
                };
                if next.screen != Screen::Work {
                    next.work = None;
                    next.reset();
                }
                if next.screen == Screen::Start {
                    next.run = None;
                }
            }
            Action::Home => {
                (next.error, next.compare, next.run) = (None, None, None);
                (next.work, next.screen) = (None, Screen::Start);
                next.pending_link = None;
                next.reset();
            }
            Action::Reply(posted, file) => next.handle_reply(posted.session, posted.message, file),
            Action::Fail(error) => {
                next.error = Some(Rc::new(error));
                next.screen = Screen::Error;
            }
            Action::Show(sheet) => next.sheet = sheet,
            Action::Tab(tab) => next.tab = tab,
            Action::ToggleTree => next.tree_shown = !next.tree_shown,
            Action::Work(change) => {
                if let Some(work) = &mut next.work {
                    change(work);
                }
            }
            Action::Verify(change) => change(&mut next.verification),
            Action::ValuesPanel(change) => change(&mut next.values_panel),
            Action::ShowMatrix(on) => next.expand(on),
            Action::Matrix(change) => {
                if let Some(matrix) = &mut next.matrix {
                    change(matrix);
                }
            }
            Action::GoTo(row, number) => {
                if let Some(work) = &mut next.work {
                    work.select_row(row);
                }
                (next.values_panel.at, next.values_panel.slice) = (Some((row, number)), None);
                next.matrix = None;
                (next.sheet, next.tab) = (None, Tab::Tensor);
            }
            Action::Treemap(view) => next.treemap = view,
            Action::StartConvert => next.start_convert(),
            Action::SaveKey(row, to, single) => {
                next.save_keys(&[row], Some(to));
                if let Some(convert) = next.convert.as_mut().filter(|_| single) {
                    convert.options.cast = Some("float32".into());
                }
            }
            Action::SavePicked(to) => {
                let picked =
                    next.work.as_ref().map(|work| work.picked.rows().collect::<Vec<u32>>());
                next.save_keys(&picked.unwrap_or_default(), to);
            }
            Action::Convert(change) => {
                if let Some(convert) = &mut next.convert {
                    change(convert);
                }
            }
            Action::Run => {
                if let Some(convert) = &mut next.convert {
                    convert.task = Task::Idle;
                    convert.task.start();
                    if let (Task::Running(running), Some(Ok(plan))) =
                        (&mut convert.task, &convert.plan)
                    {
                        running.now.total = plan.size;
                    }
                }
            }
        }
        Rc::new(next)
    }
}

impl PageModel {
    /// Switches to the loading screen and drops all state of the previous checkpoint.
    fn begin_loading(&mut self) {
        self.reset();
        self.loading = LoadingState::default();
        self.screen = Screen::Loading;
    }

    /// Resets everything derived from the open checkpoint: results, running jobs and open views.
    pub(super) fn reset(&mut self) {
        self.shared = None;
        (self.description, self.treemap) = (None, None);
        self.verification = Verification::default();
        self.values_panel = ValuesPanel::default();
        self.matrix = None;
        self.convert = None;
        self.pending = None;
    }

    /// Shows the selected row as a heatmap, centred on the selected value, or closes the heatmap.
    pub(super) fn expand(&mut self, on: bool) {
        let chosen = self.work.as_ref().filter(|work| on && !work.opened.summary);
        let row = chosen.and_then(|work| Some((work, work.row()?)));
        let next = row.and_then(|(work, id)| {
            let row = work.rows.get(id as usize).filter(|row| row.kind.has_shape())?;
            match &self.matrix {
                Some(before) => before.for_tensor(id, &row.shape),
                None => {
                    let at = self.values_panel.at.filter(|(of, _)| *of == id);
                    let slice = self.values_panel.slice_of(id).parse().ok();
                    let view = slice.and_then(|slice| MatrixView::of(&row.shape, &slice).ok());
                    let view = view.filter(|_| !self.values_panel.slice_of(id).is_empty());
                    let view = view.unwrap_or_else(|| MatrixView::new(&row.shape));
                    MatrixState::new(id, view, at.map(|(_, number)| number))
                }
            }
        });
        self.matrix = next;
    }

    /// Sets a notice that lists the jobs being stopped and why.
    fn interrupt(&mut self, jobs: &[JobKind], opened: bool) {
        let name = self.work.as_ref().map(|work| work.opened.name.clone()).unwrap_or_default();
        let mut scanned = name.clone();
        if let Some(view) = self.run.as_mut().filter(|view| view.values.now.is_some()) {
            scanned.clone_from(&view.folder);
            Rc::make_mut(view).values.now = None;
        }
        let jobs_text: Vec<String> = jobs
            .iter()
            .filter_map(|kind| match kind {
                JobKind::Write => {
                    let written = self.convert.as_ref().map(|convert| &convert.options.name);
                    Some(format!("writing {}", written.unwrap_or(&name)))
                }
                JobKind::Verify => Some(format!("reading all of {name}")),
                JobKind::Scan => Some(format!("scanning the values of {scanned}")),
                JobKind::Compare => Some(format!("comparing {name}")),
                _ => None,
            })
            .collect();
        if jobs_text.is_empty() {
            self.notice = None;
            return;
        }
        let reason = match opened {
            true => "another file was opened",
            false => "the file was closed",
        };
        let were = if jobs_text.len() == 1 { "was" } else { "were" };
        let jobs_text =
            text::sentence(&format!("{} {were} stopped because {reason}", jobs_text.join(" and ")));
        let left = match jobs.contains(&JobKind::Write) {
            true => " The partial output is removed.",
            false => "",
        };
        self.notice = Some(format!("{jobs_text}{left}").into());
    }

    pub(super) fn start_convert(&mut self) {
        let Some(work) = &self.work else { return };
        self.sheet = Some(Sheet::Convert);
        if self
            .convert
            .as_ref()
            .is_some_and(|convert| matches!(convert.task, Task::Idle | Task::Running(_)))
        {
            return;
        }
        let before = self.convert.as_ref().map_or(0, |convert| convert.request);
        if let Some(convert) = Conversion::new(&work.opened, before + 1) {
            self.convert = Some(convert);
        }
    }

    fn save_keys(&mut self, rows: &[u32], to: Option<String>) {
        if self.convert.as_ref().is_some_and(Conversion::is_running) {
            self.sheet = Some(Sheet::Convert);
            return;
        }
        let Some(work) = &self.work else { return };
        let rows = rows.iter().filter_map(|row| work.rows.get(*row as usize));
        let keys: Vec<(String, String)> =
            rows.map(|row| (row.key.clone(), row.dtype.clone())).collect();
        // Discards the options of the previous conversion but continues its request numbers.
        let before = self.convert.take().map_or(0, |convert| convert.request);
        self.start_convert();
        let Some(convert) = &mut self.convert else { return };
        convert.request = before + 1;
        convert.select_keys(&keys, to);
    }
}
