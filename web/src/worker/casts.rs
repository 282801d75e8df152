//! What casts did, in the page's words; and the refusal where they did more than round.

use statelens_checkpoint::{Checkpoint, Error, Result};
use statelens_convert::Report;

use crate::protocol::FALSIFIED;
use crate::state::fmt::{exact, plural};

/// Tensors that a refusal names.
const NAMED: usize = 5;

/// A line for each pair of dtypes.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let line = |pair: &statelens_convert::Pair| {
        let mut parts = vec![format!("{} rounded", exact(pair.cast.changed))];
        parts.extend(pair.effects());
        format!(
            "{} to {}, {}: {}",
            pair.from,
            pair.to,
            plural(pair.tensors, "tensor"),
            parts.join(", ")
        )
    };
    report.pairs.iter().map(line).collect()
}

/// Refuses what casts falsified.
///
/// # Errors
/// That they did, and where.
pub(super) fn refuse_false(source: &Checkpoint, report: &Report) -> Result<()> {
    if !report.is_false() {
        return Ok(());
    }
    let (told, more) = report.falsified(source, NAMED);
    let more = more.map(|more| format!("; and {more}")).unwrap_or_default();
    let mut title = FALSIFIED.to_owned();
    title.replace_range(..1, "c");
    Err(Error::refused(format!("{title}, so nothing was kept: {}{more}", told.join("; "))).advice(
        "Take a dtype with a larger range (bfloat16 has that of float32), or cast only what fits.",
    ))
}
