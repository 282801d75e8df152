//! `statelens job status` and `statelens job abort`.

use statelens::job::{Job, JobStatus};

use crate::args::JobPlace;
use crate::print::{CommandResult, Printer, counted, grouped};

/// Ranges of missing tasks, and failed tasks, that are printed.
const SHOWN: usize = 20;

pub(super) fn status(args: &JobPlace) -> CommandResult {
    let status = Job::open(&args.job)?.status()?;
    let JobStatus { tasks, done, failed, missing, committed } = &status;
    let mut printer = Printer::new();
    if args.json {
        printer.line(&status.json())?;
    } else {
        let done = grouped(*done);
        let state = if *committed { ", committed" } else { "" };
        printer.line(&format!("{done} of {} done{state}", counted(*tasks, "task")))?;
        for (task, error) in failed.iter().take(SHOWN) {
            printer.line(&format!(
                "task {task} failed: {}",
                statelens::parts::checkpoint::visible(error)
            ))?;
        }
        if failed.len() > SHOWN {
            let more = grouped((failed.len() - SHOWN) as u64);
            printer.line(&format!("{more} more failed: --json lists them"))?;
        }
        if !missing.is_empty() {
            printer.line(&format!("missing      {}", ranges(missing)))?;
        }
    }
    printer.success()
}

pub(super) fn abort(args: &JobPlace) -> CommandResult {
    Job::open(&args.job)?.abort()?;
    Ok(true)
}

/// Lists numbers in ascending order as Slurm's `--array` takes them: `0,3-7`.
fn ranges(numbers: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(start, end): &(u64, u64)| match start == end {
        true => start.to_string(),
        false => format!("{start}-{end}"),
    };
    let shown: Vec<String> = ranges.iter().take(SHOWN).map(text).collect();
    let more = if ranges.len() > SHOWN { ",…" } else { "" };
    format!("{}{more}", shown.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tasks_are_ranges() {
        assert_eq!(ranges(&[0, 3, 4, 5, 7]), "0,3-5,7");
        let even: Vec<u64> = (0..50).map(|at| at * 2).collect();
        assert!(ranges(&even).ends_with("36,38,…"), "{}", ranges(&even));
    }
}
