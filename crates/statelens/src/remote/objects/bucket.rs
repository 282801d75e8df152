//! Requests to a bucket of S3 for objects of any name.
//!
//! `object_store` refuses keys with empty segments, `.` and `..`, and its client normalises paths. The
//! Cerebras library writes such keys, so these requests are built and signed here: AWS Signature
//! Version 4, <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>. The
//! configuration and the credentials are those that `object_store` finds.

use std::fmt;
use std::io::Read as _;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object_store::RetryConfig;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{Error, ObjectHeader, ReadAt, Result, hex, percent_encode};
use statelens_formats::cerebras::s3::NOT_FOUND;
use ureq::Agent;
use ureq::http::{HeaderMap, Request};

use super::{PATIENCE, exists, runtime, store_error, wait};
use crate::waiting;

/// How often a request is made.
const TRIES: u32 = 4;
/// Bytes of a response that is not the content of an object.
const MAX_TEXT: u64 = 16 << 20;

static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(Duration::from_secs(15)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_recv_body(Some(Duration::from_secs(300)))
        .user_agent(concat!("statelens/", env!("CARGO_PKG_VERSION")))
        .build();
    config.new_agent()
});

/// A bucket, with the settings and keys of requests to it.
#[derive(Clone)]
pub(crate) struct Bucket(Arc<Config>);

struct Config {
    name: String,
    /// Scheme and host, and the path of the bucket.
    base: String,
    host: String,
    /// The path of the bucket, percent-encoded.
    path: String,
    region: String,
    /// `None` if requests are not signed.
    credentials: Option<AwsCredentialProvider>,
}

/// A request.
#[derive(Clone, Default)]
pub(crate) struct ObjectRequest {
    pub(crate) method: &'static str,
    /// The key; empty for the bucket itself.
    pub(crate) key: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Bytes of the response that are read.
    pub(crate) most: u64,
}

