use std::sync::Arc;

use statelens_checkpoint::{FileSet, Limits, Memory, ObjectHeader, ReadAt, Result, Unwatched};
use statelens_formats::ScanOptions;

const METADATA: &[u8] = include_bytes!("../seeds/cerebras_s3/metadata.bin");
const OBJECT: &[u8] = include_bytes!("../seeds/cerebras_s3/object_z.bin");
/// The objects that the metadata of the seeds names.
const NAMES: [&str; 12] = [
    "w",
    "b",
    "n",
    "o",
    "z",
    "model.w",
    "model.b",
    "model.h",
    "model.flag",
    "model.n",
    "model.s",
    "cpu",
];

/// An object with its header.
#[derive(Debug)]
struct Object(Memory, Option<String>);

impl ReadAt for Object {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn described(&self) -> Result<Option<ObjectHeader>> {
        Ok(Some(ObjectHeader { metadata: self.1.clone(), len: self.len() }))
    }
}

/// Replaces the metadata of a sound checkpoint, or all its objects: the length of the header in two
/// bytes, the header, and the body.
pub(crate) fn run(bytes: &[u8]) {
    let is_metadata = bytes.first() == Some(&0x80);
    let (metadata, object) = if is_metadata { (bytes, OBJECT) } else { (METADATA, bytes) };
    let (len, rest) = object.split_first_chunk::<2>().unwrap_or((&[0, 0], object));
    let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
    let (header, body) = rest.split_at(len);
    let mut files = FileSet::default();
    files.push("s3://b/k/__METADATA__", Arc::new(Memory::from(metadata.to_vec())));
    for name in NAMES {
        let header = std::str::from_utf8(header).ok().map(str::to_owned);
        let object = Object(Memory::from(body.to_vec()), header);
        files.push(format!("s3://b/k/{name}"), Arc::new(object));
    }
    let _ = statelens_formats::scan(
        files.clone(),
        &Limits::default(),
        &ScanOptions::default(),
        &mut Unwatched,
    );
    if let Ok(checkpoint) =
        statelens_formats::open(files.clone(), &Limits::default(), &mut Unwatched)
    {
        let _ = statelens_formats::checks(&checkpoint, &Limits::default());
    }
    crate::examine_files(files);
}
