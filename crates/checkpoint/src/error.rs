//! Errors, grouped by what the user can do about them.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{Advice, Setting};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error, which decides what the user can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file violates its format: download it again, or examine the damaged place.
    Damaged,
    /// The file is valid, but this program does not support it.
    Unsupported,
    /// Going on would exceed [`crate::Limits`].
    Limit,
    /// The operation would lose or overwrite something.
    Refused,
    /// The operating system failed to read or write.
    Io,
    /// The user cancelled the operation.
    Cancelled,
}

impl ErrorKind {
    /// Returns the stable name, which is the code of errors without a code of their own.
    pub fn code(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Unsupported => "unsupported",
            Self::Limit => "limit",
            Self::Refused => "refused",
            Self::Io => "io",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A message with the problem, its place, and the next step.
///
/// Two errors are equal if their messages are; causes are not compared.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<ErrorParts>);

#[derive(Clone)]
struct ErrorParts {
    kind: ErrorKind,
    code: Option<&'static str>,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
    what: String,
    file: Option<String>,
    offset: Option<u64>,
    expected: Option<String>,
    advice: Option<Advice>,
}

impl PartialEq for ErrorParts {
    fn eq(&self, other: &Self) -> bool {
        let compared = |inner: &Self| {
            let Self { kind, code, cause: _, what, file, offset, expected, advice } = inner.clone();
            (kind, code, what, file, offset, expected, advice)
        };
        compared(self) == compared(other)
    }
}

impl Eq for ErrorParts {}

impl Error {
    /// Creates an error of `kind`; `what` is a sentence without a full stop.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(ErrorParts {
            kind,
            code: None,
            cause: None,
            what: what.into(),
            file: None,
            offset: None,
            expected: None,
            advice: None,
        }))
    }

    /// Creates an error for a file that violates its format.
    pub fn damaged(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, what)
    }

    /// Creates an error for something that this program does not support.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, what)
    }

    /// Creates an error for a limit that was reached; `what` names the limit.
    pub fn limit(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Limit, what)
    }

    /// Creates an error for an operation that would lose data.
    pub fn refused(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, what)
    }

    /// Creates an error for a failed read or write.
    pub fn io(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Io, what)
    }

    /// Creates an error for an operation that the user cancelled.
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "stopped before it was finished; nothing was kept")
    }

    /// Sets the error's own code, unless an inner call already did: lower case, words joined by
    /// `-`, the same in all versions. Programs distinguish errors by it.
    #[must_use]
    pub fn coded(mut self, code: &'static str) -> Self {
        self.0.code.get_or_insert(code);
        self
    }

    /// Sets the cause, for [`std::error::Error::source`].
    #[must_use]
    pub fn caused_by(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.cause = Some(Arc::new(cause));
        self
    }

    /// Sets an error of the system as the cause, of which only the number is kept.
    #[must_use]
    pub fn caused_by_system(self, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => self.caused_by(io::Error::from_raw_os_error(number)),
            None => self,
        }
    }

    /// Sets the file name, unless an inner call already did.
    #[must_use]
    pub fn in_file(mut self, name: impl Into<String>) -> Self {
        self.0.file.get_or_insert_with(|| name.into());
        self
    }

    /// Sets the byte offset in the file, unless an inner call already did.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Sets what a valid file has in this place.
    #[must_use]
    pub fn expected(mut self, what: impl Into<String>) -> Self {
        self.0.expected = Some(what.into());
        self
    }

    /// Sets the advice.
    #[must_use]
    pub fn advice(mut self, what: impl Into<Advice>) -> Self {
        self.0.advice = Some(what.into());
        self
    }

    /// Prefixes the message with the larger operation that failed: `context: what`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.what = format!("{context}: {}", self.0.what);
        self
    }

    /// Returns the kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the code, for programs: the same in all versions, whatever the message. Errors
    /// without a code of their own have that of their kind ([`ErrorKind::code`]).
    pub fn code(&self) -> &'static str {
        self.0.code.unwrap_or_else(|| self.0.kind.code())
    }

    /// Returns the message, without place and advice.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Returns the file name.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// Returns the byte offset in that file.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Returns what a valid file has in this place.
    pub fn expectation(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }

    /// Returns the whole message, with the front end's names of settings in the advice.
    pub fn message(&self, name: impl Fn(Setting) -> &'static str) -> String {
        let mut message =
            Self(Box::new(ErrorParts { advice: None, ..*self.0.clone() })).to_string();
        if let Some(advice) = &self.0.advice {
            message.push(' ');
            message += &advice.sentence(name);
        }
        message
    }

    /// Returns the advice.
    pub fn next_step(&self) -> Option<&Advice> {
        self.0.advice.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorParts { what, file, offset, expected, advice, .. } = &*self.0;
        // A source in memory has no name.
        if let Some(file) = file.as_ref().filter(|file| !file.is_empty()) {
            write!(f, "{file}: ")?;
        }
        write!(f, "{what}")?;
        if let Some(offset) = offset {
            write!(f, " (at byte {offset})")?;
        }
        if let Some(expected) = expected {
            write!(f, "; expected {expected}")?;
        }
        write!(f, ".")?;
        if let Some(advice) = advice {
            write!(f, " {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    /// Writes the message, because Rust prints this form if `main` returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_states_problem_place_and_next_step() {
        let error = Error::damaged("the header ends too early")
            .at(12)
            .in_file("a.pt")
            .in_file("outer.pt")
            .expected("40 bytes")
            .advice("Fetch it again.");
        assert_eq!(
            error.to_string(),
            "a.pt: the header ends too early (at byte 12); expected 40 bytes. Fetch it again."
        );
    }

    #[test]
    fn keeps_codes_and_causes() {
        use std::error::Error as _;
        let cause = std::io::Error::other("the disk is on fire");
        let error = Error::io("reading failed").caused_by(cause);
        assert_eq!((error.code(), error.kind()), ("io", ErrorKind::Io));
        assert_eq!(error.source().unwrap().to_string(), "the disk is on fire");
        // Two errors with one message are equal, whatever their causes.
        assert_eq!(error, Error::io("reading failed"));
        let error = Error::refused("this file exists").coded("exists").coded("outer");
        assert_eq!(error.code(), "exists");
    }
}
