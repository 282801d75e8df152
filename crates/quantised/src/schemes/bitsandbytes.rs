//! bitsandbytes: codes of four bits in runs over the flat weight, and int8 rows.

use std::sync::Arc;

use statelens_checkpoint::json::{Document, JsonNode};
use statelens_checkpoint::{
    CodePacking, CodeValues, Codes, DType, Dequantised, Error, Groups, Layout, Offset, Result,
    Scales, Tensor, numel,
};

use super::scaled_codes;
use crate::set::{Found, Made, Set, contradicts};

/// `1 / 127` as bitsandbytes multiplies by it (`int8_vectorwise_dequant`).
const EIGHT: f32 = 7.874_016e-3;

const STATES: [&str; 2] = ["quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4"];

pub(super) fn four_bits<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    set.get("absmax").or_else(|| set.get("quant_map"))?;
    let codes = set.get("codes")?;
    let names = ["absmax", "quant_map", "nested_absmax", "nested_quant_map", STATES[0], STATES[1]];
    let nested = if set.get("nested_absmax").is_some() { ", nested scales" } else { "" };
    let kind = match STATES.map(|name| set.get(name).is_some()) {
        [true, _] => "nf4",
        [_, true] => "fp4",
        _ => "4 bits",
    };
    Some(Found {
        name: set.module.to_owned(),
        scheme: format!("bitsandbytes {kind}{nested}"),
        codes,
        helpers: set.helpers(&names),
        made: four_bits_made(set, codes.tensor),
    })
}

fn four_bits_made(set: &Set<'_>, codes: &Tensor) -> Result<Made> {
    let state = STATES.iter().find_map(|name| set.get(name));
    let state = state.ok_or_else(|| {
        let key = set.key("quant_state.bitsandbytes__nf4");
        Error::damaged(format!("`{key}` is missing")).advice("It has the shape of the weight.")
    })?;
    let state = QuantState::parse(&set.read(state.tensor)?).map_err(|error| {
        let what = error.what();
        Error::damaged(format!("the quantisation state `{}` can't be read: {what}", state.name))
    })?;
    let count = numel(&state.shape).ok_or_else(|| Error::damaged("a shape too large to count"))?;
    let absmax = set.need("absmax")?;
    let scales = match state.nested {
        None => absmax.clone(),
        Some((each, offset)) => {
            let blocks = absmax.numel().unwrap_or(0);
            let map = CodeValues::Stored(set.need("nested_quant_map")?.clone());
            let shape = [1, 1, blocks];
            let scales = set.need("nested_absmax")?;
            let of = Dequantised {
                offset: Offset::Constant(offset),
                ..scaled_codes(absmax, CodePacking::Bytes, map, shape, scales, each)
            };
            Tensor::new(DType::F32, vec![blocks], Layout::Dequantised(Arc::new(of)))
        }
    };
    let of = Dequantised {
        codes: Codes { tensor: bytes(codes)?, packing: CodePacking::HighFirst },
        shape: [1, 1, count],
        swapped: false,
        values: CodeValues::Stored(set.need("quant_map")?.clone()),
        scales: Scales { tensor: scales, exponents: false, divisor: None },
        offset: Offset::None,
        groups: [Groups::Every(1), Groups::Every(state.blocksize)],
        factor: None,
        rounding: None,
    };
    Ok(Made { of, shape: state.shape, inferred: Vec::new() })
}

/// Returns codes as bytes: some programs store them as elements of a wider dtype.
fn bytes(codes: &Tensor) -> Result<Tensor> {
    let size = codes.stored.itemsize();
    if size == 1 {
        return Ok(codes.clone());
    }
    let count = codes.numel().and_then(|numel| numel.checked_mul(size));
    match (&codes.layout, count) {
        (Layout::Span(_) | Layout::Packed(_) | Layout::Inline(_), Some(count)) => {
            Ok(Tensor::new(DType::U8, vec![count], codes.layout.clone()))
        }
        _ => Err(Error::unsupported(format!("codes of dtype {}", codes.dtype))),
    }
}

pub(super) fn eight_bits<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let (codes, scales) = (set.get("weight")?, set.get("scb")?);
    let made = || -> Result<Made> {
        let [rows, columns] = codes.tensor.shape[..] else {
            return Err(contradicts("the codes are", &codes.tensor.shape, "two dimensions"));
        };
        if codes.tensor.dtype != DType::I8 {
            return Err(Error::damaged(format!("codes of dtype {}", codes.tensor.dtype))
                .expected("codes of dtype int8"));
        }
        if let Some(format) = set.get("weight_format") {
            let format = set.read(format.tensor)?;
            if format != [0] {
                return Err(Error::unsupported(format!("codes in the tiles of format {format:?}"))
                    .expected("rows, format 0"));
            }
        }
        let values = CodeValues::As(DType::I8);
        let shape = [1, rows, columns];
        let of = Dequantised {
            factor: Some(EIGHT),
            ..scaled_codes(codes.tensor, CodePacking::Bytes, values, shape, scales.tensor, columns)
        };
        Ok(Made { of, shape: vec![rows, columns], inferred: Vec::new() })
    };
    Some(Found {
        name: codes.name.to_owned(),
        scheme: "bitsandbytes int8".into(),
        codes,
        helpers: set.helpers(&["scb", "weight_format"]),
        made: made(),
    })
}

/// The JSON that is stored with a weight of four bits.
struct QuantState {
    blocksize: u64,
    shape: Vec<u64>,
    /// The size of blocks of scales, and the number that is added to them.
    nested: Option<(u64, f32)>,
}

impl QuantState {
    fn parse(text: &[u8]) -> Result<Self> {
        let document = Document::parse(text)?;
        let root = document.root();
        let bad = |name: &str| Error::damaged(format!("it has no valid `{name}`"));
        let number = |name: &str| match document.field(root, name) {
            Some(JsonNode::Int(number)) => {
                number.to_string().parse::<u64>().ok().filter(|number| *number > 0)
            }
            _ => None,
        };
        let float = |name: &str| match document.field(root, name) {
            Some(JsonNode::Float(number)) => Some(*number as f32),
            Some(JsonNode::Int(number)) => number.to_string().parse().ok(),
            _ => None,
        };
        let dims = document.get(root, "shape").map(|id| document.items(id)).unwrap_or_default();
        let dim = |id| match document.node(id) {
            JsonNode::Int(number) => number.to_string().parse().ok(),
            _ => None,
        };
        let shape: Option<Vec<u64>> = dims.iter().map(|id| dim(*id)).collect();
        let nested = match document.field(root, "nested_blocksize") {
            None | Some(JsonNode::Null) => None,
            Some(_) => Some((
                number("nested_blocksize").ok_or_else(|| bad("nested_blocksize"))?,
                float("nested_offset").ok_or_else(|| bad("nested_offset"))?,
            )),
        };
        Ok(Self {
            blocksize: number("blocksize").ok_or_else(|| bad("blocksize"))?,
            shape: shape.filter(|shape| !shape.is_empty()).ok_or_else(|| bad("shape"))?,
            nested,
        })
    }
}