/// A response, with its body as far as it was read.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Bucket {
    /// Returns the bucket with this name, as the environment configures it.
    pub(crate) fn open(name: &str) -> Result<Self> {
        runtime()?;
        let address = format!("s3://{name}");
        let retry = RetryConfig { retry_timeout: PATIENCE, max_retries: 6, ..Default::default() };
        let builder = AmazonS3Builder::from_env().with_bucket_name(name).with_retry(retry);
        let value = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
        let is_set = |key| value(key).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let region = value(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = value(AmazonS3ConfigKey::S3Endpoint)
            .or_else(|| value(AmazonS3ConfigKey::Endpoint))
            .unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let virtual_host = is_set(AmazonS3ConfigKey::VirtualHostedStyleRequest);
        let unsigned = is_set(AmazonS3ConfigKey::SkipSignature);
        let (_, rest) = endpoint.split_once("://").ok_or_else(|| {
            Error::unsupported(format!("the endpoint {endpoint} is not an address"))
                .in_file(&*address)
                .advice("Set AWS_ENDPOINT_URL to an address such as https://host.")
        })?;
        let (host, top) = rest.split_once('/').unwrap_or((rest, ""));
        let top = if top.is_empty() { String::new() } else { format!("/{top}") };
        let (host, top) = (host.to_owned(), top);
        let path = match virtual_host {
            true => top,
            false => format!("{top}/{}", encoded(name, false)),
        };
        let base = endpoint[..endpoint.len() - rest.len()].to_owned() + &host;
        let store = builder.build().map_err(|error| store_error(&error, &address))?;
        let credentials = (!unsigned).then(|| store.credentials().clone());
        Ok(Self(Arc::new(Config { name: name.to_owned(), base, host, path, region, credentials })))
    }

    /// Returns the address of an object.
    pub(crate) fn address(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.0.name)
    }

    /// Makes a request, several times if the server is busy or the connection ends.
    pub(crate) fn request(&self, request: &ObjectRequest) -> Result<Response> {
        let address = self.address(&request.key);
        let mut tries = 1;
        let credentials = match &self.0.credentials {
            Some(credentials) => {
                let found = wait(credentials.get_credential())?;
                Some(found.map_err(|error| store_error(&error, &address))?)
            }
            None => None,
        };
        loop {
            let response = self.attempt(request, credentials.as_deref());
            let is_busy = match &response {
                Ok(response) => response.status == 429 || response.status >= 500,
                Err(error) => error.kind() == statelens_checkpoint::ErrorKind::Io,
            };
            if !is_busy || tries == TRIES {
                return response.map_err(|error| error.in_file(address));
            }
            waiting::pause(Duration::from_millis(100 << tries))?;
            tries += 1;
        }
    }

    fn attempt(
        &self,
        request: &ObjectRequest,
        credentials: Option<&AwsCredential>,
    ) -> Result<Response> {
        let config = self.0.clone();
        let path = match request.key.as_str() {
            "" => config.path.clone(),
            key => format!("{}/{}", config.path, encoded(key, false)),
        };
        let mut query: Vec<(String, String)> = request
            .query
            .iter()
            .map(|(name, value)| (encoded(name, true), encoded(value, true)))
            .collect();
        query.sort();
        let query: Vec<String> =
            query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let query = query.join("&");
        let mut headers: Vec<(String, String)> = request
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        if let Some(found) = credentials {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let signing = Signing {
                key_id: &found.key_id,
                secret: &found.secret_key,
                token: found.token.as_deref(),
                region: &config.region,
                host: &config.host,
                now,
            };
            signing.sign(request.method, &path, &query, &mut headers, &request.body);
        }
        let mark = if query.is_empty() { "" } else { "?" };
        let uri = format!("{}{path}{mark}{query}", config.base);
        let (method, body, most) = (request.method, request.body.clone(), request.most);
        waiting::wait(move || send(method, &uri, &headers, body, most))
    }

    /// Returns the header of an object; an error with the code [`NOT_FOUND`] if it does not exist.
    pub(crate) fn head(&self, key: &str) -> Result<ObjectHeader> {
        let request =
            ObjectRequest { method: "HEAD", key: key.to_owned(), ..ObjectRequest::default() };
        let response = self.request(&request)?;
        self.check(&response, key)?;
        let metadata = response.header("x-amz-meta-metadata").map(str::to_owned);
        let len = response.header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
        Ok(ObjectHeader { metadata, len })
    }

    /// Fails unless a response reports success.
    pub(crate) fn check(&self, response: &Response, key: &str) -> Result<()> {
        let error = match response.status {
            200..=299 => return Ok(()),
            // Damage, so that the others are still read.
            404 => Error::damaged("the object does not exist")
                .coded(NOT_FOUND)
                .advice("Check the bucket and the key."),
            401 | 403 => Error::io("the store denies you access")
                .advice("Check the credentials in the environment, and their permissions."),
            412 => Error::io("the object has changed since it was opened").advice("Open it again."),
            409 => exists(),
            301 | 307 => {
                let region = response.header("x-amz-bucket-region").unwrap_or("another region");
                Error::io(format!("the bucket is in {region}"))
                    .advice("Set AWS_REGION to the region of the bucket.")
            }
            status => {
                let text = String::from_utf8_lossy(&response.body);
                let message = between(&text, "<Message>", "</Message>").next().unwrap_or_default();
                Error::io(format!("the store answered with status {status} {message}"))
                    .advice("Try again later.")
            }
        };
        Err(error.in_file(self.address(key)))
    }

    /// Reads an object from its start, at most `most` bytes. `None` if the store reports that it does
    /// not exist, or does not report whether it does.
    pub(crate) fn read_start(&self, key: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let range = format!("bytes=0-{}", most - 1);
        let request = ObjectRequest {
            method: "GET",
            key: key.to_owned(),
            headers: vec![("range", range)],
            most,
            ..ObjectRequest::default()
        };
        let response = self.request(&request)?;
        match response.status {
            401 | 403 | 404 => Ok(None),
            // An empty object has no range.
            416 => Ok(Some(Vec::new())),
            _ => {
                self.check(&response, key)?;
                let len = response.header("content-range").and_then(|range| range.rsplit_once('/'));
                let len = len.map(|(_, len)| len).or_else(|| response.header("content-length"));
                if len.and_then(|len| len.parse::<u64>().ok()).is_some_and(|len| len > most) {
                    return Err(Error::limit(format!("the object has more than {most} bytes"))
                        .in_file(self.address(key)));
                }
                Ok(Some(response.body))
            }
        }
    }
}

