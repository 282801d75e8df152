//! Dtypes as marks: a short word, a hue for the family, a gauge for the width.

use crate::rows::{LeafKind, Row};

/// The family of a dtype, which is the hue of its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DTypeFamily {
    Bf16,
    /// float16.
    F16,
    F32,
    /// float64 and complex.
    F64,
    Int,
    Bool,
    /// 8-bit floats and quantised blocks.
    Fp8,
    /// Values that are not tensors.
    Value,
}

impl DTypeFamily {
    /// Returns the CSS class of the mark, which is also the suffix of the token `--d-…`.
    pub fn class(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Int => "int",
            Self::Bool => "bool",
            Self::Fp8 => "fp8",
            Self::Value => "val",
        }
    }

    /// Returns the colour token, for SVG.
    pub fn color(self) -> &'static str {
        match self {
            Self::Bf16 => "var(--d-bf16)",
            Self::F16 => "var(--d-f16)",
            Self::F32 => "var(--d-f32)",
            Self::F64 => "var(--d-f64)",
            Self::Int => "var(--d-int)",
            Self::Bool => "var(--d-bool)",
            Self::Fp8 => "var(--d-fp8)",
            Self::Value => "var(--d-val)",
        }
    }
}

/// Returns the family of a dtype by torch's name.
pub fn family(dtype: &str) -> DTypeFamily {
    match dtype {
        "" => DTypeFamily::Value,
        "bfloat16" => DTypeFamily::Bf16,
        "float16" => DTypeFamily::F16,
        "float32" => DTypeFamily::F32,
        "float64" => DTypeFamily::F64,
        "bool" => DTypeFamily::Bool,
        _ if dtype.starts_with("complex") => DTypeFamily::F64,
        _ if dtype.starts_with("float8")
            || dtype.starts_with("float4")
            || dtype.starts_with('q') =>
        {
            DTypeFamily::Fp8
        }
        _ if is_blocks(dtype) => DTypeFamily::Fp8,
        _ if dtype.starts_with("int") || dtype.starts_with("uint") || dtype.starts_with("bits") => {
            DTypeFamily::Int
        }
        _ => DTypeFamily::Value,
    }
}

/// Returns whether a dtype consists of quantised blocks: `Q4_K`, `IQ2_XXS`, `MXFP4`. No other dtype
/// has capitals.
fn is_blocks(dtype: &str) -> bool {
    dtype.starts_with(|c: char| c.is_ascii_uppercase())
        && dtype.ends_with(|c: char| c.is_ascii_alphanumeric())
}

/// Returns the tooltip of a dtype.
pub fn title(dtype: &str) -> String {
    if is_blocks(dtype) { format!("{dtype} blocks") } else { format!("torch.{dtype}") }
}

/// Returns the family of a row: its hue on the tape and in its mark.
pub fn row_family(row: &Row) -> DTypeFamily {
    if row.kind.has_shape() { family(&row.dtype) } else { DTypeFamily::Value }
}

/// Returns the gauge's CSS class: a quarter for 8 bits or fewer, then a quarter more for each
/// doubling.
pub fn gauge(dtype: &str) -> &'static str {
    let digits: String = dtype
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    match digits.parse::<u32>() {
        Ok(0..=15) => "b8",
        Ok(16..=31) => "b16",
        Ok(32..=63) => "b32",
        Ok(_) => "b64",
        Err(_) => "b8",
    }
}

/// Returns the short word for a dtype, as in `bf16` for `bfloat16`.
pub fn short(dtype: &str) -> String {
    if let Some(code) = numpy_code(dtype) {
        return code;
    }
    let (head, tail) = short_parts(dtype);
    format!("{head}{tail}")
}

/// Returns whether a text is the short word for a dtype.
pub fn is_short(dtype: &str, text: &str) -> bool {
    if let Some(code) = numpy_code(dtype) {
        return code.eq_ignore_ascii_case(text);
    }
    let (head, tail) = short_parts(dtype);
    match text.get(..head.len()) {
        Some(start) => start == head && text[head.len()..].eq_ignore_ascii_case(tail),
        None => false,
    }
}

/// Returns NumPy's code for texts, bytes and records, whose names count bits: `U5` for `str160`.
fn numpy_code(dtype: &str) -> Option<String> {
    let kinds = [("str", 'U', 32), ("bytes", 'S', 8), ("void", 'V', 8)];
    kinds.into_iter().find_map(|(name, letter, each)| {
        let bits: u64 = dtype.strip_prefix(name)?.parse().ok()?;
        bits.is_multiple_of(each).then(|| format!("{letter}{}", bits / each))
    })
}

fn short_parts(dtype: &str) -> (&'static str, &str) {
    const HEADS: [(&str, &str); 7] = [
        ("bfloat", "bf"),
        ("float8_", ""),
        ("float4_", ""),
        ("float", "f"),
        ("uint", "u"),
        ("int", "i"),
        ("complex", "c"),
    ];
    let known = |(long, short)| Some((short, dtype.strip_prefix(long)?));
    HEADS.into_iter().find_map(known).unwrap_or(("", dtype))
}

/// Returns the word in the kind column.
pub fn word(row: &Row) -> String {
    match row.kind {
        LeafKind::Tensor | LeafKind::Array => short(&row.dtype),
        _ => row.kind_word().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_dtype_names() {
        for (dtype, expected) in [
            ("float32", "f32"),
            ("bfloat16", "bf16"),
            ("uint8", "u8"),
            ("int64", "i64"),
            ("complex128", "c128"),
            ("float8_e4m3fnuz", "e4m3fnuz"),
            ("bool", "bool"),
            ("qint32", "qint32"),
            ("bits1x8", "bits1x8"),
            ("str160", "U5"),
            ("bytes16", "S2"),
            ("void192", "V24"),
        ] {
            assert_eq!(short(dtype), expected);
            assert!(is_short(dtype, expected) && !is_short(dtype, &dtype[1..]), "{dtype}");
        }
    }

    #[test]
    fn gauges_grow_with_width() {
        for (dtype, expected) in [
            ("bool", "b8"),
            ("float4_e2m1fn_x2", "b8"),
            ("float8_e5m2", "b8"),
            ("bfloat16", "b16"),
            ("int32", "b32"),
            ("complex64", "b64"),
            ("complex128", "b64"),
        ] {
            assert_eq!(gauge(dtype), expected, "{dtype}");
        }
    }

    #[test]
    fn groups_dtypes_into_families() {
        assert_eq!(family("uint16"), DTypeFamily::Int);
        assert_eq!(family("complex32"), DTypeFamily::F64);
        assert_eq!(family("float8_e4m3fn"), DTypeFamily::Fp8);
        assert_eq!(family("quint8"), DTypeFamily::Fp8);
        for blocks in ["Q4_K", "IQ2_XXS", "TQ1_0", "MXFP4"] {
            assert_eq!(family(blocks), DTypeFamily::Fp8, "{blocks}");
            assert!(is_short(blocks, &blocks.to_lowercase()), "{blocks}");
        }
    }
}
