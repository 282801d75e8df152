//! Interprets a server's responses.

use statelens_checkpoint::{Error, Result};

use crate::Address;

/// The status and headers of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The HTTP status.
    pub status: u16,
    /// The final address, if the request was redirected.
    pub url: Option<String>,
    /// The first byte of the part that was sent.
    pub start: Option<u64>,
    /// The last byte of that part.
    pub end: Option<u64>,
    /// The length of the whole file, from `Content-Range`.
    pub total: Option<u64>,
    /// The length of the body.
    pub length: Option<u64>,
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub modified: Option<String>,
    /// Seconds to wait before the next request.
    pub retry_after: Option<u64>,
    /// The compression of the body, from `Content-Encoding`, if it is one.
    pub compression: Option<String>,
    /// Whether the body has several parts, each with headers of its own.
    pub multipart: bool,
}

/// The version of a file that all responses must come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Length in bytes.
    pub len: u64,
    /// The tag that changes with the content.
    pub etag: Option<String>,
    /// The date of the last change.
    pub modified: Option<String>,
    /// Whether the server names the part that it sends, in `Content-Range`. A page does not see that
    /// header from another site that does not expose it.
    pub names_parts: bool,
}

/// How a file can be read, according to the first response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// By ranges.
    Ranges(Identity),
    /// The server supports ranges, but does not reveal the length of the file.
    LengthUnknown,
    /// Only as a whole, with this length in bytes if it is known; it may be read from this
    /// response.
    Whole(Option<u64>),
    /// The file is empty.
    Empty,
    /// The server does not have the file, or does not give it to us.
    Absent(Error),
}

/// What to do about a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<T> {
    /// Use it.
    Good(T),
    /// Retry after this many seconds, or after the default pause; after the last try, return the
    /// error.
    Retry(Option<u64>, Error),
    /// Give up.
    Stop(Error),
}

impl Head {
    /// Reads the relevant headers of a response; `header` is called with names in lower case.
    pub fn new(status: u16, header: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name| header(name)?.trim().parse().ok();
        const COMPRESSIONS: [&str; 7] =
            ["gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd"];
        let compression = header("content-encoding").map(|name| name.trim().to_ascii_lowercase());
        let mut head = Self {
            status,
            url: None,
            start: None,
            end: None,
            total: None,
            length: number("content-length"),
            etag: header("etag").filter(|etag| !etag.is_empty()),
            modified: header("last-modified"),
            retry_after: number("retry-after"),
            compression: compression.filter(|name| COMPRESSIONS.contains(&name.as_str())),
            multipart: header("content-type")
                .is_some_and(|kind| kind.to_ascii_lowercase().starts_with("multipart/byteranges")),
        };
        // `bytes 0-99/1234`, or `bytes */1234` for a part outside the file.
        if let Some(range) = header("content-range")
            && let Some((range, total)) =
                range.trim().strip_prefix("bytes ").and_then(|range| range.split_once('/'))
        {
            let (start, end) = range.split_once('-').unwrap_or_default();
            (head.start, head.end) = (start.trim().parse().ok(), end.trim().parse().ok());
            head.total = total.trim().parse().ok();
        }
        head
    }

    /// Returns whether the body is a part of the file. Some servers send one with status 200.
    pub fn is_part(&self) -> bool {
        self.status == 206
            || self.status == 200 && self.part().is_some() && self.part() == self.length
    }

    /// Returns the number of bytes of the part, as `Content-Range` says.
    pub(crate) fn part(&self) -> Option<u64> {
        self.end?.checked_sub(self.start?)?.checked_add(1)
    }
}

/// Returns the error for a response that can't be read, if it is one.
fn unreadable(host: &str, head: &Head) -> Option<Error> {
    let what = match &head.compression {
        Some(name) => format!(
            "{host} compresses what it sends ({name}), although the request excludes that, so its \
             ranges are not those of the file"
        ),
        None if head.multipart => {
            format!("{host} sends a range as multipart/byteranges, which Statelens does not read")
        }
        None => return None,
    };
    let advice = "Download the file with a browser and open it from the disk, or switch that off \
                  on the server.";
    Some(Error::unsupported(what).advice(advice))
}