/// Writing.
impl Bucket {
    /// Writes an object with the user metadata `metadata`.
    pub(crate) fn put(&self, key: &str, metadata: Option<&str>, body: Vec<u8>) -> Result<()> {
        let headers = metadata.map(|text| ("x-amz-meta-metadata", text.to_owned()));
        let headers = headers.into_iter().collect();
        let response = self.with_body("PUT", key, Vec::new(), headers, body)?;
        self.check(&response, key)
    }

    /// Begins an upload in parts and returns its id.
    pub(crate) fn begin(&self, key: &str, metadata: Option<&str>) -> Result<String> {
        let headers = metadata.map(|text| ("x-amz-meta-metadata", text.to_owned()));
        let headers = headers.into_iter().collect();
        let query = vec![("uploads", String::new())];
        let response = self.with_body("POST", key, query, headers, Vec::new())?;
        self.check(&response, key)?;
        let text = String::from_utf8_lossy(&response.body);
        let id = between(&text, "<UploadId>", "</UploadId>").next().map(str::to_owned);
        id.ok_or_else(|| Error::io("the store did not begin an upload").in_file(self.address(key)))
    }

    /// Sends a part and returns its tag. The first has the number 1.
    pub(crate) fn put_part(
        &self,
        key: &str,
        id: &str,
        number: usize,
        body: Vec<u8>,
    ) -> Result<String> {
        let query = vec![("partNumber", number.to_string()), ("uploadId", id.to_owned())];
        let response = self.with_body("PUT", key, query, Vec::new(), body)?;
        self.check(&response, key)?;
        let tag = response.header("etag").map(str::to_owned);
        tag.ok_or_else(|| Error::io("the store gave a part no tag").in_file(self.address(key)))
    }

    /// Completes an upload from the tags of its parts.
    pub(crate) fn complete(&self, key: &str, id: &str, tags: &[String]) -> Result<()> {
        let mut body = "<CompleteMultipartUpload>".to_owned();
        for (at, tag) in tags.iter().enumerate() {
            let (number, tag) = (at + 1, tag.replace('"', "&quot;"));
            body += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        body += "</CompleteMultipartUpload>";
        let query = vec![("uploadId", id.to_owned())];
        let response = self.with_body("POST", key, query, Vec::new(), body.into_bytes())?;
        self.check(&response, key)?;
        // S3 may report an error after it has answered with success.
        match String::from_utf8_lossy(&response.body).contains("<Error>") {
            true => Err(Error::io("the store did not complete an upload")
                .in_file(self.address(key))
                .advice("Try again.")),
            false => Ok(()),
        }
    }

    /// Aborts an upload.
    pub(crate) fn abort(&self, key: &str, id: &str) -> Result<()> {
        let query = vec![("uploadId", id.to_owned())];
        self.with_body("DELETE", key, query, Vec::new(), Vec::new()).map(drop)
    }

    /// Removes an object. Succeeds if it does not exist.
    pub(crate) fn delete(&self, key: &str) -> Result<()> {
        let response = self.with_body("DELETE", key, Vec::new(), Vec::new(), Vec::new())?;
        if response.status == 404 { Ok(()) } else { self.check(&response, key) }
    }

    /// Returns whether any key begins with `start`; `None` if the user may not list the bucket.
    pub(crate) fn has_any(&self, start: &str) -> Result<Option<bool>> {
        let query = vec![
            ("list-type", "2".to_owned()),
            ("max-keys", "1".to_owned()),
            ("prefix", start.to_owned()),
        ];
        let response = self.with_body("GET", "", query, Vec::new(), Vec::new())?;
        if matches!(response.status, 401 | 403) {
            return Ok(None);
        }
        self.check(&response, "")?;
        let text = String::from_utf8_lossy(&response.body);
        Ok(Some(text.contains("<Contents>") || text.contains("<CommonPrefixes>")))
    }

    fn with_body(
        &self,
        method: &'static str,
        key: &str,
        query: Vec<(&'static str, String)>,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    ) -> Result<Response> {
        let key = key.to_owned();
        self.request(&ObjectRequest { method, key, query, headers, body, most: MAX_TEXT })
    }
}

/// Makes one request.
fn send(
    method: &str,
    uri: &str,
    headers: &[(String, String)],
    body: Vec<u8>,
    most: u64,
) -> Result<Response> {
    let failed = |error: &dyn fmt::Display| {
        Error::io(format!("the store can't be reached: {error}")).advice(
            "Check the address, the network, and the endpoint in the environment \
             (AWS_ENDPOINT_URL).",
        )
    };
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let sent = match method {
        "PUT" | "POST" => request.body(body).map(|request| AGENT.run(request)),
        _ => request.body(()).map(|request| AGENT.run(request)),
    };
    let mut reply = sent.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    let (status, headers) = (reply.status().as_u16(), reply.headers().clone());
    let mut body = Vec::new();
    if method != "HEAD" {
        let most = if (200..300).contains(&status) && most > 0 { most } else { MAX_TEXT };
        let read = reply.body_mut().as_reader().take(most).read_to_end(&mut body);
        read.map_err(|error| {
            Error::io(format!("the connection ended after {} bytes: {error}", body.len()))
                .advice("Try again later.")
        })?;
    }
    Ok(Response { status, headers, body })
}

/// Percent-encodes a key or a part of a query as the signature requires.
fn encoded(text: &str, slashes: bool) -> String {
    percent_encode(text.as_bytes(), |byte| {
        byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || byte == b'/' && !slashes
    })
}

/// Returns the texts between two marks.
pub(super) fn between<'a>(
    text: &'a str,
    before: &'a str,
    after: &'a str,
) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(move |rest| Some(rest.split_once(after)?.0))
}

