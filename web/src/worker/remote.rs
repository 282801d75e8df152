//! Checkpoints at web addresses: parts of files are fetched when they are read.
//!
//! Reads are synchronous, as for files on disk, so parts are fetched by synchronous
//! `XMLHttpRequest`s, which workers may make. The first request for each file is a `fetch`, which
//! can be aborted when a server begins to send the whole file instead of a part.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use js_sys::{ArrayBuffer, Uint8Array};
use statelens_checkpoint::{Error, FileSet, Memory, ReadAt, Result};
use statelens_remote::{
    Address, Allowance, Begin, FIRST, Fetch, Head, Identity, Next, RemoteFile, Verdict, begin,
    length_unknown, unreachable, without_ranges,
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    AbortController, AbortSignal, RequestCache, RequestInit, RequestRedirect, Response,
    ResponseType, XmlHttpRequest, XmlHttpRequestResponseType,
};

use crate::open::message::FetchStats;
use crate::protocol::FromWorker;
use crate::worker::hub::HubAccess;
use crate::worker::job::Job;
use crate::worker::port::now;
use crate::worker::requests::{fetched, silent, text};

/// Timeout of a request in milliseconds; one more is added for each 50 bytes.
const TIMEOUT: u32 = 15_000;

/// The address of the open checkpoint, and the bytes fetched from there, for the page to show.
pub struct RemoteServer {
    url: String,
    host: String,
    via: RefCell<String>,
    without_ranges: Cell<bool>,
    /// Whether the user agreed to redirects to other servers.
    follow: bool,
    /// How files are located, if this is the Hugging Face Hub.
    hub: Option<HubAccess>,
    /// The number of requests last reported to the page.
    last_report: Cell<u64>,
}

/// A file that is read by parts.
pub type XhrFile = RemoteFile<Xhr>;

/// Returns a file whose length is known from a list, so that no request is made before it is read.
pub(crate) fn listed_file(
    address: Address,
    len: u64,
    hub: Option<HubAccess>,
    follow: bool,
    job: &Job,
) -> Arc<XhrFile> {
    let hub = hub.map(|hub| (address.to_string(), hub));
    let xhr = Xhr { within: (!follow).then(|| address.clone()), hub };
    let identity = Identity { len, etag: None, modified: None, names_parts: false };
    Arc::new(RemoteFile::new(address, xhr, identity, job.meter().clone(), Vec::new(), None))
}

/// Fetches a small file next to the open one; `None` if the server does not have it.
pub async fn fetch_sibling(
    server: &RemoteServer,
    name: &str,
    most: u64,
    job: &Job,
) -> Option<Vec<u8>> {
    let address = Address::exact(&server.url).ok()?.sibling(name)?;
    let (bytes, _) = first_request(address, server, job, server.follow).await.ok()?.ok()?;
    let mut files = FileSet::default();
    let id = files.push_remote(name, bytes, None);
    let len = Some(files.len(id)).filter(|len| *len <= most)?;
    let bytes = files.read_vec(id, 0, len).ok();
    server.report_fetched(job);
    bytes
}

impl RemoteServer {
    /// Describes the server of an address; `follow` if the user agreed to redirects to other
    /// servers.
    pub(crate) fn of(address: &Address, follow: bool, hub: Option<HubAccess>) -> Self {
        Self {
            url: address.to_string(),
            host: address.host().to_owned(),
            via: RefCell::default(),
            without_ranges: Cell::new(false),
            follow,
            hub,
            last_report: Cell::new(0),
        }
    }

    /// Returns the address that was opened.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the host name of the server.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Posts the bytes and requests so far, if they are more than at the last report.
    pub fn report_fetched(&self, job: &Job) {
        let meter = job.meter();
        let requests = meter.requests();
        if self.last_report.replace(requests) != requests {
            job.post(&FromWorker::Fetched(FetchStats {
                host: self.host.clone(),
                via: self.via.borrow().clone(),
                without_ranges: self.without_ranges.get(),
                bytes: meter.fetched(),
                requests,
            }));
        }
    }
}

/// A file's bytes, and the file itself if it is read by parts.
pub(crate) type FirstResponse = (Arc<dyn ReadAt>, Option<Arc<XhrFile>>);

