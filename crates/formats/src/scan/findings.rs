//! What was found so far: each thing once, however many ways lead to it.

use std::collections::HashSet;

use statelens_checkpoint::{Finding, Grade};

/// At most so many findings are told one by one.
const MOST: usize = 1_000;

/// Findings, each once.
#[derive(Default)]
pub(super) struct FindingSet {
    findings: Vec<Finding>,
    known: HashSet<(Grade, String, String)>,
    more: u64,
    worst_of_more: Option<Grade>,
}

impl FindingSet {
    /// Adds a finding, unless the same was told before.
    pub(super) fn add(&mut self, finding: Finding) {
        // A call that is made in two ways, or with other arguments, is the same name twice.
        let what = if finding.call.is_some() { String::new() } else { finding.detail.clone() };
        if !self.known.insert((finding.grade, finding.title.clone(), what)) {
            return;
        }
        if self.findings.len() < MOST {
            self.findings.push(finding);
        } else {
            self.more += 1;
            self.worst_of_more = self.worst_of_more.max(Some(finding.grade));
        }
    }

    /// Whether something is told that is worse than a note.
    pub(super) fn is_suspicious(&self) -> bool {
        self.findings.iter().any(|finding| finding.grade > Grade::Note)
    }

    /// All of them.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        if let Some(grade) = self.worst_of_more {
            let title = format!("{} more findings are not listed", self.more);
            self.findings.push(Finding::new(grade, title));
        }
        self.findings
    }
}
