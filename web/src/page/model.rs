//! The page's state and everything that changes it.

pub mod actor;
pub mod comparison;
pub mod folder;
mod hear;
mod join;
pub mod verification;

use std::rc::Rc;

use web_sys::File;
use yew::prelude::*;

use self::actor::Actor;
use self::comparison::Compare;
use self::folder::RunView;
use self::verification::Verification;
use crate::page::conversion::{Convert, Phase};
use crate::page::drop::Dropped;
use crate::protocol::conversion::Running;
use crate::protocol::error::ErrorText;
use crate::protocol::inspected::{FormattedValues, Inspected};
use crate::protocol::job::JobKind;
use crate::protocol::opened::{Agreed, Fetched};
use crate::protocol::share::SharedSummary;
use crate::protocol::understanding::Understood;
use crate::protocol::{FromWorker, Posted};
use crate::state::instrument::Instrument;
use crate::state::link::PageLink;
use crate::state::looking::Looking;
use crate::state::rail::Rail;
use crate::state::treemap::TreemapView;
use crate::state::view::MatrixView;
use crate::state::work::OpenWork;
use crate::text;

/// What fills the window.
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

/// What lies over the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sheet {
    /// Converting.
    Convert,
    /// Findings.
    Findings,
    /// Sharing.
    Share,
    /// Shortcuts.
    Keys,
    /// Opening from an address.
    Address,
    /// Asking for a second checkpoint.
    Beside,
    /// Verifying.
    Verify,
    /// Scanning would fetch more than one action may.
    Limit,
}

/// Which pane a small screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    /// The tree.
    Tree,
    /// The table.
    Keys,
    /// The inspector.
    Tensor,
}

/// How far a checkpoint is opened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loading {
    /// What is being done.
    pub doing: String,
    /// Keys found.
    pub keys: u64,
    /// Bytes read.
    pub read: u64,
    /// Reads made.
    pub calls: u64,
    /// True once it has taken long enough to be worth showing.
    pub shown: bool,
    /// The first keys, as soon as they are known.
    pub first: Option<OpenWork>,
}

/// Why what is being written would stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Something else is to be opened.
    Open,
    /// What is open is to be left.
    Leave,
    /// Writing itself is to be stopped.
    Stop,
}

/// What is done once nothing is written any more, or that is to be stopped.
#[derive(Clone)]
pub struct Pending {
    /// Why that is asked.
    pub why: Why,
    then: Rc<dyn Fn(&Actor)>,
}

impl Pending {
    /// Asks, and then does it.
    pub fn new(why: Why, then: impl Fn(&Actor) + 'static) -> Self {
        Self { why, then: Rc::new(then) }
    }

