//! Torch's own quantised dtypes: integers with a scale and a zero point, for the tensor or for each
//! index of the first dimension.

use std::sync::Arc;

use statelens_checkpoint::{
    Arithmetic, Checkpoint, CodePacking, CodeValues, Codes, Computed, DType, Error, Layout, Offset,
    Quantizer, Result, Tensor, ValueId,
};

use super::scaled_codes;

/// The most channels whose zero points are read when weights are recognised.
const MAX_CHANNELS: u64 = 1 << 20;

/// Returns the numbers of a quantised tensor: `(integer - zero point) * scale` in float32.
pub(crate) fn numbers(
    source: &Checkpoint,
    tensor: &Tensor,
    quantizer: &Quantizer,
) -> Result<Tensor> {
    let stored = match tensor.stored {
        DType::QInt8 => DType::I8,
        DType::QUInt8 => DType::U8,
        DType::QInt32 => DType::I32,
        ref other => {
            return Err(Error::unsupported(format!("quantised elements of dtype {other}")));
        }
    };
    let plain = Tensor { dtype: stored.clone(), stored, quantizer: None, ..tensor.clone() };
    let layout = match quantizer {
        Quantizer::PerTensor { scale, zero_point } => {
            let steps = vec![Arithmetic::Add(-(*zero_point as f64)), Arithmetic::Multiply(*scale)];
            let of = Tensor { dtype: DType::F32, ..plain.clone() };
            Layout::Computed(Arc::new(Computed { of, steps, product: None }))
        }
        Quantizer::PerChannel { scales, zero_points, axis } => {
            channels(source, &plain, *scales, *zero_points, *axis)?
        }
    };
    Ok(Tensor {
        requires_grad: tensor.requires_grad,
        class: tensor.class.clone(),
        ..Tensor::new(DType::F32, tensor.shape.clone(), layout)
    })
}

fn channels(
    source: &Checkpoint,
    tensor: &Tensor,
    scales: ValueId,
    zero_points: ValueId,
    axis: u64,
) -> Result<Layout> {
    let part = |id, what: &str| {
        let part = source.tensor_of(id).map(|(_, part)| part);
        part.ok_or_else(|| Error::damaged(format!("the {what} are not a tensor")))
    };
    let (scales, zeros) = (part(scales, "scales")?, part(zero_points, "zero points")?);
    let (Some(count), 0) = (tensor.shape.first().copied(), axis) else {
        return Err(Error::unsupported(format!("scales along dimension {axis}"))
            .expected("scales along the first dimension"));
    };
    if zeros.numel() != Some(count) || count > MAX_CHANNELS || tensor.stored.itemsize() != 1 {
        return Err(Error::damaged(format!("zero points of shape {:?}", zeros.shape))
            .expected(format!("{count} zero points, and codes of one byte")));
    }
    let numbers = Tensor { dtype: DType::I64, ..zeros.clone() };
    let numbers = statelens_tensor::elements(&source.files, &numbers, 0..count)?;
    let byte = |number: &[u8; 8]| {
        let number = i64::from_le_bytes(*number);
        match tensor.stored {
            DType::I8 => i8::try_from(number).ok().map(|number| number.to_le_bytes()[0]),
            _ => u8::try_from(number).ok(),
        }
        .ok_or_else(|| Error::damaged(format!("a zero point is {number}")))
    };
    let bytes = numbers.as_chunks().0.iter().map(byte).collect::<Result<Vec<u8>>>()?;
    let zeros = Tensor::new(tensor.stored.clone(), vec![count], Layout::Inline(bytes.into()));
    let rest = tensor.shape[1..].iter().try_fold(1u64, |all, dim| all.checked_mul(*dim));
    let rest = rest.ok_or_else(|| Error::damaged("a tensor too large to count"))?;
    let values = CodeValues::As(tensor.stored.clone());
    let packing = CodePacking::Bytes;
    let shape = [1, count, rest];
    let mut of = scaled_codes(tensor, packing, values.clone(), shape, scales, rest);
    of.offset = Offset::Zeros(Codes { tensor: zeros, packing }, values);
    Ok(Layout::Dequantised(Arc::new(of)))
}
