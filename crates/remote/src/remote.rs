//! A file on a server, read by ranges.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use statelens_checkpoint::{BLOCK, Error, ErrorKind, Memory, ReadAt, Result};

use crate::response::part;
use crate::{
    Address, Allowance, Begin, Head, Identity, Meter, Next, Verdict, begin, without_ranges,
};

/// Bytes of the first request.
pub const FIRST: usize = 2 * BLOCK as usize;
/// Maximum number of bytes of one request.
const PIECE: usize = 8 << 20;

/// Makes requests.
pub trait Fetch: fmt::Debug + Send + Sync {
    /// Requests `buffer.len()` bytes from `offset`, of the version that `identity` names if the
    /// implementation can express that. Fills the buffer from a part ([`Head::is_part`]) and
    /// returns the number of bytes received, at most the buffer's length; for other responses it is
    /// 0.
    ///
    /// # Errors
    ///
    /// If the connection failed ([`ErrorKind::Io`]), which is retried, or the request was refused.
    fn fetch(
        &self,
        url: &str,
        identity: Option<&Identity>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(Head, usize)>;

    /// Waits for `millis` milliseconds.
    fn pause(&self, millis: u64) -> Result<()>;
}

/// A file on a server.
pub struct RemoteFile<F> {
    address: Address,
    fetch: F,
    identity: Identity,
    meter: Arc<Meter>,
    /// The first bytes, from the first response.
    first: Vec<u8>,
    /// The address after redirects, so that they need not be followed for each part.
    direct: Mutex<Option<String>>,
    /// The action (see [`Meter`]) in which a request finally failed, and the error: further reads in
    /// that action return it at once instead of waiting again.
    failed: Mutex<Option<(Arc<Allowance>, Error)>>,
}

impl<F: Fetch> RemoteFile<F> {
    /// Creates a file from its first response: its identity and first bytes; `url` is the address
    /// after redirects.
    pub fn new(
        address: Address,
        fetch: F,
        identity: Identity,
        meter: Arc<Meter>,
        first: Vec<u8>,
        url: Option<String>,
    ) -> Self {
        Self {
            address,
            fetch,
            identity,
            meter,
            first,
            direct: Mutex::new(url),
            failed: Mutex::default(),
        }
    }

    /// Returns the current address of the file, after redirects. A caller may request parts from
    /// there by other means than [`ReadAt`], and should fall back to that on failure.
    pub fn url(&self) -> String {
        let direct = self.direct.lock().unwrap_or_else(PoisonError::into_inner).clone();
        direct.unwrap_or_else(|| self.address.to_string())
    }

    /// Returns whether a response holds the `wanted` bytes from `offset` of this version of the
    /// file.
    pub fn is_good(&self, head: &Head, offset: u64, got: u64, wanted: u64) -> bool {
        let verdict = part(&self.address, head, &self.identity, offset, got, wanted);
        matches!(verdict, Verdict::Good(()))
    }

    /// Returns the meter of its requests.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Makes requests until the buffer is full: a server may send less than a request names.
    fn piece(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            done += self.request(offset + done as u64, &mut buffer[done..])?;
        }
        Ok(())
    }

    /// Makes a request, with retries where these may help. Returns the number of bytes received.
    fn request(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut tried = 0;
        loop {
            let mut wanted = buffer.len() as u64;
            self.meter.check(wanted, self.address.host())?;
            let direct = self.direct.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let url = direct.clone().unwrap_or_else(|| self.address.to_string());
            let answer = self.fetch.fetch(&url, Some(&self.identity), offset, buffer);
            self.meter.count(answer.as_ref().map_or(0, |(_, got)| *got as u64));
            let verdict = match answer {
                Ok((head, got)) => {
                    // A redirect expires: the original address returns a new one.
                    if direct.is_some() && matches!(head.status, 400..=404 | 410) {
                        self.lead(None);
                        continue;
                    }
                    if let Some(part) = head.part().filter(|part| *part > 0) {
                        wanted = wanted.min(part);
                    }
                    let verdict =
                        part(&self.address, &head, &self.identity, offset, got as u64, wanted);
                    if direct.is_none() && matches!(verdict, Verdict::Good(())) {
                        self.lead(head.url);
                    }
                    verdict
                }
                Err(error) if error.kind() != ErrorKind::Io => {
                    return Err(error);
                }
                Err(error) => Verdict::Retry(None, error),
            };
            tried += 1;
            match verdict.after(tried)? {
                Next::Take(()) => return Ok(wanted as usize),
                Next::Wait(millis) => self.fetch.pause(millis)?,
            }
            self.lead(None);
        }
    }

