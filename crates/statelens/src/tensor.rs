//! A tensor of an open checkpoint.

use std::fs;
use std::sync::Arc;

use statelens_checkpoint::{
    self as core, DType, Error, ErrorKind, FileSet, Layout, Progress, Result, Span, TensorId,
    Unwatched, try_alloc,
};
use statelens_remote::{Meter, MeteredCall};
use statelens_tensor::{BUFFER, Cast, drain, has_floats, numbers, verbatim_span};
use statelens_values::{Accumulator, Statistics, Summary};

use crate::files::FileSource;
use crate::{Element, Slice};

/// Bytes that are read between two reports of progress.
const PIECE: usize = 8 << 20;

/// A tensor, or a slice of one. Holds the location of its bytes, but not the bytes.
#[derive(Clone)]
pub struct Tensor {
    files: FileSet,
    /// The files of the set that are on disk.
    sources: Arc<[Arc<FileSource>]>,
    /// The meter of a remote checkpoint, if its limit is that of a call.
    meter: Option<Arc<Meter>>,
    key: String,
    /// Its number in the checkpoint, unless it is a slice or a cast.
    id: Option<TensorId>,
    tensor: core::Tensor,
}

impl Tensor {
    /// Takes a tensor of a checkpoint, and the files of its set that are on disk.
    pub(crate) fn new(
        checkpoint: &core::Checkpoint,
        sources: Arc<[Arc<FileSource>]>,
        meter: Option<Arc<Meter>>,
        key: String,
        id: TensorId,
    ) -> Result<Self> {
        let (files, tensor) = (checkpoint.files.clone(), checkpoint.tensor(id)?.clone());
        Ok(Self { files, sources, meter, key, id: Some(id), tensor })
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

    /// Returns its number in the checkpoint; `None` for a slice or a cast.
    pub fn id(&self) -> Option<TensorId> {
        self.id
    }

    /// Returns the files that hold its bytes.
    pub fn files(&self) -> &FileSet {
        &self.files
    }

    /// Returns the files of its checkpoint that are on disk.
    pub fn sources(&self) -> &Arc<[Arc<FileSource>]> {
        &self.sources
    }

    /// Reads all values in C order. `T` need not be the tensor's own dtype; fails if a value can't
    /// be represented exactly in `T`. Blocks of quantised numbers (GGUF) read as `f32`.
    pub fn read<T: Element>(&self) -> Result<Vec<T>> {
        let _call = self.call();
        let size = T::DTYPE.itemsize().max(1) as usize;
        let mut values = try_alloc::vec(self.numel())?;
        let as_this = core::Tensor { dtype: T::DTYPE, ..self.tensor.clone() };
        let mut begun: Vec<u8> = Vec::new();
        let report = drain(&self.files, &as_this, BUFFER, &mut Unwatched, &mut |mut bytes| {
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
        .map_err(|error| self.named(error))?;
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
        let _call = self.call();
        self.drained(progress, out)
    }

    fn drained(
        &self,
        progress: &mut dyn Progress,
        out: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let drained = drain(&self.files, &self.tensor, BUFFER, progress, out);
        drained.map(|_| ()).map_err(|error| self.named(error))
    }

    /// Adds the key to an error.
    fn named(&self, error: Error) -> Error {
        match self.key.is_empty() || error.kind() == ErrorKind::Cancelled {
            true => error,
            false => error.context(format!("`{}`", self.key)),
        }
    }

    /// Begins a call that reads it through [`Tensor::files`], as
    /// [`Checkpoint::call`](crate::Checkpoint::call) does.
    pub fn call(&self) -> Option<MeteredCall> {
        self.meter.as_ref().map(Meter::call)
    }

    /// Reads all its bytes in C order, little-endian, in its own dtype.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let mut all = try_alloc::zeros(self.nbytes())?;
        self.read_into(&mut all, &mut Unwatched)?;
        Ok(all)
    }

    /// Reads all its bytes in C order, little-endian, in its own dtype, into `out`, which has
    /// exactly their length. Bytes that are dense in a file are read directly into place;
    /// `progress` counts bytes and can cancel.
    pub fn read_into(&self, out: &mut [u8], progress: &mut dyn Progress) -> Result<()> {
        let _call = self.call();
        let total = self.nbytes();
        if out.len() as u64 != total {
            let lengths = format!("{} bytes of memory for {total} of `{}`", out.len(), self.key);
            return Err(Error::refused(lengths));
        }
        let mut done = 0;
        if let Some(span) = verbatim_span(&self.tensor) {
            for piece in out.chunks_mut(PIECE) {
                let read = self.files.read_weights(span.file, span.offset + done, piece);
                read.map_err(|error| self.named(error))?;
                done += piece.len() as u64;
                progress.check(done, total)?;
            }
            return Ok(());
        }
        let mut rest = out;
        self.drained(progress, &mut |bytes| {
            let place = rest.split_off_mut(..bytes.len());
            place.ok_or_else(|| Error::damaged("more bytes than expected"))?.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// Returns the file on disk in which its bytes are dense, as [`Tensor::bytes`] returns them, and
    /// the offset of the first; `None` if they have to be gathered, decoded or fetched.
    pub fn in_file(&self) -> Result<Option<(Arc<fs::File>, u64)>> {
        let Some(span) = verbatim_span(&self.tensor) else { return Ok(None) };
        self.files.check(span)?;
        let source = self.files.source(span.file)?;
        // The set may have sources that are not on disk, such as an unpacked file.
        let on_disk = self.sources.get(span.file.0 as usize);
        let on_disk =
            on_disk.filter(|file| std::ptr::addr_eq(Arc::as_ptr(source), Arc::as_ptr(file)));
        on_disk.map(|file| Ok((file.file()?, span.offset))).transpose()
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
        let _call = self.call();
        let Some(numbers) = numbers(&self.tensor) else { return Ok(None) };
        let mut accumulator = Accumulator::new();
        if !accumulator.begin(&numbers.dtype, 0) {
            return Ok(None);
        }
        drain(&self.files, &numbers, BUFFER, progress, &mut |bytes| {
            accumulator.feed(bytes);
            Ok(())
        })?;
        Ok(Some(accumulator.finish()))
    }

    /// Returns a slice of it, like Python's `tensor[0:2, :4]`, without reading it. Reading the
    /// slice reads only the bytes that it needs. See [`s!`](crate::s).
    pub fn slice(&self, slice: &Slice) -> Result<Self> {
        let tensor = slice.of(&self.tensor)?;
        Ok(self.with(narrowed(tensor)))
    }

    /// Returns it with another dtype, without reading it. Elements are converted as they are read.
    /// Fails if they can't be converted.
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        let from = match &self.tensor.stored {
            stored @ DType::Blocks(_) if has_floats(stored) => &DType::F32,
            stored => stored,
        };
        if *from != dtype {
            Cast::new(from, &dtype).map_err(|error| error.context(format!("`{}`", self.key)))?;
        }
        Ok(self.with(core::Tensor { dtype, ..self.tensor.clone() }))
    }

    /// Returns another tensor of the same files, under the same key.
    pub fn with(&self, tensor: core::Tensor) -> Self {
        Self { tensor, id: None, ..self.clone() }
    }
}

/// Limits the storage of a view to the bytes from its first to its last element, so that reading it
/// reads no others.
fn narrowed(mut tensor: core::Tensor) -> core::Tensor {
    let (Layout::Strided(view), size) = (&mut tensor.layout, tensor.stored.itemsize()) else {
        return tensor;
    };
    let Layout::Span(span) = &*view.storage else { return tensor };
    if tensor.shape.contains(&0) {
        return tensor;
    }
    let (mut first, mut last) = (i128::from(view.offset), i128::from(view.offset));
    for (dim, stride) in tensor.shape.iter().zip(&view.strides) {
        let reach = i128::from(dim.saturating_sub(1)) * i128::from(*stride);
        if reach < 0 { first += reach } else { last += reach }
    }
    // The reader has checked that all elements lie in the storage.
    let (Ok(first), Ok(last)) = (u64::try_from(first), u64::try_from(last)) else {
        return tensor;
    };
    let Some((start, len)) = first.checked_mul(size).zip((last - first + 1).checked_mul(size))
    else {
        return tensor;
    };
    if start.checked_add(len).is_none_or(|end| end > span.len) {
        return tensor;
    }
    view.offset -= first;
    view.storage_len = len;
    view.storage = Arc::new(Layout::Span(Span { offset: span.offset + start, len, ..*span }));
    tensor
}
