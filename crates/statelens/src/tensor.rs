//! A tensor of an open checkpoint.

use statelens_checkpoint::{
    self as core, DType, Error, FileSet, Progress, Result, TensorId, Unwatched, room,
};
use statelens_stats::{Accumulator, Statistics, Summary};
use statelens_tensor::{BUFFER, drain, numbers};

use crate::{Element, Slice};

/// A tensor, or a slice of one. Holds the location of its bytes, but not the bytes.
#[derive(Clone)]
pub struct Tensor<'a> {
    files: &'a FileSet,
    key: String,
    tensor: core::Tensor,
}

impl<'a> Tensor<'a> {
    pub(crate) fn new(checkpoint: &'a core::Checkpoint, key: String, id: TensorId) -> Result<Self> {
        Ok(Self { files: &checkpoint.files, key, tensor: checkpoint.tensor(id)?.clone() })
    }

    /// Returns its flat key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns its dtype.
    pub fn dtype(&self) -> &DType {
        &self.tensor.dtype
    }

    /// Returns its shape: the length of each dimension, in elements.
    pub fn shape(&self) -> &[u64] {
        &self.tensor.shape
    }

    /// Returns the number of its elements.
    pub fn numel(&self) -> u64 {
        self.tensor.numel().unwrap_or(u64::MAX)
    }

    /// Returns the size of its elements in bytes, dense, as in memory.
    pub fn nbytes(&self) -> u64 {
        self.tensor.nbytes().unwrap_or(u64::MAX)
    }

    /// Returns the core's tensor, which has the location of its bytes.
    pub fn inner(&self) -> &core::Tensor {
        &self.tensor
    }

    /// Reads all values in C order. `T` need not be the tensor's own dtype; fails if a value can't
    /// be represented exactly in `T`. Blocks of quantised numbers (GGUF) read as `f32`.
    pub fn read<T: Element>(&self) -> Result<Vec<T>> {
        let size = T::DTYPE.itemsize().max(1) as usize;
        let mut values = room::vec(self.numel())?;
        let as_this = core::Tensor { dtype: T::DTYPE, ..self.tensor.clone() };
        let mut begun: Vec<u8> = Vec::new();
        let report = drain(self.files, &as_this, BUFFER, &mut Unwatched, &mut |mut bytes| {
            if !begun.is_empty() {
                let (now, later) = bytes.split_at(bytes.len().min(size - begun.len()));
                begun.extend_from_slice(now);
                bytes = later;
                if begun.len() < size {
                    return Ok(());
                }
                values.push(T::from_bytes(&begun));
                begun.clear();
            }
            let whole = bytes.chunks_exact(size);
            begun.extend_from_slice(whole.remainder());
            values.extend(whole.map(T::from_bytes));
            Ok(())
        })
        .map_err(|error| error.context(format!("`{}`", self.key)))?;
        if report.changed > 0 {
            return Err(Error::refused(format!(
                "{} of the {} values of `{}`, which has dtype {}, are not exact in {}",
                report.changed,
                report.elements,
                self.key,
                self.tensor.dtype,
                T::DTYPE
            ))
            .coded("inexact")
            .advice("Read them as their own dtype or a wider one."));
        }
        Ok(values)
    }

    /// Passes its bytes to `out` in pieces, in C order, little-endian. Works for tensors of any
    /// size in fixed memory; `progress` can cancel.
    pub fn each(
        &self,
        progress: &mut dyn Progress,
        out: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        drain(self.files, &self.tensor, BUFFER, progress, out).map(|_| ())
    }

    /// Reads all its bytes in C order, little-endian, in its own dtype.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let mut all = room::vec(self.nbytes())?;
        self.each(&mut Unwatched, &mut |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    }

    /// Computes statistics of its values in one pass and fixed memory: counts, NaN, extremes,
    /// moments, quantiles. Returns `None` for elements that are not numbers, such as strings and
    /// records.
    pub fn stats(&self) -> Result<Option<Statistics>> {
        self.summary(&mut Unwatched).map(|summary| summary.map(|summary| summary.statistics()))
    }

    /// Computes the same as [`Tensor::stats`], as a summary that can be merged and makes
    /// histograms; `progress` can cancel.
    pub fn summary(&self, progress: &mut dyn Progress) -> Result<Option<Summary>> {
        let Some(numbers) = numbers(&self.tensor) else { return Ok(None) };
        let mut accumulator = Accumulator::new();
        if !accumulator.begin(&numbers.dtype, 0) {
            return Ok(None);
        }
        drain(self.files, &numbers, BUFFER, progress, &mut |bytes| {
            accumulator.feed(bytes);
            Ok(())
        })?;
        Ok(Some(accumulator.finish()))
    }

    /// Returns a slice of it, like Python's `tensor[0:2, :4]`, without reading it. Reading the
    /// slice reads only the bytes that it needs. See [`s!`](crate::s).
    pub fn slice(&self, slice: &Slice) -> Result<Self> {
        let tensor = slice.of(&self.tensor)?;
        Ok(Self { files: self.files, key: self.key.clone(), tensor })
    }
}
