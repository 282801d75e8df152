//! Requests to the Hub.

use std::fmt;
use std::io::Read as _;
use std::sync::{Arc, LazyLock};

use statelens_checkpoint::{Error, ErrorKind, ReadAt, Result};
use statelens_remote::hub::{Endpoint, HubFile, HubListing, HubLocation, HubRefusal, rate_limit};
use statelens_remote::{
    Address, Fetch, Head, Identity, Meter, Next, RemoteFile, Verdict, without_ranges,
};
use ureq::http::{Response, header::HeaderMap};
use ureq::{Agent, Body};

use super::super::http;
use super::settings::HubSettings;
use crate::waiting;

/// Bytes of the longest list of files that is read.
const MAX_LIST: u64 = 64 << 20;

/// Bytes before a range that are read and dropped if a server ignores ranges.
const MAX_SKIPPED: u64 = 16 << 20;

/// Redirects that are followed for a request.
const MAX_REDIRECTS: u32 = 8;

/// Seconds to wait for the Hub at most; if it demands more, the error is returned.
const MAX_WAIT: u64 = 10;

/// Follows no redirects by itself: they decide whether the token is sent.
static AGENT: LazyLock<Agent> = LazyLock::new(|| http::agent(0));

/// Makes requests with the settings of the environment.
#[derive(Debug, Clone)]
pub(super) struct HubClient {
    pub(super) settings: Arc<HubSettings>,
}

/// The methods of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Head,
}

/// Where a request to the Hub ended.
enum Reached {
    /// At an answer of the Hub.
    Hub(String, Response<Body>),
    /// At a redirect to another server, with the address and the headers.
    Elsewhere(String, HeaderMap),
}

impl HubClient {
    /// Requests the files of a repository at a revision.
    pub(super) fn listing(&self, location: &HubLocation, meter: &Arc<Meter>) -> Result<HubListing> {
        let endpoint = &self.settings.endpoint;
        let url = endpoint.info(location);
        let mut tried = 0;
        loop {
            meter.check(1, endpoint.host())?;
            let (client, url) = (self.clone(), url.clone());
            let answer = waiting::wait(move || client.get(&url));
            meter.count(answer.as_ref().map_or(0, |body| body.as_ref().map_or(0, Vec::len) as u64));
            let verdict = match answer {
                Ok(Ok(body)) => Verdict::Good(body),
                Ok(Err(refusal)) => {
                    let error = refusal.error(endpoint, &location.with_path(""));
                    match refusal.is_temporary() {
                        true => Verdict::Retry(refusal.wait, error),
                        false => Verdict::Stop(error),
                    }
                }
                Err(error) if error.kind() != ErrorKind::Io => Verdict::Stop(error),
                Err(error) => Verdict::Retry(None, error),
            };
            tried += 1;
            match verdict.after(tried)? {
                Next::Take(body) => return HubListing::parse(&body),
                Next::Wait(millis) => waiting::pause(std::time::Duration::from_millis(millis))?,
            }
        }
    }

    /// Returns a file of a repository at a commit. It makes no request before the first read.
    pub(super) fn file(
        &self,
        location: &HubLocation,
        commit: &str,
        file: &HubFile,
        meter: &Arc<Meter>,
    ) -> Result<Arc<dyn ReadAt>> {
        let resolve = self.settings.endpoint.resolve(location, commit, &file.path);
        let address = Address::exact(&resolve)?;
        let identity = Identity { len: file.size, ..Identity::default() };
        let fetch = HubFetch {
            client: self.clone(),
            location: location.at(commit).with_path(file.path.as_str()),
            resolve,
            commit: commit.to_owned(),
            sha256: file.sha256.clone(),
            size: file.size,
        };
        let remote = RemoteFile::new(address, fetch, identity, meter.clone(), Vec::new(), None);
        Ok(Arc::new(HubSource { remote, version: file.version() }))
    }

