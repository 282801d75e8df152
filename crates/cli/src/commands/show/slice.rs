//! Slices of tensors, written as in Python.

use std::sync::Arc;

use statelens_checkpoint::{Error, FileSet, Layout, Result, Strided, Tensor};
use statelens_tensor::elements;

use super::Each;
use crate::print::Failure;

/// What of a tensor is to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    text: String,
    /// For each dimension of the tensor: the first index, how many, and the step between them.
    axes: Vec<Axis>,
    /// Elements from one index of each dimension to the next.
    strides: Vec<u64>,
    /// The shape of what is taken: a number takes a dimension away.
    shape: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    first: u64,
    count: u64,
    step: i64,
    /// It stays a dimension.
    kept: bool,
}

/// Bytes that are read at once, if what is asked for lies within.
const NEAR: u64 = 32 << 20;

impl Slice {
    /// Understands what stands between the brackets, for a tensor of this shape.
    pub(crate) fn parse(text: &str, shape: &[u64]) -> Result<Self> {
        let bad = |why: String| {
            Error::refused(format!("[{text}] is not a slice of a tensor of shape {shape:?}: {why}"))
                .expected("numbers and start:stop:step as in Python, e.g. [0:2, -4:, 7]")
        };
        let parts: Vec<&str> = match text.trim() {
            "" => Vec::new(),
            text => text.strip_suffix(',').unwrap_or(text).split(',').map(str::trim).collect(),
        };
        let dots = parts.iter().filter(|part| **part == "...").count();
        let given = parts.len() - dots;
        if dots > 1 || given > shape.len() {
            let why = match dots {
                0 | 1 => "it has more parts than the tensor has dimensions".to_owned(),
                _ => "... stands in it twice".to_owned(),
            };
            return Err(bad(why));
        }
        // Dimensions that are left out are taken whole: in the place of the dots, or at the end.
        let mut full: Vec<&str> = Vec::new();
        for part in &parts {
            match *part {
                "..." => full.extend(std::iter::repeat_n(":", shape.len() - given)),
                part => full.push(part),
            }
        }
        full.resize(shape.len(), ":");
        let mut slice = Self {
            text: text.trim().to_owned(),
            axes: Vec::new(),
            strides: vec![1; shape.len()],
            shape: Vec::new(),
        };
        for (part, dim) in full.into_iter().zip(shape) {
            let axis = axis(part, *dim).map_err(bad)?;
            slice.axes.push(axis);
            slice.shape.extend(axis.kept.then_some(axis.count));
        }
        for at in (1..shape.len()).rev() {
            slice.strides[at - 1] = slice.strides[at].saturating_mul(shape[at]);
        }
        Ok(slice)
    }

    /// How it was written, without brackets.
    pub(crate) fn text(&self) -> String {
        self.text.clone()
    }

    /// The shape of what is taken.
    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// How many elements it takes.
    pub(crate) fn len(&self) -> u64 {
        self.axes.iter().map(|axis| axis.count).fold(1, u64::saturating_mul)
    }

    /// The layout of what it takes of a tensor that lies as this one does, if that can be said: a view
    /// of the same storage.
    pub(crate) fn view(&self, tensor: &Tensor) -> Option<Layout> {
        let of = match &tensor.layout {
            Layout::Span(span) => Strided {
                storage: Arc::new(tensor.layout.clone()),
                storage_len: span.len,
                offset: 0,
                strides: self
                    .strides
                    .iter()
                    .map(|it| i64::try_from(*it).ok())
                    .collect::<Option<_>>()?,
            },
            Layout::Strided(of) => of.clone(),
            _ => return None,
        };
        let mut offset = i128::from(of.offset);
        let mut strides = Vec::new();
        for (axis, stride) in self.axes.iter().zip(&of.strides) {
            offset += i128::from(axis.first) * i128::from(*stride);
            if axis.kept {
                strides.push(axis.step.checked_mul(*stride)?);
            }
        }
        let offset = u64::try_from(offset).ok()?;
        (self.len() > 0).then_some(Layout::Strided(Strided { offset, strides, ..of }))
    }

    /// Passes the bytes of the first `most` elements on, in C order, with their numbers.
    pub(crate) fn each(
        &self,
        files: &FileSet,
        tensor: &Tensor,
        most: u64,
        out: Each<'_>,
    ) -> std::result::Result<(), Failure> {
        let item = tensor.dtype.itemsize().max(1);
        // What lies near to each other is read once: rows of a block, a column of a matrix.
        let mut near = (0, 0, Vec::new());
        for number in 0..most.min(self.len()) {
            let at = self.place(number);
            let (start, end, _) = &near;
            if at < *start || at >= *end {
                let (start, end) = self.run(number, most, NEAR / item);
                near = (start, end, elements(files, tensor, start..end)?);
            }
            let (start, _, bytes) = &near;
            let from = usize::try_from((at - start) * item).unwrap_or(usize::MAX);
            let element = bytes.get(from..from.saturating_add(item as usize)).unwrap_or_default();
            out(number, element)?;
        }
        Ok(())
    }