/// Makes the first request for a file. Returns `Ok(Err(…))` if the server does not have the file.
/// Unless the user agreed, redirects are followed only to the address's own servers.
pub(crate) async fn first_request(
    address: Address,
    server: &RemoteServer,
    job: &Job,
    follow: bool,
) -> Result<Result<FirstResponse>> {
    let (url, host) = (address.to_string(), address.host());
    let meter = job.meter();
    let redirect = match follow || address.leads_on() {
        true => RequestRedirect::Follow,
        false => RequestRedirect::Manual,
    };
    let mut tried = 0;
    loop {
        meter.check(FIRST as u64, host)?;
        // The request to the Hub has no range, because an address that it returns for a range serves
        // that range only.
        let target = match &server.hub {
            None => url.clone(),
            Some(hub) => match hub.locate(&url).await {
                Ok(target) => target,
                Err(error) if error.code() == "hub-not-found" => return Ok(Err(error)),
                Err(error) => return Err(error),
            },
        };
        let (verdict, head, bytes, response) =
            match first(&target, redirect, server.hub.as_ref()).await {
                Ok((mut head, bytes, response, abort)) => {
                    if head.url.is_none() && target != url {
                        head.url = Some(target);
                    }
                    meter.count(bytes.len() as u64);
                    let stranger =
                        !follow && head.url.as_deref().is_some_and(|to| !leads(&address, to));
                    if stranger || response.type_() == ResponseType::Opaqueredirect {
                        abort.abort();
                        return Err(leads_elsewhere(host));
                    }
                    let most = meter.cap();
                    let verdict = begin(&address, &head, bytes.len() as u64, FIRST as u64, most);
                    if !matches!(verdict, Verdict::Good(Begin::Whole(_))) {
                        abort.abort();
                    }
                    (verdict, head, bytes, Some(response))
                }
                Err(reason) => {
                    (Verdict::Retry(None, silent(host, &reason)), Head::default(), Vec::new(), None)
                }
            };
        tried += 1;
        let began = match verdict.after(tried)? {
            Next::Take(began) => began,
            Next::Wait(millis) => {
                gloo_timers::future::TimeoutFuture::new(millis as u32).await;
                continue;
            }
        };
        let identity = match began {
            Begin::Ranges(identity) => identity,
            Begin::LengthUnknown => {
                let len = length(&url, redirect).await.ok_or_else(|| length_unknown(host))?;
                let (etag, modified) = (head.etag.clone(), head.modified.clone());
                Identity { len, etag, modified, names_parts: head.start.is_some() }
            }
            Begin::Whole(None) => return Err(without_ranges(host)),
            Begin::Whole(Some(len)) => {
                meter.check(len, host)?;
                let bytes = match &response {
                    Some(response) => body(response).await,
                    None => Err(String::new()),
                };
                let bytes = bytes.map_err(|reason| unreachable(host, &reason))?;
                meter.count(bytes.len() as u64);
                if bytes.len() as u64 != len {
                    return Err(Error::io(format!(
                        "{host} sent {} of {len} bytes and closed the connection",
                        bytes.len()
                    )));
                }
                server.without_ranges.set(true);
                return Ok(Ok((Arc::new(Memory::from(bytes)), None)));
            }
            Begin::Empty => return Ok(Ok((Arc::new(Memory::from(Vec::new())), None))),
            Begin::Absent(error) => return Ok(Err(error)),
        };
        if let Some(url) = head.url.as_deref().and_then(|url| Address::exact(url).ok()) {
            server.via.replace(url.host().to_owned());
        }
        let xhr = Xhr {
            within: (!follow).then(|| address.clone()),
            hub: server.hub.clone().map(|hub| (url.clone(), hub)),
        };
        let remote =
            Arc::new(RemoteFile::new(address, xhr, identity, meter.clone(), bytes, head.url));
        return Ok(Ok((remote.clone(), Some(remote))));
    }
}

/// Returns whether a redirect from an address stays among the server's own hosts.
fn leads(address: &Address, to: &str) -> bool {
    Address::exact(to).is_ok_and(|to| address.may_lead_to(to.host()))
}

/// Returns the error for a redirect that the user did not agree to.
fn leads_elsewhere(host: &str) -> Error {
    Error::refused(format!("{host} redirects requests for this file to another address"))
        .advice("The browser reveals its name only after a request to it. Statelens sends no request to another server without your consent.")
}

/// Requests a part of a file asynchronously; `None` if the response is not as expected. Redirects
/// are refused: the request goes only to the known location of the file. The bytes are charged to
/// `charged`, since another job may have its turn when they arrive.
pub async fn part(
    file: Arc<XhrFile>,
    offset: u64,
    len: u64,
    signal: Option<AbortSignal>,
    charged: Arc<Allowance>,
) -> Option<Uint8Array> {
    let init = request(offset, len, None);
    init.set_redirect(RequestRedirect::Error);
    init.set_cache(RequestCache::NoStore);
    init.set_signal(signal.as_ref());
    let got = async {
        let response = fetched(&file.url(), &init).await.ok()?;
        let head = head(&response);
        let promise = response.array_buffer().ok().filter(|_| head.is_part())?;
        Some((head, Uint8Array::new(&JsFuture::from(promise).await.ok()?)))
    };
    let got = got.await;
    let received = got.as_ref().map_or(0, |(_, bytes)| bytes.length().into());
    file.meter().count_for(&charged, received);
    let (head, bytes) = got?;
    file.is_good(&head, offset, bytes.length().into(), len).then_some(bytes)
}

