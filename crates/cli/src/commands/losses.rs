//! Reports and refuses what an output loses: what its format can't hold, and what casts do.

use statelens::parts::checkpoint::{Checkpoint, Loss, visible};
use statelens::parts::convert::{Changed, RunReport};
use statelens::{Error, Refusal};

use crate::print::{Failure, Printer, counted, grouped, keys_text, warn};

/// Lists losses on standard error, and names the options that accept or avoid them.
pub(crate) const REFUSAL: Refusal = Refusal { losses: refuse_losses, casts: refuse_casts };

/// Tensors that a refusal lists.
const MAX_LISTED: usize = 10;

/// The largest number of keys for which the options are written out.
const MAX_SUGGESTED: usize = 4;

/// Prints the losses of a plan, one per line.
pub(crate) fn losses_text(losses: &[Loss], printer: &mut Printer) -> Result<(), Failure> {
    for loss in losses {
        let word = if loss.harmless { "changed" } else { "lost" };
        printer.line(&format!("{word:11}  {}", visible(&loss_text(loss))))?;
    }
    Ok(())
}

/// Prints the effects of casts; `worst` is [`RunReport::worst`].
pub(crate) fn cast_text(
    report: &RunReport,
    worst: &[Changed],
    printer: &mut Printer,
) -> Result<(), Failure> {
    let cast = &report.cast;
    if cast.elements == 0 {
        return Ok(());
    }
    let keys = |of: fn(&Changed) -> bool| -> Vec<String> {
        worst.iter().filter(|changed| of(changed)).map(|changed| changed.key.clone()).collect()
    };
    let within = match keys(|_| true).as_slice() {
        [] => String::new(),
        rounded => format!(", in {}", visible(&keys_text(rounded))),
    };
    printer.line(&format!(
        "cast         {} numbers, {} of them rounded{within}",
        grouped(cast.elements),
        grouped(cast.changed)
    ))?;
    for pair in &report.pairs {
        let mut parts = vec![counted(pair.tensors, "tensor")];
        parts.extend(pair.effects());
        printer.line(&format!(
            "             {} -> {}: {}",
            pair.from,
            pair.to,
            parts.join(", ")
        ))?;
    }
    if cast.overflowed > 0 {
        let number = if cast.overflowed == 1 { "number does" } else { "numbers do" };
        printer.line(&format!(
            "overflowed   {} {number} not fit the dtype, in {}",
            grouped(cast.overflowed),
            visible(&keys_text(&keys(|changed| changed.cast.overflowed > 0)))
        ))?;
    }
    if worst.iter().any(is_flushed) {
        printer.line(&format!(
            "became 0     more than 1 % of the nonzero numbers, in {}",
            visible(&keys_text(&keys(is_flushed)))
        ))?;
    }
    Ok(())
}

/// Lists the losses, one per line; returns the error that refuses them.
fn refuse_losses(losses: &[Loss]) -> Error {
    for loss in losses.iter().filter(|loss| !loss.harmless) {
        warn(&format!("would be lost: {}", loss_text(loss)));
    }
    Error::refused("something would be lost, so nothing was written")
        .advice(format!("Continue with --lossy, or leave these keys out{}.", excluding(losses)))
}

/// Lists the tensors in which casts lost numbers, one per line; returns the error that refuses the
/// casts.
fn refuse_casts(source: &Checkpoint, report: &RunReport) -> Error {
    let (lines, more) = report.falsified(source, MAX_LISTED);
    for line in lines {
        warn(&format!("casting loses numbers: {line}"));
    }
    if let Some(more) = more {
        warn(&format!("and {more}"));
    }
    Error::refused("casting loses numbers, so nothing was kept").advice(
        "Use a dtype with a larger range (bfloat16 has that of float32), cast only what fits with \
         --cast PATTERN=DTYPE, or continue with --lossy.",
    )
}

fn loss_text(loss: &Loss) -> String {
    let why = if loss.why.is_empty() { String::new() } else { format!(" {}", loss.why) };
    let keys = match loss.keys.is_empty() {
        true => String::new(),
        false => format!("{}: ", keys_text(&loss.keys)),
    };
    format!("{keys}{}.{why}", loss.what)
}

/// Returns the options that exclude the lost keys, if they are few.
fn excluding(losses: &[Loss]) -> String {
    let lost = losses.iter().filter(|loss| !loss.harmless);
    let keys: Vec<&String> = lost.flat_map(|loss| &loss.keys).collect();
    let plain = |key: &&String| is_literal(key);
    if keys.is_empty() || keys.len() > MAX_SUGGESTED || !keys.iter().all(plain) {
        return " with --exclude".to_owned();
    }
    keys.iter().map(|key| format!(" --exclude '{key}'")).collect::<String>().replacen(' ', ": ", 1)
}

/// Returns whether a key, as a pattern, matches only itself.
fn is_literal(key: &str) -> bool {
    let is_expression = key.starts_with('/') && key.ends_with('/');
    !is_expression && !key.contains(['\'', '*', '?', '[', '{'])
}

fn is_flushed(changed: &Changed) -> bool {
    changed.cast.flushed.saturating_mul(100) > changed.cast.nonzero
}
