//! The checksums that files have of their bytes, for whoever reads all of them: opening a
//! checkpoint looks only at those of what it reads then.
//!
//! | container | checksum |
//! |---|---|
//! | zip (PyTorch, `.npz`, Keras, distributed checkpoints) | CRC-32 of each member |
//! | tar (PyTorch before 0.2) | a sum of each header; none of what is in the members |
//! | TensorFlow | masked CRC-32C of each block of a table, and of each tensor of a bundle |
//! | HDF5 | of structures and of chunks: whoever reads those is told, so there is no list |
//! | all others | none |

use statelens_checkpoint::{Error, FileSet, Layout, Limits, Result, Span};
use statelens_tensor::crc::Summing;

use crate::archive::{Archive, is_zip};
use crate::masked::mask;

/// The checksums of a checkpoint's files.
#[derive(Debug, Default)]
pub struct Checks {
    /// Those that there are.
    pub checks: Vec<Check>,
    /// What can't be checked since it is not where it should be: its name, and why.
    pub broken: Vec<(String, Error)>,
    /// How many members or tensors have a place for a checksum and none in it.
    pub without: u64,
    /// Whether the format has checksums at all; those of HDF5 are not in the list.
    pub summed: bool,
    /// Whether they cover the structure, and with it what values stand in that.
    pub structure: bool,
}

/// A checksum that a file has of a run of its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What the bytes are: the name of an archive's member, the key of a tensor.
    pub what: String,
    /// How it is made.
    pub algorithm: Algorithm,
    /// Where the bytes are; of a deflated member it is the checksum of what comes out.
    pub layout: Layout,
    /// The checksum in the file.
    pub expected: u32,
    /// The checksum of the bytes, where those were read already, or it is not simply of them.
    pub found: Option<u32>,
}

/// How a checksum is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// That of zip.
    Crc32,
    /// CRC-32C, masked as TensorFlow does it.
    MaskedCrc32c,
    /// The sum of the bytes of a tar header, which is made when the checksum is found.
    Tar,
}

impl Algorithm {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC-32",
            Self::MaskedCrc32c => "masked CRC-32C",
            Self::Tar => "tar header sum",
        }
    }

    /// Of no bytes yet; [`Algorithm::stored`] makes of the sum what a file has.
    pub fn begin(self) -> Summing {
        match self {
            Self::Crc32 | Self::Tar => Summing::Crc32(0),
            Self::MaskedCrc32c => Summing::Crc32c(0),
        }
    }

    /// What a file has for a sum.
    pub fn stored(self, sum: u32) -> u32 {
        match self {
            Self::Crc32 | Self::Tar => sum,
            Self::MaskedCrc32c => mask(sum),
        }
    }
}

impl Checks {
    /// Adds those of a zip archive, if that is what lies there.
    ///
    /// `behind`: the archive may follow something else.
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
        let archive = match Archive::open_within(source, span, limits) {
            Ok(archive) => archive,
            Err(error) => {
                let error = error.in_file(files.name(span.file));
                self.broken.push(("the archive".into(), error));
                return Ok(());
            }
        };
        for record in archive.records() {
            match archive.layout(record) {
                // Torch may write none, which is a zero.
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
    fn the_usual_check_values_come_out() {
        for (algorithm, expected) in
            [(Algorithm::Crc32, 0xcbf4_3926), (Algorithm::MaskedCrc32c, mask(0xe306_9283))]
        {
            let mut summing = algorithm.begin();
            summing.update(b"123456789");
            assert_eq!(algorithm.stored(summing.value()), expected);
        }
    }
}
