//! Slices of tensors, as in Python.

use std::fmt;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};
use std::sync::Arc;

use statelens_checkpoint::{
    Concat, DType, Error, Layout, Part, Result, Strided, Tensor, contiguous_strides,
};

/// A selection in each dimension of a tensor, parsed from Python's notation by [`str::parse`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    axes: Vec<Axis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Axis {
    /// One index, which removes the dimension; counts from the end if negative.
    Index(i64),
    /// `start:stop:step`; negative indices count from the end, and all are clipped to the
    /// dimension.
    Range {
        /// The first index; by default the end from which `step` starts.
        start: Option<i64>,
        /// The end, which is excluded; by default beyond the end that `step` moves towards.
        stop: Option<i64>,
        /// The step between indices; not 0.
        step: i64,
    },
    /// `...`: all dimensions that are not named, complete.
    Rest,
}

impl Slice {
    /// Creates a slice from the selections in the first dimensions; the others are complete.
    pub fn new(axes: impl IntoIterator<Item = Axis>) -> Self {
        Self { axes: axes.into_iter().collect() }
    }

    /// Returns the slice of a tensor, as a view of the same bytes. Fails if the tensor has fewer
    /// dimensions, or an index lies outside.
    pub fn of(&self, tensor: &Tensor) -> Result<Tensor> {
        if [&tensor.dtype, &tensor.stored].iter().any(|it| matches!(it, DType::Blocks(_))) {
            return Err(Error::unsupported("quantised blocks can't be sliced")
                .advice("Read the tensor as a whole."));
        }
        let taken = self.taken(&tensor.shape)?;
        let shape: Vec<u64> = taken.iter().filter(|one| one.kept).map(|one| one.count).collect();
        if shape.contains(&0) {
            let layout = Layout::Inline(Arc::new([]));
            return Ok(Tensor { shape, layout, ..tensor.clone() });
        }
        if tensor.shape.is_empty() {
            return Ok(tensor.clone());
        }
        let large = || Error::damaged("a tensor too large to count");
        let base = match &tensor.layout {
            Layout::Strided(strided) => strided.clone(),
            layout => {
                let storage = match layout {
                    Layout::Span(_) | Layout::Packed(_) | Layout::Inline(_) | Layout::Fill(_) => {
                        layout.clone()
                    }
                    // A layout with a shape of its own.
                    layout => {
                        let (shape, layout) = (tensor.shape.clone(), layout.clone());
                        Layout::Concat(Concat { axis: 0, parts: vec![Part { shape, layout }] })
                    }
                };
                let len = tensor.numel().and_then(|numel| tensor.stored.bytes_of(numel));
                Strided {
                    storage: Arc::new(storage),
                    storage_len: len.ok_or_else(large)?,
                    offset: 0,
                    strides: contiguous_strides(&tensor.shape).ok_or_else(large)?,
                }
            }
        };
        let mut view = Strided { strides: Vec::new(), ..base };
        for (one, stride) in taken.iter().zip(&base.strides) {
            let moved = i128::from(one.first) * i128::from(*stride) + i128::from(view.offset);
            view.offset = u64::try_from(moved).map_err(|_| large())?;
            if one.kept {
                // For a single index the stride does not matter, and might not fit.
                let step = if one.count > 1 { stride.checked_mul(one.step) } else { Some(1) };
                view.strides.push(step.ok_or_else(large)?);
            }
        }
        Ok(Tensor { shape, layout: Layout::Strided(view), ..tensor.clone() })
    }

    /// Returns the selection in each dimension of a shape. Fails if the shape has fewer dimensions,
    /// or an index lies outside.
    pub fn taken(&self, shape: &[u64]) -> Result<Vec<Taken>> {
        let bad = |why: String| {
            Error::refused(format!("this is not a slice of a tensor of shape {shape:?}: {why}"))
                .coded("slice")
                .expected(NOTATION)
        };
        let rest = self.axes.iter().filter(|axis| **axis == Axis::Rest).count();
        let named = self.axes.len() - rest;
        if rest > 1 {
            return Err(bad("it has ... twice".into()));
        }
        if named > shape.len() {
            return Err(bad("it has more parts than the tensor has dimensions".into()));
        }
        let mut axes = Vec::with_capacity(shape.len());
        for axis in &self.axes {
            match axis {
                Axis::Rest => axes.extend(std::iter::repeat_n(WHOLE, shape.len() - named)),
                axis => axes.push(*axis),
            }
        }
        axes.resize(shape.len(), WHOLE);
        axes.iter().zip(shape).map(|(axis, dim)| axis.taken(*dim).map_err(bad)).collect()
    }
}

