//! Object stores, accessed with the crate `object_store`. Credentials come from the usual
//! environment variables.

pub(crate) mod bucket;
mod jobs;
pub(super) mod prefix;
mod upload;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, ObjectStoreScheme, RetryConfig,
};
use statelens_checkpoint::{Error, ReadAt, Result};
use tokio::runtime::Runtime;
use url::Url;

pub(crate) use jobs::{
    Prefix, abort_upload, begin_upload, complete_upload, exists_at, remove_object, send_part,
};
pub(crate) use upload::{ObjectSink, PartRange};

/// Time for which a request is retried.
const PATIENCE: Duration = Duration::from_secs(60);

/// The runtime for requests. The threads that wait for them are not its own.
static RUNTIME: LazyLock<std::io::Result<Runtime>> = LazyLock::new(|| {
    // The provider that `ureq` uses; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
});

/// The location of an object.
#[derive(Clone)]
pub(crate) struct Location {
    /// The bucket, as in `s3://bucket/`.
    bucket: String,
    store: Arc<dyn ObjectStore>,
    parts: Arc<dyn MultipartStore>,
    path: Path,
}

impl Location {
    /// Parses an address such as `s3://bucket/folder/file`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // Creating a client requires the cryptography provider that this installs.
        runtime()?;
        let bad = |why: String| Error::unsupported(why).in_file(text);
        let url =
            Url::parse(text).map_err(|error| bad(format!("this is not an address: {error}")))?;
        let (scheme, path) =
            ObjectStoreScheme::parse(&url).map_err(|error| bad(format!("{error}")))?;
        if path.filename().is_none() || text.ends_with('/') {
            return Err(bad("this names a bucket or a folder, not a file".into()));
        }
        let retry = RetryConfig { retry_timeout: PATIENCE, max_retries: 6, ..Default::default() };
        // The bucket comes from the address, everything else from the environment.
        let failed = |error: object_store::Error| store_error(&error, text);
        let (store, parts): (Arc<dyn ObjectStore>, Arc<dyn MultipartStore>) = match scheme {
            ObjectStoreScheme::AmazonS3 => {
                let builder = AmazonS3Builder::from_env().with_url(text).with_retry(retry);
                let store = Arc::new(builder.build().map_err(failed)?);
                (store.clone(), store)
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                let mut builder = GoogleCloudStorageBuilder::from_env().with_url(text);
                // As in Google's own libraries; an emulator needs no credentials.
                if let Ok(host) = std::env::var("STORAGE_EMULATOR_HOST") {
                    let host = host.trim_end_matches('/');
                    let scheme = if host.contains("://") { "" } else { "http://" };
                    builder = builder.with_base_url(&format!("{scheme}{host}"));
                    builder = builder.with_skip_signature(true);
                }
                let store = Arc::new(builder.with_retry(retry).build().map_err(failed)?);
                (store.clone(), store)
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let builder = MicrosoftAzureBuilder::from_env().with_url(text);
                let store = Arc::new(builder.with_retry(retry).build().map_err(failed)?);
                (store.clone(), store)
            }
            _ => return Err(bad("this is not the address of an object store".into())),
        };
        let bucket = text.strip_suffix(url.path().trim_start_matches('/')).unwrap_or(text);
        Ok(Self { bucket: bucket.to_owned(), store, parts, path })
    }

    /// Returns the object's name without its folder.
    pub(crate) fn name(&self) -> String {
        self.path.filename().unwrap_or("checkpoint").to_owned()
    }

    /// Returns the object with a name relative to this one's folder; `None` for a name that leads
    /// out of it.
    pub(crate) fn sibling(&self, name: &str) -> Option<Self> {
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !name.split('/').all(plain) {
            return None;
        }
        let text = self.path.as_ref();
        let folder = &text[..text.rfind('/').map_or(0, |at| at + 1)];
        let path = Path::parse(format!("{folder}{name}")).ok()?;
        Some(Self { path, ..self.clone() })
    }

    /// Returns its folder.
    pub(crate) fn folder(&self) -> Prefix {
        let text = self.path.as_ref();
        let folder = text.rsplit_once('/').map_or("", |(folder, _)| folder);
        // A part of a path that was parsed can be parsed.
        let path = Path::parse(folder).unwrap_or_default();
        Prefix::of(Self { path, ..self.clone() })
    }

    /// Returns the address.
    fn address(&self) -> String {
        format!("{}{}", self.bucket, self.path)
    }

    /// Opens the object; `Ok(Err(…))` if it does not exist.
    pub(super) fn open(&self) -> Result<Result<Arc<dyn ReadAt>>> {
        let found = wait(self.store.head(&self.path))?;
        let found = match found {
            Ok(found) => found,
            Err(error) if is_absent(&error) => {
                return Ok(Err(store_error(&error, &self.address())));
            }
            Err(error) => return Err(store_error(&error, &self.address())),
        };
        Ok(Ok(Arc::new(StoreObject { location: self.clone(), len: found.size, tag: found.e_tag })))
    }

    /// Begins a multipart upload and returns its id.
    fn create_upload(&self) -> Result<String> {
        wait(self.parts.create_multipart(&self.path))?
            .map_err(|error| store_error(&error, &self.address()))
    }

    /// Removes the object.
    fn remove(&self) -> Result<()> {
        wait(self.store.delete(&self.path))?.map_err(|error| store_error(&error, &self.address()))
    }

    /// Returns whether the object exists.
    fn exists(&self) -> Result<bool> {
        match wait(self.store.head(&self.path))? {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(store_error(&error, &self.address())),
        }
    }
}

