//! Runs what may be a pickle, and tells whether it is one.

use statelens_checkpoint::{ErrorKind, Finding, Grade, Result};
use statelens_pickle::{Broken, GlobalUse, Node, Pickle, is_stream};

use super::super::section::some;
use super::{Blob, Search, Sure, joblib};

/// What of a pickle is read at first.
const WINDOW: u64 = 4 << 10;
/// The same where nobody leads.
const GLANCE: u64 = 512;
/// Bytes that are a pickle by chance, `N.` and the like.
const SHORTEST: u64 = 4;

impl Search<'_> {
    /// Runs the pickles that follow each other from `at` on.
    pub(super) fn sequence(&mut self, blob: &Blob, mut at: u64, mut sure: Sure) -> Result<()> {
        // The stream of torch is five.
        let mut due = if sure == Sure::Yes { 1 } else { 0 };
        if sure == Sure::Yes && is_stream(&some(&*blob.source, at, 64)?) {
            due = 5;
        }
        while at < blob.source.len() {
            let Some((_, end)) = self.pickle(blob, at, sure)? else { return Ok(()) };
            at = end;
            due -= i32::from(due > 0);
            if due == 0 {
                sure = Sure::Perhaps;
            }
        }
        Ok(())
    }

    /// Runs one pickle; returns it and where it ends, if it is one. It is run once only.
    pub(super) fn pickle(
        &mut self,
        blob: &Blob,
        at: u64,
        sure: Sure,
    ) -> Result<Option<(Pickle, u64)>> {
        let start = blob.base + at;
        let there = blob.source.len().saturating_sub(at);
        let space = &mut self.spaces[blob.space];
        let led = matches!(sure, Sure::Yes | Sure::Perhaps);
        if space.pickles.contains_key(&start) || led && !space.tried.insert((start, there)) {
            return Ok(None);
        }
        if self.work == 0 {
            self.unseen(blob, "all that looks like a pickle", "There is too much of it.");
            return Ok(None);
        }
        let most = there.min(self.limits.structure);
        let mut len = most.min(if led { WINDOW } else { GLANCE });
        let broken = loop {
            let bytes = some(&*blob.source, at, len)?;
            let done = statelens_pickle::read(&bytes, start, self.limits);
            let used = match &done {
                Ok(pickle) => pickle.end(),
                Err(broken) => {
                    broken.error.offset().map_or(len, |offset| offset.saturating_sub(start))
                }
            };
            // Where nobody leads, the same bytes may be run from many places.
            let weight = if led { 1 } else { 8 };
            self.work = self.work.saturating_sub(used * weight + 64 + len / 16);
            match done {
                Ok(pickle) => {
                    self.spaces[blob.space].pickles.insert(start, start + pickle.end());
                    self.found |= pickle.end() > SHORTEST;
                    let named = names_something(&pickle);
                    let is_one = match sure {
                        Sure::Yes => true,
                        Sure::Perhaps => named || bytes.first() == Some(&0x80),
                        Sure::Marked => named,
                        Sure::Bare => named && makes_calls(&pickle),
                    };
                    if is_one {
                        self.tell(blob, pickle.scan(self.options));
                    }
                    let end = at + pickle.end();
                    return Ok(Some((pickle, end)));
                }
                Err(broken) if broken.starved && len < most && goes_on(&broken, sure, len) => {
                    len = most.min(len.saturating_mul(4));
                }
                Err(broken) => break broken,
            }
        };
        if joblib::is_wrapped(&broken.pickle)
            && let Some((pickle, end)) = joblib::run(self, blob, at)?
        {
            self.found = true;
            self.spaces[blob.space].pickles.insert(start, blob.base + end);
            self.tell(blob, pickle.scan(self.options));
            return Ok(Some((pickle, end)));
        }
        if is_pickle(&broken, sure, &some(&*blob.source, at, 2)?) {
            self.breaks_off(blob, at, &broken, len < there);
        }
        Ok(None)
    }

    fn breaks_off(&mut self, blob: &Blob, at: u64, broken: &Broken, more: bool) {
        self.found = true;
        self.tell(blob, broken.pickle.scan(self.options));
        let limit = broken.error.kind() == ErrorKind::Limit || broken.starved && (more || blob.cut);
        let finding = match limit {
            true => Finding::new(Grade::UnknownCode, "A pickle is too large to examine whole")
                .detail(format!("{} What comes before that was examined.", broken.error))
                .advice("Do not load it before you know where it comes from."),
            false => Finding::new(Grade::Damage, "The pickle breaks off")
                .detail(format!("{} What comes before that would be run.", broken.error)),
        };
        self.findings.add(finding.place(self.place(blob, at)));
    }
}

/// Whether something would be called, not only named.
fn makes_calls(pickle: &Pickle) -> bool {
    pickle.nodes().any(|(_, node)| matches!(node, Node::Object(_)))
}

/// Whether a class or function is named as Python names them. Bytes that run by chance name none;
/// without one, no name can be put together, either.
fn names_something(pickle: &Pickle) -> bool {
    let is_name = |text: &str| {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
        !text.is_empty() && text.bytes().all(letters)
    };
    let plain = |used: &GlobalUse| {
        !used.computed && is_name(&used.global.module) && is_name(&used.global.name)
    };
    pickle.globals().iter().any(plain)
}

/// Whether it is worth to read on for what ran so far.
fn goes_on(broken: &Broken, sure: Sure, read: u64) -> bool {
    match sure {
        Sure::Yes | Sure::Perhaps => true,
        Sure::Marked | Sure::Bare => {
            let named = names_something(&broken.pickle);
            read < 4 << 10 && (named || substance(broken))
                || read < 1 << 20 && named && sure == Sure::Marked
                || named && makes_calls(&broken.pickle)
        }
    }
}

/// More objects than random bytes make.
fn substance(broken: &Broken) -> bool {
    broken.pickle.nodes().count() > 5
}

/// Whether what breaks off is a pickle at all.
fn is_pickle(broken: &Broken, sure: Sure, head: &[u8]) -> bool {
    let marked = matches!(head, [0x80, 0..=5]);
    let named = names_something(&broken.pickle);
    match sure {
        Sure::Yes => true,
        Sure::Perhaps => {
            marked && (named || substance(broken)) || named && makes_calls(&broken.pickle)
        }
        Sure::Marked => named,
        Sure::Bare => named && makes_calls(&broken.pickle),
    }
}
