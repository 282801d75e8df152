//! The formats that a recipe goes between: Hugging Face's, and the releases of Cerebras's Model Zoo.

use std::fmt;
use std::str::FromStr;

use statelens_checkpoint::{Error, Result};

/// How an implementation of a model names its tensors and writes its config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Hugging Face's `transformers` (`hf`).
    HuggingFace,
    /// A release of Cerebras's Model Zoo (`cs-2.9`, `cs-2.9-dpo`).
    Cerebras(Release),
}

/// A release of the Model Zoo, with the variant of the layout if there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release {
    /// `2` of `2.9`.
    pub major: u8,
    /// `9` of `2.9`.
    pub minor: u8,
    /// `dpo` of `2.9-dpo`.
    pub variant: Variant,
}

/// What a release has in several layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// The usual one.
    Plain,
    /// Policy and reference model in one (`-dpo`).
    Dpo,
    /// The base model alone, where `-dpo` is the other side (`-no-dpo`).
    NoDpo,
    /// The model's section nested in a backbone (`-backbone`).
    Backbone,
}

impl Format {
    /// What `cs-current` means: the newest release.
    pub const CURRENT: Self = Self::cerebras(2, 10);

    /// Every plain release that checkpoints and configs are converted between, oldest first.
    pub const RELEASES: [(u8, u8); 15] = [
        (1, 6),
        (1, 7),
        (1, 8),
        (1, 9),
        (2, 0),
        (2, 1),
        (2, 2),
        (2, 3),
        (2, 4),
        (2, 5),
        (2, 6),
        (2, 7),
        (2, 8),
        (2, 9),
        (2, 10),
    ];

    /// The plain layout of a release.
    pub const fn cerebras(major: u8, minor: u8) -> Self {
        Self::Cerebras(Release { major, minor, variant: Variant::Plain })
    }

    /// The release that a checkpoint's own `version` (`2.9.0`) names.
    pub fn of_version(version: &str) -> Option<Self> {
        let mut parts = version.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        let digits = minor.len() - minor.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        Some(Self::cerebras(major, minor.get(..digits)?.parse().ok()?))
    }

    /// Whether this is Hugging Face's.
    pub fn is_hf(self) -> bool {
        self == Self::HuggingFace
    }

    /// The release, if it is Cerebras's.
    pub fn release(self) -> Option<Release> {
        match self {
            Self::HuggingFace => None,
            Self::Cerebras(release) => Some(release),
        }
    }

    /// Major and minor number of the release, `None` for Hugging Face.
    pub fn version(self) -> Option<(u8, u8)> {
        self.release().map(|release| (release.major, release.minor))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HuggingFace => f.write_str("hf"),
            Self::Cerebras(Release { major, minor, variant }) => {
                write!(f, "cs-{major}.{minor}{}", variant.suffix())
            }
        }
    }
}

impl Variant {
    const ALL: [Self; 4] = [Self::Plain, Self::Dpo, Self::NoDpo, Self::Backbone];

    fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dpo => "-dpo",
            Self::NoDpo => "-no-dpo",
            Self::Backbone => "-backbone",
        }
    }
}

impl FromStr for Format {
    type Err = Error;

    /// Reads `hf`, `cs-2.9`, `cs-2.9-dpo` or `cs-current`. `cs-auto` is no format: what it means
    /// stands in the checkpoint.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::refused(format!("\"{text}\" is not a format"))
                .expected("hf, or a release such as cs-2.9")
                .advice("`statelens list-converters` shows the formats of each model.")
        };
        match text {
            "hf" => return Ok(Self::HuggingFace),
            "cs-current" => return Ok(Self::CURRENT),
            _ => {}
        }
        let rest = text.strip_prefix("cs-").ok_or_else(bad)?;
        let (number, variant) = match rest.split_once('-') {
            None => (rest, Variant::Plain),
            Some((number, _)) => {
                let suffix = &rest[number.len()..];
                let variant = Variant::ALL.into_iter().find(|variant| variant.suffix() == suffix);
                (number, variant.ok_or_else(bad)?)
            }
        };
        let (major, minor) = number.split_once('.').ok_or_else(bad)?;
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u8>().ok()).flatten().ok_or_else(bad)
        };
        let release = (number(major)?, number(minor)?);
        if !Self::RELEASES.contains(&release) {
            return Err(Error::refused(format!("there is no release {text}"))
                .expected("cs-1.6 to cs-1.9 or cs-2.0 to cs-2.10"));
        }
        Ok(Self::Cerebras(Release { major: release.0, minor: release.1, variant }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_and_written() {
        for name in
            ["hf", "cs-1.6", "cs-2.9", "cs-2.10", "cs-2.9-dpo", "cs-2.1-no-dpo", "cs-2.4-backbone"]
        {
            assert_eq!(name.parse::<Format>().unwrap().to_string(), name);
        }
        assert_eq!("cs-current".parse::<Format>().unwrap(), Format::CURRENT);
        assert_eq!(Format::of_version("2.10.0+abc"), Some(Format::cerebras(2, 10)));
        assert_eq!(Format::of_version("2.5rc1"), Some(Format::cerebras(2, 5)));
        assert_eq!(Format::of_version("new"), None);
    }

    #[test]
    fn releases_are_in_order() {
        assert!(Format::cerebras(2, 9) < Format::cerebras(2, 10));
        assert!(Format::RELEASES.is_sorted());
    }

    #[test]
    fn other_names_are_refused_with_what_was_expected() {
        for name in [
            "",
            "HF",
            "cs-",
            "cs-2",
            "cs-3.0",
            "cs-2.+9",
            "cs-2.9-",
            "cs-2.9-x",
            "cs-auto",
            "cs-2.99999",
        ] {
            let error = name.parse::<Format>().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("cs-"), "{error}");
        }
    }
}
