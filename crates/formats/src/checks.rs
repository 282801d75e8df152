//! The checksums in a file, for verification of the whole file. Opening a checkpoint verifies only
//! the checksums of the bytes that it reads.
//!
//! | container | checksum |
//! |---|---|
//! | zip (PyTorch, `.npz`, Keras, distributed checkpoints) | CRC-32 of each member |
//! | tar (PyTorch before 0.2) | a sum of each header; none of the members' content |
//! | TensorFlow | masked CRC-32C of each block of a table, and of each tensor of a bundle |
//! | HDF5 | of structures and of chunks, verified whenever they are read: not listed here |
//! | all others | none |

use statelens_checkpoint::{Error, FileSet, Layout, Limits, Result, Span};
use statelens_tensor::crc::Summing;

use crate::archive::{Archive, is_zip};
use crate::crc::mask;

#[derive(Debug, Default)]
pub struct Checks {
    pub checks: Vec<Check>,
    /// Checksums that can't be verified because they are not in their place: name and reason.
    pub broken: Vec<(String, Error)>,
    /// Number of members or tensors that have a checksum field but no checksum in it.
    pub without: u64,
    /// Whether the format has checksums at all. Those of HDF5 are not in the list.
    pub summed: bool,
    /// Whether the checksums cover the structure, including values stored inline in it.
    pub structure: bool,
}

/// A checksum of a run of bytes in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What the bytes are: the name of an archive member, or the key of a tensor.
    pub what: String,
    pub algorithm: Algorithm,
    /// The layout of the bytes. The checksum of a deflated member is of the decompressed bytes.
    pub layout: Layout,
    /// The checksum stored in the file.
    pub expected: u32,
    /// The actual checksum, if it is already known or is not simply computed over the bytes.
    pub found: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// CRC-32, as in zip.
    Crc32,
    /// CRC-32C, masked as TensorFlow does it.
    MaskedCrc32c,
    /// The sum of the bytes of a tar header, which is computed when the checksum is found.
    Tar,
}

impl Algorithm {
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC-32",
            Self::MaskedCrc32c => "masked CRC-32C",
            Self::Tar => "tar header sum",
        }
    }

    /// Returns the initial state of the sum. [`Algorithm::stored`] converts the final sum to the
    /// value in the file.
    pub fn begin(self) -> Summing {
        match self {
            Self::Crc32 | Self::Tar => Summing::Crc32(0),
            Self::MaskedCrc32c => Summing::Crc32c(0),
        }
    }

    /// Converts a sum to the value that is stored in a file.
    pub fn stored(self, sum: u32) -> u32 {
        match self {
            Self::Crc32 | Self::Tar => sum,
            Self::MaskedCrc32c => mask(sum),
        }
    }
}

impl Checks {
    /// Adds the checksums of the zip archive at `span`, if there is one.
    ///
    /// `behind`: other data may precede the archive.
    pub(crate) fn archive(
        &mut self,
        files: &FileSet,
        span: Span,
        behind: bool,
        limits: &Limits,
    ) -> Result<()> {
        let head = files.read_vec(span.file, span.offset, span.len.min(4))?;
        if !behind && !is_zip(&head) {
            return Ok(());
        }
        let source = files.structure(span.file)?;
        let archive = match Archive::open_repeating(source, span, limits) {
            Ok(archive) => archive,
            Err(error) => {
                let error = error.in_file(files.name(span.file));
                self.broken.push(("the archive".into(), error));
                return Ok(());
            }
        };
        for record in archive.records() {
            match archive.layout(record) {
                // Torch may omit the checksum, which leaves the field at zero.
                Ok(_) if record.crc == 0 && record.len > 0 => self.without += 1,
                Ok(layout) => self.checks.push(Check {
                    what: record.name(),
                    algorithm: Algorithm::Crc32,
                    layout,
                    expected: record.crc,
                    found: None,
                }),
                Err(error) => {
                    self.broken.push((record.name(), error.in_file(files.name(span.file))));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_the_standard_check_values() {
        for (algorithm, expected) in
            [(Algorithm::Crc32, 0xcbf4_3926), (Algorithm::MaskedCrc32c, mask(0xe306_9283))]
        {
            let mut summing = algorithm.begin();
            summing.update(b"123456789");
            assert_eq!(algorithm.stored(summing.value()), expected);
        }
    }
}