const NOTATION: &str = "numbers and start:stop:step as in Python, e.g. [0:2, -4:, 7]";

const WHOLE: Axis = Axis::Range { start: None, stop: None, step: 1 };

/// The selection in a dimension of known length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    pub first: u64,
    pub count: u64,
    pub step: i64,
    /// Whether the dimension remains: a single index removes it.
    pub kept: bool,
}

impl Axis {
    /// Resolves the selection as Python's `slice.indices` does.
    fn taken(self, dim: u64) -> std::result::Result<Taken, String> {
        let len = i64::try_from(dim).map_err(|_| "the dimension is too large".to_owned())?;
        let (start, stop, step) = match self {
            Self::Index(index) => {
                let from = if index < 0 { index.saturating_add(len) } else { index };
                let first = u64::try_from(from).ok().filter(|first| *first < dim);
                let first = first.ok_or_else(|| format!("index {index} is outside of {dim}"))?;
                return Ok(Taken { first, count: 1, step: 1, kept: false });
            }
            Self::Range { step: 0, .. } => return Err("a step of 0".to_owned()),
            Self::Range { start, stop, step } => (start, stop, step),
            Self::Rest => (None, None, 1),
        };
        let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
        let clamp = |index: i64| {
            let index = if index < 0 { index.saturating_add(len) } else { index };
            index.clamp(low, high)
        };
        let start = start.map_or(if step > 0 { low } else { high }, clamp);
        let stop = stop.map_or(if step > 0 { high } else { low }, clamp);
        let span = if step > 0 { stop - start } else { start - stop };
        let count = u64::try_from(span).map_or(0, |span| span.div_ceil(step.unsigned_abs()));
        Ok(Taken { first: u64::try_from(start).unwrap_or(0), count, step, kept: true })
    }
}

impl std::str::FromStr for Slice {
    type Err = Error;

    /// Parses the text of a Python index without its brackets: `0:2, :, -1`, `..., 7`, `::2`.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: String| {
            Error::refused(format!("[{text}] is not a slice: {why}"))
                .coded("slice")
                .expected(NOTATION)
        };
        let text = text.trim();
        let parts = text.strip_suffix(',').unwrap_or(text).split(',').map(str::trim);
        let parts = parts.filter(|_| !text.is_empty());
        parts.map(|part| axis(part).map_err(bad)).collect::<Result<_>>().map(|axes| Self { axes })
    }
}

impl fmt::Display for Slice {
    /// Formats the slice as in Python, without the brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, axis) in self.axes.iter().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            axis.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => index.fmt(f),
            Self::Rest => f.write_str("..."),
            Self::Range { start, stop, step } => {
                let text = |index: &Option<i64>| index.map(|it| it.to_string()).unwrap_or_default();
                write!(f, "{}:{}", text(start), text(stop))?;
                if *step == 1 { Ok(()) } else { write!(f, ":{step}") }
            }
        }
    }
}

fn axis(part: &str) -> std::result::Result<Axis, String> {
    let number = |text: &str| {
        text.trim().parse::<i64>().map_err(|_| format!("`{}` is not a whole number", text.trim()))
    };
    if part == "..." {
        return Ok(Axis::Rest);
    }
    if !part.contains(':') {
        return number(part).map(Axis::Index);
    }
    let fields: Vec<&str> = part.split(':').collect();
    if fields.len() > 3 {
        return Err(format!("`{part}` has more than three parts"));
    }
    let field = |at: usize| match fields.get(at).map(|text| text.trim()) {
        None | Some("") => Ok(None),
        Some(text) => number(text).map(Some),
    };
    Ok(Axis::Range { start: field(0)?, stop: field(1)?, step: field(2)?.unwrap_or(1) })
}

