//! Decides which tensors of a checkpoint are read, and hashes them.

use std::collections::HashSet;
use std::marker::PhantomData;

use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{
    Checkpoint, Error, ErrorKind, FileSet, Layout, Quantizer, Result, Tensor, TensorId, Text,
    Value, ValueId,
};
use statelens_tensor::{BUDGET, Pour, Receive, Work};

use crate::Statistician;

/// Maximum number of bytes that are hashed of tensors that consist almost entirely of repetition.
const REPETITION: u64 = 16 << 30;

/// Limits the reading of tensors that repeat a few bytes: a constant or a stride of 0 can claim any
/// size, and processing terabytes of it would take forever.
pub struct Repetition {
    files: FileSet,
    /// The length of the largest file, once it is needed: there may be many files next to the
    /// checkpoint.
    largest: Option<u64>,
    /// Remaining number of bytes of tensors that are more than 1,000 times as large as the files.
    left: u64,
}

impl Repetition {
    /// Starts with the full limit for a checkpoint.
    pub fn new(checkpoint: &Checkpoint) -> Self {
        Self { files: checkpoint.files.clone(), largest: None, left: REPETITION }
    }

    /// Returns whether the next tensor, in the order of the leaves, may be read.
    pub fn allows(&mut self, tensor: &Tensor) -> bool {
        let nbytes = tensor.nbytes().unwrap_or(u64::MAX);
        let least = nbytes / 1_000;
        let main = self.files.main().map_or(0, |main| self.files.len(main));
        if least <= main || least <= self.largest() {
            return true;
        }
        match self.left.checked_sub(nbytes) {
            Some(left) => self.left = left,
            None => return false,
        }
        true
    }

    fn largest(&mut self) -> u64 {
        let lengths = || self.files.iter().map(|(_, file)| file.source.len()).max();
        *self.largest.get_or_insert_with(|| lengths().unwrap_or(0))
    }
}

/// Returns why a tensor, or a part of it, does not have bytes; `None` if it has.
pub fn missing(tensor: &Tensor) -> Option<&Text> {
    let mut open = vec![&tensor.layout];
    while let Some(layout) = open.pop() {
        match layout {
            Layout::Missing(why) => return Some(why),
            Layout::Strided(strided) => open.push(&strided.storage),
            Layout::Concat(concat) => open.extend(concat.parts.iter().map(|part| &part.layout)),
            _ => {}
        }
    }
    None
}

/// Returns the tensors of a value: the tensor itself, or the parts of a sparse one, and those of
/// its quantizer and its Python attributes; the contents of an object. Parts have a name.
pub fn tensors_of(checkpoint: &Checkpoint, id: ValueId) -> Vec<(TensorId, &'static str)> {
    let mut found = Vec::new();
    let mut push = |id: ValueId, name| {
        found.extend(checkpoint.tensor_of(id).map(|(tensor, _)| (tensor, name)));
    };
    match checkpoint.value(id) {
        Value::Sparse(sparse) => sparse.parts.iter().for_each(|(name, part)| push(*part, *name)),
        Value::Opaque(opaque) => found.extend(opaque.contents.map(|tensor| (tensor, ""))),
        _ => {
            push(id, "");
            let quantizer = checkpoint.tensor_of(id).and_then(|(_, t)| t.quantizer.as_ref());
            if let Some(Quantizer::PerChannel { scales, zero_points, .. }) = quantizer {
                push(*scales, "scales");
                push(*zero_points, "zero_points");
            }
            let inner = checkpoint.attribute_tensors(id).into_iter();
            found.extend(inner.map(|tensor| (tensor, "attributes")));
        }
    }
    found
}

/// The tensors to read, each once, in the order in which they were added.
pub struct Readable<'a> {
    checkpoint: &'a Checkpoint,
    met: HashSet<TensorId>,
    repetition: Repetition,
    /// The tensors added so far.
    pub tensors: Vec<TensorId>,
}

impl<'a> Readable<'a> {
    /// Starts an empty list.
    pub fn of(checkpoint: &'a Checkpoint) -> Self {
        let repetition = Repetition::new(checkpoint);
        Self { checkpoint, met: HashSet::new(), repetition, tensors: Vec::new() }
    }

    /// Adds a tensor, unless it is in the list, has no bytes, or repeats too many.
    pub fn add(&mut self, id: TensorId) {
        let Ok(tensor) = self.checkpoint.tensor(id) else { return };
        if self.met.insert(id) && missing(tensor).is_none() && self.repetition.allows(tensor) {
            self.tensors.push(id);
        }
    }
}

/// Hashes tensors separately and, if requested, computes statistics.
pub struct Hashing<'a, S> {
    readable: Readable<'a>,
    measure: bool,
    sum: PhantomData<fn(S)>,
}

/// Receives hashes.
pub trait TakesHashes {
    /// Takes the hash of a tensor, or the error if it can't be read.
    fn take(&mut self, part: usize, id: TensorId, found: Result<Hashed>) -> Result<()>;
}

impl<'a, S> Hashing<'a, S> {
    /// Prepares hashing these tensors; with `measure`, also their statistics.
    pub fn new(readable: Readable<'a>, measure: bool) -> Self {
        Self { readable, measure, sum: PhantomData }
    }

    fn tensor(&self, part: usize) -> Result<&'a Tensor> {
        self.readable.checkpoint.tensor(self.readable.tensors[part])
    }
}

impl<S: TakesHashes> Work for Hashing<'_, S> {
    type Part = Pour<Hashed>;
    type Found = Result<Hashed>;
    type Sum = S;

    fn parts(&self) -> usize {
        self.readable.tensors.len()
    }

    fn size(&self, part: usize) -> u64 {
        self.tensor(part).ok().and_then(Tensor::nbytes).unwrap_or(u64::MAX)
    }

    fn begin(&self, part: usize) -> Result<Option<Self::Part>> {
        let tensor = self.tensor(part)?;
        let measure = if self.measure { Statistician::new(&tensor.dtype) } else { None };
        let hashed = Hashed { hasher: Sha256::new(), measure };
        Pour::all(&self.readable.checkpoint.files, tensor, BUDGET, hashed).map(Some)
    }

    fn end(&self, _part: usize, machine: Option<Self::Part>, read: Result<()>) -> Self::Found {
        read.map(|()| machine.map(|pour| pour.into).unwrap_or_default())
    }

    fn take(&self, sum: &mut S, part: usize, found: Self::Found) -> Result<()> {
        sum.take(part, self.readable.tensors[part], found)
    }
}

/// Hash and statistics of the bytes of a tensor.
#[derive(Default)]
pub struct Hashed {
    hasher: Sha256,
    /// The statistics, if they are computed.
    pub measure: Option<Statistician>,
}

impl Hashed {
    /// Returns the hash in hexadecimal.
    pub fn hash(self) -> String {
        statelens_checkpoint::hex(&self.hasher.finalize())
    }
}

impl Receive for Hashed {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        if let Some(measure) = &mut self.measure {
            measure.feed(bytes);
        }
        Ok(())
    }
}

/// Returns an error that concerns only one tensor; fails with errors that must end the whole
/// operation: I/O errors, limits that the user can raise, and cancellation.
pub fn of_one_tensor(error: Error) -> Result<Error> {
    match error.kind() {
        ErrorKind::Cancelled | ErrorKind::Io => Err(error),
        ErrorKind::Limit if error.next_step().is_some() => Err(error),
        _ => Ok(error),
    }
}
