//! The sides of a table.

/// The two sides of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Hugging Face (`hf`), or the older release (`old`).
    Left,
    /// Cerebras (`cs`), or the newer release (`new`).
    Right,
}

impl Side {
    /// Returns the side for a word in a table.
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "hf" | "old" => Some(Self::Left),
            "cs" | "new" => Some(Self::Right),
            _ => None,
        }
    }

    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}
