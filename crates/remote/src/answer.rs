//! What a server's answer means.

use statelens_checkpoint::{Error, Result};

use crate::Address;

/// The head of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// Where the answer came from in the end, if it was redirected.
    pub url: Option<String>,
    /// The first byte of the part that was sent.
    pub start: Option<u64>,
    /// The length of the whole file, as `Content-Range` says it.
    pub total: Option<u64>,
    /// The length of what was sent.
    pub length: Option<u64>,
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub modified: Option<String>,
    /// Seconds to wait before the next request.
    pub retry_after: Option<u64>,
}

/// Which file, and which version of it, answers must come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Length in bytes.
    pub len: u64,
    /// The tag that changes with the content.
    pub etag: Option<String>,
    /// When it was last changed.
    pub modified: Option<String>,
}

/// How a file can be read, as its first answer tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// By ranges.
    Ranges(Identity),
    /// The server knows ranges, and how long the file is can't be seen.
    LengthUnknown,
    /// Only as a whole, of so many bytes; it may be taken from this answer.
    Whole(u64),
    /// There is nothing in it.
    Empty,
    /// The server does not have it, or not for us.
    Absent(Error),
}

/// What to do about an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<T> {
    /// Take it.
    Good(T),
    /// Ask again after so many seconds, or as usual; if that was the last try, this is why.
    Again(Option<u64>, Error),
    /// Give up.
    Stop(Error),
}

impl Head {
    /// Reads what matters of an answer's headers; names are given in lower case.
    pub fn new(status: u16, header: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name| header(name)?.trim().parse().ok();
        let mut head = Self {
            status,
            url: None,
            start: None,
            total: None,
            length: number("content-length"),
            etag: header("etag").filter(|etag| !etag.is_empty()),
            modified: header("last-modified"),
            retry_after: number("retry-after"),
        };
        // `bytes 0-99/1234`, or `bytes */1234` where there is no such part.
        if let Some(range) = header("content-range")
            && let Some((range, total)) =
                range.trim().strip_prefix("bytes ").and_then(|range| range.split_once('/'))
        {
            head.start = range.split_once('-').and_then(|(start, _)| start.trim().parse().ok());
            head.total = total.trim().parse().ok();
        }
        head
    }
}

/// Judges the first answer, to a request for the first `wanted` bytes, of which `got` came. A file
/// that comes only as a whole is taken up to `most` bytes.
pub fn begin(address: &Address, head: &Head, got: u64, wanted: u64, most: u64) -> Verdict<Begin> {
    let host = address.host();
    let short = head.total.is_some_and(|len| got != len.min(wanted));
    match (head.status, head.total) {
        (206, Some(len)) if short => Verdict::Again(None, ended(host, got, len.min(wanted), 0)),
        (206, _) if head.start.is_some_and(|start| start != 0) => Verdict::Stop(
            Error::io(format!("{host} sent another part of the file than the one that was asked for")),
        ),
        (206, Some(len)) => Verdict::Good(Begin::Ranges(Identity {
            len,
            etag: head.etag.clone(),
            modified: head.modified.clone(),
        })),
        (206, None) => Verdict::Good(Begin::LengthUnknown),
        (416, Some(0)) => Verdict::Good(Begin::Empty),
        (200, _) => match head.length {
            Some(0) => Verdict::Good(Begin::Empty),
            Some(len) if len <= most => Verdict::Good(Begin::Whole(len)),
            _ => Verdict::Stop(
                Error::unsupported(format!(
                    "{host} gives files only as a whole: it was asked for a part and began to send everything"
                ))
                .advice("Download the file and open it from the disk, or put it on a server that answers range requests."),
            ),
        },
        _ => match refused(address, head) {
            Verdict::Stop(error) if matches!(head.status, 401 | 403 | 404 | 410) => {
                Verdict::Good(Begin::Absent(error))
            }
            verdict => verdict,
        },
    }
}

/// The answer ended before the part did.
fn ended(host: &str, got: u64, wanted: u64, offset: u64) -> Error {
    Error::io(format!("{host} sent {got} of {wanted} bytes and ended"))
        .at(offset)
        .advice("Try again later: the connection may be bad, or the file on the server cut short.")
}