    /// Does it.
    pub fn go(&self, actor: &Actor) {
        (self.then)(actor);
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.then, &other.then)
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// The page's state.
#[derive(Debug, Clone, PartialEq)]
pub struct PageModel {
    /// What fills the window.
    pub screen: Screen,
    /// How many things are dragged over the page.
    pub over: Option<usize>,
    /// The files of the last drop.
    pub files: Rc<Vec<Dropped>>,
    /// The address that is open or being opened; then there are no files.
    pub address: Option<AttrValue>,
    /// The address that is asked about.
    pub asking: AttrValue,
    /// What the user agreed to about it.
    pub agreed: Agreed,
    /// How many times the usual may be spent on what is opened.
    pub times: u64,
    /// What has been fetched of it.
    pub fetched: Option<Fetched>,
    /// Which of them is asked for.
    pub asked: Option<u32>,
    /// How far it is opened.
    pub loading: Loading,
    /// The open checkpoint.
    pub work: Option<OpenWork>,
    /// The worker's session that it is open in.
    pub session: u32,
    /// What was to take the place of what is open while a file is being written.
    pub pending: Option<Pending>,
    /// What was stopped, and why.
    pub notice: Option<AttrValue>,
    /// Why a file could not be opened.
    pub error: Option<Rc<ErrorText>>,
    /// What lies over the screen.
    pub sheet: Option<Sheet>,
    /// Which pane a small screen shows.
    pub tab: Tab,
    /// True while the tree is shown over the table, on screens of middle width.
    pub tree_shown: bool,
    /// Facts of the row that is looked at.
    pub inspected: Option<Rc<Inspected>>,
    /// Its values.
    pub values: Option<Rc<FormattedValues>>,
    /// What the model is.
    pub understood: Option<Rc<Understood>>,
    /// Where the bytes are, in the place of the table.
    pub treemap: Option<TreemapView>,
    /// What can be shared.
    pub shared: Option<Rc<SharedSummary>>,
    /// Reading everything to see whether it is sound.
    pub verification: Verification,
    /// Reading the values of tensors.
    pub instrument: Instrument,
    /// The matrix that is looked at as a picture.
    pub looking: Option<Looking>,
    /// The convert sheet.
    pub convert: Option<Convert>,
    /// The checkpoints of the last drop, if there are several.
    pub rail: Option<Rc<Rail>>,
    /// The comparison with a second checkpoint.
    pub compare: Option<Rc<Compare>>,
    /// The run folder that was dropped; kept while one of its checkpoints is open.
    pub run: Option<Rc<RunView>>,
    /// True while what is dragged would be compared rather than opened.
    pub over_beside: bool,
    /// Where a link leads, until that is open.
    pub wanted: Option<Rc<PageLink>>,
    /// The reader has stopped, and what was open is to be opened again.
    pub crashed: bool,
    /// When it stopped.
    pub stopped_at: f64,
    /// What is to be told of that once it is open.
    pub revived: Option<AttrValue>,
}

/// Everything that changes the state.
pub enum Action {
    /// Things are dragged over the page, or no longer.
    Over(Option<usize>),
    /// Files are being opened.
    Open(Vec<Dropped>, Option<u32>),
    /// So many times the usual may be spent on what is opened next.
    Times(u64),
    /// A remote checkpoint is asked about.
    AskAddress(AttrValue),
    /// A remote checkpoint is being opened.
    OpenAddress(AttrValue, Agreed),
    /// One action may fetch so many bytes.
    Allow(u64),
    /// Opening takes longer than a moment.
    ShowLoading,
    /// Back to the first screen, or to what was open before.
    Leave,
    /// Back to the first screen.
    Home,
    /// The worker said something; a finished file comes with it.
    Heard(Box<Posted<FromWorker>>, Option<File>),
    /// These are stopped, for something else is opened, or nothing.
    Interrupt(Vec<JobKind>, bool),
    /// The notice was read.
    Noticed,
    /// Tells something until it is read.
    Tell(AttrValue),
    /// Asks before what is being written is stopped, or does not ask any more.
    Ask(Option<Pending>),
    /// An error that did not come from the worker.
    Fail(ErrorText),
    /// Shows or hides a sheet.
    Show(Option<Sheet>),
    /// Changes the pane of a small screen.
    Tab(Tab),
    /// Shows or hides the tree on screens of middle width.
    ToggleTree,
    /// Changes the checkpoint's view.
    Work(Box<dyn FnOnce(&mut OpenWork)>),
    /// Changes how it is verified, or how far that is.
    Verify(Box<dyn FnOnce(&mut Verification)>),
    /// Changes what is read of values, or how far that is.
    Instrument(Box<dyn FnOnce(&mut Instrument)>),
    /// Looks at the chosen row as a picture, or not any more.
    Expand(bool),
    /// Changes how that is looked at.
    Look(Box<dyn FnOnce(&mut Looking)>),
    /// Looks at a value of a row, by its number.
    GoTo(u32, u64),
    /// Shows where the bytes are in the place of the table, or the table.
    Treemap(Option<TreemapView>),
    /// Opens the convert sheet.
    StartConvert,
    /// Open the sheet for converting with one key chosen, a target by its id, and whether numbers
    /// become float32.
    SaveKey(u32, String, bool),
    /// Open it with what is picked in the table, and a target if one is asked for.
    SavePicked(Option<String>),
    /// Changes what is asked of a conversion.
    Convert(Box<dyn FnOnce(&mut Convert)>),
    /// A conversion begins.
    Run,
    /// Ticks a checkpoint of the drop to compare it, or removes the tick.
    Tick(u32),
    /// A second checkpoint is being opened.
    Beside(Vec<Dropped>, Option<u32>),
    /// What is dragged would be compared, or opened.
    OverBeside(bool),
    /// Changes the comparison.
    Compare(Box<dyn FnOnce(&mut Compare)>),
    /// Shows a run folder.
    OpenRun(Box<RunView>),
    /// Goes where a link leads, once that is open.
    Want(Rc<PageLink>),
    /// Goes there, in what is open if it is that.
    Follow(Rc<PageLink>),
    /// Changes how the run folder is shown.
    RunFolder(Box<dyn FnOnce(&mut RunView)>),
}

impl Default for PageModel {
    fn default() -> Self {
        Self {
            screen: Screen::Start,
            over: None,
            files: Rc::new(Vec::new()),
            address: None,
            asking: AttrValue::default(),
            agreed: Agreed::default(),
            times: 1,
            fetched: None,
            asked: None,
            loading: Loading::default(),
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
            understood: None,
            treemap: None,
            shared: None,
            verification: Verification::default(),
            instrument: Instrument::default(),
            looking: None,
            convert: None,
            rail: None,
            compare: None,
            run: None,
            over_beside: false,
            wanted: None,
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
            Action::Over(over) => next.over = over,
            Action::Open(files, main) => {
                next.over = None;
                next.sheet = None;
                if !next.is_of_run(&files) {
                    next.run = None;
                }
                if *next.files != files {
                    next.rail = None;
                }
                next.files = Rc::new(files);
                (next.address, next.fetched) = (None, None);
                next.asked = main;
                (next.compare, next.crashed) = (None, false);
                next.wanted = next.wanted.filter(|link| !link.file.is_empty());
                next.begin();
            }
            Action::Times(times) => next.times = times,
            Action::AskAddress(address) => {
                next.asking = address;
                next.sheet = Some(Sheet::Address);
            }
            Action::OpenAddress(address, agreed) => {
                next.sheet = None;
                next.files = Rc::default();
                (next.fetched, next.rail) = (None, None);
                (next.address, next.agreed) = (Some(address), agreed);
                (next.asked, next.crashed) = (None, false);
                (next.compare, next.run) = (None, None);
                next.wanted = next.wanted.filter(|link| link.file.is_empty());
                next.begin();
            }
            Action::Allow(cap) => next.agreed.cap = cap,
            Action::Interrupt(jobs, opened) => next.interrupt(&jobs, opened),
            Action::Noticed => next.notice = None,
            Action::Tell(text) => next.notice = Some(text),
            Action::Ask(pending) => {
                next.over = None;
                next.pending = pending;
            }
            Action::ShowLoading => next.loading.shown = true,
            Action::Tick(main) => {
                if let Some(rail) = &mut next.rail {
                    Rc::make_mut(rail).tick(main);
                }
            }
            Action::Beside(files, main) => next.beside(files, main),
            Action::OpenRun(view) => next.open_run(*view),
            Action::RunFolder(change) => {
                if let Some(view) = &mut next.run {
                    change(Rc::make_mut(view));
                }
            }
            Action::Want(link) => next.wanted = Some(link),
            Action::Follow(link) => match &next.work {
                Some(work) if link.file.is_empty() || work.opened.name == link.file => {
                    next.follow(&link);
                }
                Some(_) => {
                    let told = format!("The link leads to {}: open that file.", link.file);
                    (next.notice, next.wanted) = (Some(told.into()), Some(link));
                }
                None => next.wanted = Some(link),
            },
            Action::OverBeside(beside) => next.over_beside = beside,
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
                    next.forget();
                }
                if next.screen == Screen::Start {
                    next.run = None;
                }
            }
            Action::Home => {
                (next.error, next.compare, next.run) = (None, None, None);
                (next.work, next.screen) = (None, Screen::Start);
                next.wanted = None;
                next.forget();
            }
            Action::Heard(posted, file) => next.hear(posted.session, posted.message, file),
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
            Action::Instrument(change) => change(&mut next.instrument),
            Action::Expand(on) => next.expand(on),
            Action::Look(change) => {
                if let Some(looking) = &mut next.looking {
                    change(looking);
                }
            }
            Action::GoTo(row, number) => {
                if let Some(work) = &mut next.work {
                    work.look_at_row(row);
                }
                (next.instrument.at, next.instrument.slice) = (Some((row, number)), None);
                next.looking = None;
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
                    let total = match &convert.plan {
                        Some(Ok(plan)) => plan.size,
                        _ => 0,
                    };
                    convert.phase = Phase::Running {
                        now: Running { done: 0, total, millis: 0.0, key: String::new() },
                        past: Rc::new(Vec::new()),
                    };
                }
            }
        }
        Rc::new(next)
    }
}

