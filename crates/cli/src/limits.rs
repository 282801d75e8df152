//! Limits on what a command may spend on a checkpoint, which the user can raise.

use std::sync::OnceLock;

use statelens::parts::checkpoint::Checkpoint;
use statelens::{Error, ErrorKind, Limits, Result};

static LIMITS: OnceLock<Limits> = OnceLock::new();

/// Parses `--limit`: a number, which multiplies the defaults, or `none`.
pub(crate) fn parse(text: &str) -> Result<Limits, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Limits::none());
    }
    match text.parse::<u64>() {
        Ok(times) if times > 0 => Ok(Limits::times(times)),
        _ => Err("expected a number such as 10, or none".into()),
    }
}

pub(crate) fn set(limits: Limits) {
    // Can't fail: a command sets them once, before it opens a file.
    let _ = LIMITS.set(limits);
}

pub(crate) fn limits() -> &'static Limits {
    LIMITS.get_or_init(Limits::default)
}

/// Fails if reading all values of a checkpoint takes much more than its size suggests.
pub(crate) fn check(checkpoint: &Checkpoint, what: &str) -> Result<()> {
    let name = checkpoint.files.main().map(|main| checkpoint.files.name(main).to_owned());
    checkpoint
        .unfolded()
        .check(what, limits())
        .map_err(|error| error.in_file(name.unwrap_or_default()))
}

/// Adds advice in terms of the command line, unless the library's advice suffices.
pub(crate) fn advise(error: Error) -> Error {
    if error.code() == "exists" {
        return error.advice("Name another one, or replace it with --force.");
    }
    if error.kind() != ErrorKind::Limit || error.next_step().is_some() {
        return error;
    }
    error.advice(
        "If you trust the file, allow ten times as much with --limit 10, or anything with --limit none.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_limits() {
        assert_eq!(parse("none"), Ok(Limits::none()));
        assert_eq!(parse("2"), Ok(Limits::times(2)));
        assert!(parse("0").is_err() && parse("-1").is_err() && parse("").is_err());
    }
}
