//! What a pickle would do to whoever unpickles it: a finding for each name that is not known to
//! be harmless.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{Call, Finding, Form, Global, Grade, order};

use crate::names::{Danger, verdict};
use crate::{Node, NodeId, Pickle, read_stream};

/// The function that unpickles a stream of torch.
const STREAM: (&str, &str) = ("torch.storage", "_load_from_bytes");
/// How deep streams within streams are looked at.
const NESTING: usize = 2;
/// At most so many names are told one by one.
const FINDINGS: usize = 100;

impl Pickle {
    /// A finding for each class or function that is not known to be harmless, graded by what it
    /// could do when Python unpickles the file: popped from the stack or hidden among tensors
    /// makes no difference. Works on what a [`crate::Broken`] carries, too.
    pub fn scan(&self) -> Vec<Finding> {
        self.scan_within(NESTING)
    }

    fn scan_within(&self, nesting: usize) -> Vec<Finding> {
        let calls = self.calls();
        // A stream inside the pickle is as harmless as what is in it.
        let inner = nesting.checked_sub(1).and_then(|nesting| self.scan_streams(nesting));
        let mut first: HashMap<&Global, usize> = HashMap::new();
        let mut told: Vec<(&Arc<Global>, u64, u64)> = Vec::new();
        for used in &self.globals {
            match first.get(&*used.global) {
                Some(index) => told[*index].2 += 1,
                None => {
                    first.insert(&used.global, told.len());
                    told.push((&used.global, used.offset, 1));
                }
            }
        }
        let mut findings: Vec<Finding> = told
            .iter()
            .filter_map(|(global, offset, count)| {
                if inner.is_some() && global.is(STREAM.0, STREAM.1) {
                    return None;
                }
                let call = calls.get(&***global).copied();
                self.finding(global, *offset, *count, call)
            })
            .collect();
        findings.extend(inner.unwrap_or_default());
        findings.extend(self.extensions.first().map(|(code, offset)| {
            Finding::new(Grade::Warning, format!("The pickle uses extension {code}"))
                .detail("What it stands for is decided by the program that loads the file.")
                .place(self.place(*offset))
        }));
        findings.extend(self.frame_lies.map(|offset| {
            Finding::new(Grade::Warning, "A frame of the pickle claims more bytes than there are")
                .detail("Python would refuse to read it.")
                .place(self.place(offset))
        }));
        order::by_key(&mut findings, |finding| std::cmp::Reverse(finding.grade));
        let more = findings.len().saturating_sub(FINDINGS);
        if more > 0 {
            findings.truncate(FINDINGS);
            let title = format!("{more} more names of the pickle are not listed");
            findings.push(Finding::new(Grade::Warning, title));
        }
        findings
    }

    fn finding(
        &self,
        global: &Arc<Global>,
        offset: u64,
        count: u64,
        call: Option<NodeId>,
    ) -> Option<Finding> {
        let changed =
            call.and_then(|id| self.object(id)).map(|object| object.form) == Some(Form::Reference);
        let name = shorten(&global.to_string());
        let (grade, title, reason) = match verdict(global) {
            Danger::None if !changed => return None,
            Danger::None | Danger::Unknown if changed => (
                Grade::Danger,
                format!("Loading would change `{name}` itself"),
                "State is set on a class or function rather than on an object.",
            ),
            Danger::None | Danger::Unknown => (
                Grade::Warning,
                format!("The pickle names `{name}`"),
                "It is not among the names that checkpoints are known to use; what it does depends \
                 on code that is not in this file.",
            ),
            Danger::Known(reason) => {
                let verb = if call.is_some() { "call" } else { "get hold of" };
                (Grade::Danger, format!("Loading would {verb} `{name}`"), reason)
            }
        };
        let times = if count > 1 { format!(" It is named {count} times.") } else { String::new() };
        let arguments = call.and_then(|id| self.object(id));
        let arguments = arguments.map_or(String::new(), |object| self.arguments(object.args));
        let mut finding =
            Finding::new(grade, title).detail(format!("{reason}{times}")).place(self.place(offset));
        if grade == Grade::Danger {
            finding = finding.advice(
                "Do not load this file with Python. Nothing was called here; its tensors can be \
                 looked at and converted safely.",
            );
        }
        finding.call =
            Some(Call { module: shorten(&global.module), name: shorten(&global.name), arguments });
        Some(finding)
    }

    /// What the streams of torch inside the pickle would do; `None` if one of them can't be read
    /// and so must be feared, or if the function is held without being called.
    fn scan_streams(&self, nesting: usize) -> Option<Vec<Finding>> {
        let mut findings = Vec::new();
        let mut seen = HashSet::new();
        let mut calls = 0;
        for (_, node) in self.nodes() {
            let Node::Object(object) = node else { continue };
            if !self.global(object.callable).is_some_and(|global| global.is(STREAM.0, STREAM.1)) {
                continue;
            }
            calls += 1;
            let [bytes] = self.sequence(object.args)? else { return None };
            let spelled = self.spelled(*bytes)?;
            if !seen.insert(spelled) {
                continue;
            }
            let bytes = self.spelled_bytes(spelled)?;
            let stream = read_stream(&bytes, 0, &self.limits).ok()?;
            findings.extend(stream.pickle.scan_within(nesting));
        }
        (calls > 0).then_some(findings)
    }

    /// For each class or function, the first object that it would make.
    fn calls(&self) -> HashMap<&Global, NodeId> {
        let mut calls = HashMap::new();
        for (id, node) in self.nodes() {
            if let Node::Object(object) = node
                && let Node::Global(global) = self.node(object.callable)
            {
                calls.entry(&**global).or_insert(id);
            }
        }
        calls
    }

    fn place(&self, offset: u64) -> String {
        format!("byte {}", self.base.saturating_add(offset))
    }
}

fn shorten(name: &str) -> String {
    match name.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
