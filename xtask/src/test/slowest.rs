//! Runs tests and lists those that fail and those that take longest.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell;

/// How many tests are listed.
const LISTED: usize = 10;

/// Lets the test programs, and nothing else, use their unstable option for times.
const RUNNER: &str = "target.'cfg(all())'.runner=[\"env\", \"RUSTC_BOOTSTRAP=1\"]";

/// How many lines of the output of a failed test its report repeats.
const REPEATED_LINES: usize = 8;

/// Runs `cargo test`, prints its output as it arrives, and then its slowest tests.
///
/// # Errors
///
/// An error has the first lines of what each failed test printed.
pub(super) fn run(cargo: &mut Command) -> Result<()> {
    let options = ["--config", RUNNER, "--", "-Z", "unstable-options", "--report-time"];
    cargo.args(options).stdout(Stdio::piped());
    println!("$ {}", shell::shown(cargo));
    let mut child = cargo.spawn().context("could not start cargo")?;
    let mut times = Vec::new();
    let mut failures = Failures::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("reading the output of the tests")?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            failures.read(&line);
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
        false => bail!("tests failed ({status})\n{}", failures.lines.join("\n")),
    }
}

/// The first lines of what failed tests print, below their names.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    /// How many lines of the current test are still to be taken.
    left: usize,
}

impl Failures {
    fn read(&mut self, line: &str) {
        // Test programs print a heading for each test, and the list of names after the last one.
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.left = 1 + REPEATED_LINES;
        } else if line == "failures:" {
            self.left = 0;
        }
        if self.left > 0 && !line.is_empty() {
            self.lines.push(line.to_owned());
            self.left -= 1;
        }
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
    fn failures_have_the_first_lines_of_each_failed_test() {
        let mut failures = Failures::default();
        let printed = "\
test a ... FAILED <0.5s>
failures:

---- a stdout ----

thread 'a' panicked at src/a.rs:1:1:
no
---- b::c stdout ----
1
2
3
4
5
6
7
8
9

failures:
    a
";
        printed.lines().for_each(|line| failures.read(line));
        let expected = "\
---- a stdout ----
thread 'a' panicked at src/a.rs:1:1:
no
---- b::c stdout ----
1
2
3
4
5
6
7
8";
        assert_eq!(failures.lines.join("\n"), expected);
    }

    #[test]
    fn reads_the_times_that_test_programs_print() {
        assert_eq!(time("test a::b ... ok <1.234s>"), Some(("a::b", 1.234)));
        assert_eq!(time("test a ... FAILED <0.5s>"), Some(("a", 0.5)));
        assert_eq!(time("test a ... ignored"), None);
        assert_eq!(time("running 3 tests"), None);
    }
}
