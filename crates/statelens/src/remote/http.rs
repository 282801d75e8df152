//! Reads from web servers with `ureq`.

use std::io::Read as _;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use statelens_checkpoint::{Error, ReadAt, Result};
use statelens_remote::{Address, Fetch, Head, Identity, Meter, unreachable};
use ureq::http::{Response, Uri};
use ureq::{Agent, Body, ResponseExt as _};

use crate::waiting;

/// Bytes of the largest file that is fetched from a server without range requests; it is held in
/// memory.
const MAX_WHOLE_FILE: u64 = 256 << 20;

/// Shared by the whole process, to reuse connections.
static AGENT: LazyLock<Agent> = LazyLock::new(|| agent(8));

/// Returns an agent that follows this many redirects by itself.
pub(super) fn agent(redirects: u32) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(redirects)
        .max_redirects_will_error(false)
        .timeout_connect(Some(Duration::from_secs(15)))
        .timeout_recv_response(Some(Duration::from_secs(30)))
        .timeout_recv_body(Some(Duration::from_secs(300)))
        .user_agent(concat!("statelens/", env!("CARGO_PKG_VERSION")))
        .build();
    config.new_agent()
}

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
    if head.status == 206 && head.start.is_none() && !head.multipart && head.compression.is_none() {
        let host = host(url);
        return Err(Error::unsupported(format!(
            "{host} sent a part of the file and did not say which: `Content-Range` is missing"
        ))
        .advice("Download the file and open it from the disk."));
    }
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

/// Fetches a whole file of `len` bytes, or at most `most` bytes of one of unknown length. Sets `got`
/// to the number of bytes that arrived.
fn whole(url: &str, len: Option<u64>, most: u64, got: &mut u64) -> Result<Vec<u8>> {
    let url = url.to_owned();
    let (arrived, bytes) = waiting::wait(move || Ok(fetch_whole(&url, len, most)))?;
    *got = arrived;
    bytes
}

/// Returns the number of bytes that arrived, and the bytes if these are all.
fn fetch_whole(url: &str, len: Option<u64>, most: u64) -> (u64, Result<Vec<u8>>) {
    let wanted = len.unwrap_or(most).min(most);
    let time = time_for(wanted);
    let request = AGENT.get(url).config().timeout_recv_body(Some(time)).build();
    let mut response = match request.header("Accept-Encoding", "identity").call() {
        Ok(response) => response,
        Err(error) => return (0, Err(failed(url, &error))),
    };
    if let Some(name) = head(&response, url).compression {
        let error = Error::unsupported(format!(
            "{} compresses what it sends ({name}), although the request excludes that",
            host(url)
        ));
        return (
            0,
            Err(error.advice("Download the file with a browser and open it from the disk.")),
        );
    }
    let mut bytes = Vec::new();
    let started = Instant::now();
    let read = response.body_mut().as_reader().take(wanted).read_to_end(&mut bytes);
    let got = bytes.len() as u64;
    let sent = match len {
        Some(len) if got != len.min(most) => format!("{} sent {got} of {len} bytes", host(url)),
        _ if read.is_err() => format!("{} sent {got} bytes", host(url)),
        _ => return (got, Ok(bytes)),
    };
    let error = match started.elapsed() >= time {
        true => Error::io(format!("{sent} in {} s, which is too slow", time.as_secs()))
            .advice("Download the file and open it from the disk."),
        false => {
            let why = read.err().map_or(String::new(), |error| format!(": {error}"));
            Error::io(format!("{sent}, and then the connection ended{why}"))
                .advice("Try again later, or download the file and open it from the disk.")
        }
    };
    (got, Err(error))
}

/// Returns the time in which a whole file must arrive: a slow connection takes longer for a large
/// one.
fn time_for(len: u64) -> Duration {
    Duration::from_secs(60 + len / SLOWEST)
}

/// Bytes per second of the slowest connection over which a whole file is fetched.
const SLOWEST: u64 = 32 << 10;

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
    unreachable_at(&host(url), &AGENT, error)
}

/// Returns the error for a server that can't be reached.
pub(super) fn unreachable_at(host: &str, agent: &Agent, error: &ureq::Error) -> Error {
    let uri = format!("https://{host}/").parse::<Uri>();
    let proxy =
        agent.config().proxy().filter(|proxy| uri.is_ok_and(|uri| !proxy.is_no_proxy(&uri)));
    match proxy {
        Some(proxy) => unreachable(
            host,
            &format!("the request went through the proxy {}: {error}", proxy.host()),
        )
        .advice(
            "Check the address, your network connection, and the proxy in `HTTPS_PROXY`, \
             `HTTP_PROXY` or `ALL_PROXY`.",
        ),
        None => unreachable(host, &error.to_string()),
    }
}

fn host(url: &str) -> String {
    Address::parse(url).map(|address| address.host().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Opens a file on a server that answers each request with `answer`. Also returns the bytes that
    /// were charged.
    fn opened(answer: &'static str) -> (Error, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/m.safetensors", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let meter = Arc::new(Meter::new(1 << 20, ""));
        let opened = open(&Address::parse(&address).unwrap(), &meter);
        let error = opened.and_then(|found| found).unwrap_err();
        (error, meter.fetched())
    }

    #[test]
    fn refuses_parts_whose_position_is_not_known() {
        let (error, _) = opened("HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\n\r\nabcd");
        assert!(error.to_string().contains("`Content-Range` is missing"), "{error}");
    }

    /// What arrived of a whole file counts, even if the rest did not.
    #[test]
    fn charges_the_bytes_of_a_file_that_ends_early() {
        let (error, fetched) = opened(
            "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n0123456789",
        );
        assert!(error.to_string().contains("sent 10 of 1000 bytes"), "{error}");
        assert_eq!(fetched, 10);
    }

    #[test]
    fn whole_files_have_time_in_proportion_to_their_length() {
        assert!(time_for(200 << 20) > Duration::from_secs(200 * 8 / 4));
        assert!(time_for(0) >= Duration::from_secs(60));
    }
}
