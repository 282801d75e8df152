use statelens_pickle::opcode as op;

use crate::{Probe, Score};

/// Scores a file that begins with `PROTO` and a known version, or runs as a pickle of protocol 0 or
/// 1.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    match head {
        [op::PROTO, 2..=5, ..] => Score::Magic,
        [op::PROTO, _, ..] => Score::Maybe,
        // Protocols 0 and 1 have no magic number. Requires an opcode that can begin one, and that
        // the first bytes run as a pickle.
        [first, _, ..] if FIRST.contains(first) && runs(probe) => Score::Maybe,
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
