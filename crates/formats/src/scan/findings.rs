//! The findings of a scan, without duplicates, and the regions that are still to be examined.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;

use statelens_checkpoint::{Error, Finding, Grade, Result};

use super::fatal;

/// The maximum number of findings that are listed individually.
const MAX_LISTED: usize = 1_000;

/// Findings without duplicates.
#[derive(Default)]
pub(super) struct FindingSet(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    findings: Vec<Finding>,
    known: HashSet<(Grade, String, String)>,
    more: u64,
    worst_of_more: Option<Grade>,
}

impl FindingSet {
    pub(super) fn add(&self, finding: Finding) {
        self.0.borrow_mut().add(finding);
    }

    /// Opens a region that a loader would read, see [`Region`]. `what` names it in the finding.
    pub(super) fn region<'r>(&self, what: &'r str, place: RegionPlace<'r>) -> Region<'r> {
        Region { set: Rc::clone(&self.0), unread: Some(Unread { what, place, why: None }) }
    }

    /// Returns whether there is a finding above a note.
    pub(super) fn is_suspicious(&self) -> bool {
        self.0.borrow().findings.iter().any(|finding| finding.grade > Grade::Note)
    }

    pub(super) fn finish(self) -> Vec<Finding> {
        let mut inner = self.0.take();
        if let Some(grade) = inner.worst_of_more {
            let title = format!("{} more findings are not listed", inner.more);
            inner.findings.push(Finding::new(grade, title));
        }
        inner.findings
    }
}

impl Inner {
    fn add(&mut self, finding: Finding) {
        // Calls of the same name are one finding, even if they differ in form or arguments.
        let what = if finding.call.is_some() { String::new() } else { finding.detail.clone() };
        if !self.known.insert((finding.grade, finding.title.clone(), what)) {
            return;
        }
        if self.findings.len() < MAX_LISTED {
            self.findings.push(finding);
        } else {
            self.more += 1;
            self.worst_of_more = self.worst_of_more.max(Some(finding.grade));
        }
    }
}

/// A region that a loader would read.
///
/// Every reader in `scan` opens a region before it reads, and closes it with [`Region::done`] once
/// it has examined every byte that the loader would act on. If a region is dropped in any other way
/// (a limit, an error, an early return), this adds a finding that it was not examined, and the scan
/// ends with exit status 1.
#[must_use = "a region that is dropped is a finding"]
pub(super) struct Region<'r> {
    set: Rc<RefCell<Inner>>,
    /// The parts of the finding, until the region is closed. Most regions are closed, so nothing is
    /// formatted before that is known.
    unread: Option<Unread<'r>>,
}

struct Unread<'r> {
    what: &'r str,
    place: RegionPlace<'r>,
    why: Option<String>,
}

/// The location of a region: a file (empty if there is only one), a member in it (empty for the file
/// itself), and an offset.
pub(super) struct RegionPlace<'r> {
    pub(super) file: Rc<str>,
    pub(super) member: &'r str,
    pub(super) offset: u64,
}

impl fmt::Display for RegionPlace<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in [&self.file, self.member].into_iter().filter(|name| !name.is_empty()) {
            write!(out, "{name}: ")?;
        }
        write!(out, "byte {}", self.offset)
    }
}

impl Region<'_> {
    /// Closes the region: it was examined to its end, or no loader reads it.
    pub(super) fn done(mut self) {
        self.unread = None;
    }

    /// Leaves the region unread for the given reason.
    pub(super) fn unread(mut self, why: &str) {
        if let Some(unread) = &mut self.unread {
            unread.why = Some(why.to_owned());
        }
    }

    /// Leaves the region unread because of an error. Returns errors that end the scan.
    pub(super) fn failed(self, error: &Error) -> Result<()> {
        fatal(error)?;
        self.unread(&error.to_string());
        Ok(())
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        let Some(Unread { what, place, why }) = self.unread.take() else { return };
        let title = format!("Statelens could not examine {what}");
        let why = why.unwrap_or_else(|| "It breaks the rules of its format.".to_owned());
        let finding = Finding::new(Grade::UnknownCode, title)
            .detail(why)
            .advice("Unpack it and scan its content, or do not load the file.")
            .place(place.to_string());
        self.set.borrow_mut().add(finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_region_is_a_finding() {
        let place = |offset| RegionPlace { file: "".into(), member: "", offset };
        let set = FindingSet::default();
        set.region("a", place(0)).done();
        assert!(!set.is_suspicious());
        drop(set.region("b", place(3)));
        set.region("c", place(0)).unread("It is too long.");
        assert!(set.region("d", place(0)).failed(&Error::limit("too many")).is_ok());
        assert!(set.region("e", place(0)).failed(&Error::io("gone")).is_err());
        let findings = set.finish();
        let titles: Vec<&str> =
            findings.iter().map(|finding| finding.title.rsplit(' ').next().unwrap()).collect();
        // The scan that `e` was a part of ends with the error.
        assert_eq!(titles, ["b", "c", "d", "e"]);
        assert_eq!(findings[0].place, "byte 3");
        assert_eq!(findings[1].detail, "It is too long.");
        assert!(findings[2].detail.contains("too many"));
        assert!(findings.iter().all(|finding| finding.grade == Grade::UnknownCode));
    }

    #[test]
    fn unlisted_findings_keep_their_grade() {
        let set = FindingSet::default();
        for number in 0..MAX_LISTED + 2 {
            set.add(Finding::new(Grade::Note, format!("{number}")));
        }
        set.add(Finding::new(Grade::Danger, "a"));
        set.add(Finding::new(Grade::Warning, "b"));
        let findings = set.finish();
        assert_eq!(findings.len(), MAX_LISTED + 1);
        assert_eq!(findings[MAX_LISTED].title, "4 more findings are not listed");
        assert_eq!(findings[MAX_LISTED].grade, Grade::Danger);
    }

    #[test]
    fn findings_with_different_grades_are_kept() {
        let set = FindingSet::default();
        for grade in [Grade::Note, Grade::Danger, Grade::Note] {
            set.add(Finding::new(grade, "a"));
        }
        let grades: Vec<Grade> = set.finish().iter().map(|finding| finding.grade).collect();
        assert_eq!(grades, [Grade::Note, Grade::Danger]);
    }
}
