//! Reads from web servers with `ureq`.

use std::io::Read as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use statelens_checkpoint::{Error, ReadAt, Result};
use statelens_remote::{Address, Fetch, Head, Identity, Meter, unreachable};
use ureq::http::{Response, Uri};
use ureq::{Agent, Body, ResponseExt as _};

use crate::waiting;

/// Bytes of the largest file that is fetched from a server without range requests; it is held in
/// memory.
const MAX_WHOLE_FILE: u64 = 256 << 20;

/// Shared by the whole process, to reuse connections.
static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(8)
        .max_redirects_will_error(false)
        .timeout_connect(Some(Duration::from_secs(15)))
        .timeout_recv_response(Some(Duration::from_secs(30)))
        .timeout_recv_body(Some(Duration::from_secs(300)))
        .user_agent(concat!("statelens/", env!("CARGO_PKG_VERSION")))
        .build();
    config.new_agent()
});

/// Opens a file on a web server; `Ok(Err(…))` if it does not exist.
pub(super) fn open(address: &Address, meter: &Arc<Meter>) -> Result<Result<Arc<dyn ReadAt>>> {
    statelens_remote::open(address, Client, meter, MAX_WHOLE_FILE, whole)
}

#[derive(Debug)]
struct Client;

impl Fetch for Client {
    fn fetch(
        &self,
        url: &str,
        identity: Option<&Identity>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(Head, usize)> {
        let (url, identity) = (url.to_owned(), identity.cloned());
        let mut bytes = vec![0; buffer.len()];
        let answer = waiting::wait(move || {
            let (head, got) = fetch(&url, identity.as_ref(), offset, &mut bytes)?;
            bytes.truncate(got);
            Ok((head, bytes))
        });
        let (head, bytes) = answer?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok((head, bytes.len()))
    }

    fn pause(&self, millis: u64) -> Result<()> {
        waiting::pause(Duration::from_millis(millis))
    }
}

/// Makes a request as [`Fetch::fetch`] does.
fn fetch(
    url: &str,
    identity: Option<&Identity>,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(Head, usize)> {
    let last = offset + buffer.len() as u64 - 1;
    let mut request = AGENT
        .get(url)
        .header("Range", format!("bytes={offset}-{last}"))
        .header("Accept-Encoding", "identity");
    // With a strong tag, the server sends the whole file instead of a part if the file has
    // changed.
    let tag = identity.and_then(|identity| identity.etag.as_deref());
    if let Some(tag) = tag.filter(|tag| tag.starts_with('"')) {
        request = request.header("If-Range", tag);
    }
    let mut response = request.call().map_err(|error| failed(url, &error))?;
    let head = head(&response, url);
    let mut got = 0;
    if head.is_part() {
        let mut body = response.body_mut().as_reader();
        while got < buffer.len() {
            match body.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // The caller compares the length received with the length expected.
                Err(_) => break,
            }
        }
    }
    Ok((head, got))
}

/// Fetches a whole file of `len` bytes, or at most `most` bytes of one of unknown length.
fn whole(url: &str, len: Option<u64>, most: u64) -> Result<Vec<u8>> {
    let url = url.to_owned();
    waiting::wait(move || fetch_whole(&url, len, most))
}

fn fetch_whole(url: &str, len: Option<u64>, most: u64) -> Result<Vec<u8>> {
    let request = AGENT.get(url).header("Accept-Encoding", "identity");
    let mut response = request.call().map_err(|error| failed(url, &error))?;
    if let Some(name) = head(&response, url).compression {
        return Err(Error::unsupported(format!(
            "{} compresses what it sends ({name}), although the request excludes that",
            host(url)
        ))
        .advice("Download the file with a browser and open it from the disk."));
    }
    let mut bytes = Vec::new();
    let mut body = response.body_mut().as_reader().take(len.unwrap_or(most).min(most));
    let read = body.read_to_end(&mut bytes);
    let wanted = match len {
        Some(len) if bytes.len() as u64 != len => format!("{} of {len} bytes", bytes.len()),
        _ if read.is_err() => format!("{} bytes", bytes.len()),
        _ => return Ok(bytes),
    };
    Err(Error::io(format!("{} sent {wanted} and closed the connection", host(url))))
}

fn head(response: &Response<Body>, url: &str) -> Head {
    let header = |name: &str| {
        let value = response.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let mut head = Head::new(response.status().as_u16(), header);
    let from = response.get_uri();
    head.url = (url.parse::<Uri>().ok().as_ref() != Some(from)).then(|| from.to_string());
    head
}

fn failed(url: &str, error: &ureq::Error) -> Error {
    let proxy = AGENT
        .config()
        .proxy()
        .filter(|proxy| url.parse::<Uri>().is_ok_and(|url| !proxy.is_no_proxy(&url)));
    match proxy {
        Some(proxy) => unreachable(
            &host(url),
            &format!("the request went through the proxy {}: {error}", proxy.host()),
        )
        .advice(
            "Check the address, your network connection, and the proxy in `HTTPS_PROXY`, \
             `HTTP_PROXY` or `ALL_PROXY`.",
        ),
        None => unreachable(&host(url), &error.to_string()),
    }
}

fn host(url: &str) -> String {
    Address::parse(url).map(|address| address.host().to_owned()).unwrap_or_default()
}