/// Returns the error for a server that sends only whole files, for one that is too large.
pub fn without_ranges(host: &str) -> Error {
    Error::unsupported(format!(
        "{host} does not support range requests: it began to send the whole file"
    ))
    .advice("Download the file and open it from the disk, or put it on a server that answers range requests.")
}

/// Judges the first response, to a request for the first `wanted` bytes, of which `got` arrived. A
/// file that the server sends only as a whole is accepted up to `most` bytes.
pub fn begin(address: &Address, head: &Head, got: u64, wanted: u64, most: u64) -> Verdict<Begin> {
    let host = address.host();
    if let Some(error) = unreadable(host, head).filter(|_| head.is_part()) {
        return Verdict::Stop(error);
    }
    // A server may send less than a request names, and says so.
    let sent = |len: u64| head.part().filter(|part| *part > 0).unwrap_or(len).min(len.min(wanted));
    match (head.is_part(), head.status, head.total) {
        (true, _, Some(len)) if got != sent(len) => {
            Verdict::Retry(None, ended(host, got, sent(len), 0))
        }
        (true, _, Some(_)) if head.start != Some(0) => Verdict::Stop(Error::io(format!(
            "{host} sent a different range than the requested one"
        ))),
        (true, _, Some(len)) => Verdict::Good(Begin::Ranges(Identity {
            len,
            etag: head.etag.clone(),
            modified: head.modified.clone(),
            names_parts: true,
        })),
        (true, _, None) => Verdict::Good(Begin::LengthUnknown),
        (_, 416, Some(0)) => Verdict::Good(Begin::Empty),
        (_, 200, Some(total)) if head.length.is_some_and(|len| len < total) => Verdict::Stop(
            Error::unsupported(format!(
                "{host} sent a part of the file as if it were the whole file"
            ))
            .advice("Download the file and open it from the disk."),
        ),
        (_, 200, _) => match head.length {
            Some(0) => Verdict::Good(Begin::Empty),
            Some(len) if len > most => Verdict::Stop(without_ranges(host)),
            len => Verdict::Good(Begin::Whole(len)),
        },
        _ => match refused(address, head) {
            Verdict::Stop(error) if matches!(head.status, 401 | 403 | 404 | 410) => {
                Verdict::Good(Begin::Absent(error))
            }
            verdict => verdict,
        },
    }
}

/// Returns the error for a response that ended too early.
fn ended(host: &str, got: u64, wanted: u64, offset: u64) -> Error {
    Error::io(format!("{host} sent {got} of {wanted} bytes and closed the connection"))
        .at(offset)
        .advice(
            "Try again later: the connection may be bad, or the file on the server may be cut \
                 short.",
        )
}

/// Judges a response to a request for the bytes from `offset`, after a good first response. `got`
/// of the `wanted` bytes arrived.
pub(crate) fn part(
    address: &Address,
    head: &Head,
    identity: &Identity,
    offset: u64,
    got: u64,
    wanted: u64,
) -> Verdict<()> {
    let host = address.host();
    if let Some(error) = unreadable(host, head).filter(|_| head.is_part()) {
        return Verdict::Stop(error);
    }
    match head.status {
        _ if head.is_part() => {}
        // If the server sent the same file as a whole, it ignored the range. Otherwise the tag
        // (200, 412) or the length (416) has changed.
        200 if head.etag == identity.etag && head.length == Some(identity.len) => {
            return Verdict::Retry(
                None,
                Error::io(format!("{host} sent the whole file instead of the requested range")),
            );
        }
        200 | 412 | 416 => return Verdict::Stop(changed(address)),
        _ => return refused(address, head),
    }
    if !identity.is_of(head) {
        return Verdict::Stop(changed(address));
    }
    if head.start.map_or(identity.names_parts, |start| start != offset) {
        let what = match head.start {
            Some(_) => "a different range than the requested one",
            None => "a part of the file without its position (Content-Range)",
        };
        return Verdict::Retry(None, Error::io(format!("{host} sent {what}")));
    }
    if got != wanted {
        return Verdict::Retry(None, ended(host, got, wanted, offset));
    }
    Verdict::Good(())
}

