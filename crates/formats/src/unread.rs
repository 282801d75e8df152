//! Things of a checkpoint that can't be read while the rest can.

use std::collections::BTreeMap;

use statelens_checkpoint::{Finding, Grade, Text};

/// At most so many reasons are told one by one.
const REASONS: usize = 20;

/// Why some things can't be read; those of one reason are told together.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// The first name, and how many there are.
    by_reason: BTreeMap<String, (Text, u64)>,
}

impl Unread {
    /// `name` can't be read; `reason` is a sentence without its full stop.
    pub(crate) fn add(&mut self, name: &Text, reason: String) {
        let full = self.by_reason.len() >= REASONS && !self.by_reason.contains_key(&reason);
        let reason = if full { "other reasons".to_owned() } else { reason };
        self.by_reason.entry(reason).or_insert_with(|| (name.clone(), 0)).1 += 1;
    }

    /// What the user should know.
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
