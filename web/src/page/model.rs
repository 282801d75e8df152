//! The page's state, and the actions that change it.

pub mod actor;
mod grade;
mod join;
mod replies;
pub(crate) mod tasks;

use std::rc::Rc;

use statelens_compare::folder::FolderReport;
use statelens_recipes::inference::stem;
use yew::prelude::*;

use crate::checkpoint_list::state::Rail;
use crate::compare::model::ComparisonState;
use crate::convert::state::Conversion;
use crate::inspector::message::{FormattedValues, RowDetails};
use crate::links::state::PageLink;
use crate::matrix::state::MatrixState;
use crate::matrix::state::view::MatrixView;
use crate::model_description::message::ModelDescription;
use crate::open::message::{FetchConsent, FetchStats, StoredMember};
use crate::page::drop::DroppedFile;
use crate::page::model::actor::Actor;
use crate::protocol::error::ErrorText;
use crate::protocol::job::JobKind;
use crate::read_as::message::ReadAs;
use crate::run_folder::model::RunView;
use crate::share::message::SharedSummary;
use crate::state::task::Task;
use crate::state::work::OpenWork;
use crate::text;
use crate::treemap::state::TreemapView;
use crate::values::model::ValuesPanel;
use crate::verify::model::Verification;

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
    /// The field over all actions and keys.
    Palette,
    /// Opening from an address.
    Address,
    /// Choosing a second checkpoint to compare with.
    ChooseCompared,
    /// The sheet of a task.
    Task(JobKind),
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
    pub shared: Option<Rc<SharedSummary>>,
    /// The state of the verification.
    pub verification: Verification,
    /// The check of the folder.
    pub folder_check: Task<FolderReport>,
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
    /// True while the left pane shows the files of the drop rather than the tree.
    pub files_shown: bool,
    /// The archive that was dropped, as an index into `files`, and its members, until they are opened
    /// in its place.
    pub archive: Option<Rc<(u32, Vec<StoredMember>)>>,
    /// The bytes of the outputs that the worker keeps in private storage for their downloads.
    pub kept_outputs: u64,
}

/// A change of the state.
pub struct ModelUpdate(Box<dyn FnOnce(&mut PageModel)>);

impl ModelUpdate {
    /// Creates a change from a function, usually a method of the state.
    pub fn new(change: impl FnOnce(&mut PageModel) + 'static) -> Self {
        Self(Box::new(change))
    }
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
            folder_check: Task::Idle,
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
            files_shown: true,
            archive: None,
            kept_outputs: 0,
        }
    }
}

impl Reducible for PageModel {
    type Action = ModelUpdate;

    fn reduce(self: Rc<Self>, update: ModelUpdate) -> Rc<Self> {
        let mut next = (*self).clone();
        (update.0)(&mut next);
        Rc::new(next)
    }
}

impl PageModel {
    /// Begins opening files; `main` is the index of the one that the user chose.
    pub(crate) fn begin_opening(&mut self, files: Vec<DroppedFile>, main: Option<u32>) {
        (self.dragged, self.sheet) = (None, None);
        if !self.is_of_run(&files) {
            self.run = None;
        }
        if *self.files != files {
            (self.rail, self.folder_check) = (None, Task::Idle);
        }
        self.files = Rc::new(files);
        (self.address, self.fetched) = (None, None);
        self.requested = main;
        (self.compare, self.crashed) = (None, false);
        self.pending_link = self.pending_link.take().filter(|link| !link.file.is_empty());
        self.begin_loading();
    }

    /// Begins opening a remote checkpoint.
    pub(crate) fn begin_opening_address(&mut self, address: AttrValue, agreed: FetchConsent) {
        self.sheet = None;
        self.files = Rc::default();
        (self.fetched, self.rail, self.folder_check) = (None, None, Task::Idle);
        (self.address, self.agreed) = (Some(address), agreed);
        (self.requested, self.crashed) = (None, false);
        (self.compare, self.run) = (None, None);
        self.pending_link = self.pending_link.take().filter(|link| link.file.is_empty());
        self.begin_loading();
    }

    /// Follows a link in the open checkpoint if the link is about that one; remembers it otherwise.
    pub(crate) fn follow_or_defer(&mut self, link: Rc<PageLink>) {
        match &self.work {
            Some(work) if link.file.is_empty() || work.opened.name == link.file => {
                self.follow(&link);
            }
            Some(_) => {
                let text = format!("The link points to {}. Open that file.", link.file);
                (self.notice, self.pending_link) = (Some(text.into()), Some(link));
            }
            None => self.pending_link = Some(link),
        }
    }

