//! Parts of a checkpoint that can't be read although the rest can.

use std::collections::BTreeMap;

use statelens_checkpoint::{Error, Finding, FindingKind, Grade, Text};

/// The maximum number of reasons with a finding of their own.
const REASONS: usize = 20;

/// Returns the finding for a part that can't be read. Data that is stored in a way that is not
/// supported is not damaged, but a copy leaves it out.
pub(crate) fn finding(title: impl Into<String>, error: &Error) -> Finding {
    let finding = match error.code() {
        statelens_hdf5::NOT_DECODED => {
            Finding::new(Grade::Warning, title).kind(FindingKind::LeftOut)
        }
        _ => Finding::new(Grade::Damage, title),
    };
    finding.detail(error.to_string())
}

/// Reasons why parts can't be read. Parts with the same reason share a finding.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// For each reason, the first name and the number of names.
    by_reason: BTreeMap<String, (Text, u64)>,
}

impl Unread {
    /// Adds a part that can't be read. `reason` is a sentence without the full stop.
    pub(crate) fn add(&mut self, name: &Text, reason: String) {
        let full = self.by_reason.len() >= REASONS && !self.by_reason.contains_key(&reason);
        let reason = if full { "other reasons".to_owned() } else { reason };
        self.by_reason.entry(reason).or_insert_with(|| (name.clone(), 0)).1 += 1;
    }

    pub(crate) fn findings(self) -> impl Iterator<Item = Finding> {
        self.by_reason.into_iter().map(|(reason, (name, count))| {
            let name = name.to_lossy();
            let (title, detail) = match count {
                1 => (format!("{name} can't be read"), format!("The reason: {reason}.")),
                _ => (
                    format!("{name} and {} more can't be read", count - 1),
                    format!("The reason, for each: {reason}."),
                ),
            };
            Finding::new(Grade::Damage, title).detail(detail)
        })
    }
}