    /// The first elements from `number` on that lie within `room` of each other: from where to
    /// where they are.
    fn run(&self, number: u64, most: u64, room: u64) -> (u64, u64) {
        let first = self.place(number);
        let (mut start, mut end) = (first, first + 1);
        let rest = most.min(self.len());
        for number in number + 1..rest.min(number.saturating_add(MOST_AHEAD)) {
            let at = self.place(number);
            let (low, high) = (start.min(at), end.max(at + 1));
            if high - low > room.max(1) {
                break;
            }
            (start, end) = (low, high);
        }
        (start, end)
    }

    /// Where in the tensor, counted in C order, the element of this number is.
    fn place(&self, mut number: u64) -> u64 {
        let mut place = 0u64;
        for (axis, stride) in self.axes.iter().zip(&self.strides).rev() {
            let index = number % axis.count.max(1);
            number /= axis.count.max(1);
            let moved = i128::from(axis.first) + i128::from(index) * i128::from(axis.step);
            let moved = u64::try_from(moved).unwrap_or(0);
            place = place.saturating_add(moved.saturating_mul(*stride));
        }
        place
    }
}

/// Elements that are looked ahead for others that lie near.
const MOST_AHEAD: u64 = 1 << 20;

/// What a part takes of a dimension.
fn axis(part: &str, dim: u64) -> std::result::Result<Axis, String> {
    let number = |text: &str| {
        text.trim().parse::<i64>().map_err(|_| format!("`{}` is not a whole number", text.trim()))
    };
    let len = i64::try_from(dim).map_err(|_| "the dimension is too large".to_owned())?;
    if !part.contains(':') {
        let given = number(part)?;
        let index = if given < 0 { given.saturating_add(len) } else { given };
        let first = u64::try_from(index).ok().filter(|index| *index < dim);
        let first = first.ok_or_else(|| format!("index {given} is outside of {dim}"))?;
        return Ok(Axis { first, count: 1, step: 1, kept: false });
    }
    let fields: Vec<&str> = part.split(':').collect();
    if fields.len() > 3 {
        return Err(format!("`{part}` has more than three parts"));
    }
    let field = |at: usize| match fields.get(at).map(|text| text.trim()) {
        None | Some("") => Ok(None),
        Some(text) => number(text).map(Some),
    };
    let step = field(2)?.unwrap_or(1);
    if step == 0 {
        return Err("a step of 0".to_owned());
    }
    // As Python's `slice.indices`.
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |value: i64| {
        let value = if value < 0 { value.saturating_add(len) } else { value };
        value.clamp(low, high)
    };
    let start = field(0)?.map_or(if step > 0 { low } else { high }, clamp);
    let stop = field(1)?.map_or(if step > 0 { high } else { low }, clamp);
    let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
    let count = u64::try_from(span).map_or(0, |span| span.div_ceil(step.unsigned_abs()));
    Ok(Axis { first: u64::try_from(start).unwrap_or(0), count, step, kept: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str, shape: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let slice = Slice::parse(text, shape).unwrap();
        ((0..slice.len()).map(|number| slice.place(number)).collect(), slice.shape)
    }

    #[test]
    fn slices_are_those_of_python() {
        for (text, shape, wanted, left) in [
            ("0:2, :2", &[3u64, 4][..], &[0u64, 1, 4, 5][..], &[2u64, 2][..]),
            ("-1", &[3, 4], &[8, 9, 10, 11], &[4]),
            ("..., -1", &[2, 2, 2], &[1, 3, 5, 7], &[2, 2]),
            ("1, ...", &[2, 3], &[3, 4, 5], &[3]),
            ("::-1", &[4], &[3, 2, 1, 0], &[4]),
            ("3:0:-2", &[4], &[3, 1], &[2]),
            ("-2:", &[5], &[3, 4], &[2]),
            (":-3", &[5], &[0, 1], &[2]),
            ("1::2", &[6], &[1, 3, 5], &[3]),
            ("7:", &[5], &[], &[0]),
            ("-9:9", &[3], &[0, 1, 2], &[3]),
            ("-9::-1", &[3], &[], &[0]),
            ("", &[2], &[0, 1], &[2]),
            ("1,", &[2, 2], &[2, 3], &[2]),
            ("0,0", &[1, 1], &[0], &[]),
        ] {
            assert_eq!(places(text, shape), (wanted.to_vec(), left.to_vec()), "[{text}] {shape:?}");
        }
        for (text, shape) in [
            ("3", &[3u64][..]),
            ("-4", &[3]),
            ("0,0", &[3]),
            ("::0", &[3]),
            ("a", &[3]),
            ("...,...", &[3]),
            ("1:2:3:4", &[9]),
            ("0", &[]),
        ] {
            assert!(Slice::parse(text, shape).is_err(), "[{text}] {shape:?}");
        }
    }
}