impl From<i64> for Axis {
    fn from(index: i64) -> Self {
        Self::Index(index)
    }
}

impl From<Range<i64>> for Axis {
    fn from(range: Range<i64>) -> Self {
        Self::Range { start: Some(range.start), stop: Some(range.end), step: 1 }
    }
}

impl From<RangeInclusive<i64>> for Axis {
    fn from(range: RangeInclusive<i64>) -> Self {
        // Up to and including -1 is up to the end.
        let stop = range.end().checked_add(1).filter(|stop| *stop != 0);
        Self::Range { start: Some(*range.start()), stop, step: 1 }
    }
}

impl From<RangeFrom<i64>> for Axis {
    fn from(range: RangeFrom<i64>) -> Self {
        Self::Range { start: Some(range.start), stop: None, step: 1 }
    }
}

impl From<RangeTo<i64>> for Axis {
    fn from(range: RangeTo<i64>) -> Self {
        Self::Range { start: None, stop: Some(range.end), step: 1 }
    }
}

impl From<RangeFull> for Axis {
    fn from(_: RangeFull) -> Self {
        WHOLE
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{FileSet, Memory};

    use super::*;
    use crate::elements;

    /// Returns the elements of a slice of a tensor whose elements are numbered, and the shape of
    /// the slice. Compares a span with a concatenation of the same bytes.
    #[track_caller]
    fn taken(slice: &Slice, shape: &[u64]) -> (Vec<u8>, Vec<u64>) {
        let len: u64 = shape.iter().product();
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let files = FileSet::single("x", Memory::from(bytes.clone()));
        let file = files.main().unwrap();
        let span = |offset, len| Layout::Span(statelens_checkpoint::Span { file, offset, len });
        let whole = Tensor::new(DType::U8, shape.to_vec(), span(0, len));
        let view = slice.of(&whole).unwrap();
        let values = elements(&files, &view, 0..view.numel().unwrap()).unwrap();
        if let [first, rest @ ..] = shape
            && *first > 1
        {
            let row: u64 = rest.iter().product();
            let part = |from: u64, rows: u64| Part {
                shape: [&[rows], rest].concat(),
                layout: span(from * row, rows * row),
            };
            let parts = vec![part(0, 1), part(1, first - 1)];
            let layout = Layout::Concat(Concat { axis: 0, parts });
            let view = slice.of(&Tensor { layout, ..whole.clone() }).unwrap();
            assert_eq!(elements(&files, &view, 0..view.numel().unwrap()).unwrap(), values);
        }
        // A slice of a slice is also a view of the same bytes.
        let again = Slice::new([WHOLE]).of(&view);
        if !view.shape.is_empty() {
            let again = again.unwrap();
            assert_eq!(elements(&files, &again, 0..again.numel().unwrap()).unwrap(), values);
        }
        (values, view.shape)
    }

    #[test]
    fn slices_match_python() {
        for (text, shape, wanted, left) in [
            ("0:2, :2", &[3u64, 4][..], &[0u8, 1, 4, 5][..], &[2u64, 2][..]),
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
            ("...", &[], &[0], &[]),
        ] {
            let slice: Slice = text.parse().unwrap();
            assert_eq!(
                taken(&slice, shape),
                (wanted.to_vec(), left.to_vec()),
                "[{text}] {shape:?}"
            );
        }
        for (text, shape) in [
            ("3", &[3u64][..]),
            ("-4", &[3]),
            ("0,0", &[3]),
            ("::0", &[3]),
            ("...,...", &[3]),
            ("0", &[]),
        ] {
            assert!(text.parse::<Slice>().unwrap().taken(shape).is_err(), "[{text}] {shape:?}");
        }
        for text in ["0:2, :2", "-1", "..., 7", "::-1, :", "3:0:-2, 4:"] {
            assert_eq!(text.parse::<Slice>().unwrap().to_string(), text);
        }
        for text in ["a", "1:2:3:4", "1,,2", "1.5"] {
            assert!(text.parse::<Slice>().is_err(), "[{text}]");
        }
    }
}
