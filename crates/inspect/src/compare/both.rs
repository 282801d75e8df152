//! Two streams of elements, read by turns, and handed on together.

use std::ops::Range;

use statelens_checkpoint::{Checkpoint, DType, FileSet, Result, Tensor};
use statelens_tensor::{Machine, Need, Pour};

/// Bytes that each of the two gathers may hold.
const BUDGET: usize = 8 << 20;

/// Where both tensors can be read from; see [`statelens_tensor::grain`].
pub(super) fn grain(left: &Tensor, right: &Tensor) -> Option<u64> {
    match (statelens_tensor::grain(left)?, statelens_tensor::grain(right)?) {
        (1, other) | (other, 1) => Some(other),
        (one, other) => (one == other).then_some(one),
    }
}

/// What is made of the elements that both sides have.
pub trait Taker {
    /// Takes as many elements of the one as of the other.
    fn take(&mut self, left: &[u8], right: &[u8]);
}

/// The same elements of two tensors, as logical bytes of a dtype each: a machine that hands them to who
/// takes them.
pub struct Both<T> {
    left: SideStream,
    right: SideStream,
    /// Logical bytes of both that are done.
    done: u64,
    taker: T,
}

/// The logical bytes of one side that wait for the other.
struct SideStream {
    pour: Pour<Vec<u8>>,
    size: usize,
}

impl SideStream {
    fn new(of: &Checkpoint, tensor: &Tensor, dtype: &DType, range: Range<u64>) -> Result<Self> {
        let mut tensor = tensor.clone();
        tensor.dtype = dtype.clone();
        let pour = Pour::new(&of.files, &tensor, range, BUDGET, Vec::new())?;
        let size = usize::try_from(tensor.dtype.itemsize().max(1)).unwrap_or(usize::MAX);
        Ok(Self { pour, size })
    }
}

impl<T: Taker> Both<T> {
    /// Of these elements of both, each as this dtype.
    pub(super) fn new(
        left: (&Checkpoint, &Tensor, &DType),
        right: (&Checkpoint, &Tensor, &DType),
        range: Range<u64>,
        taker: T,
    ) -> Result<Self> {
        let stream = |(of, tensor, dtype)| SideStream::new(of, tensor, dtype, range.clone());
        Ok(Self { left: stream(left)?, right: stream(right)?, done: 0, taker })
    }

    /// Who took them.
    pub(super) fn into_taker(self) -> T {
        self.taker
    }

    /// Hands over the elements that both sides have, if there are any.
    fn hand_over(&mut self) {
        let (left, right) = (&mut self.left, &mut self.right);
        let (of_left, of_right) = (&mut left.pour.into, &mut right.pour.into);
        let count = (of_left.len() / left.size).min(of_right.len() / right.size);
        if count == 0 {
            return;
        }
        let (left, right) = (count * left.size, count * right.size);
        self.taker.take(&of_left[..left], &of_right[..right]);
        of_left.drain(..left);
        of_right.drain(..right);
        self.done = self.done.saturating_add((left + right) as u64);
    }

    /// Whether it is the turn of the right side: the one that is behind, so that the other's
    /// elements wait for nothing more.
    fn is_right(&self) -> bool {
        let behind = |stream: &SideStream| match stream.pour.need() {
            Need::Done => usize::MAX,
            _ => stream.pour.into.len() / stream.size,
        };
        behind(&self.left) > behind(&self.right)
    }

    fn pour(&self) -> &Pour<Vec<u8>> {
        if self.is_right() { &self.right.pour } else { &self.left.pour }
    }

    fn pour_mut(&mut self) -> &mut Pour<Vec<u8>> {
        if self.is_right() { &mut self.right.pour } else { &mut self.left.pour }
    }
}

impl<T: Taker> Machine for Both<T> {
    fn need(&self) -> Need {
        self.pour().need()
    }

    fn files(&self) -> &FileSet {
        self.pour().files()
    }

    fn source(&self) -> usize {
        usize::from(self.is_right())
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.pour_mut().feed(bytes)?;
        self.hand_over();
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        self.pour_mut().step()?;
        self.hand_over();
        Ok(())
    }

    fn progress(&self) -> (u64, u64) {
        let all = self.left.pour.progress().1.saturating_add(self.right.pour.progress().1);
        (self.done, all)
    }
}