impl PageModel {
    /// Something is being opened: nothing goes on with what was open before.
    fn begin(&mut self) {
        self.forget();
        self.loading = Loading::default();
        self.screen = Screen::Loading;
    }

    /// Nothing is being done, or was, with what is open.
    pub(super) fn forget(&mut self) {
        self.shared = None;
        (self.understood, self.treemap) = (None, None);
        self.verification = Verification::default();
        self.instrument = Instrument::default();
        self.looking = None;
        self.convert = None;
        self.pending = None;
    }

    /// Looks at the chosen row as a picture, at the value that is stood before.
    pub(super) fn expand(&mut self, on: bool) {
        let chosen = self.work.as_ref().filter(|work| on && !work.opened.summary);
        let row = chosen.and_then(|work| Some((work, work.row()?)));
        let next = row.and_then(|(work, id)| {
            let row = work.rows.get(id as usize).filter(|row| row.kind.has_shape())?;
            match &self.looking {
                Some(before) => before.then(id, &row.shape),
                None => {
                    let at = self.instrument.at.filter(|(of, _)| *of == id);
                    let slice = self.instrument.slice_of(id).parse().ok();
                    let view = slice.and_then(|slice| MatrixView::of(&row.shape, &slice).ok());
                    let view = view.filter(|_| !self.instrument.slice_of(id).is_empty());
                    let view = view.unwrap_or_else(|| MatrixView::new(&row.shape));
                    Looking::new(id, view, at.map(|(_, number)| number))
                }
            }
        });
        self.looking = next;
    }