    /// Goes back to the previously open checkpoint or run folder, or to the start screen.
    pub(crate) fn leave(&mut self) {
        (self.error, self.compare) = (None, None);
        self.screen = match self.screen {
            Screen::Error | Screen::Compare if self.work.is_some() => Screen::Work,
            Screen::Run | Screen::Start => Screen::Start,
            _ if self.run.is_some() => Screen::Run,
            _ => Screen::Start,
        };
        if self.screen != Screen::Work {
            self.work = None;
            self.reset();
        }
        if self.screen == Screen::Start {
            self.run = None;
        }
    }

    /// Goes back to the run folder, from one of its checkpoints or from a comparison of one.
    pub(crate) fn leave_to_run(&mut self) {
        for _ in 0..2 {
            if self.run.is_some() && self.screen != Screen::Run {
                self.leave();
            }
        }
    }

    /// Closes everything and goes to the start screen.
    pub(crate) fn go_home(&mut self) {
        (self.error, self.compare, self.run) = (None, None, None);
        (self.work, self.screen) = (None, Screen::Start);
        self.pending_link = None;
        self.reset();
    }

    /// Ticks or unticks a checkpoint of the drop for comparing.
    pub(crate) fn tick(&mut self, main: u32) {
        if let Some(rail) = &mut self.rail {
            Rc::make_mut(rail).tick(main);
        }
    }

    /// Selects a row and one of its values, by the value's index in C order.
    pub(crate) fn go_to(&mut self, row: u32, number: u64) {
        if let Some(work) = &mut self.work {
            work.select_row(row);
        }
        (self.values_panel.at, self.values_panel.slice) = (Some((row, number)), None);
        self.matrix = None;
        (self.sheet, self.tab) = (None, Tab::Tensor);
    }

    /// Opens the convert sheet for one row, with the id of a target and whether numbers are cast to
    /// float32.
    pub(crate) fn save_key(&mut self, row: u32, to: String, single: bool) {
        self.save_keys(&[row], Some(to));
        if let Some(convert) = self.convert.as_mut().filter(|_| single) {
            convert.options.cast = Some("float32".into());
        }
    }

    /// Opens the convert sheet for the rows picked in the table, with the id of a target if given.
    pub(crate) fn save_picked(&mut self, to: Option<String>) {
        let picked = self.work.as_ref().map(|work| work.picked.rows().collect::<Vec<u32>>());
        self.save_keys(&picked.unwrap_or_default(), to);
    }

    /// Returns the name of the open checkpoint; empty if none is open.
    pub(crate) fn open_name(&self) -> String {
        self.work.as_ref().map(|work| work.opened.name.clone()).unwrap_or_default()
    }

    /// Marks the conversion as running.
    fn begin_writing(&mut self) {
        let Some(convert) = &mut self.convert else { return };
        (convert.task, convert.cancelled) = (Task::started(), false);
        if let (Task::Running(running), Some(Ok(plan))) = (&mut convert.task, &convert.plan) {
            running.now.total = plan.size;
        }
    }

    /// Switches to the loading screen and drops all state of the previous checkpoint.
    fn begin_loading(&mut self) {
        self.reset();
        self.loading = LoadingState::default();
        self.screen = Screen::Loading;
    }

    /// Resets everything derived from the open checkpoint: results, running jobs and open views.
    pub(crate) fn reset(&mut self) {
        self.shared = None;
        (self.description, self.treemap) = (None, None);
        self.verification = Verification::default();
        self.values_panel = ValuesPanel::default();
        self.matrix = None;
        self.convert = None;
        self.pending = None;
    }

    /// Shows the selected row as a heatmap, centred on the selected value, or closes the heatmap.
    pub(crate) fn expand(&mut self, on: bool) {
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
        let mut jobs_text: Vec<String> =
            jobs.iter().filter_map(|kind| self.lost_work(*kind)).collect();
        jobs_text.dedup();
        if let Some(view) = self.run.as_mut().filter(|view| view.values.task.is_running()) {
            Rc::make_mut(view).values.task.stop();
        }
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

    /// Opens the convert sheet.
    pub(crate) fn start_convert(&mut self) {
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
        if let Some(mut convert) = Conversion::new(&work.opened, before + 1) {
            // Most formats need a key.
            if work.is_lone_array() {
                convert.options.prefix = stem(&convert.options.name).to_owned();
            }
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
