//! Slices in the syntax of Python libraries.

use statelens_checkpoint::Result;
use statelens_tensor::{Axis, Slice};

/// Index expressions to append to a tensor in Python.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PythonSlice {
    /// The index for NumPy; empty for the whole tensor.
    pub(super) index: String,
    /// The same without negative steps, which neither PyTorch nor h5py accepts.
    pub(super) forwards: String,
    /// Whether each dimension of the result must be reversed afterwards.
    turned: Vec<bool>,
}

impl PythonSlice {
    /// Converts a slice of a tensor of this shape; fails if the slice is invalid.
    pub(super) fn new(slice: &Slice, shape: &[u64]) -> Result<Self> {
        let taken = slice.taken(shape)?;
        let text = slice.to_string();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let index = format!("[{text}]");
        let turned: Vec<bool> =
            taken.iter().filter(|axis| axis.kept).map(|axis| axis.step < 0).collect();
        if !turned.contains(&true) {
            return Ok(Self { forwards: index.clone(), index, turned: Vec::new() });
        }
        let signed = |index: u64| i64::try_from(index).unwrap_or(i64::MAX);
        let axes = taken.iter().map(|axis| {
            if !axis.kept {
                return Axis::Index(signed(axis.first));
            }
            let way = axis.step.unsigned_abs().saturating_mul(axis.count.saturating_sub(1));
            let (first, last) = match axis.step > 0 {
                true => (axis.first, axis.first.saturating_add(way)),
                false => (axis.first.saturating_sub(way), axis.first),
            };
            let stop = if axis.count == 0 { first } else { last.saturating_add(1) };
            let step = axis.step.saturating_abs();
            Axis::Range { start: Some(signed(first)), stop: Some(signed(stop)), step }
        });
        Ok(Self { index, forwards: format!("[{}]", Slice::new(axes)), turned })
    }

    /// Returns the index that reverses a NumPy array read with positive steps.
    pub(super) fn then_numpy(&self) -> String {
        let axes: Vec<&str> =
            self.turned.iter().map(|turned| if *turned { "::-1" } else { ":" }).collect();
        if axes.is_empty() { String::new() } else { format!("[{}]", axes.join(", ")) }
    }

    /// Returns the call that reverses a PyTorch tensor read with positive steps.
    pub(super) fn then_torch(&self) -> String {
        let turned = self.turned.iter().enumerate().filter(|(_, turned)| **turned);
        let dims: Vec<String> = turned.map(|(dim, _)| dim.to_string()).collect();
        if dims.is_empty() { String::new() } else { format!(".flip({})", dims.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_steps_become_forward_reads_with_flips() {
        for (text, wanted) in [
            ("0:2, -4:", ["[0:2, -4:]", "[0:2, -4:]", "", ""]),
            ("", ["", "", "", ""]),
            ("..., 1", ["[..., 1]", "[..., 1]", "", ""]),
            ("::-1", ["[::-1]", "[0:8, 0:16]", "[::-1, :]", ".flip(0)"]),
            ("3, 14:2:-5", ["[3, 14:2:-5]", "[3, 4:15:5]", "[::-1]", ".flip(0)"]),
            ("::-3, ::2", ["[::-3, ::2]", "[1:8:3, 0:15:2]", "[::-1, :]", ".flip(0)"]),
            ("::-9, ::-1", ["[::-9, ::-1]", "[7:8:9, 0:16]", "[::-1, ::-1]", ".flip(0, 1)"]),
            (":5:-1, 3:3", ["[:5:-1, 3:3]", "[6:8, 3:3]", "[::-1, :]", ".flip(0)"]),
            ("3:3:-1", ["[3:3:-1]", "[3:3, 0:16]", "[::-1, :]", ".flip(0)"]),
        ] {
            let slice = PythonSlice::new(&text.parse().unwrap(), &[8, 16]).unwrap();
            let PythonSlice { index, forwards, .. } = &slice;
            let found = [index, forwards, &slice.then_numpy(), &slice.then_torch()];
            assert_eq!(found, wanted.map(String::from).each_ref(), "[{text}]");
        }
        assert!(PythonSlice::new(&"8".parse().unwrap(), &[8, 16]).is_err());
    }
}