    /// Tells what is stopped.
    fn interrupt(&mut self, jobs: &[JobKind], opened: bool) {
        let name = self.work.as_ref().map(|work| work.opened.name.clone()).unwrap_or_default();
        let mut scanned = name.clone();
        if let Some(view) = self.run.as_mut().filter(|view| view.values.now.is_some()) {
            scanned.clone_from(&view.folder);
            Rc::make_mut(view).values.now = None;
        }
        let what: Vec<String> = jobs
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
        if what.is_empty() {
            self.notice = None;
            return;
        }
        let why = match opened {
            true => "another file was opened",
            false => "the file was closed",
        };
        let were = if what.len() == 1 { "was" } else { "were" };
        let what = text::sentence(&format!("{} {were} stopped because {why}", what.join(" and ")));
        let left = match jobs.contains(&JobKind::Write) {
            true => " What was written is removed.",
            false => "",
        };
        self.notice = Some(format!("{what}{left}").into());
    }

    pub(super) fn start_convert(&mut self) {
        let Some(work) = &self.work else { return };
        self.sheet = Some(Sheet::Convert);
        if self
            .convert
            .as_ref()
            .is_some_and(|convert| !matches!(convert.phase, Phase::Done { .. } | Phase::Failed(_)))
        {
            return;
        }
        let before = self.convert.as_ref().map_or(0, |convert| convert.request);
        if let Some(convert) = Convert::new(&work.opened, before + 1) {
            self.convert = Some(convert);
        }
    }

    fn save_keys(&mut self, rows: &[u32], to: Option<String>) {
        if self.convert.as_ref().is_some_and(Convert::is_running) {
            self.sheet = Some(Sheet::Convert);
            return;
        }
        let Some(work) = &self.work else { return };
        let rows = rows.iter().filter_map(|row| work.rows.get(*row as usize));
        let keys: Vec<(String, String)> =
            rows.map(|row| (row.key.clone(), row.dtype.clone())).collect();
        // What is there was for another task; its number goes on.
        let before = self.convert.take().map_or(0, |convert| convert.request);
        self.start_convert();
        let Some(convert) = &mut self.convert else { return };
        convert.request = before + 1;
        convert.take_keys(&keys, to);
    }
}
