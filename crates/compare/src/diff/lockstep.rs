//! Reads two streams of elements alternately and passes them on together.

use std::ops::Range;

use statelens_checkpoint::{Checkpoint, DType, FileSet, Result, Tensor};
use statelens_tensor::{Cast, Machine, Need, Pour};

/// Maximum memory of each of the two gathers, in bytes.
const BUDGET: usize = 8 << 20;

/// Returns the granularity at which both tensors can be read; see [`statelens_tensor::grain`].
pub(super) fn grain(left: &Tensor, right: &Tensor) -> Option<u64> {
    match (statelens_tensor::grain(left)?, statelens_tensor::grain(right)?) {
        (1, other) | (other, 1) => Some(other),
        (one, other) => (one == other).then_some(one),
    }
}

/// Receives elements of both sides.
pub trait Taker {
    /// Processes the same number of elements of both sides.
    fn take(&mut self, left: &[u8], right: &[u8]);
}

/// Reads the same elements of two tensors, each as logical bytes of a dtype: a machine that passes
/// them to a [`Taker`].
pub struct Both<T> {
    left: SideStream,
    right: SideStream,
    /// Number of logical bytes processed, on both sides together.
    done: u64,
    taker: T,
}

/// The logical bytes of one side that wait for those of the other.
struct SideStream {
    pour: Pour<Vec<u8>>,
    size: usize,
    /// The cast of a tensor that is cast already: its values are those of its own dtype.
    cast: Option<(Cast, Vec<u8>)>,
}

impl SideStream {
    fn new(of: &Checkpoint, tensor: &Tensor, dtype: &DType, range: Range<u64>) -> Result<Self> {
        let mut tensor = tensor.clone();
        let is_cast = tensor.dtype != tensor.stored && tensor.dtype != *dtype;
        let cast = match is_cast {
            true => Some((Cast::new(&tensor.dtype, dtype)?, Vec::new())),
            false => {
                tensor.dtype = dtype.clone();
                None
            }
        };
        let pour = Pour::new(&of.files, &tensor, range, BUDGET, Vec::new())?;
        let size = usize::try_from(tensor.dtype.itemsize().max(1)).unwrap_or(usize::MAX);
        Ok(Self { pour, size, cast })
    }

    /// Returns the first elements, `len` bytes before the cast.
    fn elements(&mut self, len: usize) -> &[u8] {
        let bytes = &self.pour.into[..len];
        match &mut self.cast {
            None => bytes,
            Some((cast, out)) => {
                cast.run(bytes, out);
                out
            }
        }
    }
}

impl<T: Taker> Both<T> {
    /// Prepares reading a range of elements of both sides, each converted to its dtype.
    pub(super) fn new(
        left: (&Checkpoint, &Tensor, &DType),
        right: (&Checkpoint, &Tensor, &DType),
        range: Range<u64>,
        taker: T,
    ) -> Result<Self> {
        let stream = |(of, tensor, dtype)| SideStream::new(of, tensor, dtype, range.clone());
        Ok(Self { left: stream(left)?, right: stream(right)?, done: 0, taker })
    }

    pub(super) fn into_taker(self) -> T {
        self.taker
    }

    /// Passes on the elements that both sides have.
    fn hand_over(&mut self) {
        let (left, right) = (&mut self.left, &mut self.right);
        let count = |side: &SideStream| side.pour.into.len() / side.size;
        let count = count(left).min(count(right));
        if count == 0 {
            return;
        }
        let (of_left, of_right) = (count * left.size, count * right.size);
        self.taker.take(left.elements(of_left), right.elements(of_right));
        left.pour.into.drain(..of_left);
        right.pour.into.drain(..of_right);
        self.done = self.done.saturating_add((of_left + of_right) as u64);
    }

    /// Returns whether the right side is read next. The side that is behind is read next, so that
    /// the other's elements are processed soon.
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
