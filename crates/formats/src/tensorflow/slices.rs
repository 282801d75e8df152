//! Slices: the parts of a partitioned variable, which are saved separately.
//!
//! See `TensorSliceProto` in `tensorflow/core/framework/tensor_slice.proto`. For the keys of
//! slices, see `tensorflow/core/util/saved_tensor_slice_util.cc` and
//! `tensorflow/core/lib/strings/ordered_code.cc`.

use statelens_checkpoint::{Concat, Error, Layout, Part, Result, numel, order};

use super::proto::{FieldValue, Message};

/// The extent of a slice along one dimension. If `len` is `None`, it is the whole dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) len: Option<u64>,
}

/// The extents of a slice, one per dimension.
pub(super) type SliceExtents = Vec<Extent>;

/// The location of a slice in a tensor: start and length per dimension.
pub(super) type Extents = Vec<(u64, u64)>;

pub(super) fn parse(bytes: &[u8]) -> Result<SliceExtents> {
    let mut slice = SliceExtents::new();
    for field in Message::new(bytes) {
        let (1, FieldValue::Bytes(extent)) = field? else { continue };
        let mut parsed = Extent { start: 0, len: None };
        for field in Message::new(extent) {
            match field? {
                (1, FieldValue::Varint(start)) => parsed.start = signed(start)?,
                (2, FieldValue::Varint(len)) => parsed.len = Some(signed(len)?),
                _ => {}
            }
        }
        slice.push(parsed);
    }
    Ok(slice)
}

fn signed(number: u64) -> Result<u64> {
    match i64::try_from(number) {
        Ok(_) => Ok(number),
        Err(_) => Err(Error::damaged("a slice of a tensor has a negative place or length")),
    }
}

/// Returns the key of a tensor's slice in the table.
pub(super) fn key(name: &[u8], slice: &[Extent]) -> Vec<u8> {
    let mut key = vec![0];
    for byte in name {
        match byte {
            0 => key.extend([0, 0xff]),
            0xff => key.extend([0xff, 0]),
            byte => key.push(*byte),
        }
    }
    key.extend([0, 1]);
    increasing(&mut key, slice.len() as u64);
    for Extent { start, len } in slice {
        signed_increasing(&mut key, *start);
        match len {
            Some(len) => signed_increasing(&mut key, *len),
            // -1.
            None => key.push(0x7f),
        }
    }
    key
}

/// Appends a number in an encoding that sorts numerically: the number of bytes, then the bytes,
/// highest first.
fn increasing(key: &mut Vec<u8>, number: u64) {
    let len = 8 - number.leading_zeros() as usize / 8;
    key.push(len as u8);
    key.extend(&number.to_be_bytes()[8 - len..]);
}

/// Appends a non-negative number in the encoding for signed numbers.
fn signed_increasing(key: &mut Vec<u8>, number: u64) {
    // Each byte has seven bits for the number; one bit in total is for the sign.
    let bits = 64 - number.leading_zeros() as usize;
    let len = bits / 7 + 1;
    // As many leading ones as there are bytes.
    let ones = !(u128::MAX >> len) >> (128 - 8 * len);
    let coded = u128::from(number) | ones;
    key.extend(&coded.to_be_bytes()[16 - len..]);
}

/// Returns the extents of a slice in a tensor of `shape`, or `None` if it is not inside.
pub(super) fn within(slice: &[Extent], shape: &[u64]) -> Option<Extents> {
    if slice.len() != shape.len() {
        return None;
    }
    let extent = |(extent, dim): (&Extent, &u64)| {
        let len = match extent.len {
            Some(len) => len,
            None => dim.checked_sub(extent.start)?,
        };
        extent.start.checked_add(len).filter(|end| end <= dim)?;
        Some((extent.start, len))
    };
    slice.iter().zip(shape).map(extent).collect()
}

/// Joins slices into a tensor of `shape`. Fails with a reason if that is not possible.
///
/// TensorFlow's partitioners cut through whole dimensions, so the slices form a grid.
pub(super) fn assemble(shape: &[u64], mut parts: Vec<(Extents, Layout)>) -> Result<Layout, String> {
    let mut grid = Vec::with_capacity(shape.len());
    for (axis, dim) in shape.iter().enumerate() {
        let mut cuts: Vec<(u64, u64)> = parts.iter().map(|(extents, _)| extents[axis]).collect();
        order::natural(&mut cuts);
        cuts.dedup();
        let mut end = 0;
        for (start, len) in &cuts {
            if *start != end {
                return Err(format!(
                    "its slices leave out or overlap {} to {} of dimension {axis}",
                    end.min(*start),
                    end.max(*start)
                ));
            }
            end = start + len;
        }
        if end != *dim {
            return Err(format!("its slices end at {end} of the {dim} of dimension {axis}"));
        }
        grid.push(cuts);
    }
    let cells = grid.iter().try_fold(1usize, |cells, cuts| cells.checked_mul(cuts.len()));
    if cells != Some(parts.len()) {
        return Err(format!("its {} slices leave gaps or overlap", parts.len()));
    }
    order::by(&mut parts, |a, b| a.0.cmp(&b.0));
    if parts.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err("two of its slices are the same".into());
    }
    let part = |(extents, layout): (Extents, Layout)| Part {
        shape: extents.iter().map(|(_, len)| *len).collect(),
        layout,
    };
    let mut parts: Vec<Part> = parts.into_iter().map(part).collect();
    // Joins from the last partitioned axis to the first, so that neighbours in the list are
    // neighbours in the tensor.
    for (axis, cuts) in grid.iter().enumerate().rev() {
        if cuts.len() < 2 {
            continue;
        }
        let mut joined = Vec::with_capacity(parts.len() / cuts.len());
        let mut rest = parts.into_iter();
        loop {
            let row: Vec<Part> = rest.by_ref().take(cuts.len()).collect();
            let Some(first) = row.first() else { break };
            let mut whole = first.shape.clone();
            whole[axis] = shape[axis];
            let layout = Layout::Concat(Concat { axis, parts: row });
            joined.push(Part { shape: whole, layout });
        }
        parts = joined;
    }
    parts.into_iter().next().map(|part| part.layout).ok_or_else(|| "it has no slices".into())
}

