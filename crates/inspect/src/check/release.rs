//! Whether the trainer of a release takes a checkpoint by the version in its `__metadata__`.

use std::fmt;

use statelens_checkpoint::{Checkpoint, DictKey, Error, Result, Value, ValueId};

/// A release of the Cerebras library: major and minor, which are all that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibraryRelease {
    /// The first number.
    pub major: u64,
    /// The second number.
    pub minor: u64,
}

/// The releases that are known, the newest first: those whose trainer looks at the version.
pub const RELEASES: [&str; 11] =
    ["2.10", "2.9", "2.8", "2.7", "2.6", "2.5", "2.4", "2.3", "2.2", "2.1", "2.0"];

/// What the trainer says about a checkpoint's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It was written by the same release, by its version.
    Same(String),
    /// It was written by another release: its version, and the release that was asked about.
    Other(String, LibraryRelease),
    /// It was written by a build of its own (`2.10.0+abc`), which is not held against any.
    Local(String),
    /// It does not say, so that nothing is checked.
    Silent,
}

impl LibraryRelease {
    /// Understands `2.10` and `2.10.0`.
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

    /// Why this release can't read the format of a checkpoint, if it is one of Cerebras.
    pub fn refuses(self, checkpoint: &Checkpoint) -> Option<String> {
        let format = &checkpoint.format;
        if format.id == "cerebras-h5" { self.unreadable(&format.version) } else { None }
    }

    /// Why it can't read a format version of Cerebras checkpoints.
    ///
    /// Releases 2.0 to 2.4 refuse 0.5. Release 2.5 and later ask for a version, which 0.1 has
    /// none of, and from 2.6 on fail to load entries that do not name their codec, as 0.2 has.
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

    /// What the trainer of this release says about `version`.
    pub fn verdict(self, version: Option<&str>) -> Verdict {
        match version {
            None => Verdict::Silent,
            Some(version) if version.contains('+') => Verdict::Local(version.to_owned()),
            Some(version) => match Self::of(version) == Some(self) {
                true => Verdict::Same(version.to_owned()),
                false => Verdict::Other(version.to_owned(), self),
            },
        }
    }
}

impl Verdict {
    /// Whether it goes on.
    pub fn is_compatible(&self) -> bool {
        !matches!(self, Self::Other(..))
    }

    /// What to tell.
    pub fn text(&self) -> String {
        match self {
            Self::Same(version) => format!("written by {version}, the release that was asked for"),
            Self::Other(version, release) => format!(
                "written by {version}, and {release} refuses other releases unless strict_version is off"
            ),
            Self::Local(version) => format!("written by the build {version}, which is not checked"),
            Self::Silent => {
                "it has no `__metadata__` that names a version: nothing is checked".into()
            }
        }
    }
}

impl fmt::Display for LibraryRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The version that the last entry of `__metadata__` names: that of the last program that
/// touched the checkpoint.
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
    fn major_and_minor_are_compared_as_numbers() {
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
            assert_eq!(release.verdict(version).is_compatible(), compatible, "{version:?}");
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
