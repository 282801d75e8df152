//! The formats that a recipe converts between: Hugging Face's, the releases of Cerebras's Model
//! Zoo, and other formats that recipes name.

use std::fmt;
use std::str::FromStr;

use statelens_checkpoint::{Error, Result, Setting, advice};

/// The keys and the config of one implementation of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Implementation {
    /// Hugging Face's `transformers` (`hf`).
    HuggingFace,
    /// A release of Cerebras's Model Zoo (`cs-2.9`, `cs-2.9-dpo`).
    Cerebras(Release),
    /// Any other format, with its name in recipes (`meta`, `megatron`).
    Named(FormatName),
}

/// The name of a format: lower-case letters, digits and `-`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FormatName {
    /// The characters, padded with zeros.
    text: [u8; Self::MAX_LEN],
}

impl FormatName {
    /// Longer than any name.
    const MAX_LEN: usize = 24;

    fn new(text: &str) -> Option<Self> {
        let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if !first || text.len() > Self::MAX_LEN || !text.bytes().all(fine) {
            return None;
        }
        let mut own = [0; Self::MAX_LEN];
        own.iter_mut().zip(text.bytes()).for_each(|(own, byte)| *own = byte);
        Some(Self { text: own })
    }
}

impl fmt::Display for FormatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = self.text.iter().take_while(|byte| **byte != 0);
        letters.into_iter().try_for_each(|byte| write!(f, "{}", char::from(*byte)))
    }
}

impl fmt::Debug for FormatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A release of the Model Zoo, with a variant if it has several layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release {
    /// The `2` in `2.9`.
    pub major: u8,
    /// The `9` in `2.9`.
    pub minor: u8,
    /// The `dpo` in `2.9-dpo`.
    pub variant: Variant,
}

/// The layouts of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// The usual layout.
    Plain,
    /// Policy and reference model in one (`-dpo`).
    Dpo,
    /// The base model alone, as the counterpart of `-dpo` (`-no-dpo`).
    NoDpo,
    /// The model's section nested in a backbone (`-backbone`).
    Backbone,
}

impl Implementation {
    /// The newest release, `cs-current`.
    pub const CURRENT: Self = Self::cerebras(2, 10);

    /// All plain releases whose checkpoints and configs can be converted, oldest first.
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

    pub const fn cerebras(major: u8, minor: u8) -> Self {
        Self::Cerebras(Release { major, minor, variant: Variant::Plain })
    }

    /// Returns the release for a checkpoint's `version` (`2.9.0`).
    pub fn of_version(version: &str) -> Option<Self> {
        let mut parts = version.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        let digits = minor.len() - minor.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        Some(Self::cerebras(major, minor.get(..digits)?.parse().ok()?))
    }

    /// Returns the plain layout of the release; other formats unchanged.
    pub(crate) fn plain(self) -> Self {
        match self.version() {
            Some((major, minor)) => Self::cerebras(major, minor),
            None => self,
        }
    }

    pub fn is_hf(self) -> bool {
        self == Self::HuggingFace
    }

    pub fn is_cerebras(self) -> bool {
        self.release().is_some()
    }

    pub fn release(self) -> Option<Release> {
        match self {
            Self::HuggingFace | Self::Named(_) => None,
            Self::Cerebras(release) => Some(release),
        }
    }

    /// Returns the major and minor number of the release, `None` for other formats.
    pub fn version(self) -> Option<(u8, u8)> {
        self.release().map(|release| (release.major, release.minor))
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HuggingFace => f.write_str("hf"),
            Self::Named(name) => name.fmt(f),
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

impl FromStr for Implementation {
    type Err = Error;

    /// Parses `hf`, `cs-2.9`, `cs-2.9-dpo`, `cs-current`, or the name of a format in recipes. Does
    /// not accept `cs-auto`, whose meaning depends on the checkpoint.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::refused(format!("\"{text}\" is not a format"))
                .expected("hf, a release such as cs-2.9, or what a recipe calls a format")
                .advice(advice![Setting::ListConverters, " shows the formats of each model."])
        };
        match text {
            "hf" => return Ok(Self::HuggingFace),
            "cs-current" => return Ok(Self::CURRENT),
            _ => {}
        }
        let Some(rest) = text.strip_prefix("cs-") else {
            return FormatName::new(text).map(Self::Named).ok_or_else(bad);
        };
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
    fn parses_and_prints_format_names() {
        for name in
            ["hf", "cs-1.6", "cs-2.10", "cs-2.9-dpo", "cs-2.1-no-dpo", "cs-2.4-backbone", "meta"]
        {
            assert_eq!(name.parse::<Implementation>().unwrap().to_string(), name);
        }
        assert_eq!("cs-current".parse::<Implementation>().unwrap(), Implementation::CURRENT);
        assert_eq!(Implementation::of_version("2.10.0+abc"), Some(Implementation::cerebras(2, 10)));
        assert_eq!(Implementation::of_version("2.5rc1"), Some(Implementation::cerebras(2, 5)));
        assert_eq!(Implementation::of_version("new"), None);
    }

    #[test]
    fn releases_are_sorted() {
        assert!(Implementation::cerebras(2, 9) < Implementation::cerebras(2, 10));
        assert!(Implementation::RELEASES.is_sorted());
    }

    #[test]
    fn refuses_unknown_format_names() {
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
            "../meta",
            "a-name-that-is-longer-than-any",
        ] {
            let error = name.parse::<Implementation>().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("cs-"), "{error}");
        }
    }
}
