//! The state of a comparison, and everything that changes it.

use std::collections::HashMap;
use std::rc::Rc;

use statelens_inspect::check::parts_sides;
use statelens_inspect::compare::{PairChange, role_of};

use crate::page::drop::Dropped;
use crate::protocol::closer::{Closely, Renaming};
use crate::protocol::compare::{
    Checked, CompareOptions, CompareReply, End, NO_ROW, StructureDifference,
};
use crate::protocol::error::ErrorText;
use crate::protocol::opened::Opened;
use crate::rows::Row;
use crate::state::compare::{CompareLine, CompareView, Pairs, RowPair, lines};

/// How far it is.
#[derive(Debug, Clone)]
pub enum ComparisonStage {
    /// The second checkpoint is being opened, or the structures are being compared.
    Structure,
    /// Values are read.
    Values {
        /// Bytes of both that are compared.
        done: u64,
        /// Bytes of both.
        total: u64,
        /// Milliseconds since it began.
        millis: f64,
    },
    /// Everything was compared.
    Done {
        /// Milliseconds that it took.
        millis: f64,
        /// Tensors that match only within the tolerance.
        close: u64,
        /// NaNs that were taken as equal.
        nans: u64,
    },
    /// It was stopped before all values were read; an error, if that was why.
    Stopped(Option<Rc<ErrorText>>),
}

/// A comparison of the open checkpoint with a second one.
#[derive(Debug, Clone)]
pub struct Compare {
    /// The files of the second.
    pub files: Rc<Vec<Dropped>>,
    /// Which of them was asked for.
    pub main: Option<u32>,
    /// The second, once it is open.
    pub opened: Option<Rc<Opened>>,
    /// Its rows.
    pub rows: Rc<Vec<Row>>,
    /// How many keys it lists, if it is not a checkpoint but says what is expected of one.
    pub listed: Option<u64>,
    /// Why it can't be opened, or be compared.
    pub error: Option<Rc<ErrorText>>,
    /// How to compare.
    pub options: Rc<CompareOptions>,
    /// Counts up with each change of the options.
    pub request: u32,
    /// What is known.
    pub known: Option<Rc<Pairs>>,
    /// The rule that would make more keys match, and how many.
    pub rename: Option<(String, u64)>,
    /// Whether that is to be told unasked: without it hardly any key is on both sides.
    pub apart: bool,
    /// The command that does the same.
    pub command: String,
    /// How far it is.
    pub reading: ComparisonStage,
    /// Whether the first would load into the second.
    pub checked: Option<Rc<Checked>>,
    /// Whether missing and unexpected keys count for that.
    pub strict: bool,
    /// The release that would load it; empty for any.
    pub release: String,
    /// What the table shows.
    pub view: CompareView,
    /// Its lines.
    pub lines: Rc<Vec<CompareLine>>,
    /// Why the filter is not understood.
    pub filter_error: Option<String>,
    /// The line that is looked at, and which of its rows.
    pub at: usize,
    /// Which of the rows of that line.
    pub member: usize,
    /// Counts up when the line was chosen elsewhere than in the table.
    pub scroll: u32,
    /// True while the options are shown.
    pub matching: bool,
    /// The rows that are looked at more closely, and how far that is.
    pub closely: Option<((u32, u32), Rc<Closely>)>,
    /// The pairs of tensors that were compared, by what they are in their layer: the layer, and norms.
    pub layers: Rc<HashMap<String, Vec<(u64, PairChange)>>>,
    /// Tensors that have another key on the other side, as far as they were looked for.
    pub renaming: Option<Rc<Renaming>>,
}