/// Requests the first bytes; reads the body only if the response is partial.
async fn first(
    url: &str,
    redirect: RequestRedirect,
    hub: Option<&HubAccess>,
) -> std::result::Result<(Head, Vec<u8>, Response, AbortController), String> {
    let abort = AbortController::new().map_err(|error| text(&error))?;
    let init = request(0, FIRST as u64, hub.and_then(|hub| hub.authorization(url)));
    init.set_signal(Some(&abort.signal()));
    init.set_redirect(redirect);
    // The browser's cache may hold an older version of the file than the one the rest comes from.
    init.set_cache(RequestCache::NoCache);
    let response = fetched(url, &init).await?;
    let mut head = head(&response);
    head.url = Some(response.url()).filter(|to| response.redirected() && !to.is_empty());
    let bytes = if head.is_part() { body(&response).await? } else { Vec::new() };
    Ok((head, bytes, response, abort))
}

/// Builds a request for a part, with this value of `Authorization`.
fn request(offset: u64, len: u64, authorization: Option<String>) -> RequestInit {
    let headers = js_sys::Object::new();
    let range = format!("bytes={offset}-{}", offset + len - 1);
    crate::messages::set(&headers, "Range", &range.into());
    if let Some(value) = authorization {
        crate::messages::set(&headers, "Authorization", &value.into());
    }
    let init = RequestInit::new();
    init.set_headers(&headers);
    init
}

fn head(response: &Response) -> Head {
    let names = response.headers();
    Head::new(response.status(), |name| names.get(name).ok().flatten())
}

async fn body(response: &Response) -> std::result::Result<Vec<u8>, String> {
    let promise = response.array_buffer().map_err(|error| text(&error))?;
    let buffer = JsFuture::from(promise).await.map_err(|error| text(&error))?;
    Ok(Uint8Array::new(&buffer).to_vec())
}

/// Returns the length of a file, for servers that hide it from pages in the response to a range
/// request.
async fn length(url: &str, redirect: RequestRedirect) -> Option<u64> {
    let init = RequestInit::new();
    init.set_method("HEAD");
    init.set_redirect(redirect);
    init.set_cache(RequestCache::NoCache);
    let response = fetched(url, &init).await.ok().filter(Response::ok)?;
    response.headers().get("content-length").ok()??.parse().ok()
}

/// Makes synchronous requests.
#[derive(Debug)]
pub struct Xhr {
    /// The address whose server's own hosts are the only ones that redirects may lead to.
    within: Option<Address>,
    /// The address of the file at the Hugging Face Hub, and how its bytes are located.
    hub: Option<(String, HubAccess)>,
}

impl Fetch for Xhr {
    fn fetch(
        &self,
        url: &str,
        _: Option<&Identity>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(Head, usize)> {
        let failed = |error: JsValue| {
            let host =
                Address::parse_prefix(url).map(|at| at.host().to_owned()).unwrap_or_default();
            unreachable(&host, &text(&error))
        };
        let mut target = url.to_owned();
        if let Some((_, hub)) = self.hub.as_ref().filter(|(at, _)| at == url) {
            target = hub.locate_now(url)?;
        }
        let xhr = XmlHttpRequest::new().map_err(failed)?;
        xhr.open_with_async("GET", &target, false).map_err(failed)?;
        xhr.set_response_type(XmlHttpRequestResponseType::Arraybuffer);
        xhr.set_timeout(TIMEOUT + buffer.len() as u32 / 50);
        // Sent without `If-Range`, which needs support by the server: the tag is compared instead.
        let last = offset + buffer.len() as u64 - 1;
        xhr.set_request_header("Range", &format!("bytes={offset}-{last}")).map_err(failed)?;
        if let Some(value) = self.hub.as_ref().and_then(|(_, hub)| hub.authorization(&target)) {
            xhr.set_request_header("Authorization", &value).map_err(failed)?;
        }
        xhr.send().map_err(failed)?;
        // Reading a header that is hidden from the page would log an error in the console.
        let headers = lines(&xhr.get_all_response_headers().map_err(failed)?);
        let mut head = Head::new(xhr.status().map_err(failed)?, |name| {
            headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        });
        head.url = Some(xhr.response_url()).filter(|to| !to.is_empty() && to != url);
        if let (Some(address), Some(to)) = (&self.within, &head.url)
            && !leads(address, to)
        {
            return Err(leads_elsewhere(address.host()));
        }
        let mut got = 0;
        if head.is_part()
            && let Ok(bytes) = xhr.response().map_err(failed)?.dyn_into::<ArrayBuffer>()
        {
            let bytes = Uint8Array::new(&bytes);
            got = bytes.length() as usize;
            let fits = got.min(buffer.len());
            bytes.subarray(0, fits as u32).copy_to(&mut buffer[..fits]);
        }
        Ok((head, got))
    }

    /// Blocks the worker, as every synchronous read does; the page terminates a worker that it no
    /// longer needs.
    fn pause(&self, millis: u64) -> Result<()> {
        let until = now() + millis as f64;
        while now() < until {}
        Ok(())
    }
}

/// Returns the header lines of a response: names in lower case, and values.
fn lines(head: &str) -> Vec<(String, String)> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let line =
        |(name, value): (&str, &str)| (name.trim().to_ascii_lowercase(), value.trim().to_owned());
    lines.map(line).collect()
}
