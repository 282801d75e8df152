//! A conversion on the page: what is asked for, what was planned, and how far it is.

use std::collections::BTreeSet;
use std::rc::Rc;

use web_sys::File;

use crate::page::naming::{default_name, key_name, keys_name};
use crate::protocol::conversion::{ConvertOptions, Done, Planned, Running};
use crate::protocol::error::ErrorText;
use crate::protocol::family::FamilyReply;
use crate::protocol::opened::Opened;

/// Where a conversion is.
#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// It is being planned.
    Form,
    /// It runs.
    Running {
        /// The last that the worker said.
        now: Running,
        /// Bytes and milliseconds at each repaint, for the rate.
        past: Rc<Vec<(u64, f64)>>,
    },
    /// It is complete.
    Done {
        /// What was written.
        done: Done,
        /// The file, if it can be opened again.
        file: Option<File>,
    },
    /// It failed; nothing was left behind.
    Failed(Rc<ErrorText>),
}

/// The convert sheet.
#[derive(Debug, Clone, PartialEq)]
pub struct Convert {
    /// What is asked for.
    pub options: ConvertOptions,
    /// States that are left out.
    pub without: BTreeSet<String>,
    /// Counts up with every change; the plan that answers the last is shown.
    pub request: u32,
    /// The last plan.
    pub plan: Option<Result<Rc<Planned>, Rc<ErrorText>>>,
    /// True until the last request is answered.
    pub planning: bool,
    /// Losses that were acknowledged, by title.
    pub acknowledged: BTreeSet<String>,
    /// Where it is.
    pub phase: Phase,
    /// What is converted.
    pub opened: Rc<Opened>,
    /// Whether the name was typed: then it stays.
    pub named: bool,
    /// Which model it is, and what becomes of it.
    pub family: Option<Rc<FamilyReply>>,
    /// Files of families that the worker asks for.
    pub wants: Rc<Vec<String>>,
    /// Whether the rules are shown to be edited.
    pub editing: bool,
    /// Counts up when other rules take the place of those in the editor.
    pub rules: u32,
}

impl Convert {
    /// A conversion that nothing is asked of yet; `None` if nothing can be written.
    pub fn new(opened: &Rc<Opened>, request: u32) -> Option<Self> {
        Some(Self {
            options: first_options(opened)?,
            without: BTreeSet::new(),
            request,
            plan: None,
            planning: true,
            acknowledged: BTreeSet::new(),
            phase: Phase::Form,
            opened: opened.clone(),
            named: false,
            family: None,
            wants: Rc::default(),
            editing: false,
            rules: 0,
        })
    }

    /// Asks for some keys, with their dtypes, as a file of their own: of one, named by it.
    pub fn take_keys(&mut self, keys: &[(String, String)], to: Option<String>) {
        let alone = to.is_some();
        if let Some(to) = to {
            // NumPy has no floats of these widths but by another library.
            let lacks = |dtype: &str| {
                dtype == "bfloat16" || dtype.starts_with("float8") || dtype.starts_with("float4")
            };
            let numpy = matches!(to.as_str(), "npy" | "npz");
            if numpy && keys.iter().any(|(_, dtype)| lacks(dtype)) {
                self.options.cast = Some("float32".into());
            }
            self.options.to = to;
        }
        self.options.select = keys.iter().map(|(key, _)| key.clone()).collect();
        let target = self.opened.targets.iter().find(|target| target.id == self.options.to);
        let extension = target.map_or("", |target| target.extension.as_str());
        self.options.name = match keys {
            [(key, _)] if alone => key_name(key, extension),
            _ => keys_name(&self.opened.name, keys.len(), extension),
        };
        self.named = alone;
    }

    /// How many losses are not acknowledged yet.
    pub fn open_losses(&self) -> usize {
        match &self.plan {
            Some(Ok(plan)) => {
                plan.losses.iter().filter(|loss| !self.acknowledged.contains(&loss.title)).count()
            }
            _ => 0,
        }
    }

    /// Names the file after what is asked for, unless a name was typed.
    pub fn follow(&mut self) {
        if !self.named {
            self.options.name = default_name(&self.opened, &self.options);
        }
    }

    /// True while bytes are being written.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }
}

/// What is asked of a conversion at first: another format than the checkpoint's; `None` if nothing
/// can be written.
pub fn first_options(opened: &Opened) -> Option<ConvertOptions> {
    let targets = &opened.targets;
    let target = targets.iter().find(|target| target.id != opened.format_id).or(targets.first())?;
    let mut options = ConvertOptions { to: target.id.clone(), ..ConvertOptions::default() };
    options.name = default_name(opened, &options);
    Some(options)
}
