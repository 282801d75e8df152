//! Element types and constants in the notation of the format.

use half::{bf16, f16};
use statelens_checkpoint::json::JsonNode;
use statelens_checkpoint::{DType, Int, Tensor};

/// Parses a name such as `torch.float32`.
pub(super) fn torch_dtype(name: &str) -> Option<DType> {
    DType::from_torch_name(name.strip_prefix("torch.").unwrap_or(name))
}

/// Sets the dtype that a dataset's tensor had when it was saved. 16-bit integers in the file are
/// reinterpreted as bfloat16; anything else is cast, as the library does on load.
pub(super) fn retype(tensor: &mut Tensor, dtype: DType) {
    let bits = matches!(tensor.stored, DType::I16 | DType::U16 | DType::F16);
    if dtype == DType::BF16 && bits {
        tensor.stored = DType::BF16;
    }
    tensor.dtype = dtype;
}

/// Returns one element of a constant tensor, little-endian, or `None` if the dtype can't hold the
/// value.
pub(super) fn constant(dtype: &DType, value: &Constant) -> Option<Vec<u8>> {
    let float = value.float();
    let whole = |size: usize| {
        // As numpy casts: rounds towards zero, and fails if the value is out of range.
        let int = match value {
            Constant::Int(int) => int.clone(),
            Constant::Float(float) => Int::parse(&format!("{:.0}", float.trunc()))?,
        };
        let mut bytes = int.to_le_bytes();
        let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let unsigned = matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
        if unsigned && !negative && bytes.last() == Some(&0) {
            bytes.pop();
        }
        if bytes.len() > size || (unsigned && negative) {
            return None;
        }
        bytes.resize(size, if negative { 0xff } else { 0 });
        Some(bytes)
    };
    Some(match dtype {
        DType::Bool => vec![u8::from(float != 0.0)],
        DType::U8 | DType::I8 => whole(1)?,
        DType::U16 | DType::I16 => whole(2)?,
        DType::U32 | DType::I32 => whole(4)?,
        DType::U64 | DType::I64 => whole(8)?,
        DType::F16 => f16::from_f64(float).to_le_bytes().into(),
        DType::BF16 => bf16::from_f64(float).to_le_bytes().into(),
        DType::F32 => (float as f32).to_le_bytes().into(),
        DType::F64 => float.to_le_bytes().into(),
        DType::C64 => [(float as f32).to_le_bytes(), [0; 4]].concat(),
        DType::C128 => [float.to_le_bytes(), [0; 8]].concat(),
        _ if float == 0.0 => vec![0; dtype.itemsize() as usize],
        _ => return None,
    })
}

/// The value of all elements of a constant tensor.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant {
    Int(Int),
    Float(f64),
}

impl Constant {
    pub(super) fn from_json(node: &JsonNode) -> Option<Self> {
        Some(match node {
            JsonNode::Int(int) => Self::Int(int.clone()),
            JsonNode::Float(float) => Self::Float(*float),
            JsonNode::Bool(value) => Self::Int(i64::from(*value).into()),
            _ => return None,
        })
    }

    fn float(&self) -> f64 {
        match self {
            Self::Int(int) => int.to_string().parse().unwrap_or(f64::NAN),
            Self::Float(float) => *float,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_constants_as_numpy_does() {
        let int = |value: i64| Constant::Int(value.into());
        assert_eq!(constant(&DType::U8, &int(255)), Some(vec![255]));
        assert_eq!(constant(&DType::U8, &int(256)), None);
        assert_eq!(constant(&DType::U8, &int(-1)), None);
        assert_eq!(constant(&DType::I8, &int(128)), None);
        assert_eq!(constant(&DType::I16, &int(-2)), Some(vec![0xfe, 0xff]));
        assert_eq!(constant(&DType::I64, &int(7)), Some(vec![7, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(
            constant(&DType::I32, &Constant::Float(-2.7)),
            Some(vec![0xfe, 0xff, 0xff, 0xff])
        );
        assert_eq!(constant(&DType::BF16, &int(1)), Some(vec![0x80, 0x3f]));
        assert_eq!(constant(&DType::F16, &Constant::Float(0.5)), Some(vec![0x00, 0x38]));
        assert_eq!(constant(&DType::Bool, &Constant::Float(0.5)), Some(vec![1]));
    }
}