/// What a signature is made with.
struct Signing<'a> {
    key_id: &'a str,
    secret: &'a str,
    token: Option<&'a str>,
    region: &'a str,
    host: &'a str,
    /// Seconds since 1970.
    now: u64,
}

impl Signing<'_> {
    /// Adds the headers of a signed request.
    fn sign(
        &self,
        method: &str,
        path: &str,
        query: &str,
        headers: &mut Vec<(String, String)>,
        body: &[u8],
    ) {
        let (day, time) = timestamp(self.now);
        let digest = hex(Sha256::digest(body).as_slice());
        headers.push(("x-amz-date".to_owned(), time.clone()));
        headers.push(("x-amz-content-sha256".to_owned(), digest.clone()));
        headers.extend(self.token.map(|token| ("x-amz-security-token".into(), token.into())));
        let mut signed: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (&**name, value.trim())).collect();
        signed.push(("host", self.host));
        signed.sort_unstable();
        let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String =
            signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{digest}");
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let hash = hex(Sha256::digest(canonical.as_bytes()).as_slice());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [&*day, self.region, "s3", "aws4_request", &text] {
            key = hmac(&key, part.as_bytes()).to_vec();
        }
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
            self.key_id,
            hex(&key)
        );
        headers.push(("authorization".to_owned(), authorization));
    }
}

/// Returns the HMAC-SHA-256 of a message (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    match key.len() > block.len() {
        true => block[..32].copy_from_slice(Sha256::digest(key).as_slice()),
        false => block[..key.len()].copy_from_slice(key),
    }
    let padded = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