/// Judges an answer to a request for the bytes from `offset` of a file whose first answer was good.
/// `got` is how many of the `wanted` bytes came.
pub(crate) fn part(
    address: &Address,
    head: &Head,
    identity: &Identity,
    offset: u64,
    got: u64,
    wanted: u64,
) -> Verdict<()> {
    let host = address.host();
    match head.status {
        206 => {}
        // The file is not the one that was asked for by its tag, or is shorter now.
        200 if head.etag == identity.etag && head.length == Some(identity.len) => {
            return Verdict::Again(
                None,
                Error::io(format!("{host} sent the whole file where a part of it was asked for")),
            );
        }
        200 | 412 | 416 => return Verdict::Stop(changed(address)),
        _ => return refused(address, head),
    }
    if !identity.is_of(head) {
        return Verdict::Stop(changed(address));
    }
    if head.start.is_some_and(|start| start != offset) {
        return Verdict::Again(
            None,
            Error::io(format!(
                "{host} sent another part of the file than the one that was asked for"
            )),
        );
    }
    if got != wanted {
        return Verdict::Again(None, ended(host, got, wanted, offset));
    }
    Verdict::Good(())
}

impl Identity {
    /// Whether an answer is of the same version of the file, as far as it tells.
    fn is_of(&self, head: &Head) -> bool {
        let strong = |etag: &String| etag.trim_start_matches("W/").to_owned();
        let differ = |one: &Option<String>, other: &Option<String>| match (one, other) {
            (Some(one), Some(other)) => Some(strong(one) != strong(other)),
            _ => None,
        };
        if head.total.is_some_and(|total| total != self.len) {
            return false;
        }
        // Copies of a file on several machines may differ in their dates, and not in their tags.
        !differ(&self.etag, &head.etag)
            .or_else(|| differ(&self.modified, &head.modified))
            .unwrap_or(false)
    }
}

/// The file was replaced while it was read.
fn changed(address: &Address) -> Error {
    Error::io(format!("the file at {} was changed since it was opened", address.host()))
        .advice("Open it again.")
}

/// An answer without the file.
fn refused<T>(address: &Address, head: &Head) -> Verdict<T> {
    let host = address.host();
    let status = head.status;
    let error = |what: String, advice: &str| Error::io(what).advice(advice);
    match status {
        401 => Verdict::Stop(error(
            format!("{host} gives this file only to those who log in (401)"),
            "Statelens sends no passwords: download the file with your login and open it from the disk.",
        )),
        403 => Verdict::Stop(error(
            format!("{host} does not give out this file (403)"),
            "The link may have expired, or the file may be for some people only: get a new link, or download the file with your login.",
        )),
        404 | 410 => Verdict::Stop(error(
            format!("{host} has no such file ({status})"),
            "Compare the address with the one that your browser shows.",
        )),
        429 => Verdict::Again(
            head.retry_after,
            error(
                format!("{host} says that it was asked too often (429)"),
                "Wait a while, then try again.",
            ),
        ),
        408 | 425 | 500..=599 => Verdict::Again(
            head.retry_after,
            error(format!("{host} failed to answer ({status})"), "Try again later."),
        ),
        300..=399 => Verdict::Stop(error(
            format!(
                "{host} sends requests for this file elsewhere without end, or to no address ({status})"
            ),
            "Open the address in a browser, and copy the one that it leads to.",
        )),
        _ => Verdict::Stop(error(
            format!("{host} answered {status} instead of a part of the file"),
            "Open the address in a browser to see what it says.",
        )),
    }
}

impl<T> Verdict<T> {
    /// What to do after the try number `tried`: take what came, or wait so many milliseconds and
    /// try again.
    pub fn after(self, tried: u32) -> Result<Next<T>> {
        let (seconds, error) = match self {
            Self::Good(good) => return Ok(Next::Take(good)),
            Self::Again(seconds, error) => (seconds.unwrap_or(0), error),
            Self::Stop(error) => return Err(error),
        };
        if tried >= TRIES || seconds > MOST_PAUSE {
            return Err(error);
        }
        Ok(Next::Wait((PAUSE << (tried.max(1) - 1)).max(seconds * 1000)))
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<T> {
    /// Take it.
    Take(T),
    /// Wait so many milliseconds and ask again.
    Wait(u64),
}

/// How often a request is made before it is given up.
pub const TRIES: u32 = 4;
/// Milliseconds before the second try; twice as many before each further one.
const PAUSE: u64 = 300;
/// A server that wants a longer pause than this many seconds is told about instead.
const MOST_PAUSE: u64 = 10;
