//! Checks the indices of sparse tensors and the offsets of nested ones. Releases of torch rarely
//! check them: 2.15 checks sparse tensors on weights-only loads
//! (`_validate_loaded_sparse_tensors`), 2.4 no offsets. A loader without these checks reads and
//! writes outside of the tensor.

use statelens_checkpoint::{
    Checkpoint, DType, Dict, DictClass, DictKey, FileSet, Finding, Grade, Result, Sparse, Tensor,
    Value,
};

use super::fatal;

/// Number of indices read at once.
const PIECE: u64 = 1 << 16;

/// Checks all sparse and nested tensors of a checkpoint. `expected` is their number according to
/// the pickles in the file.
pub(super) fn check(
    checkpoint: &Checkpoint,
    files: &FileSet,
    expected: u64,
) -> Result<Option<Finding>> {
    let mut checked = 0;
    for (_, value) in checkpoint.values().numbered() {
        let reader = Reader { checkpoint, files };
        let sound = match value {
            Value::Sparse(sparse) => reader.sparse(sparse),
            Value::Dict(Dict { class: DictClass::Object(class), entries })
                if class.is("torch._utils", "_rebuild_nested_tensor") =>
            {
                let part = |index: usize| {
                    let key = DictKey::from(format!("args[{index}]").as_str());
                    let (_, id) = entries.iter().find(|(name, _)| *name == key)?;
                    Some(checkpoint.tensor_of(*id)?.1)
                };
                match [part(0), part(1), part(2), part(3)] {
                    [Some(buffer), Some(sizes), Some(strides), Some(offsets)] => {
                        reader.nested(buffer, [sizes, strides, offsets])
                    }
                    _ => Ok(None),
                }
            }
            _ => continue,
        };
        match sound {
            Ok(Some(())) => checked += 1,
            Ok(None) => return Ok(Some(outside())),
            Err(error) => {
                fatal(&error)?;
                return Ok(Some(unchecked()));
            }
        }
    }
    Ok((checked < expected).then(unchecked))
}

/// Returns the finding for indices that could not be read.
pub(super) fn unchecked() -> Finding {
    Finding::new(
        Grade::UnknownCode,
        "The indices of a sparse or nested tensor could not be checked",
    )
    .detail(RISK)
    .advice(ADVICE)
}

fn outside() -> Finding {
    Finding::new(Grade::Damage, "The indices of a sparse or nested tensor are outside of its shape")
        .detail(RISK)
        .advice(ADVICE)
}

const RISK: &str =
    "torch reads and writes at the places that they say, unless it loads weights alone.";
const ADVICE: &str = "Load the file with `torch.load(weights_only=True)` only.";

struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    files: &'a FileSet,
}

/// `None` if the tensor is inconsistent.
type Sound = Result<Option<()>>;

