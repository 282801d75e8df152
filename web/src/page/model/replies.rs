//! Applies the worker's replies to the page's state.

use std::rc::Rc;

use statelens_describe::FileGrade;
use web_sys::File;

use crate::checkpoint_list::state::Rail;
use crate::compare::message::ReportFormat;
use crate::open::message::{FileName, OpenedCheckpoint};
use crate::page::model::{LoadingState, PageModel, Screen, Tab};
use crate::page::stored::chosen_columns;
use crate::protocol::FromWorker;
use crate::protocol::error::{ErrorKind, ErrorText};
use crate::rows::PackedRows;
use crate::state::work::OpenWork;

impl PageModel {
    pub(crate) fn handle_reply(&mut self, message: FromWorker, file: Option<File>) {
        match message {
            FromWorker::Summary { name, .. } => {
                let report = ReportFormat::ALL.into_iter().find(|it| it.file_name() == name);
                let about = match report {
                    Some(ReportFormat::Json) => "JSON, as printed by statelens diff --json",
                    Some(ReportFormat::Markdown) => "Markdown, for an issue or a wiki",
                    Some(ReportFormat::Html) => "a page that any browser opens",
                    None => return,
                };
                self.notice = Some(format!("{name} was saved: {about}.").into());
            }
            FromWorker::Ready => {}
            FromWorker::Ended(kind, _) => self.stop_task(kind),
            FromWorker::Shared(shared) => self.shared = Some(Rc::new(*shared)),
            FromWorker::Opening { doing, keys, read, calls } => {
                let before = std::mem::take(&mut self.loading);
                self.loading = LoadingState { doing, keys, read, calls, ..before };
            }
            FromWorker::Checkpoints(found) => {
                let names: Vec<FileName> =
                    self.files.iter().map(|file| file.name.clone()).collect();
                if self.rail.is_none() {
                    self.rail = Rail::new(found, &names).map(Rc::new);
                }
            }
            FromWorker::Members(archive, members) => {
                self.archive = Some(Rc::new((archive, members)));
            }
            FromWorker::Found(rows) => self.show_preview(&rows),
            FromWorker::Fetched(fetched) => {
                self.fetched = Some(fetched).filter(|_| self.files.is_empty());
            }
            // The bridge arranges it before.
            FromWorker::Opened(_) => {}
            // A part of the program that could not be loaded would be missing again.
            FromWorker::Crashed(error) if error.kind == ErrorKind::Io || !self.revive() => {
                self.handle_reply(FromWorker::OpenFailed(error), file);
            }
            FromWorker::Crashed(_) => {}
            // Its members are opened instead.
            FromWorker::OpenFailed(_) if self.archive.is_some() => {}
            FromWorker::OpenFailed(error) => {
                (self.pending_link, self.revived) = (None, None);
                if let (Some(rail), Some(requested)) = (&mut self.rail, self.requested) {
                    let unknown = matches!(
                        error.kind,
                        ErrorKind::Unsupported
                            | ErrorKind::Limit
                            | ErrorKind::FetchCap
                            | ErrorKind::Io
                    );
                    let grade = (!unknown).then_some(FileGrade::Damaged);
                    Rc::make_mut(rail).set_grade(requested, grade, error.title.clone());
                }
                self.error = Some(Rc::new(error));
                self.work = None;
                self.reset();
                self.compare = None;
                self.screen = Screen::Error;
            }
            FromWorker::ModelDescription(description) => {
                if let Some(work) = &mut self.work {
                    let known = &work.opened.findings;
                    let mut new = description.model.findings();
                    new.retain(|finding| !known.contains(finding));
                    if !new.is_empty() {
                        Rc::make_mut(&mut work.opened).findings.extend(new);
                    }
                }
                self.description = Some(Rc::new(*description));
            }
            FromWorker::Inspected(inspected) => self.inspected = Some(Rc::new(inspected)),
            FromWorker::Values(values) => self.values = Some(Rc::new(values)),
            FromWorker::Family { request, family } => {
                if let Some(convert) =
                    self.convert.as_mut().filter(|convert| convert.request == request)
                {
                    convert.family = family.map(|description| Rc::new(*description));
                }
            }
            FromWorker::Planned { request, plan } => {
                if let Some(convert) =
                    self.convert.as_mut().filter(|convert| convert.request == request)
                {
                    convert.plan = Some(plan.map(Rc::new).map_err(Rc::new));
                    convert.planning = false;
                }
            }
            FromWorker::FilesNeeded(paths) => {
                if let Some(convert) = &mut self.convert {
                    convert.needed_files = Rc::new(paths);
                }
            }
            FromWorker::Progress(kind, now) => self.note_progress(kind, now),
            FromWorker::Partial(result) => self.set_result(result, false, None),
            FromWorker::Done(result) => {
                self.set_result(result, true, file);
                self.note_grade();
            }
            FromWorker::Failed(kind, error) => self.end_task(kind, error),
            FromWorker::ComparedOpened(opened) => {
                self.change_comparison(|compare| compare.set_opened(opened));
            }
            FromWorker::LoadChecked(checked) => {
                self.change_comparison(|compare| compare.checked = Some(Rc::new(*checked)));
            }
            FromWorker::Cells(of, cells) => {
                if let Some(matrix) = self.matrix.as_mut().filter(|it| it.selection == of) {
                    matrix.set_cells(cells);
                }
            }
            FromWorker::SingularOffers(of, offers) => {
                if let Some(matrix) = self.matrix.as_mut().filter(|it| it.selection == of) {
                    matrix.singular.offers = offers;
                }
            }
            FromWorker::Line(line) => self.values_panel.line = Some(Rc::new(line)),
            FromWorker::KeptOutputs(bytes) => self.kept_outputs = bytes,
            FromWorker::Rate(rate) => self.values_panel.rate = Some(rate),
            FromWorker::FileChecked(file, check) => {
                if let Some(rail) = &mut self.rail {
                    Rc::make_mut(rail).set_grade(file, check.grade(), check.reason.clone());
                }
                if let Some(view) = &mut self.run {
                    Rc::make_mut(view).set_check(file, check);
                }
            }
        }
    }

    /// Shows the first keys of the checkpoint that is being opened.
    fn show_preview(&mut self, rows: &PackedRows) {
        if self.screen == Screen::Loading && self.loading.first.is_none() {
            let first = rows.unpack().map(|rows| OpenWork::new(OpenedCheckpoint::default(), rows));
            // Folding would be misleading: the repetitions are not known yet.
            self.loading.first = first.map(|mut first| {
                first.toggle_folding();
                first.view.so_far = true;
                first
            });
            self.loading.shown = true;
        }
    }

    /// Shows the checkpoint that was opened in a session; `None` if its rows are not readable.
    pub(crate) fn opened(&mut self, session: u32, work: Option<OpenWork>) {
        let Some(mut work) = work else {
            self.error = Some(Rc::new(ErrorText::misfit()));
            self.screen = Screen::Error;
            return;
        };
        self.requested = Some(work.opened.main);
        work.view.chosen = chosen_columns();
        self.work = Some(work);
        self.session = session;
        self.recall_values();
        self.note_grade();
        self.loading = LoadingState::default();
        self.inspected = None;
        self.values = None;
        self.tab = Tab::Keys;
        self.screen = match self.screen {
            // This checkpoint was opened as one side of a comparison.
            Screen::Compare if self.compare.is_some() => Screen::Compare,
            _ => Screen::Work,
        };
        if let Some(link) = self.pending_link.take() {
            self.follow(&link);
        }
        self.notice = self.revived.take().or(self.notice.take());
    }
}