/// An open object. Reads are bound to the version that was opened.
struct StoreObject {
    location: Location,
    len: u64,
    tag: Option<String>,
}

impl ReadAt for StoreObject {
    fn len(&self) -> u64 {
        self.len
    }

    fn overhead(&self) -> u64 {
        1 << 20
    }

    fn version(&self) -> Option<String> {
        self.tag.clone()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let range = GetRange::Bounded(offset..offset + buffer.len() as u64);
        let options =
            GetOptions { range: Some(range), if_match: self.tag.clone(), ..Default::default() };
        let got = wait(async {
            self.location.store.get_opts(&self.location.path, options).await?.bytes().await
        })?;
        let bytes =
            got.map_err(|error| store_error(&error, &self.location.address()).at(offset))?;
        if bytes.len() != buffer.len() {
            return Err(Error::io(format!(
                "the store sent {} of {} bytes",
                bytes.len(),
                buffer.len()
            ))
            .at(offset));
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
}

impl fmt::Debug for StoreObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.location.address())
    }
}

fn runtime() -> Result<&'static Runtime> {
    RUNTIME.as_ref().map_err(|error| Error::io(format!("requests can't be made: {error}")))
}

fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    runtime()?.block_on(crate::waiting::checked(future))
}

/// Returns whether an object is missing. For users who may not list the bucket, a store reports a
/// missing object as "no permission".
fn is_absent(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(error, E::NotFound { .. } | E::PermissionDenied { .. } | E::Unauthenticated { .. })
}

/// Converts a store's error.
fn store_error(error: &object_store::Error, address: &str) -> Error {
    use object_store::Error as E;
    let error = match error {
        E::NotFound { .. } => {
            Error::io("the object does not exist").advice("Check the bucket and the key.")
        }
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            Error::io("the store denies you access")
                .advice("Check the credentials in the environment, and their permissions.")
        }
        E::Precondition { .. } | E::NotModified { .. } => {
            Error::io("the object has changed since it was opened").advice("Open it again.")
        }
        E::AlreadyExists { .. } => exists(),
        other => failed(&words(other), address),
    };
    error.in_file(address)
}

/// Converts a failure of the library itself, recognised by its message.
fn failed(words: &str, address: &str) -> Error {
    let says = |part: &str| words.contains(part);
    if says("non-partial response") {
        return Error::unsupported(
            "the store does not support range requests: it began to send the whole object",
        )
        .advice("Fetch the object with the store's own tool, and open it from the disk.");
    }
    // Without credentials in the environment, the library requests those of the machine, which
    // exist only on cloud machines; an Azure account name has no such source.
    let own = ["latest/api/token", "computeMetadata", "metadata/identity", "Account must be"];
    if own.into_iter().any(says) {
        let named = match address.split(':').next().unwrap_or_default() {
            "s3" | "s3a" => {
                "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket."
            }
            "gs" => {
                "Set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials, or GOOGLE_SKIP_SIGNATURE=true for a public bucket."
            }
            _ => {
                "Set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or AZURE_SKIP_SIGNATURE=true for a public container."
            }
        };
        return Error::io("there are no credentials for this store in the environment")
            .advice(named);
    }
    Error::io(words.to_owned()).advice(
        "Check the address, and the environment variables for the endpoint and the \
                 credentials.",
    )
}

/// Returns the message of an error with those of its causes, the innermost of which is the store's.
/// Leaves out the queries of addresses, which may hold a token.
fn words(error: &object_store::Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    let mut line = String::with_capacity(words.len());
    let mut in_query = false;
    for c in words.chars() {
        in_query = if in_query { !(c.is_whitespace() || "()\"'".contains(c)) } else { c == '?' };
        if !in_query {
            line.push(if c == '\n' { ' ' } else { c });
        }
    }
    line
}

fn exists() -> Error {
    Error::refused("this object already exists")
        .coded("exists")
        .advice("Name another one, or allow replacing it.")
}