    /// Requests a whole text from the Hub.
    fn get(&self, url: &str) -> Result<Result<Vec<u8>, HubRefusal>> {
        let mut response = match self.request(Method::Get, url)? {
            Reached::Hub(_, response) => response,
            Reached::Elsewhere(..) => {
                let host = self.settings.endpoint.host();
                return Err(Error::refused(format!("{host} leads to another server"))
                    .advice("Check the address of the Hub, `HF_ENDPOINT`."));
            }
        };
        if response.status().as_u16() != 200 {
            return Ok(Err(self.refusal(&response)));
        }
        let host = self.settings.endpoint.host();
        let length = text(response.headers(), "content-length").and_then(|it| it.parse().ok());
        let mut body = Vec::new();
        let read = response.body_mut().as_reader().take(MAX_LIST + 1).read_to_end(&mut body);
        if body.len() as u64 > MAX_LIST {
            return Err(Error::limit(format!("{host} sent a list of more than 64 MiB")));
        }
        if read.is_err() || length.is_some_and(|length: u64| length != body.len() as u64) {
            return Err(Error::io(format!("{host} closed the connection too early"))
                .advice("Try again later."));
        }
        Ok(Ok(body))
    }

    fn refusal(&self, response: &Response<Body>) -> HubRefusal {
        let with_token = self.settings.token.is_some();
        let header = |name: &str| text(response.headers(), name);
        HubRefusal::new(response.status().as_u16(), with_token, header)
    }

    /// Makes a request, and follows redirects within the Hub.
    fn request(&self, method: Method, url: &str) -> Result<Reached> {
        let HubSettings { endpoint, token, .. } = &*self.settings;
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = match method {
                Method::Get => AGENT.get(&url),
                Method::Head => AGENT.head(&url),
            };
            request = request.header("Accept-Encoding", "identity");
            if let Some(token) = token {
                request = request.header("Authorization", token.header());
            }
            let response = request.call().map_err(|error| failed(endpoint.host(), &error))?;
            match redirect(&response, &url)? {
                None => return Ok(Reached::Hub(url, response)),
                Some(to) if endpoint.is_at(&to) => url = to,
                Some(to) => return Ok(Reached::Elsewhere(to, response.headers().clone())),
            }
        }
        Err(endless(endpoint.host()))
    }
}

/// Reads a file of the Hub by ranges.
#[derive(Clone)]
struct HubFetch {
    client: HubClient,
    location: HubLocation,
    /// The address of the file at the Hub.
    resolve: String,
    commit: String,
    sha256: Option<String>,
    size: u64,
}

impl Fetch for HubFetch {
    fn fetch(
        &self,
        url: &str,
        _: Option<&Identity>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(Head, usize)> {
        let (fetch, url, wanted) = (self.clone(), url.to_owned(), buffer.len());
        let (head, bytes) = waiting::wait(move || fetch.range(&url, offset, wanted))?;
        let got = bytes.len().min(buffer.len());
        buffer[..got].copy_from_slice(&bytes[..got]);
        Ok((head, got))
    }

    fn pause(&self, millis: u64) -> Result<()> {
        waiting::pause(std::time::Duration::from_millis(millis))
    }
}

impl HubFetch {
    /// Requests `wanted` bytes from `offset`, from the storage or the Hub.
    fn range(&self, url: &str, offset: u64, wanted: usize) -> Result<(Head, Vec<u8>)> {
        let HubSettings { endpoint, token, .. } = &*self.client.settings;
        let mut target = url.to_owned();
        if url == self.resolve {
            match self.locate()? {
                Ok(found) => target = found,
                Err(refusal) if refusal.is_temporary() && refusal.wait.unwrap_or(0) <= MAX_WAIT => {
                    let (status, retry_after) = (refusal.status, refusal.wait);
                    return Ok((Head { status, retry_after, ..Head::default() }, Vec::new()));
                }
                Err(refusal) => return Err(refusal.error(endpoint, &self.location)),
            }
        }
        let last = offset + wanted as u64 - 1;
        // Once the request has left the Hub, it never carries the token again.
        let mut at_hub = endpoint.is_at(&target);
        for _ in 0..=MAX_REDIRECTS {
            let mut request = AGENT
                .get(&target)
                .header("Range", format!("bytes={offset}-{last}"))
                .header("Accept-Encoding", "identity");
            if let Some(token) = token.as_ref().filter(|_| at_hub) {
                request = request.header("Authorization", token.header());
            }
            let response = request.call().map_err(|error| failed(&host_of(&target), &error))?;
            match redirect(&response, &target)? {
                Some(to) => {
                    at_hub &= endpoint.is_at(&to);
                    target = to;
                }
                None => return self.take(target, response, offset, wanted),
            }
        }
        Err(endless(endpoint.host()))
    }