impl Reader<'_> {
    fn sparse(&self, sparse: &Sparse) -> Sound {
        let parts = sparse.parts.iter().map(|(_, id)| Some(self.checkpoint.tensor_of(*id)?.1));
        let Some(parts) = parts.collect::<Option<Vec<_>>>() else { return Ok(None) };
        match (&*sparse.layout, &parts[..]) {
            ("sparse_coo", [indices, values]) => self.coordinates(sparse, indices, values),
            (layout, [compressed, plain, values]) => {
                self.compressed(layout, &sparse.shape, [compressed, plain, values])
            }
            _ => Ok(None),
        }
    }

    /// Checks a COO tensor: indices of shape `[dimensions, count]`, each inside the shape; values
    /// of shape `[count, …]`.
    fn coordinates(&self, sparse: &Sparse, indices: &Tensor, values: &Tensor) -> Sound {
        let [dims, count] = indices.shape[..] else { return Ok(None) };
        let Some((sizes, dense)) = sparse.shape.split_at_checked(dims as usize) else {
            return Ok(None);
        };
        if values.shape.first() != Some(&count) || values.shape[1..] != *dense {
            return Ok(None);
        }
        let mut at = 0;
        self.each(indices, &mut |index| {
            let size = sizes.get((at / count.max(1)) as usize).copied().unwrap_or(0);
            at += 1;
            u64::try_from(index).is_ok_and(|index| index < size)
        })
    }

    /// Checks a compressed tensor: compressed indices of shape `[…, rows + 1]` that ascend from 0
    /// to `count`, plain indices of shape `[…, count]` below the number of columns, values of shape
    /// `[…, count, …]`. A block counts as one value.
    fn compressed(&self, layout: &str, shape: &[u64], parts: [&Tensor; 3]) -> Sound {
        let [compressed, plain, values] = parts;
        let Some(batch) = plain.shape.len().checked_sub(1) else { return Ok(None) };
        let count = plain.shape[batch];
        let blocks = match layout {
            "sparse_bsr" | "sparse_bsc" => values.shape.get(batch + 1..batch + 3),
            _ => Some(&[1, 1][..]),
        };
        let (Some([rows, columns]), Some([height, width])) = (shape.get(batch..batch + 2), blocks)
        else {
            return Ok(None);
        };
        let (rows, columns) = match (rows.checked_div(*height), columns.checked_div(*width)) {
            (Some(rows), Some(columns)) => (rows, columns),
            _ => return Ok(None),
        };
        let (long, short) = match layout {
            "sparse_csr" | "sparse_bsr" => (rows, columns),
            _ => (columns, rows),
        };
        let same =
            |tensor: &Tensor| tensor.shape.get(..batch).is_some_and(|dims| *dims == shape[..batch]);
        let fits = compressed.shape.len() == batch + 1
            && compressed.shape[batch].checked_sub(1) == Some(long)
            && values.shape.get(batch) == Some(&count)
            && [compressed, plain, values].into_iter().all(same);
        if !fits {
            return Ok(None);
        }
        let (mut at, mut last) = (0, 0);
        let rising = self.each(compressed, &mut |index| {
            let column = at % (long + 1);
            at += 1;
            let Ok(index) = u64::try_from(index) else { return false };
            let sound = match column {
                0 => index == 0,
                _ => index >= last,
            };
            last = index;
            sound && if column == long { index == count } else { index <= count }
        })?;
        match rising {
            Some(()) => {
                self.each(plain, &mut |index| u64::try_from(index).is_ok_and(|index| index < short))
            }
            None => Ok(None),
        }
    }

    /// Checks a nested tensor: sizes and strides of shape `[count, dimensions]` and offsets of
    /// shape `[count]`, with each view inside the buffer.
    fn nested(&self, buffer: &Tensor, parts: [&Tensor; 3]) -> Sound {
        let [sizes, strides, offsets] = parts;
        let ([room], [count]) = (&buffer.shape[..], &offsets.shape[..]) else { return Ok(None) };
        let dims = match sizes.shape[..] {
            [rows, dims] if rows == *count => dims,
            [0] if *count == 0 => 0,
            _ => return Ok(None),
        };
        if sizes.shape != strides.shape {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(3);
        for part in parts {
            let mut numbers = Vec::new();
            let sound = self.each(part, &mut |number| match u64::try_from(number) {
                Ok(number) => {
                    numbers.push(number);
                    true
                }
                Err(_) => false,
            })?;
            if sound.is_none() {
                return Ok(None);
            }
            all.push(numbers);
        }
        let [sizes, strides, offsets] = &all[..] else { return Ok(None) };
        let dims = dims as usize;
        let inside = |(row, offset): (usize, &u64)| {
            let at = row.checked_mul(dims)?;
            let (sizes, strides) = (sizes.get(at..at + dims)?, strides.get(at..at + dims)?);
            let mut last = *offset;
            for (size, stride) in sizes.iter().zip(strides) {
                last = last.checked_add(size.saturating_sub(1).checked_mul(*stride)?)?;
            }
            (sizes.contains(&0) || last < *room).then_some(())
        };
        Ok(offsets.iter().enumerate().try_for_each(inside))
    }

    /// Calls `each` with the integers of a tensor in C order, until it returns false.
    fn each(&self, tensor: &Tensor, each: &mut dyn FnMut(i64) -> bool) -> Sound {
        let width = match tensor.dtype {
            DType::I64 => 8,
            DType::I32 => 4,
            _ => return Ok(None),
        };
        let Some(count) = tensor.shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim))
        else {
            return Ok(None);
        };
        let mut at = 0;
        while at < count {
            let end = count.min(at + PIECE);
            let bytes = statelens_tensor::elements(self.files, tensor, at..end)?;
            for number in bytes.chunks_exact(width) {
                let number = match *number {
                    [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
                    [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
                    _ => return Ok(None),
                };
                if !each(number) {
                    return Ok(None);
                }
            }
            at = end;
        }
        Ok(Some(()))
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{
        Builder, FileId, FormatInfo, Global, Layout, Limits, Memory, Span, ValueId,
    };

    use super::*;

    /// A tensor of integers: its shape and values.
    type Part<'a> = (&'a [u64], &'a [i64]);

    /// Stores tensors of 64-bit integers in one file.
    #[derive(Default)]
    struct Parts {
        bytes: Vec<u8>,
        tensors: Vec<Tensor>,
    }

    impl Parts {
        fn of(parts: &[Part<'_>]) -> Self {
            let mut all = Self::default();
            for (shape, values) in parts {
                let offset = all.bytes.len() as u64;
                all.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                let len = all.bytes.len() as u64 - offset;
                let layout = Layout::Span(Span { file: FileId(0), offset, len });
                all.tensors.push(Tensor::new(DType::I64, shape.to_vec(), layout));
            }
            all
        }

        /// Returns the result of the check for a value with these tensors as its parts.
        fn check(self, value: impl FnOnce(Vec<ValueId>) -> Value) -> Option<Grade> {
            let files = FileSet::single("x", Memory::from(self.bytes));
            let mut tree = Builder::new(&Limits::default());
            let mut ids = Vec::new();
            for tensor in self.tensors {
                let id = tree.push_tensor(tensor).unwrap();
                ids.push(tree.push(Value::Tensor(id)).unwrap());
            }
            let root = tree.push(value(ids)).unwrap();
            let checkpoint =
                tree.finish(root, FormatInfo::default(), files.clone(), Vec::new()).unwrap();
            check(&checkpoint, &files, 1).unwrap().map(|finding| finding.grade)
        }
    }

    fn sparse(layout: &str, shape: &[u64], parts: Parts) -> Option<Grade> {
        parts.check(|ids| {
            let names = ["a", "b", "c"].into_iter();
            Value::Sparse(Box::new(Sparse {
                layout: layout.to_owned(),
                dtype: DType::I64,
                shape: shape.to_vec(),
                parts: names.zip(ids).collect(),
                coalesced: None,
            }))
        })
    }

    #[test]
    fn accepts_indices_within_the_shape() {
        for (layout, shape, parts) in [
            ("sparse_coo", &[2, 3][..], &[(&[2, 2][..], &[0, 1, 0, 2][..]), (&[2], &[7, 8])][..]),
            ("sparse_coo", &[2, 3], &[(&[1, 1], &[1]), (&[1, 3], &[7, 8, 9])]),
            ("sparse_coo", &[2, 3], &[(&[2, 0], &[]), (&[0], &[])]),
            ("sparse_csr", &[2, 3], &[(&[3], &[0, 1, 2]), (&[2], &[0, 2]), (&[2], &[7, 8])]),
            ("sparse_csc", &[2, 3], &[(&[4], &[0, 1, 1, 2]), (&[2], &[0, 1]), (&[2], &[7, 8])]),
            (
                "sparse_bsr",
                &[4, 6],
                &[(&[3], &[0, 1, 1]), (&[1], &[2]), (&[1, 2, 2], &[1, 2, 3, 4])],
            ),
            (
                "sparse_csr",
                &[2, 1, 3],
                &[(&[2, 2], &[0, 1, 0, 1]), (&[2, 1], &[0, 2]), (&[2, 1], &[7, 8])],
            ),
        ] {
            assert_eq!(sparse(layout, shape, Parts::of(parts)), None, "{layout} {parts:?}");
        }
    }

    #[test]
    fn reports_indices_outside_the_shape() {
        for (what, layout, shape, parts) in [
            (
                "index too large",
                "sparse_coo",
                &[2, 3][..],
                &[(&[2, 1][..], &[0, 3][..]), (&[1], &[7])][..],
            ),
            ("negative index", "sparse_coo", &[2, 3], &[(&[2, 1], &[-1, 0]), (&[1], &[7])]),
            ("fewer values", "sparse_coo", &[2, 3], &[(&[2, 2], &[0, 1, 0, 2]), (&[1], &[7])]),
            ("shape of values", "sparse_coo", &[2, 3], &[(&[1, 1], &[1]), (&[1, 2], &[7, 8])]),
            ("more dimensions", "sparse_coo", &[2], &[(&[2, 1], &[0, 0]), (&[1], &[7])]),
            (
                "does not begin at 0",
                "sparse_csr",
                &[2, 3],
                &[(&[3], &[1, 1, 2]), (&[2], &[0, 2]), (&[2], &[7, 8])],
            ),
            (
                "descending",
                "sparse_csr",
                &[3, 3],
                &[(&[4], &[0, 2, 1, 2]), (&[2], &[0, 2]), (&[2], &[7, 8])],
            ),
            (
                "does not end at the count",
                "sparse_csr",
                &[2, 3],
                &[(&[3], &[0, 1, 1]), (&[2], &[0, 2]), (&[2], &[7, 8])],
            ),
            (
                "number of rows",
                "sparse_csr",
                &[2, 3],
                &[(&[2], &[0, 2]), (&[2], &[0, 2]), (&[2], &[7, 8])],
            ),
            (
                "column too large",
                "sparse_csr",
                &[2, 3],
                &[(&[3], &[0, 1, 2]), (&[2], &[0, 3]), (&[2], &[7, 8])],
            ),
            (
                "row too large",
                "sparse_csc",
                &[2, 3],
                &[(&[4], &[0, 1, 1, 2]), (&[2], &[0, 2]), (&[2], &[7, 8])],
            ),
            (
                "number of values",
                "sparse_csr",
                &[2, 3],
                &[(&[3], &[0, 1, 2]), (&[2], &[0, 2]), (&[1], &[7])],
            ),
            (
                "block outside",
                "sparse_bsr",
                &[4, 6],
                &[(&[3], &[0, 1, 1]), (&[1], &[3]), (&[1, 2, 2], &[1, 2, 3, 4])],
            ),
            (
                "number of batches",
                "sparse_csr",
                &[2, 1, 3],
                &[(&[2, 2], &[0, 1, 0, 1]), (&[2, 1], &[0, 2]), (&[1, 1], &[7])],
            ),
        ] {
            let found = sparse(layout, shape, Parts::of(parts));
            assert_eq!(found, Some(Grade::Damage), "{what}");
        }
    }

    #[test]
    fn reports_indices_of_another_dtype_and_unreadable_ones() {
        let parts: &[Part<'_>] = &[(&[1, 1], &[0]), (&[1], &[7])];
        let mut floats = Parts::of(parts);
        floats.tensors[0].dtype = DType::F64;
        assert_eq!(sparse("sparse_coo", &[2], floats), Some(Grade::Damage));
        let mut missing = Parts::of(parts);
        missing.bytes.clear();
        assert_eq!(sparse("sparse_coo", &[2], missing), Some(Grade::UnknownCode));
    }

    #[test]
    fn reports_nested_views_outside_the_buffer() {
        let nested = |parts: &[Part<'_>]| {
            Parts::of(parts).check(|ids| {
                let name = |index: usize| DictKey::from(format!("args[{index}]").as_str());
                let class =
                    Global { module: "torch._utils".into(), name: "_rebuild_nested_tensor".into() };
                let entries = ids.into_iter().enumerate().map(|(at, id)| (name(at), id)).collect();
                Value::Dict(Dict { class: DictClass::Object(class.into()), entries })
            })
        };
        let buffer = (&[4][..], &[1, 2, 3, 4][..]);
        let two = &[2, 1][..];
        let sound = [buffer, (two, &[2, 2]), (two, &[1, 1]), (&[2], &[0, 2])];
        assert_eq!(nested(&sound), None);
        for (what, parts) in [
            ("offset", [buffer, (two, &[2, 2]), (two, &[1, 1]), (&[2], &[0, 3])]),
            ("stride", [buffer, (two, &[2, 2]), (two, &[1, 9]), (&[2], &[0, 2])]),
            ("negative offset", [buffer, (two, &[2, 2]), (two, &[1, 1]), (&[2], &[-1, 2])]),
            ("fewer strides", [buffer, (two, &[2, 2]), (&[1, 1], &[1]), (&[2], &[0, 2])]),
            ("other strides", [buffer, (two, &[2, 2]), (&[1, 2], &[1, 1]), (&[2], &[0, 2])]),
            ("more offsets", [buffer, (two, &[2, 2]), (two, &[1, 1]), (&[3], &[0, 2, 0])]),
        ] {
            assert_eq!(nested(&parts), Some(Grade::Damage), "{what}");
        }
        assert_eq!(nested(&sound[..3]), Some(Grade::Damage), "without offsets");
    }
}
