//! Runs bytes that may be a pickle, and decides whether they are one.

use std::ops::Range;

use statelens_checkpoint::{ErrorKind, Finding, Global, Grade, Result};
use statelens_pickle::{Broken, GlobalUse, Node, Pickle, is_harmless, is_stream, opcode as op};

use super::super::findings::Region;
use super::super::lacks_memory;
use super::super::section::some;
use super::window::Window;
use super::{Blob, Certainty, READ, RUN, Search, joblib, storages};

/// The number of bytes first read of a pickle.
const WINDOW: u64 = 4 << 10;
/// The same for a place that no reader leads to.
const GLANCE: u64 = 512;
/// The cost of running one pickle, in addition to that of its bytes.
const ATTEMPT: u64 = 500;
/// The cost of a name in a pickle.
const NAME: u64 = 2_000;
/// The cost of judging a value of a pickle.
const NODE: u64 = 60;
/// Shorter pickles, such as `N.`, occur by chance.
const MIN_PICKLE: u64 = 4;
/// The maximum number of bytes run of a pickle that uses the memo of the previous one.
const JOINED: u64 = 1 << 20;
/// The first opcode of pickles of protocol 2 and later.
const PROTO: u8 = op::PROTO;
const INST: u8 = op::INST;

impl Search<'_> {
    /// Runs consecutive pickles from `at` on.
    pub(super) fn sequence(
        &mut self,
        blob: &Blob,
        mut at: u64,
        mut certainty: Certainty,
    ) -> Result<()> {
        // The stream format of torch has five.
        let mut due = if matches!(certainty, Certainty::Yes | Certainty::Likely) { 1 } else { 0 };
        if certainty == Certainty::Yes && is_stream(&some(&*blob.source, at, 64)?) {
            due = 5;
        }
        let first = at;
        while at < blob.source.len() {
            self.unset_memo = false;
            let Some((_, end)) = self.pickle(blob, at, certainty)? else {
                return if at > first && self.unset_memo {
                    self.joined(blob, first, at)
                } else {
                    Ok(())
                };
            };
            at = end;
            due -= i32::from(due > 0);
            if due == 0 {
                certainty = Certainty::Perhaps;
            }
        }
        Ok(())
    }

    /// Runs all pickles from `first` on like an `Unpickler` that keeps its memo. The pickle at `at`
    /// uses an entry of a previous one.
    fn joined(&mut self, blob: &Blob, first: u64, at: u64) -> Result<()> {
        let region = self.region(blob, at, "a pickle that uses the memo of another");
        let len = (at - first).saturating_add(JOINED).min(blob.source.len() - first);
        if len > self.limits.structure || !self.spend(len * RUN) {
            region.unread("There is too much of it.");
            return Ok(());
        }
        let bytes = some(&*blob.source, first, len)?;
        let (pickle, justifies_more) =
            statelens_pickle::read_joined(&bytes, blob.base + first, self.limits);
        if makes_calls(&pickle) || pickle.is_odd() {
            self.report(blob, pickle.scan(self.options));
        }
        if justifies_more && first + len < blob.source.len() {
            region.unread("There is too much of it.");
        } else {
            region.done();
        }
        Ok(())
    }

    /// Runs a pickle. Returns it and the offset of its end if it reaches its `STOP`. Returns `None`
    /// for a pickle that was already run.
    ///
    /// Where a loader would unpickle, the bytes are run to the end, or to an opcode at which every
    /// CPython fails, or there is a finding.
    pub(super) fn pickle(
        &mut self,
        blob: &Blob,
        at: u64,
        certainty: Certainty,
    ) -> Result<Option<(Pickle, u64)>> {
        let start = blob.base + at;
        let there = blob.source.len().saturating_sub(at);
        let led = matches!(certainty, Certainty::Yes | Certainty::Likely | Certainty::Perhaps);
        let space = &mut self.spaces[blob.space];
        if space.pickles.contains_key(&start)
            || led && space.tried.contains(&(start, there, Certainty::Yes))
            || led && !space.tried.insert((start, there, certainty))
        {
            return Ok(None);
        }
        let region = self.region(blob, at, "all that looks like a pickle");
        if self.budget.is_exhausted() {
            region.unread("There is too much of it.");
            return Ok(None);
        }
        let first = if led { WINDOW } else { GLANCE };
        let mut window = Window::new(blob, at, first, self.limits.structure)?;
        let mut not_found = false;
        let broken = loop {
            let len = window.bytes.len() as u64;
            let done = statelens_pickle::read(&window.bytes, start, self.limits);
            let used = match &done {
                Ok(pickle) => pickle.end(),
                Err(broken) => {
                    broken.error.offset().map_or(len, |offset| offset.saturating_sub(start))
                }
            };
            let so_far = done.as_ref().unwrap_or_else(|broken| &broken.pickle);
            let names = so_far.globals().len() as u64 * NAME;
            let may_continue = self.spend(ATTEMPT + len * READ + used.min(len) * RUN + names);
            // Even a complete pickle may end within the data of an array.
            if joblib::is_wrapped(so_far) {
                self.report(blob, so_far.scan(self.options));
                return self.with_arrays(blob, at, region);
            }
            match done {
                Ok(pickle) => {
                    region.done();
                    let end = window.offset(pickle.end());
                    self.whole_pickle(blob, at..end, certainty, &pickle);
                    return Ok(Some((pickle, end)));
                }
                Err(broken) if !may_continue => break broken,
                // Python would read on to the end of the line, and then not find the module.
                Err(broken) if names_no_module(&window.bytes, &broken, start) => {
                    not_found = true;
                    break broken;
                }
                Err(broken) if led && window.leave_out(&broken, start)? => {}
                // The truncated operand extends past the end of the blob.
                Err(broken) if window.offset(broken.needed) > blob.source.len() && !blob.cut => {
                    break broken;
                }
                Err(broken)
                    if broken.starved
                        && justifies_more(&broken, certainty, len)
                        && window.grow(&broken)? => {}
                Err(broken) => break broken,
            }
        };
        if lacks_memory(&broken.error) {
            return Err(broken.error);
        }
        self.unset_memo = broken.unset_memo;
        let within = window.offset(broken.needed) <= blob.source.len() || blob.cut;
        let cut = broken.starved && within && (window.is_short() || blob.cut) && !not_found;
        self.broken_pickle(blob, at, certainty, &broken, cut)?;
        region.done();
        Ok(None)
    }

    /// Runs a pickle in which joblib reads arrays.
    fn with_arrays(
        &mut self,
        blob: &Blob,
        at: u64,
        region: Region<'_>,
    ) -> Result<Option<(Pickle, u64)>> {
        self.found = true;
        let Some((pickle, end)) = joblib::run(self, blob, at)? else {
            region.unread("It is not clear how many bytes joblib would read for an array in it.");
            return Ok(None);
        };
        region.done();
        self.spaces[blob.space].pickles.insert(blob.base + at, blob.base + end);
        self.report(blob, pickle.scan(self.options));
        self.files_in_memory(blob, &pickle);
        self.indexed += pickle.indexed_tensors();
        Ok(Some((pickle, end)))
    }

    /// Adds the findings of a pickle that reaches its `STOP`.
    fn whole_pickle(
        &mut self,
        blob: &Blob,
        range: Range<u64>,
        certainty: Certainty,
        pickle: &Pickle,
    ) {
        self.spaces[blob.space].pickles.insert(blob.base + range.start, blob.base + range.end);
        self.found |= pickle.end() > MIN_PICKLE;
        let named = names_something(pickle);
        let is_one = match certainty {
            Certainty::Yes | Certainty::Likely => true,
            Certainty::Perhaps => named || makes_calls(pickle) || pickle.is_odd(),
            Certainty::Marked => named,
            Certainty::Bare => named && makes_calls(pickle),
        };
        if is_one {
            self.report(blob, pickle.scan(self.options));
            self.files_in_memory(blob, pickle);
            self.indexed += pickle.indexed_tensors();
            storages::compare(self, blob, range.start, pickle);
        } else if certainty == Certainty::Perhaps {
            self.imports(blob, range.start, pickle, None);
        }
    }

    /// Adds the findings of a pickle without a reachable `STOP`. `cut` means that there are further
    /// bytes that were not read.
    fn broken_pickle(
        &mut self,
        blob: &Blob,
        at: u64,
        certainty: Certainty,
        broken: &Broken,
        cut: bool,
    ) -> Result<()> {
        let limit = cut || broken.error.kind() == ErrorKind::Limit;
        let named = names_something(&broken.pickle);
        let led = !matches!(certainty, Certainty::Marked | Certainty::Bare);
        // Most places that the search finds.
        let is_nothing = match certainty {
            Certainty::Marked => !named,
            Certainty::Bare => !named || !makes_calls(&broken.pickle),
            _ => false,
        };
        if is_nothing || !self.spend(broken.pickle.nodes().count() as u64 * NODE) {
            return Ok(());
        }
        let findings = broken.pickle.scan(self.options);
        let marked = matches!(some(&*blob.source, at, 2)?[..], [PROTO, 0..=5]);
        let is_one = match certainty {
            Certainty::Yes => true,
            // Python would continue where our limit is reached.
            Certainty::Likely | Certainty::Perhaps if limit => true,
            Certainty::Likely | Certainty::Perhaps => {
                let alarming = findings.iter().any(|finding| finding.grade > Grade::Warning);
                let resolves = may_resolve(&broken.pickle);
                let nameless = broken.pickle.globals().is_empty();
                let ran = broken.pickle.nodes().count() > 1;
                // A pickle that is cut short: an operand of random bytes would be longer.
                let left = blob.source.len().saturating_sub(at);
                let is_cut = broken.starved && (ran || broken.needed <= left.saturating_add(8));
                marked && (named || substance(broken))
                    || certainty == Certainty::Likely && is_cut
                    || alarming && makes_calls(&broken.pickle) && (resolves || nameless)
                    || resolves && findings.iter().any(|finding| finding.grade == Grade::Danger)
                    || broken.pickle.is_odd()
            }
            Certainty::Marked | Certainty::Bare => true,
        };
        if !is_one {
            if led {
                self.imports(blob, at, &broken.pickle, broken.cut_name.as_ref());
            }
            return Ok(());
        }
        self.found = true;
        self.report(blob, findings);
        self.files_in_memory(blob, &broken.pickle);
        let finding = match limit {
            true => Finding::new(Grade::UnknownCode, "A pickle is too large to examine completely")
                .detail(format!("{} The part before that was examined.", broken.error))
                .advice("Do not load it unless you know where it comes from."),
            false => Finding::new(Grade::Damage, "The pickle breaks off")
                .detail(format!("{} The part before that would be run.", broken.error)),
        };
        self.findings.add(finding.place(self.place(blob, at)));
        Ok(())
    }

    /// Warns of names that are unused, in bytes that are a pickle by chance: two lines of text
    /// after a `c` are an import.
    fn imports(&self, blob: &Blob, at: u64, pickle: &Pickle, cut: Option<&Global>) {
        // `INST` without a mark: CPython's unpickler in C fails before it imports anything. The one in
        // Python imports the module, which is installed anyway, and then fails.
        if matches!(some(&*blob.source, at, 1).as_deref(), Ok([INST])) {
            return;
        }
        for global in pickle.globals().iter().map(|used| &*used.global).chain(cut) {
            // The same holds without a second line.
            let is_import = is_name(&global.module) && !global.name.is_empty();
            if is_import && !is_harmless(global) && !self.options.allows(global) {
                let title = format!("Loaded as a pickle, it would import `{}`", global.module);
                self.findings.add(
                    Finding::new(Grade::Warning, title)
                        .detail("Nothing of the module would be called.")
                        .place(self.place(blob, at)),
                );
            }
        }
    }
}

