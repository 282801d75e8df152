//! Checks whether the trainer of a release accepts a checkpoint, by the version in its
//! `__metadata__`.

use std::fmt;

use serde::Serialize;
use statelens_checkpoint::{Checkpoint, DictKey, Error, Result, Value, ValueId};
use statelens_formats::cerebras::is_cerebras;

/// A release of the Cerebras library: the major and minor version, which are all that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibraryRelease {
    /// The major version.
    pub major: u64,
    /// The minor version.
    pub minor: u64,
}

/// The known releases whose trainer checks the version, newest first.
pub const RELEASES: [&str; 11] =
    ["2.10", "2.9", "2.8", "2.7", "2.6", "2.5", "2.4", "2.3", "2.2", "2.1", "2.0"];

/// The trainer's verdict on a checkpoint's version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReleaseVerdict {
    /// Whether the trainer continues.
    pub compatible: bool,
    /// The verdict as text.
    pub text: String,
}

impl LibraryRelease {
    /// Parses `2.10` or `2.10.0`.
    pub fn parse(text: &str) -> Result<Self> {
        Self::of(text).ok_or_else(|| {
            Error::refused(format!("`{text}` is not a release")).expected("two numbers, e.g. 2.10")
        })
    }

    fn of(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            part[..digits].parse().ok()
        });
        Some(Self { major: numbers.next()??, minor: numbers.next()?? })
    }

    /// Returns why this release can't read the format of a Cerebras checkpoint, if it can't.
    pub fn refuses(self, checkpoint: &Checkpoint) -> Option<String> {
        let format = &checkpoint.format;
        if is_cerebras(checkpoint) { self.unreadable(&format.version) } else { None }
    }

    /// Returns why this release can't read a version of the Cerebras format, if it can't.
    ///
    /// Releases 2.0 to 2.4 refuse 0.5. Release 2.5 and later require a version, which 0.1 does not
    /// have. From 2.6 on they also fail on entries that do not name their codec, as in 0.2.
    fn unreadable(self, format: &str) -> Option<String> {
        let at_least = |minor| (self.major, self.minor) >= (2, minor);
        let by = match format {
            "0.5" if !at_least(5) => "2.5 and later",
            "0.1" if at_least(5) => "2.4 and earlier",
            "0.2" if at_least(6) => "2.5 and earlier",
            _ => return None,
        };
        Some(format!("format {format} is read by releases {by}, not by {self}"))
    }

    /// Returns the verdict of this release's trainer on `version`. A local build (`2.10.0+abc`) is
    /// not compared.
    pub fn verdict(self, version: Option<&str>) -> ReleaseVerdict {
        let same = |version: &str| Self::of(version) == Some(self);
        let (compatible, text) = match version {
            None => {
                (true, "it has no `__metadata__` that names a version: nothing is checked".into())
            }
            Some(version) if version.contains('+') => {
                (true, format!("written by the build {version}, which is not checked"))
            }
            Some(version) if same(version) => {
                (true, format!("written by {version}, the requested release"))
            }
            Some(version) => (
                false,
                format!(
                    "written by {version}, and {self} refuses other releases unless strict_version is off"
                ),
            ),
        };
        ReleaseVerdict { compatible, text }
    }
}

impl fmt::Display for LibraryRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns the version in the last entry of `__metadata__`: that of the last program that modified
/// the checkpoint.
pub fn version_of(checkpoint: &Checkpoint) -> Option<String> {
    let field = |id: ValueId, name: &str| match checkpoint.value(checkpoint.resolve(id)) {
        Value::Dict(dict) => dict.entries.iter().find_map(|(key, id)| match key {
            DictKey::Str(key) if *key == *name => Some(*id),
            _ => None,
        }),
        _ => None,
    };
    let metadata = field(checkpoint.root(), "__metadata__")?;
    let Value::List(list) = checkpoint.value(checkpoint.resolve(metadata)) else { return None };
    let version = field(*list.items.last()?, "version")?;
    match checkpoint.value(checkpoint.resolve(version)) {
        Value::Str(text) => Some(text.to_lossy().into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_major_and_minor_as_numbers() {
        let release = LibraryRelease::parse("2.10").unwrap();
        assert_eq!(LibraryRelease::parse("2.10.3").unwrap(), release);
        for (version, compatible) in [
            (Some("2.10.0"), true),
            (Some("2.10.7rc1"), true),
            (Some("2.1.0"), false),
            (Some("2.9.0"), false),
            (Some("2.9.0+build"), true),
            (Some("odd"), false),
            (None, true),
        ] {
            assert_eq!(release.verdict(version).compatible, compatible, "{version:?}");
        }
        let unreadable = |release: &str, format| {
            LibraryRelease::parse(release).unwrap().unreadable(format).is_some()
        };
        for (release, readable, not) in [
            ("2.0", ["0.1", "0.2", "0.4"].as_slice(), ["0.5"].as_slice()),
            ("2.4", &["0.1", "0.2", "0.4"], &["0.5"]),
            ("2.5", &["0.2", "0.3", "0.4", "0.5"], &["0.1"]),
            ("2.10", &["0.3", "0.4", "0.5"], &["0.1", "0.2"]),
        ] {
            assert!(readable.iter().all(|format| !unreadable(release, format)), "{release}");
            assert!(not.iter().all(|format| unreadable(release, format)), "{release}");
        }
        assert!(LibraryRelease::parse("two").is_err());
        assert!(LibraryRelease::parse("2").is_err());
    }
}
