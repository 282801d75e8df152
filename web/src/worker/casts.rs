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
        if pair.cast.worst > 0.0 {
            parts.push(format!("largest relative error {:.2e}", pair.cast.worst));
        }
        if pair.cast.flushed > 0 {
            parts.push(format!("{} became 0", exact(pair.cast.flushed)));
        }
        if pair.cast.overflowed > 0 {
            parts.push(format!("{} did not fit", exact(pair.cast.overflowed)));
        }
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
    let worst = report.worst(source);
    let mut told = worst.iter().filter_map(|changed| Some((&changed.key, changed.what()?)));
    let named: Vec<String> =
        told.by_ref().take(NAMED).map(|(key, what)| format!("`{key}`: {what}")).collect();
    let more = match told.count() {
        0 => String::new(),
        more => format!("; and {} more", plural(more as u64, "tensor")),
    };
    let mut title = FALSIFIED.to_owned();
    title.replace_range(..1, "c");
    Err(Error::refused(format!("{title}, so nothing was kept: {}{more}", named.join("; "))).advice(
        "Take a dtype with a larger range (bfloat16 has that of float32), or cast only what fits.",
    ))
}
