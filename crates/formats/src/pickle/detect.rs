use statelens_pickle::opcode as op;

use crate::{Probe, Score};

/// Scores a file that begins with `PROTO`, a known version and another opcode, or runs as a pickle
/// of protocol 0 or 1. The length of a safetensors header may begin with `PROTO`, and zeros follow.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    match head {
        [op::PROTO, 2..=5, next, ..] if op::is_opcode(*next) => Score::Magic,
        [op::PROTO, 2..=5] => Score::Magic,
        [op::PROTO, _, ..] => Score::Maybe,
        // Protocols 0 and 1 have no magic number. Requires an opcode that can begin one, and that
        // the first bytes run as a pickle.
        [first, _, ..] if FIRST.contains(first) && !is_in_text_mode(head) && runs(probe) => {
            Score::Maybe
        }
        _ => Score::No,
    }
}

/// The opcodes with which a pickle of protocol 0 or 1 can begin.
const FIRST: &[u8] = b"()]}cGFIJKLMNSTUVX";

/// Returns whether the bytes run as a pickle, or are incomplete only because the head ends.
fn runs(probe: &Probe<'_>) -> bool {
    let limits = statelens_checkpoint::Limits::default();
    match statelens_pickle::read(probe.head(), 0, &limits) {
        Ok(_) => true,
        Err(broken) => broken.starved && probe.len() > probe.head().len() as u64,
    }
}

/// Returns whether these are the first bytes of a pickle of protocol 0 with `\r\n` for `\n`.
/// Python does not load it: names and texts get a `\r`.
pub(crate) fn is_in_text_mode(head: &[u8]) -> bool {
    if head.first().is_none_or(|first| !FIRST.contains(first)) {
        return false;
    }
    let mut lines =
        head.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    if lines.clone().count() < 2 || !lines.all(|line| line.ends_with(b"\r\n")) {
        return false;
    }
    let mut restored = Vec::with_capacity(head.len());
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        restored.extend(line.strip_suffix(b"\r\n").unwrap_or(line));
        restored.extend(line.ends_with(b"\n").then_some(b'\n'));
    }
    match statelens_pickle::read(&restored, 0, &statelens_checkpoint::Limits::default()) {
        Ok(_) => true,
        Err(broken) => broken.starved,
    }
}
