//! Names of checkpoint files.

use statelens_checkpoint::{Error, Result};

/// How a run names its checkpoints: a string that contains `{step}`. The rest is taken literally,
/// unlike in the trainer, which reads it as a regular expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    before: String,
    after: String,
}

/// The step, or the epoch, and the timestamp in the name of a checkpoint; ordered by age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointName {
    /// The step at which it was saved.
    pub step: u128,
    /// A timestamp like `20240131_235959`, which the trainer adds if the name without it is taken.
    pub timestamp: Option<String>,
    /// The name with `#` for its numbers, if the number is that of an epoch or a save: it is only
    /// comparable with those of the same series. Empty for a step.
    pub series: String,
}

impl CheckpointName {
    /// Creates the name of a checkpoint that was saved at this step.
    pub(super) fn at(step: u128, timestamp: Option<String>) -> Self {
        Self { step, timestamp, series: String::new() }
    }
}

impl Default for NamePattern {
    /// The trainer's default: `checkpoint_{step}.mdl`.
    fn default() -> Self {
        Self { before: "checkpoint_".into(), after: ".mdl".into() }
    }
}

impl NamePattern {
    /// Parses a pattern, which must contain `{step}` once and no other field.
    pub fn parse(text: &str) -> Result<Self> {
        let parts = text.split_once("{step}");
        let plain = |part: &str| !part.contains(['{', '}', '/', '\\']);
        match parts {
            Some((before, after)) if plain(before) && plain(after) => {
                Ok(Self { before: before.into(), after: after.into() })
            }
            _ => Err(Error::refused(format!("`{text}` is not a pattern for checkpoint names"))
                .expected("a file name with `{step}` in it once, e.g. checkpoint_{step}.mdl")),
        }
    }

    /// Returns whether this is the trainer's default.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Parses a file name; `None` if it does not match. Fails if its timestamp is not a date.
    pub fn find(&self, name: &str) -> Option<Result<CheckpointName>> {
        let middle = name.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())?;
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (step, timestamp) = match middle.split_once('_') {
            None => (middle, None),
            Some((step, timestamp)) => {
                let (day, time) = timestamp.split_once('_')?;
                if !(day.len() == 8 && time.len() == 6 && digits(day) && digits(time)) {
                    return None;
                }
                (step, Some((day, time, timestamp)))
            }
        };
        if !digits(step) {
            return None;
        }
        // A step that overflows can't be from training.
        let step = step.parse().ok()?;
        Some(match timestamp {
            None => Ok(CheckpointName::at(step, None)),
            Some((day, time, text)) if is_date(day, time) => {
                Ok(CheckpointName::at(step, Some(text.to_owned())))
            }
            Some((_, _, text)) => {
                Err(Error::refused(format!("the timestamp {text} is not a date")).in_file(name))
            }
        })
    }
}

/// Returns whether the digits `20240131` and `235959` are a valid date and time.
fn is_date(day: &str, time: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
    let (year, month, date) = (number(&day[..4]), number(&day[4..6]), number(&day[6..]));
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    let (hour, minute, second) = (number(&time[..2]), number(&time[2..4]), number(&time[4..]));
    // Python's `%S` accepts 61 seconds, but its datetime refuses more than 59.
    year >= 1 && (1..=days).contains(&date) && hour < 24 && minute < 60 && second < 60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_step_and_timestamp_of_names() {
        let pattern = NamePattern::default();
        let found = |name: &str| pattern.find(name).map(|name| name.ok());
        let name = |step, timestamp: Option<&str>| {
            Some(Some(CheckpointName::at(step, timestamp.map(str::to_owned))))
        };
        assert_eq!(found("checkpoint_5.mdl"), name(5, None));
        assert_eq!(found("checkpoint_0005.mdl"), name(5, None));
        assert_eq!(found("checkpoint_5_20240229_000000.mdl"), name(5, Some("20240229_000000")));
        for name in ["20230229_000000", "20241301_000000", "20240101_240000", "00000101_000000"] {
            assert_eq!(found(&format!("checkpoint_5_{name}.mdl")), Some(None), "{name}");
        }
        for name in [
            "checkpoint_.mdl",
            "checkpoint_5.pt",
            "checkpoint_-5.mdl",
            "checkpoint_5_1700000000.5.mdl",
            "model_checkpoint_5.mdl",
            "checkpoint_5.mdl.tmp",
            "checkpoint_5xmdl",
        ] {
            assert_eq!(found(name), None, "{name}");
        }
    }

    #[test]
    fn pattern_requires_exactly_one_step() {
        let pattern = NamePattern::parse("{step}.ckpt").unwrap();
        assert!(pattern.find("12.ckpt").is_some());
        for text in ["checkpoint.mdl", "{step}_{step}", "{step}_{name}", "a/{step}"] {
            assert!(NamePattern::parse(text).is_err(), "{text}");
        }
    }
}
