//! What a reader noticed and the user should know.

/// How much a [`Finding`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Unusual: look before you trust it.
    Warning,
    /// Data is missing, damaged or unfinished: what is here is not the whole checkpoint. Writing
    /// such a checkpoint anew is a loss, for the copy would look whole.
    Damage,
    /// Loading the file with the usual library would call code that nobody here knows.
    UnknownCode,
    /// It would harm whoever loads this file with the usual library.
    Danger,
}

/// One thing that a reader noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub grade: Grade,
    /// A plain sentence without its full stop.
    pub title: String,
    /// Why that is so; whole sentences, may be empty.
    pub detail: String,
    /// File and offset, or the key, where it was seen; may be empty.
    pub place: String,
    /// What to do; whole sentences, may be empty.
    pub advice: String,
    /// The call that a pickle asks for, when the finding is about one. It was not made.
    pub call: Option<LoaderCall>,
    /// Names of the files that are missing, when the finding is about that: with them beside the
    /// others the checkpoint would be whole.
    pub missing: Vec<String>,
    /// What is in those files is not known, so that not even its keys are among the others.
    pub unlisted: bool,
    /// The format's usual library refuses the file because of this. Verifying fails.
    pub refused: bool,
    /// A copy leaves out what the finding is about: writing one is a loss.
    pub left_out: bool,
}

impl Finding {
    /// A finding with only a title.
    pub fn new(grade: Grade, title: impl Into<String>) -> Self {
        Self {
            grade,
            title: title.into(),
            detail: String::new(),
            place: String::new(),
            advice: String::new(),
            call: None,
            missing: Vec::new(),
            unlisted: false,
            refused: false,
            left_out: false,
        }
    }

    /// Adds why that is so.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds where it was seen.
    #[must_use]
    pub fn place(mut self, place: impl Into<String>) -> Self {
        self.place = place.into();
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// Adds the names of the files that are missing.
    #[must_use]
    pub fn missing(mut self, files: Vec<String>) -> Self {
        self.missing = files;
        self
    }

    /// Adds that the format's usual library refuses the file.
    #[must_use]
    pub fn refused(mut self) -> Self {
        self.refused = true;
        self
    }

    /// Adds that a copy leaves out what the finding is about.
    #[must_use]
    pub fn left_out(mut self) -> Self {
        self.left_out = true;
        self
    }

    /// Adds whether the keys of what is in those files are unknown.
    #[must_use]
    pub fn unlisted(mut self, unlisted: bool) -> Self {
        self.unlisted = unlisted;
        self
    }
}

/// A call that a pickle asks its loader to make. Statelens never makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoaderCall {
    /// Dotted module, e.g. `os`.
    pub module: String,
    /// Name in the module, e.g. `system`.
    pub name: String,
    /// The arguments as short text, empty if it is only named, not called.
    pub arguments: String,
}