impl Identity {
    /// Returns whether a response is for the same version of the file, as far as it shows.
    fn is_of(&self, head: &Head) -> bool {
        let strong = |etag: &String| etag.trim_start_matches("W/").to_owned();
        let differ = |one: &Option<String>, other: &Option<String>| match (one, other) {
            (Some(one), Some(other)) => Some(strong(one) != strong(other)),
            _ => None,
        };
        if head.total.is_some_and(|total| total != self.len) {
            return false;
        }
        // Copies of a file on several machines may differ in their dates, but not in their tags.
        !differ(&self.etag, &head.etag)
            .or_else(|| differ(&self.modified, &head.modified))
            .unwrap_or(false)
    }
}

/// Returns the error for a file that was replaced while it was being read.
fn changed(address: &Address) -> Error {
    Error::io(format!("the file at {} has changed since it was opened", address.host()))
        .advice("Open it again.")
}

/// Judges a response without the file.
fn refused<T>(address: &Address, head: &Head) -> Verdict<T> {
    let host = address.host();
    let status = head.status;
    let error = |what: String, advice: &'static str| Error::io(what).advice(advice);
    match status {
        401 => Verdict::Stop(error(
            format!("{host} requires a login for this file (401)"),
            "Statelens sends no passwords: download the file with your login and open it from the disk.",
        )),
        403 => Verdict::Stop(error(
            format!("{host} denies access to this file (403)"),
            "The link may have expired, or the file may be private: get a new link, or download \
             the file with your login.",
        )),
        404 | 410 => Verdict::Stop(error(
            format!("{host} has no such file ({status})"),
            "Compare the address with the one that your browser shows.",
        )),
        429 => Verdict::Retry(
            head.retry_after,
            error(
                format!("{host} received too many requests (429)"),
                "Wait a while, then try again.",
            ),
        ),
        408 | 425 | 500..=599 => Verdict::Retry(
            head.retry_after,
            error(format!("{host} had an error ({status})"), "Try again later."),
        ),
        300..=399 => Verdict::Stop(error(
            format!(
                "{host} redirects requests for this file endlessly, or to no address ({status})"
            ),
            "Open the address in a browser, and copy the one that you end up at.",
        )),
        _ => Verdict::Stop(error(
            format!("{host} answered {status} instead of a part of the file"),
            "Open the address in a browser to see what it says.",
        )),
    }
}

impl<T> Verdict<T> {
    /// Returns the next step after try number `tried`: take the result, or wait this many
    /// milliseconds and try again.
    pub fn after(self, tried: u32) -> Result<Next<T>> {
        let (seconds, error) = match self {
            Self::Good(good) => return Ok(Next::Take(good)),
            Self::Retry(seconds, error) => (seconds.unwrap_or(0), error),
            Self::Stop(error) => return Err(error),
        };
        if tried >= TRIES || seconds > MAX_PAUSE {
            return Err(error);
        }
        Ok(Next::Wait((PAUSE << (tried.max(1) - 1)).max(seconds * 1000)))
    }
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<T> {
    /// Use the result.
    Take(T),
    /// Wait this many milliseconds and repeat the request.
    Wait(u64),
}

/// How often a request is made before giving up.
pub const TRIES: u32 = 4;
/// Milliseconds before the second try; doubled before each further one.
const PAUSE: u64 = 300;
/// If a server demands a longer pause than this many seconds, the error is returned instead.
const MAX_PAUSE: u64 = 10;
