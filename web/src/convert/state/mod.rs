//! The state of a conversion: its options, its plan and its progress.

pub mod naming;
pub mod presets;

use std::collections::BTreeSet;
use std::rc::Rc;

use statelens_formats::{Writing, writings};
use web_sys::File;

use crate::convert::message::{ConversionResult, ConvertOptions, Loss, LossId, PlanSummary};
use crate::convert::state::naming::{default_name, key_name, keys_name};
use crate::family::message::FamilyReply;
use crate::open::message::OpenedCheckpoint;
use crate::protocol::error::ErrorText;
use crate::state::task::Task;

/// The state of the convert sheet.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversion {
    pub options: ConvertOptions,
    /// States to leave out.
    pub excluded_states: BTreeSet<String>,
    /// Number of the latest request, incremented with every change. Plans of older requests are
    /// ignored.
    pub request: u32,
    /// The latest plan, or the error of planning.
    pub plan: Option<Result<Rc<PlanSummary>, Rc<ErrorText>>>,
    /// True until the plan of the latest request has arrived.
    pub planning: bool,
    /// The losses that the user acknowledged.
    pub acknowledged: BTreeSet<LossId>,
    pub task: Task<ConversionResult>,
    /// Whether the user cancelled the last write.
    pub cancelled: bool,
    /// The written file, if it can be opened again.
    pub file: Option<File>,
    /// The checkpoint to convert.
    pub opened: Rc<OpenedCheckpoint>,
    /// Whether the user typed the name; it is then no longer derived from the options.
    pub named: bool,
    /// The recognised model family, and how the conversion changes the model.
    pub family: Option<Rc<FamilyReply>>,
    /// Paths of family files that the worker requests.
    pub needed_files: Rc<Vec<String>>,
    /// Whether the editor of the rules is shown.
    pub editing: bool,
    /// Incremented when the rules in the editor are replaced.
    pub rules: u32,
    /// Incremented when the fields of included and of renamed keys are replaced.
    pub included: u32,
}

impl Conversion {
    /// Creates a conversion with default options; `None` for a summary.
    pub fn new(opened: &Rc<OpenedCheckpoint>, request: u32) -> Option<Self> {
        Some(Self {
            options: first_options(opened)?,
            excluded_states: BTreeSet::new(),
            request,
            plan: None,
            planning: true,
            acknowledged: BTreeSet::new(),
            task: Task::Idle,
            cancelled: false,
            file: None,
            opened: opened.clone(),
            named: false,
            family: None,
            needed_files: Rc::default(),
            editing: false,
            rules: 0,
            included: 0,
        })
    }

    /// Selects keys, given with their dtypes, to be written to a file of their own. With a target,
    /// the file of a single key is named after it.
    pub fn select_keys(&mut self, keys: &[(String, String)], to: Option<String>) {
        let alone = to.is_some();
        if let Some(to) = to {
            // NumPy has these float types only through another library.
            let lacks = |dtype: &str| dtype == "bfloat16" || dtype.starts_with("float8");
            let numpy = matches!(to.as_str(), "npy" | "npz");
            if numpy && keys.iter().any(|(_, dtype)| lacks(dtype)) {
                self.options.cast = Some("float32".into());
            }
            self.options.to = to;
        }
        self.options.select = keys.iter().map(|(key, _)| key.clone()).collect();
        let extension = target(&self.options.to).map_or("", extension);
        self.options.name = match keys {
            [(key, _)] if alone => key_name(key, extension),
            _ => keys_name(&self.opened.name, keys.len(), extension),
        };
        self.named = alone;
    }

    /// Returns the losses of the plan. A model that would not load is one of them.
    pub fn losses(&self) -> Vec<Loss> {
        let Some(Ok(plan)) = &self.plan else { return Vec::new() };
        let mut losses = plan.losses.clone();
        let Some(reply) = self.family.as_ref() else { return losses };
        let loads = reply.shown.as_ref().and_then(|shown| shown.loads.as_ref());
        if loads.is_some_and(|loads| loads.would == Some(false)) {
            let reason = match reply.recognised.mismatch.as_str() {
                "" => "Its config does not fit: \u{201c}Would it load?\u{201d} lists the keys.",
                mismatch => mismatch,
            };
            let title = "The written model would not load.".to_owned();
            losses.push(Loss { id: LossId::WouldNotLoad, title, reason: reason.to_owned() });
        }
        losses
    }

    /// Returns the number of losses that the user has not acknowledged yet.
    pub fn unacknowledged_losses(&self) -> usize {
        let losses = self.losses();
        losses.iter().filter(|loss| !self.acknowledged.contains(&loss.id)).count()
    }

    /// Derives the file name from the options, unless the user typed a name.
    pub fn follow(&mut self) {
        if !self.named {
            self.options.name = default_name(&self.opened, &self.options);
        }
    }

    pub fn is_running(&self) -> bool {
        self.task.is_running()
    }

    /// Goes back to the form, and requests a new plan.
    pub fn reopen(&mut self) {
        self.task = Task::Idle;
        self.request += 1;
        self.planning = true;
    }
}

/// Returns the format with this id to convert to.
pub fn target(id: &str) -> Option<&'static Writing> {
    writings().find(|target| target.id == id)
}

/// Returns the usual file extension of a format.
pub fn extension(target: &Writing) -> &'static str {
    target.extensions.first().copied().unwrap_or_default()
}

/// Returns the default options: a format other than the checkpoint's if there is one. `None` for
/// a summary.
pub fn first_options(opened: &OpenedCheckpoint) -> Option<ConvertOptions> {
    let mut targets = writings().filter(|_| !opened.summary);
    let target = targets.find(|target| target.id != opened.format_id)?;
    let mut options = ConvertOptions { to: target.id.to_owned(), ..ConvertOptions::default() };
    options.name = default_name(opened, &options);
    Some(options)
}
