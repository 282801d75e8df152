//! Stored bytes as elements of another dtype.

use std::sync::Arc;

use statelens_checkpoint::{
    CodePacking, CodeValues, Codes, DType, Dequantised, Error, Groups, Layout, Offset, Result,
    Scales, Tensor, numel,
};

/// Integers of four bits: name, places in a byte, whether they are signed.
const FOUR_BITS: [(&str, CodePacking, bool); 4] = [
    ("uint4", CodePacking::AlongRow(4), false),
    ("int4", CodePacking::AlongRow(4), true),
    ("uint4-high-first", CodePacking::HighFirst, false),
    ("int4-high-first", CodePacking::HighFirst, true),
];

/// Returns a tensor whose bytes are read as elements of another dtype: one of the same width, or
/// integers of four bits, of which the first is in the low half of a byte, or with `-high-first` in
/// the high half. Integers of four bits are shown as float32. `shape` is the new shape.
pub fn reinterpreted(tensor: &Tensor, dtype: &str, shape: Option<&[u64]>) -> Result<Tensor> {
    let found = FOUR_BITS.iter().find(|(name, ..)| *name == dtype);
    let mut read = match found {
        Some((_, packing, signed)) => four_bits(tensor, *packing, *signed)?,
        None => same_width(tensor, dtype)?,
    };
    if let Some(shape) = shape {
        if numel(shape) != read.numel() {
            return Err(Error::refused(format!(
                "a tensor of shape {:?} can't have the shape {shape:?}",
                read.shape
            ))
            .expected(format!("{} elements", read.numel().unwrap_or(0))));
        }
        if !matches!(
            read.layout,
            Layout::Span(_) | Layout::Packed(_) | Layout::Inline(_) | Layout::Dequantised(_)
        ) {
            return Err(Error::unsupported("a view or a tensor in chunks can't be reshaped here"));
        }
        read.shape = shape.to_vec();
    }
    Ok(read)
}

fn same_width(tensor: &Tensor, dtype: &str) -> Result<Tensor> {
    let dtype = DType::from_torch_name(dtype).ok_or_else(|| {
        let names: Vec<&str> = FOUR_BITS.iter().map(|(name, ..)| *name).collect();
        Error::refused(format!("`{dtype}` is not a dtype"))
            .expected(format!("a dtype of torch, or one of {}", names.join(", ")))
    })?;
    let (own, other) = (tensor.stored.itemsize(), dtype.itemsize());
    if own != other || matches!(tensor.stored, DType::Blocks(_)) {
        return Err(Error::refused(format!(
            "{} has {own} bytes for an element, and {dtype} {other}",
            tensor.stored
        ))
        .expected("a dtype of the same width"));
    }
    let (stored, quantizer) = (dtype.clone(), None);
    Ok(Tensor { dtype, stored, quantizer, conjugate: false, negate: false, ..tensor.clone() })
}

fn four_bits(tensor: &Tensor, packing: CodePacking, signed: bool) -> Result<Tensor> {
    let bytes = tensor.numel().and_then(|numel| tensor.stored.bytes_of(numel));
    let bytes = bytes.ok_or_else(|| Error::damaged("a tensor too large to count"))?;
    let wide = tensor.stored.itemsize();
    if wide > 1 && !matches!(tensor.layout, Layout::Span(_) | Layout::Inline(_)) {
        return Err(Error::unsupported("only dense elements can be read as integers of four bits"));
    }
    let count = bytes.checked_mul(2).ok_or_else(|| Error::damaged("too many elements"))?;
    let codes =
        Tensor { storage: None, ..Tensor::new(DType::U8, vec![bytes], tensor.layout.clone()) };
    let codes = match wide {
        1 => Tensor { shape: tensor.shape.clone(), ..codes },
        _ => codes,
    };
    let value = |code: i8| f32::from(if signed && code > 7 { code - 16 } else { code });
    let one = Tensor::new(DType::F32, vec![1], Layout::Inline(1f32.to_le_bytes().into()));
    let of = Dequantised {
        codes: Codes { tensor: codes, packing },
        shape: [1, 1, count],
        swapped: false,
        values: CodeValues::Table((0..16).map(value).collect()),
        scales: Scales { tensor: one, exponents: false, divisor: None },
        offset: Offset::None,
        groups: [Groups::Every(1), Groups::Every(count.max(1))],
        factor: None,
        rounding: None,
    };
    let mut shape = tensor.shape.clone();
    match shape.last_mut() {
        Some(last) => *last = last.saturating_mul(2 * wide),
        None => shape.push(count),
    }
    Ok(Tensor::new(DType::F32, shape, Layout::Dequantised(Arc::new(of))))
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{FileSet, Memory, Span};

    use super::*;

    #[test]
    fn bytes_become_other_elements() {
        let files = FileSet::single("x", Memory::from(vec![0x3f, 0x80, 0x21, 0xf4]));
        let span = Span { file: files.main().unwrap(), offset: 0, len: 4 };
        let tensor = Tensor::new(DType::I16, vec![2], Layout::Span(span));
        let read = |dtype: &str, shape: Option<&[u64]>| {
            let read = reinterpreted(&tensor, dtype, shape)?;
            let numel = read.numel().unwrap();
            let as_float = Tensor { dtype: DType::F32, ..read.clone() };
            let bytes = statelens_tensor::elements(&files, &as_float, 0..numel)?;
            let floats = bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four));
            Ok::<_, Error>((read.shape, floats.collect::<Vec<f32>>()))
        };
        assert_eq!(read("uint16", None).unwrap().1, [0x803f as f32, 0xf421 as f32]);
        let (shape, codes) = read("uint4", None).unwrap();
        assert_eq!((shape, codes), (vec![8], vec![15., 3., 0., 8., 1., 2., 4., 15.]));
        let (shape, codes) = read("int4-high-first", Some(&[2, 4])).unwrap();
        assert_eq!((shape, codes), (vec![2, 4], vec![3., -1., -8., 0., 2., 1., -1., 4.]));
        for (dtype, shape) in [("float32", None), ("int5", None), ("int4", Some(&[3][..]))] {
            assert!(read(dtype, shape).is_err(), "{dtype}");
        }
    }
}
