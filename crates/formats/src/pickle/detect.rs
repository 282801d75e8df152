//! Telling it apart.

use statelens_pickle::opcode as op;

use crate::{Probe, Score};

/// How sure this format is: `PROTO` with a known version, or what protocols 0 and 1 begin with.
pub fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    match head {
        [op::PROTO, 2..=5, ..] => Score::Magic,
        [op::PROTO, _, ..] => Score::Maybe,
        // Protocols 0 and 1 have no magic number: an opcode that can begin one, and bytes that
        // run as a pickle as far as they go.
        [first, _, ..] if FIRST.contains(first) && runs(probe) => Score::Maybe,
        _ => Score::No,
    }
}

/// The opcodes that a pickle of protocol 0 or 1 begins with.
const FIRST: &[u8] = b"()]}cGFIJKLMNSTUVX";

/// Whether the bytes run as a pickle, or break off only because the head ends.
fn runs(probe: &Probe<'_>) -> bool {
    let limits = statelens_checkpoint::Limits::default();
    match statelens_pickle::read(probe.head(), 0, &limits) {
        Ok(_) => true,
        Err(broken) => broken.starved && probe.len() > probe.head().len() as u64,
    }
}