impl PartialEq for Compare {
    /// It is shared, and copied when it is changed.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Compare {
    /// A comparison with what these files are.
    #[must_use]
    pub fn new(files: Vec<Dropped>, main: Option<u32>) -> Self {
        Self {
            files: Rc::new(files),
            main,
            opened: None,
            rows: Rc::new(Vec::new()),
            listed: None,
            error: None,
            options: Rc::new(CompareOptions::default()),
            request: 0,
            known: None,
            rename: None,
            apart: false,
            command: String::new(),
            reading: ComparisonStage::Structure,
            checked: None,
            strict: true,
            release: String::new(),
            view: CompareView::default(),
            lines: Rc::new(Vec::new()),
            filter_error: None,
            at: 0,
            member: 0,
            scroll: 0,
            matching: false,
            closely: None,
            layers: Rc::default(),
            renaming: None,
        }
    }

    /// The name of the second.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.opened {
            Some(opened) => opened.name.clone(),
            None => {
                let file = self.files.get(self.main.unwrap_or(0) as usize);
                file.map(|file| file.name.path.clone()).unwrap_or_default()
            }
        }
    }

    /// Takes in what the worker said; `first` are the rows of the open checkpoint.
    pub fn hear(&mut self, reply: CompareReply, first: &Rc<Vec<Row>>) {
        match reply {
            CompareReply::Opened(mut opened) => match std::mem::take(&mut opened.rows).unpack() {
                Some(rows) => {
                    self.rows = Rc::new(rows);
                    self.main = Some(opened.main);
                    self.opened = Some(Rc::new(*opened));
                    self.request = 1;
                }
                None => self.error = Some(Rc::new(ErrorText::misfit())),
            },
            CompareReply::Listed(keys) => self.listed = Some(keys),
            CompareReply::OpenFailed(error) => self.error = Some(Rc::new(error)),
            CompareReply::Structure { request, structure } if request == self.request => {
                match structure {
                    Ok(structure) => self.begin(structure, first),
                    Err(error) => {
                        self.error = Some(Rc::new(error));
                        self.known = None;
                        self.arrange();
                    }
                }
            }
            CompareReply::Progress(progress) if progress.request == self.request => {
                let Some(known) = &mut self.known else { return };
                let layers = Rc::make_mut(&mut self.layers);
                for one in progress.measured {
                    let Some(row) = known.a.get(one.row as usize) else { continue };
                    let Some((role, layer)) = role_of(&row.key) else { continue };
                    let [left, right, of_left, of_right] = one.numbers;
                    let measured = PairChange {
                        leaf: one.row as usize,
                        key: row.key.as_str().into(),
                        norms: (left, right),
                        deviations: (of_left, of_right),
                        change: one.change,
                    };
                    layers.entry(role).or_default().push((layer, measured));
                }
                if !(progress.settled.is_empty() && progress.found.is_empty()) {
                    let mut more = (**known).clone();
                    more.learn(&progress.settled, &progress.found);
                    *known = Rc::new(more);
                    self.arrange();
                }
                let (done, total, millis) = (progress.done, progress.total, progress.millis);
                self.reading = ComparisonStage::Values { done, total, millis };
            }
            CompareReply::Ended { request, end, millis, close, nans }
                if request == self.request =>
            {
                self.reading = match end {
                    End::Complete => ComparisonStage::Done { millis, close, nans },
                    End::Stopped => ComparisonStage::Stopped(None),
                    End::Failed(error) => ComparisonStage::Stopped(Some(Rc::new(error))),
                };
            }
            CompareReply::Closer(pair, told) => {
                if let Some((of, closely)) = &mut self.closely
                    && *of == pair
                {
                    // What was known stays until more is.
                    let told = match (told, &**closely) {
                        (Closely::Reading(done, total, None), Closely::Reading(_, _, known)) => {
                            Closely::Reading(done, total, known.clone())
                        }
                        (told, _) => told,
                    };
                    *closely = Rc::new(told);
                }
            }
            CompareReply::Renames(told) => {
                if self.renaming.is_some() {
                    self.renaming = Some(Rc::new(told));
                }
            }
            CompareReply::Checked(checked) => self.checked = Some(Rc::new(checked)),
            // Answers to what is no longer asked; a report is saved where it arrives.
            CompareReply::Structure { .. }
            | CompareReply::Progress(_)
            | CompareReply::Ended { .. }
            | CompareReply::Report(_) => {}
        }
    }

    fn begin(&mut self, structure: StructureDifference, first: &Rc<Vec<Row>>) {
        self.error = None;
        (self.layers, self.closely) = (Rc::default(), None);
        self.known = Some(Rc::new(Pairs::new(first.clone(), self.rows.clone(), &structure)));
        self.rename = structure.rename;
        let common = structure.pairs.iter().filter(|pair| **pair != NO_ROW).count() as u64;
        let fewer = first.len().min(self.rows.len()) as u64;
        self.apart =
            self.rename.as_ref().is_some_and(|(_, keys)| parts_sides(*keys, common, fewer));
        self.command = structure.command;
        self.reading = ComparisonStage::Values { done: 0, total: structure.bytes, millis: 0.0 };
        (self.at, self.member) = (0, 0);
        self.arrange();
    }

    /// Changes how it is compared, and begins anew.
    pub fn ask(&mut self, change: impl FnOnce(&mut CompareOptions)) {
        let before = self.options.clone();
        change(Rc::make_mut(&mut self.options));
        if *before != *self.options {
            self.again();
        }
    }

    /// Begins anew.
    pub fn again(&mut self) {
        self.request += 1;
        self.error = None;
        self.reading = ComparisonStage::Structure;
    }

    /// Changes what the table shows.
    pub fn show(&mut self, change: impl FnOnce(&mut CompareView)) {
        change(&mut self.view);
        (self.at, self.member) = (0, 0);
        self.scroll += 1;
        self.arrange();
    }

    /// Makes the lines anew. What is looked at stays, as far as it is still there.
    fn arrange(&mut self) {
        let looked = self.pair_at();
        let (lines, error) = match &self.known {
            Some(known) => lines(known, &self.view),
            None => (Vec::new(), None),
        };
        if let Some(looked) = looked {
            let mut places = lines.iter().enumerate().filter(|(_, line)| !line.rest);
            let place = places.find_map(|(at, line)| {
                Some((at, line.pairs.iter().position(|pair| *pair == looked)?))
            });
            if let Some(place) = place {
                (self.at, self.member) = place;
            }
        }
        self.at = self.at.min(lines.len().saturating_sub(1));
        self.lines = Rc::new(lines);
        self.filter_error = error;
        self.member = self.member.min(self.members().saturating_sub(1));
    }

    fn pair_at(&self) -> Option<u32> {
        self.lines.get(self.at).filter(|line| !line.rest)?.pairs.get(self.member).copied()
    }

    /// The line that is looked at.
    #[must_use]
    pub fn line(&self) -> Option<&CompareLine> {
        self.lines.get(self.at)
    }

    /// The pair that is looked at.
    #[must_use]
    pub fn pair(&self) -> Option<RowPair> {
        self.known.as_ref()?.pairs.get(self.pair_at()? as usize).copied()
    }

    /// How many rows the line stands for that is looked at.
    #[must_use]
    pub fn members(&self) -> usize {
        self.line().map_or(0, |line| if line.rest { 0 } else { line.pairs.len() })
    }

    /// Looks at a line.
    pub fn look_at(&mut self, line: usize) {
        self.at = line.min(self.lines.len().saturating_sub(1));
        self.member = 0;
    }

    /// Looks at another line.
    pub fn step(&mut self, by: isize) {
        self.look_at(self.at.saturating_add_signed(by));
        self.scroll += 1;
    }

    /// Looks at another row of the line.
    pub fn step_member(&mut self, by: isize) {
        let last = self.members().saturating_sub(1);
        self.member = self.member.saturating_add_signed(by).min(last);
    }

    /// Whether values are being read.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.error.is_none()
            && matches!(self.reading, ComparisonStage::Structure | ComparisonStage::Values { .. })
    }
}
