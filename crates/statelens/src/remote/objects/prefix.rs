//! Cerebras checkpoints in S3: a prefix with `__METADATA__` and an object for each tensor.

use std::sync::Arc;

use statelens_checkpoint::{Error, FileSet, Memory, Result, Scratch};
use statelens_formats::cerebras::s3::{self, METADATA};
use statelens_remote::{Streamed, Window};

use super::bucket::{Bucket, BucketObject};
use crate::all_cores::Requests;

/// Bytes of the largest `__METADATA__` that is read: more than a million tensors.
const MAX_METADATA: u64 = 1 << 30;

/// The first bytes of an HDF5 file.
const HDF5: &[u8] = b"\x89HDF";

/// Opens the files of the checkpoint at an address, with one request. `None` if the address is not
/// that of a bucket of S3, or if there is no `__METADATA__`: it may be that of a file.
pub(crate) fn open(url: &str, scratch: &Arc<dyn Scratch>) -> Result<Option<FileSet>> {
    let Some((name, key)) = s3::split(url) else { return Ok(None) };
    // The address of the metadata opens the checkpoint.
    let key = key.strip_suffix(METADATA).and_then(|key| key.strip_suffix('/')).unwrap_or(key);
    if name.is_empty() || !s3::may_be_prefix(key) {
        return Ok(None);
    }
    let bucket = Bucket::open(name)?;
    // The library distinguishes `key/` from `key`; most tools do not.
    let other = key.strip_suffix('/');
    for key in std::iter::once(key).chain(other) {
        let metadata = bucket.read_start(&format!("{key}/{METADATA}"), MAX_METADATA)?;
        // A server that ignores the rest of a path has sent the file.
        if let Some(metadata) = metadata.filter(|bytes| !bytes.starts_with(HDF5)) {
            return files(&bucket, &format!("s3://{name}/{key}"), key, metadata, scratch).map(Some);
        }
    }
    Ok(None)
}

fn files(
    bucket: &Bucket,
    address: &str,
    key: &str,
    metadata: Vec<u8>,
    scratch: &Arc<dyn Scratch>,
) -> Result<FileSet> {
    // Opening the checkpoint reports faults of the metadata.
    let objects = s3::objects(&metadata, Some(address)).unwrap_or_default();
    let mut files = FileSet::default()
        .noting_missed()
        .with_scratch(scratch.clone())
        .with_workers(Arc::new(Requests));
    files.push_remote(format!("{address}/{METADATA}"), Arc::new(Memory::from(metadata)), None);
    let window = Arc::new(Window::default());
    for (name, len) in objects {
        let source = Arc::new(BucketObject::new(bucket, format!("{key}/{name}"), len));
        let streamed = Streamed::new(source.clone(), window.clone(), files.count());
        files.push_remote(format!("{address}/{name}"), source, Some(Arc::new(streamed)));
    }
    Ok(files)
}

/// Explains that there is neither an object nor a checkpoint at an address.
pub(crate) fn nothing_there(error: Error, url: &str) -> Error {
    let is_absent = error.what().contains("does not exist");
    match is_absent && s3::split(url).is_some_and(|(_, key)| s3::may_be_prefix(key)) {
        true => error.advice(
            "Check the bucket and the key. There is no object with this key, and no \
             `__METADATA__` of a Cerebras checkpoint below it.",
        ),
        false => error,
    }
}