/// Returns whether the pickle calls something, rather than only naming it.
fn makes_calls(pickle: &Pickle) -> bool {
    pickle.nodes().any(|(_, node)| matches!(node, Node::Object(_)))
}

/// Returns whether the pickle names a class or function in a form that is usual in Python. Random
/// bytes do not, and without such a name, no name can be computed, either.
fn names_something(pickle: &Pickle) -> bool {
    let plain = |used: &GlobalUse| {
        !used.computed && is_name(&used.global.module) && is_name(&used.global.name)
    };
    pickle.globals().iter().any(plain)
}

/// Returns whether Python may resolve a name in the pickle. For example, `import os, sys` is an
/// `INST` of a module that can't exist as a file.
fn may_resolve(pickle: &Pickle) -> bool {
    let may = |used: &GlobalUse| used.computed || is_name(&used.global.module);
    pickle.globals().iter().any(may)
}

/// Returns whether the machine stopped in the name of a module that can't exist: no file has a NUL
/// in its name.
fn names_no_module(bytes: &[u8], broken: &Broken, start: u64) -> bool {
    let at = broken.error.offset().and_then(|at| usize::try_from(at.checked_sub(start)?).ok());
    let Some([op::GLOBAL | INST, rest @ ..]) = at.and_then(|at| bytes.get(at..)) else {
        return false;
    };
    let mut line = rest.iter().take_while(|byte| **byte != b'\n');
    broken.starved && line.any(|byte| *byte == 0)
}

/// Returns whether a text can be the dotted name of a module or of something in it.
fn is_name(text: &str) -> bool {
    let letters = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | '-');
    !text.is_empty() && text.chars().all(letters)
}

/// Returns whether the result so far justifies reading more.
fn justifies_more(broken: &Broken, certainty: Certainty, read: u64) -> bool {
    match certainty {
        Certainty::Yes | Certainty::Likely | Certainty::Perhaps => true,
        Certainty::Marked | Certainty::Bare => {
            let named = names_something(&broken.pickle);
            read < 4 << 10 && (named || substance(broken))
                || read < 1 << 20 && named && certainty == Certainty::Marked
                || named && makes_calls(&broken.pickle)
        }
    }
}

/// Returns whether there are more objects than random bytes produce.
fn substance(broken: &Broken) -> bool {
    broken.pickle.nodes().count() > 5
}
