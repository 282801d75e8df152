//! Runs tests and lists those that take longest.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell;

/// How many tests are listed.
const LISTED: usize = 10;

/// Lets the test programs, and nothing else, use their unstable option for times.
const RUNNER: &str = "target.'cfg(all())'.runner=[\"env\", \"RUSTC_BOOTSTRAP=1\"]";

/// Runs `cargo test`, prints its output as it arrives, and then its slowest tests.
pub(super) fn run(cargo: &mut Command) -> Result<()> {
    let options = ["--config", RUNNER, "--", "-Z", "unstable-options", "--report-time"];
    cargo.args(options).stdout(Stdio::piped());
    println!("$ {}", shell::shown(cargo));
    let mut child = cargo.spawn().context("could not start cargo")?;
    let mut times = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("reading the output of the tests")?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            times.extend(time(&line).map(|(name, seconds)| (seconds, name.to_owned())));
        }
    }
    let status = child.wait().context("waiting for cargo")?;
    times.sort_by(|one, other| other.0.total_cmp(&one.0));
    println!("\nThe slowest of {} tests:", times.len());
    for (seconds, name) in times.iter().take(LISTED) {
        println!("{seconds:>8.1} s  {name}");
    }
    match status.success() {
        true => Ok(()),
        false => bail!("tests failed ({status})"),
    }
}

/// Returns the name and the seconds in a line such as `test a::b ... ok <1.234s>`.
fn time(line: &str) -> Option<(&str, f64)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, seconds) = result.rsplit_once('<')?;
    Some((name, seconds.strip_suffix("s>")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_times_that_test_programs_print() {
        assert_eq!(time("test a::b ... ok <1.234s>"), Some(("a::b", 1.234)));
        assert_eq!(time("test a ... FAILED <0.5s>"), Some(("a", 0.5)));
        assert_eq!(time("test a ... ignored"), None);
        assert_eq!(time("running 3 tests"), None);
    }
}
