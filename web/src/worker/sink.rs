//! Where a conversion's bytes go: a composition of slices, the origin's private file system, or
//! the file that a save dialog chose. None of them holds the output in the page's memory.

use js_sys::{Array, Uint8Array};
use statelens_checkpoint::{Error, Result, Span};
use statelens_convert::{Composed, Composition};
use statelens_tensor::Receive;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    Blob, FileSystemFileHandle, FileSystemReadWriteOptions, FileSystemSyncAccessHandle,
    FileSystemWritableFileStream,
};

use crate::protocol::conversion::How;
use crate::worker::sources::Sources;
use crate::worker::{blob, private};

/// What is collected before it is written: few and large writes are the fast ones.
const BUFFER: usize = 4 << 20;
/// Spans of the source that are shorter are copied into a composition, until they come to so much: a
/// slice takes a browser as long as it takes to read this.
const SHORT: u64 = 16 << 10;
const MOST_COPIED: u64 = 32 << 20;
/// What a browser without private files holds of an output at most.
const MOST_HELD: u64 = 512 << 20;

/// Where bytes go.
pub enum OutputSink {
    /// Slices and made bytes, put together at the end.
    Composed {
        /// The parts.
        composition: Composition,
        /// How much of the source was copied into it.
        copied: u64,
    },
    /// A file of the origin's private file system.
    Private {
        /// The file.
        file: FileSystemFileHandle,
        /// Its open end.
        access: FileSystemSyncAccessHandle,
        /// What is not written yet.
        buffer: Vec<u8>,
        /// How much is written.
        at: u64,
    },
    /// Blobs that the browser holds, put together at the end.
    Held {
        /// What is written.
        parts: Vec<Blob>,
        /// What is not written yet.
        buffer: Vec<u8>,
        /// How much is written.
        at: u64,
    },
    /// A file that the user chose.
    Chosen {
        /// The file.
        file: FileSystemFileHandle,
        /// The stream to it: nothing is in the file before it is closed.
        stream: FileSystemWritableFileStream,
        /// What is not written yet.
        buffer: Vec<u8>,
    },
}

impl OutputSink {
    /// A sink that puts slices together.
    #[must_use]
    pub fn composed() -> Self {
        Self::Composed { composition: Composition::default(), copied: 0 }
    }

    /// A sink in the private file system; in a browser that keeps none, as in some private windows, in what
    /// it holds of blobs.
    ///
    /// # Errors
    /// If the file can't be written.
    pub async fn private() -> Result<Self> {
        let Ok(file) = private::file().await else {
            return Ok(Self::Held { parts: Vec::new(), buffer: Vec::with_capacity(BUFFER), at: 0 });
        };
        let access = match wait(file.create_sync_access_handle()).await {
            Ok(access) => access.unchecked_into(),
            Err(error) => {
                private::remove(&file.name()).await;
                return Err(error);
            }
        };
        Ok(Self::Private { file, access, buffer: Vec::with_capacity(BUFFER), at: 0 })
    }