/// Returns a time as `YYYYMMDD` and as `YYYYMMDDTHHMMSSZ`.
fn timestamp(seconds: u64) -> (String, String) {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Counts from 1 March of the year 0, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month < 10 {
        true => (era * 400 + year, month + 3),
        false => (era * 400 + year + 1, month - 9),
    };
    let day = format!("{year:04}{month:02}{date:02}");
    let time = format!("{day}T{:02}{:02}{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60);
    (day, time)
}

/// An object of a checkpoint. Its length is known from the metadata, so opening it makes no
/// request.
pub(crate) struct BucketObject {
    bucket: Bucket,
    key: String,
    /// The length that the metadata gives.
    known: Option<u64>,
    /// The length that the store gave.
    len: OnceLock<u64>,
    /// The tag of the version that was read first.
    tag: Mutex<Option<String>>,
}

impl BucketObject {
    /// Returns the object with a key. `known` is its length, if that is known.
    pub(crate) fn new(bucket: &Bucket, key: String, known: Option<u64>) -> Self {
        Self { bucket: bucket.clone(), key, known, len: OnceLock::new(), tag: Mutex::default() }
    }

    fn tag(&self) -> Option<String> {
        self.tag.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ReadAt for BucketObject {
    fn len(&self) -> u64 {
        // Reading an object that does not exist reports it.
        let ask = || self.bucket.head(&self.key).map_or(0, |header| header.len);
        match (self.len.get(), self.known) {
            (Some(len), _) => *len,
            (None, Some(len)) => len,
            (None, None) => *self.len.get_or_init(ask),
        }
    }

    fn overhead(&self) -> u64 {
        1 << 20
    }

    fn version(&self) -> Option<String> {
        self.tag()
    }

    fn described(&self) -> Result<Option<ObjectHeader>> {
        let header = self.bucket.head(&self.key)?;
        let _ = self.len.set(header.len);
        Ok(Some(header))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let len = buffer.len() as u64;
        let mut headers = vec![("range", format!("bytes={offset}-{}", offset + len - 1))];
        headers.extend(self.tag().map(|tag| ("if-match", tag)));
        let key = self.key.clone();
        let request =
            ObjectRequest { method: "GET", key, headers, most: len, ..ObjectRequest::default() };
        let response = self.bucket.request(&request)?;
        let address = || self.bucket.address(&self.key);
        if response.status == 412 {
            return Err(Error::io("the object has changed since it was opened")
                .advice("Open the checkpoint again.")
                .in_file(address()));
        }
        if response.status != 416 {
            self.bucket.check(&response, &self.key)?;
        }
        if response.status == 200 && offset > 0 {
            return Err(super::failed("non-partial response", &address()).in_file(address()));
        }
        if response.status == 416 || response.body.len() as u64 != len {
            let found = if response.status == 416 { 0 } else { response.body.len() as u64 };
            return Err(Error::damaged(format!(
                "{len} bytes should be there, but the object ends at byte {}",
                offset + found
            ))
            .at(offset)
            .in_file(address())
            .advice("It is not what `__METADATA__` describes. Verify the checkpoint."));
        }
        buffer.copy_from_slice(&response.body);
        let mut tag = self.tag.lock().unwrap_or_else(PoisonError::into_inner);
        if tag.is_none() {
            *tag = response.header("etag").map(str::to_owned);
        }
        Ok(())
    }
}

impl fmt::Debug for BucketObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.bucket.address(&self.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of "Signature Calculations for the Authorization Header" in the documentation of
    /// S3: GET of a range.
    #[test]
    fn signature_is_that_of_the_documentation() {
        let signing = Signing {
            key_id: "AKIAIOSFODNN7EXAMPLE",
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            token: None,
            region: "us-east-1",
            host: "examplebucket.s3.amazonaws.com",
            now: 1_369_353_600,
        };
        let mut headers = vec![("range".to_owned(), "bytes=0-9".to_owned())];
        signing.sign("GET", "/test.txt", "", &mut headers, b"");
        let (_, authorization) = headers.last().unwrap();
        let expected = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert!(authorization.ends_with(expected), "{authorization}");
    }

    #[test]
    fn times_are_written_as_dates() {
        for (seconds, expected) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(timestamp(seconds).1, expected);
        }
    }

    #[test]
    fn keys_keep_every_segment() {
        let keys = ["a//b", "../up", ".", "é 世", "a%2Fb?c#d+e*"];
        let expected = ["a//b", "../up", ".", "%C3%A9%20%E4%B8%96", "a%252Fb%3Fc%23d%2Be%2A"];
        for (key, expected) in keys.iter().zip(expected) {
            assert_eq!(encoded(key, false), expected);
        }
    }
}