    /// Takes the bytes of a response. If a server ignores ranges, drops those before the offset.
    fn take(
        &self,
        target: String,
        mut response: Response<Body>,
        offset: u64,
        wanted: usize,
    ) -> Result<(Head, Vec<u8>)> {
        let header = |name: &str| text(response.headers(), name);
        let mut head = Head::new(response.status().as_u16(), header);
        head.retry_after = rate_limit(header);
        let mut skipped = 0;
        if head.status == 200 && head.compression.is_none() {
            if offset > MAX_SKIPPED {
                return Err(without_ranges(&host_of(&target)));
            }
            skipped = offset;
            let length = head.length.unwrap_or(self.size);
            let end = length.min(offset + wanted as u64).saturating_sub(1);
            head = Head { status: 206, start: Some(offset), end: Some(end), ..head };
            head.total = Some(length);
        }
        head.url = (target != self.resolve).then_some(target);
        let mut bytes = Vec::new();
        if head.is_part() {
            let mut body = response.body_mut().as_reader();
            // The caller compares the length received with the length expected.
            let dropped = std::io::copy(&mut (&mut body).take(skipped), &mut std::io::sink());
            if dropped.is_ok() {
                let _ = body.take(wanted as u64).read_to_end(&mut bytes);
            }
        }
        Ok((head, bytes))
    }

    /// Requests the current address of the file's bytes, without a range.
    fn locate(&self) -> Result<Result<String, HubRefusal>> {
        match self.client.request(Method::Head, &self.resolve)? {
            Reached::Hub(url, response) => match response.status().as_u16() {
                200 => Ok(Ok(url)),
                _ => Ok(Err(self.client.refusal(&response))),
            },
            Reached::Elsewhere(url, headers) => {
                let of = |name: &str| text(&headers, name);
                let tag = of("x-linked-etag").map(|tag| tag.trim_matches('"').to_owned());
                let tag = tag.filter(|tag| tag.len() == 64);
                let is_other = tag.zip(self.sha256.clone()).is_some_and(|(one, two)| one != two)
                    || of("x-repo-commit").is_some_and(|commit| commit != self.commit)
                    || of("x-linked-size").is_some_and(|size| size != self.size.to_string());
                if is_other {
                    let host = self.client.settings.endpoint.host();
                    return Err(Error::refused(format!(
                        "{host} offers another file than it listed"
                    ))
                    .in_file(self.location.to_string())
                    .advice("Open it again."));
                }
                Ok(Ok(url))
            }
        }
    }
}

impl fmt::Debug for HubFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HubFetch({})", self.location)
    }
}

/// A file of the Hub, whose version is the checksum that the Hub lists.
struct HubSource {
    remote: RemoteFile<HubFetch>,
    version: Option<String>,
}

impl ReadAt for HubSource {
    fn len(&self) -> u64 {
        self.remote.len()
    }

    fn version(&self) -> Option<String> {
        self.version.clone()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.remote.read_at(offset, buffer)
    }
}

impl fmt::Debug for HubSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}

/// Returns the address to which a response leads, if it is a redirect.
fn redirect(response: &Response<Body>, url: &str) -> Result<Option<String>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let to = text(response.headers(), "location").unwrap_or_default();
    let to = Endpoint::redirected(url, &to).ok_or_else(|| {
        Error::refused(format!("{} leads to an address that is not safe to follow", host_of(url)))
            .advice("Check the address of the Hub, `HF_ENDPOINT`.")
    })?;
    Ok(Some(to))
}

fn endless(host: &str) -> Error {
    Error::refused(format!("{host} redirects the request endlessly"))
        .advice("Check the address of the Hub, `HF_ENDPOINT`.")
}

/// Returns the error of a request. Signed addresses give access to a file, so they are not shown.
fn failed(host: &str, error: &ureq::Error) -> Error {
    match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            Error::refused(format!("{host} sent an address that can't be requested"))
        }
        error => http::unreachable_at(host, &AGENT, error),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned()
}
