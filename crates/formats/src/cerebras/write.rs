//! Writes both families of the format.
//!
//! `__cstorch_version__` names the release of the Cerebras library that wrote a file. No loader
//! needs it, so it is omitted.

mod node;
mod objects;
mod outline;
pub(crate) mod prefix;
mod report;
mod spec;
#[cfg(test)]
mod tests;
mod tree;
mod v04;
mod v05;

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Plan, PlannedFile, Result};
use statelens_hdf5::write::Filter;

use v04::Style;

/// How to write a Cerebras checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// The format version.
    pub version: Version,
    /// The compression of tensors.
    pub compression: Compression,
}

/// The two families of the format, and the oldest version of the older family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// Written by releases up to 1.7. The file has no version, and entries identify their kind by
    /// other attributes than in 0.4. For tools of that time; releases from 2.5 on refuse it.
    V01,
    /// 0.4: releases 2.0 to 2.4.
    V04,
    /// 0.5: release 2.5 and later.
    #[default]
    V05,
}

/// The compression of tensor data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Contiguous, uncompressed.
    #[default]
    None,
    /// Chunks with filter 32004, as the Cerebras library writes them.
    Lz4,
    /// Chunks, shuffled and deflated.
    Gzip,
}

impl Compression {
    fn filter(self) -> Option<Filter> {
        match self {
            Self::None => None,
            Self::Lz4 => Some(Filter::Lz4),
            Self::Gzip => Some(Filter::Deflate(4)),
        }
    }
}

/// Plans the objects of a checkpoint in S3, of which `__METADATA__` is the last.
pub(crate) fn plan_objects(source: Arc<Checkpoint>) -> Result<Plan> {
    let (files, losses) = v05::plan_objects(&source)?;
    Ok(Plan { source, files, losses })
}

/// Plans the file. See [`crate::plan`] for errors and losses.
pub fn plan(source: Arc<Checkpoint>, options: &WriteOptions, name: &str) -> Result<Plan> {
    let (planned, losses) = match options.version {
        Version::V05 => v05::plan(&source, options.compression.filter())?,
        Version::V04 => v04::plan(&source, options.compression.filter(), Style::Typed)?,
        Version::V01 => v04::plan(&source, options.compression.filter(), Style::Untyped)?,
    };
    let file = PlannedFile {
        name: name.to_owned(),
        segments: planned.segments,
        head_last: planned.head_last,
    };
    Ok(Plan { source, files: vec![file], losses })
}