/// The maximum number of dimensions in TensorFlow.
const RANK: usize = 254;

/// Puts the strings of slices with these extents into the order of a tensor of `shape`.
pub(super) fn place<'a>(
    shape: &[u64],
    parts: &[(Extents, Vec<&'a [u8]>)],
) -> Result<Vec<&'a [u8]>, String> {
    // Checked before anything is allocated according to the shape.
    let found: usize = parts.iter().map(|(_, strings)| strings.len()).sum();
    if numel(shape) != Some(found as u64) || shape.len() > RANK {
        return Err(format!("its slices hold {found} strings, which does not match its shape"));
    }
    let mut placed = vec![None; found];
    for (extents, strings) in parts {
        for (number, string) in (0u64..).zip(strings) {
            // Converts the index in the slice to an index in the tensor, from the last axis to the
            // first.
            let (mut inner, mut at, mut stride) = (number, 0u64, 1u64);
            for ((start, len), dim) in extents.iter().zip(shape).rev() {
                at = at.saturating_add((start + inner % len.max(&1)).saturating_mul(stride));
                inner /= len.max(&1);
                stride = stride.saturating_mul(*dim);
            }
            let place = usize::try_from(at).ok().and_then(|at| placed.get_mut(at));
            match place {
                Some(place @ None) if inner == 0 => *place = Some(*string),
                _ => return Err("its slices overlap".into()),
            }
        }
    }
    placed.into_iter().collect::<Option<_>>().ok_or_else(|| "its slices leave gaps".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_strings_of_slices_in_order() {
        let left = (vec![(0, 2), (0, 1)], vec![&b"a"[..], b"c"]);
        let right = (vec![(0, 2), (1, 1)], vec![&b"b"[..], b"d"]);
        let whole = place(&[2, 2], &[right.clone(), left.clone()]).unwrap();
        assert_eq!(whole, [b"a", b"b", b"c", b"d"]);
        assert!(place(&[2, 2], &[left.clone(), left.clone()]).unwrap_err().contains("overlap"));
        assert!(place(&[2, 2], std::slice::from_ref(&left)).is_err());
        assert!(place(&[1 << 40, 1 << 20], &[left, right]).is_err());
        assert_eq!(place(&[0, 3], &[(vec![(0, 0), (0, 3)], Vec::new())]).unwrap().len(), 0);
        let long = (vec![(0, 1)], vec![&b"a"[..], b"b"]);
        assert!(place(&[2], &[long]).unwrap_err().contains("overlap"));
    }

    fn coded(number: u64) -> Vec<u8> {
        let mut key = Vec::new();
        signed_increasing(&mut key, number);
        key
    }

    #[test]
    fn encodes_numbers_as_tensorflow_does() {
        assert_eq!(coded(0), [0x80]);
        assert_eq!(coded(63), [0xbf]);
        assert_eq!(coded(64), [0xc0, 0x40]);
        assert_eq!(coded(8191), [0xdf, 0xff]);
        assert_eq!(coded(150_000), [0xe2, 0x49, 0xf0]);
        assert_eq!(coded(1 << 41), [0xfe, 2, 0, 0, 0, 0, 0]);
        assert_eq!(coded(1 << 50), [0xff, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(coded(i64::MAX as u64).len(), 10);
    }

    #[test]
    fn escapes_names_in_keys() {
        let slice = [Extent { start: 0, len: None }];
        assert_eq!(key(b"a\0\xff", &slice), [0, b'a', 0, 0xff, 0xff, 0, 0, 1, 1, 1, 0x80, 0x7f]);
        assert_eq!(key(b"", &[]), [0, 0, 1, 0]);
    }

    #[test]
    fn assembles_only_complete_grids() {
        let empty = || Layout::Missing("".into());
        let cells = |cells: &[[(u64, u64); 2]]| {
            assemble(&[4, 6], cells.iter().map(|cell| (cell.to_vec(), empty())).collect())
        };
        let whole = [[(0, 4), (0, 2)], [(0, 4), (2, 4)]];
        assert!(matches!(cells(&whole), Ok(Layout::Concat(concat)) if concat.axis == 1));
        let four = [[(0, 1), (0, 2)], [(0, 1), (2, 4)], [(1, 3), (0, 2)], [(1, 3), (2, 4)]];
        let Ok(Layout::Concat(rows)) = cells(&four) else { panic!() };
        assert_eq!((rows.axis, rows.parts[1].shape.clone()), (0, vec![3, 6]));
        assert!(cells(&four[..3]).is_err());
        assert!(cells(&whole[..1]).is_err());
        assert!(cells(&[whole[0], whole[1], whole[1]]).is_err());
        assert!(cells(&[[(0, 4), (0, 4)], [(0, 4), (2, 4)]]).is_err());
        assert!(cells(&[]).is_err());
    }
}
