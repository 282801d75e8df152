//! Jobs in object stores: their small objects, and uploads that several processes share.

use std::sync::Arc;

use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use statelens_checkpoint::{Error, ReadAt, Result};

use super::{Location, StoreObject, store_error, wait};
use crate::job_store::{FOLDERS, JobStore};

/// A prefix of an object store.
pub(crate) struct Prefix(Location);

impl Prefix {
    /// Parses an address such as `s3://bucket/folder/`.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        Location::parse(url.trim_end_matches('/')).map(Self)
    }

    /// Takes the location of a folder.
    pub(super) fn of(folder: Location) -> Self {
        Self(folder)
    }

    fn at(&self, name: &str) -> Result<Location> {
        let path = match name {
            "" => self.0.path.clone(),
            name => Path::parse(format!("{}/{name}", self.0.path))
                .map_err(|error| Error::refused(format!("{error}")).in_file(self.0.address()))?,
        };
        Ok(Location { path, ..self.0.clone() })
    }

    fn put(&self, name: &str, bytes: &[u8], mode: PutMode) -> Result<bool> {
        let at = self.at(name)?;
        let options = PutOptions { mode, ..PutOptions::default() };
        match wait(at.store.put_opts(&at.path, PutPayload::from(bytes.to_vec()), options))? {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(store_error(&error, &at.address())),
        }
    }

    /// Lists all objects under the prefix, with their addresses.
    pub(crate) fn list(&self) -> Result<Vec<(String, ObjectMeta)>> {
        let mut open = vec![self.0.path.clone()];
        let mut found = Vec::new();
        while let Some(prefix) = open.pop() {
            let listed = wait(self.0.store.list_with_delimiter(Some(&prefix)))?;
            let listed = listed.map_err(|error| store_error(&error, &self.0.address()))?;
            open.extend(listed.common_prefixes);
            for object in listed.objects {
                found.push((format!("{}{}", self.0.bucket, object.location), object));
            }
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }
}

impl Prefix {
    /// Returns the files under the prefix, with their names relative to it.
    pub(crate) fn files(&self) -> Result<Vec<(String, Arc<dyn ReadAt>)>> {
        let folder = match self.0.path.as_ref() {
            "" => String::new(),
            path => format!("{path}/"),
        };
        let listed = self.list()?.into_iter();
        let files = listed.filter_map(|(_, object)| {
            let name = object.location.as_ref().strip_prefix(&folder)?.to_owned();
            let location = Location { path: object.location.clone(), ..self.0.clone() };
            let source = StoreObject { location, len: object.size, tag: object.e_tag };
            Some((name, Arc::new(source) as Arc<dyn ReadAt>))
        });
        Ok(files.collect())
    }
}

impl JobStore for Prefix {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let at = self.at(name)?;
        let got =
            wait(async { at.store.get_opts(&at.path, GetOptions::default()).await?.bytes().await });
        match got? {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(store_error(&error, &at.address())),
        }
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.put(name, bytes, PutMode::Create)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.put(name, bytes, PutMode::Overwrite).map(drop)
    }

    fn names(&self, folder: &str) -> Result<Vec<String>> {
        let at = self.at(folder)?;
        let listed = wait(at.store.list_with_delimiter(Some(&at.path)))?;
        let listed = listed.map_err(|error| store_error(&error, &at.address()))?;
        let names = listed.objects.iter().filter_map(|object| object.location.filename());
        Ok(names.map(str::to_owned).collect())
    }

    fn remove(&self) -> Result<()> {
        let mut names = Vec::new();
        for folder in FOLDERS {
            names.extend(self.names(folder)?.iter().map(|name| format!("{folder}/{name}")));
        }
        // The recipe is last, so that an interrupted removal can be repeated.
        for name in ["committed.json", "job.json"] {
            if self.read(name)?.is_some() {
                names.push(name.to_owned());
            }
        }
        for name in names {
            self.at(&name)?.remove()?;
        }
        Ok(())
    }
}

/// Begins a multipart upload of an object and returns its id.
pub(crate) fn begin_upload(url: &str) -> Result<String> {
    Location::parse(url)?.create_upload()
}

/// Returns whether an object exists, and its length in bytes.
pub(crate) fn exists_at(url: &str) -> Result<Option<u64>> {
    let at = Location::parse(url)?;
    match wait(at.store.head(&at.path))? {
        Ok(found) => Ok(Some(found.size)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(store_error(&error, url)),
    }
}

/// Sends one part and returns its name.
pub(crate) fn send_part(url: &str, id: &str, number: usize, bytes: Vec<u8>) -> Result<String> {
    let at = Location::parse(url)?;
    let id = id.to_owned();
    let part = wait(at.parts.put_part(&at.path, &id, number, PutPayload::from(bytes)))?;
    part.map(|part| part.content_id).map_err(|error| store_error(&error, url))
}

/// Completes an upload, after which the object exists; returns it for reading. An upload that was
/// completed before counts as complete if the object has `bytes` bytes.
pub(crate) fn complete_upload(
    url: &str,
    id: &str,
    parts: Vec<String>,
    bytes: u64,
) -> Result<Arc<dyn ReadAt>> {
    let at = Location::parse(url)?;
    let parts = parts.into_iter().map(|content_id| PartId { content_id }).collect();
    if let Err(error) = wait(at.parts.complete_multipart(&at.path, &id.to_owned(), parts))?
        && exists_at(url)? != Some(bytes)
    {
        return Err(store_error(&error, url));
    }
    at.open()?
}

/// Removes an object.
pub(crate) fn remove_object(url: &str) -> Result<()> {
    Location::parse(url)?.remove()
}

/// Aborts an upload, so that the store keeps none of its parts. Succeeds if the upload is gone.
pub(crate) fn abort_upload(url: &str, id: &str) -> Result<()> {
    let at = Location::parse(url)?;
    match wait(at.parts.abort_multipart(&at.path, &id.to_owned()))? {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(store_error(&error, url)),
    }
}