    fn lead(&self, to: Option<String>) {
        *self.direct.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

impl<F: Fetch> ReadAt for RemoteFile<F> {
    fn version(&self) -> Option<String> {
        let Identity { etag, modified, .. } = &self.identity;
        etag.clone().or_else(|| modified.clone())
    }

    fn len(&self) -> u64 {
        self.identity.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).ok();
        let known = start.and_then(|start| self.first.get(start..)).unwrap_or_default();
        let len = known.len().min(buffer.len());
        let (head, rest) = buffer.split_at_mut(len);
        head.copy_from_slice(&known[..len]);
        let mut at = offset + len as u64;
        for piece in rest.chunks_mut(PIECE) {
            let action = self.meter.charged();
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, error)) = failed.as_ref().filter(|(at, _)| Arc::ptr_eq(at, &action)) {
                return Err(error.clone());
            }
            if let Err(error) = self.piece(at, piece) {
                // A limit holds for a number of bytes: fewer may be allowed.
                if error.kind() != ErrorKind::Limit {
                    *failed = Some((action, error.clone()));
                }
                return Err(error);
            }
            drop(failed);
            at += piece.len() as u64;
        }
        Ok(())
    }
}

impl<F> fmt::Debug for RemoteFile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.address.host())
    }
}

/// Opens a file: requests its first bytes, and determines its length and whether the server
/// supports ranges. A file that is sent only as a whole, or whose length is unknown, is fetched by
/// `whole`, up to `most` bytes; `whole` gets the length if it is known, and the maximum number of
/// bytes to return; it reports the bytes that arrived even if it fails. Returns `Ok(Err(…))` if the server does not have the file.
pub fn open<F: Fetch + 'static>(
    address: &Address,
    fetch: F,
    meter: &Arc<Meter>,
    most: u64,
    whole: impl FnOnce(&str, Option<u64>, u64, &mut u64) -> Result<Vec<u8>>,
) -> Result<Result<Arc<dyn ReadAt>>> {
    let (url, host) = (address.to_string(), address.host());
    let mut first = vec![0; FIRST];
    let mut tried = 0;
    loop {
        meter.check(FIRST as u64, host)?;
        let answer = fetch.fetch(&url, None, 0, &mut first);
        meter.count(answer.as_ref().map_or(0, |(_, got)| *got as u64));
        let (verdict, head, got) = match answer {
            Ok((head, got)) => (begin(address, &head, got as u64, FIRST as u64, most), head, got),
            Err(error) if error.kind() != ErrorKind::Io => return Err(error),
            Err(error) => (Verdict::Retry(None, error), Head::default(), 0),
        };
        tried += 1;
        let begin = match verdict.after(tried)? {
            Next::Take(begin) => begin,
            Next::Wait(millis) => {
                fetch.pause(millis)?;
                continue;
            }
        };
        let (len, too_long) = match begin {
            Begin::Ranges(identity) => {
                first.truncate(got);
                let meter = meter.clone();
                let remote =
                    RemoteFile::new(address.clone(), fetch, identity, meter, first, head.url);
                return Ok(Ok(Arc::new(remote)));
            }
            Begin::Whole(len) => (len, without_ranges(host)),
            Begin::LengthUnknown => (None, length_unknown(host)),
            Begin::Empty => (Some(0), without_ranges(host)),
            Begin::Absent(error) => return Ok(Err(error)),
        };
        if len == Some(0) {
            return Ok(Ok(Arc::new(Memory::from(Vec::new()))));
        }
        meter.check(len.unwrap_or(1), host)?;
        let most = most.min(meter.left());
        // One byte more shows that the file is too long.
        let mut got = 0;
        let bytes = whole(&url, len, most.saturating_add(1), &mut got);
        meter.count(got);
        let bytes = bytes?;
        if bytes.len() as u64 > most {
            return Err(too_long);
        }
        return Ok(Ok(Arc::new(Memory::from(bytes))));
    }
}

/// Returns the error for a server that sends parts without the length of the whole.
pub fn length_unknown(host: &str) -> Error {
    Error::unsupported(format!("{host} does not report the length of the file"))
        .advice("Download the file and open it from the disk.")
}

/// Returns the error for a server that can't be reached.
pub fn unreachable(host: &str, why: &str) -> Error {
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    Error::io(format!("{host} could not be reached{why}"))
        .advice("Check the address and your network connection.")
}