    /// A sink in the file that the save dialog chose.
    ///
    /// # Errors
    /// If the browser takes the permission back.
    pub async fn chosen(handle: JsValue) -> Result<Self> {
        let file: FileSystemFileHandle =
            handle.dyn_into().map_err(|_| Error::io("the save dialog gave no file"))?;
        let stream = wait(file.create_writable()).await?.unchecked_into();
        Ok(Self::Chosen { file, stream, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Adds a span of the source as it is, if that costs less than its bytes do; whether it did.
    pub fn takes(&mut self, span: Span) -> bool {
        let Self::Composed { composition, copied } = self else { return false };
        if span.len < SHORT && *copied < MOST_COPIED {
            *copied += span.len;
            return false;
        }
        composition.span(span);
        true
    }

    /// Adds bytes. They may stay in the buffer until [`OutputSink::flush`].
    pub fn put(&mut self, bytes: &[u8]) {
        match self {
            Self::Composed { composition, .. } => composition.bytes(bytes),
            Self::Private { buffer, .. }
            | Self::Held { buffer, .. }
            | Self::Chosen { buffer, .. } => buffer.extend_from_slice(bytes),
        }
    }

    /// Writes what is in the buffer, if it is enough or if nothing more will come.
    ///
    /// # Errors
    /// If the disk or the quota is full, or the file is gone.
    pub async fn flush(&mut self, all: bool) -> Result<()> {
        match self {
            Self::Composed { .. } => {}
            Self::Private { access, buffer, at, .. } => {
                if buffer.len() >= BUFFER || (all && !buffer.is_empty()) {
                    write_at(access, buffer, *at)?;
                    *at += buffer.len() as u64;
                    buffer.clear();
                }
            }
            Self::Held { parts, buffer, at } => {
                if buffer.len() >= BUFFER || (all && !buffer.is_empty()) {
                    *at += buffer.len() as u64;
                    if *at > MOST_HELD {
                        return Err(no_private_files());
                    }
                    parts.push(joined(&[Uint8Array::from(buffer.as_slice()).into()])?);
                    buffer.clear();
                }
            }
            Self::Chosen { stream, buffer, .. } => {
                if buffer.len() >= BUFFER || (all && !buffer.is_empty()) {
                    // The stream takes its time: it gets its own copy.
                    let bytes = Uint8Array::from(buffer.as_slice());
                    let promise =
                        stream.write_with_buffer_source(&bytes).map_err(|error| full(&error))?;
                    JsFuture::from(promise).await.map_err(|error| full(&error))?;
                    buffer.clear();
                }
            }
        }
        Ok(())
    }

    /// Replaces the first bytes.
    ///
    /// # Errors
    /// As [`OutputSink::flush`].
    pub async fn patch_head(&mut self, head: &[u8]) -> Result<()> {
        self.flush(true).await?;
        match self {
            Self::Composed { composition, .. } => match composition.patch_head(head) {
                true => Ok(()),
                false => {
                    Err(Error::unsupported("the new file's head was not made before its rest"))
                }
            },
            Self::Private { access, .. } => write_at(access, head, 0),
            Self::Held { parts, .. } => {
                let all = joined(&Vec::from_iter(parts.drain(..).map(JsValue::from)))?;
                let rest = all.slice_with_f64(head.len() as f64).map_err(|error| full(&error))?;
                parts.push(joined(&[Uint8Array::from(head).into(), rest.into()])?);
                Ok(())
            }
            Self::Chosen { stream, .. } => {
                let seek = stream.seek_with_f64(0.0).map_err(|error| full(&error))?;
                JsFuture::from(seek).await.map_err(|error| full(&error))?;
                let bytes = Uint8Array::from(head);
                let promise =
                    stream.write_with_buffer_source(&bytes).map_err(|error| full(&error))?;
                JsFuture::from(promise).await.map_err(|error| full(&error))?;
                Ok(())
            }
        }
    }

    /// The finished file, and how it was written.
    ///
    /// # Errors
    /// As [`OutputSink::flush`].
    pub async fn finish(mut self, sources: &Sources) -> Result<(Blob, How)> {
        self.flush(true).await?;
        match self {
            Self::Composed { composition, .. } => {
                Ok((compose(composition, sources)?, How::Composed))
            }
            Self::Private { file, access, .. } => {
                access.flush().map_err(|error| full(&error))?;
                access.close();
                Ok((wait(file.get_file()).await?.unchecked_into(), How::Private))
            }
            Self::Held { parts, .. } => {
                Ok((joined(&Vec::from_iter(parts.into_iter().map(JsValue::from)))?, How::Held))
            }
            Self::Chosen { file, stream, .. } => {
                wait(stream.close()).await?;
                Ok((wait(file.get_file()).await?.unchecked_into(), How::Saved))
            }
        }
    }

    /// The name of its file in the private file system, if it has one.
    #[must_use]
    pub fn private_name(&self) -> Option<String> {
        match self {
            Self::Private { file, .. } => Some(file.name()),
            _ => None,
        }
    }

    /// Removes what was written.
    pub async fn discard(self) {
        match self {
            // The browser lets go of them when we do.
            Self::Composed { .. } | Self::Held { .. } => {}
            Self::Private { file, access, .. } => {
                let _ = access.truncate_with_f64(0.0);
                access.close();
                private::remove(&file.name()).await;
            }
            Self::Chosen { file, stream, .. } => {
                let _ = JsFuture::from(stream.abort()).await;
                // The dialog made the file; it stays empty unless the browser lets it be removed.
                let remove = crate::messages::get(&file, "remove");
                if let Ok(remove) = remove.dyn_into::<js_sys::Function>()
                    && let Ok(promise) = remove.call0(&file)
                {
                    let _ = JsFuture::from(js_sys::Promise::resolve(&promise)).await;
                }
            }
        }
    }
}

/// Made bytes and slices of the user's files as one blob: the browser copies when it saves.
fn compose(composition: Composition, sources: &Sources) -> Result<Blob> {
    let parts = composition.into_parts().into_iter().map(|part| match part {
        Composed::Bytes(bytes) => Ok(Uint8Array::from(bytes.as_slice()).into()),
        Composed::Span(span) => {
            let file = sources.disk(span.file).ok_or_else(|| blob::gone(""))?;
            Ok(file.slice(span.offset, span.len)?.into())
        }
    });
    joined(&parts.collect::<Result<Vec<JsValue>>>()?)
}

/// One blob of bytes and blobs.
fn joined(parts: &[JsValue]) -> Result<Blob> {
    Blob::new_with_blob_sequence(&parts.iter().collect::<Array>()).map_err(|error| full(&error))
}

fn write_at(access: &FileSystemSyncAccessHandle, bytes: &[u8], at: u64) -> Result<()> {
    let options = FileSystemReadWriteOptions::new();
    options.set_at(at as f64);
    // A view of our memory would do, but the binding wants a slice of its own.
    let written =
        access.write_with_u8_array_and_options(bytes, &options).map_err(|error| full(&error))?;
    if written as usize == bytes.len() { Ok(()) } else { Err(disk_full()) }
}

async fn wait(promise: js_sys::Promise) -> Result<JsValue> {
    JsFuture::from(promise).await.map_err(|error| full(&error))
}

fn full(error: &JsValue) -> Error {
    let name = crate::messages::get(error, "name").as_string().unwrap_or_default();
    match name.as_str() {
        "QuotaExceededError" => disk_full(),
        "NotAllowedError" | "SecurityError" => {
            Error::io("the browser does not allow the page to write there")
                .advice("Choose another place, or allow it.")
        }
        "NotReadableError" | "NotFoundError" => blob::gone(""),
        _ => {
            let message = crate::messages::get(error, "message").as_string().unwrap_or(name);
            Error::io(format!("the browser could not write: {message}"))
        }
    }
}

fn disk_full() -> Error {
    Error::io("there is not enough room: the disk, or what the browser grants this page, is full")
        .advice("Make room, or convert on the command line, which writes straight to the target.")
}

fn no_private_files() -> Error {
    Error::io("this browser keeps no private files for the page, as in a private window, and has no save dialog, so it can write no more than 512 MB")
        .advice("Use an ordinary window, or convert on the command line.")
}

impl Receive for OutputSink {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(bytes);
        Ok(())
    }
}
