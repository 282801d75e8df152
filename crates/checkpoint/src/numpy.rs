//! Element types by numpy's codes and names, and records of them.
//!
//! The codes are those of numpy's array interface,
//! <https://numpy.org/doc/stable/reference/arrays.interface.html>.

use std::sync::Arc;

use crate::{ByteOrder, DType, Field, NumpyType};

/// Maximum number of byte ranges to reverse in one element: more than in any real type, few enough
/// to list.
const MAX_WORDS: u64 = 1 << 16;

/// The types that torch has, too, with their letters.
const CODES: [(&str, &str, DType); 14] = [
    ("b1", "?", DType::Bool),
    ("u1", "B", DType::U8),
    ("u2", "H", DType::U16),
    ("u4", "I", DType::U32),
    ("u8", "Q", DType::U64),
    ("i1", "b", DType::I8),
    ("i2", "h", DType::I16),
    ("i4", "i", DType::I32),
    ("i8", "q", DType::I64),
    ("f2", "e", DType::F16),
    ("f4", "f", DType::F32),
    ("f8", "d", DType::F64),
    ("c8", "F", DType::C64),
    ("c16", "D", DType::C128),
];

/// The units of dates.
const UNITS: [&str; 13] = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"];

impl DType {
    /// Returns the dtype of a code without its byte order: `f4`, `U3`, `S2`, `V12`, `M8[s]`, `f16`,
    /// `d`; `None` for an unknown code, for objects (`O`), and for letters of types whose size
    /// depends on the machine.
    pub fn from_numpy_code(code: &str) -> Option<Self> {
        let is_known = |row: &&(&str, &str, _)| row.0 == code || row.1 == code;
        if let Some((.., dtype)) = CODES.iter().find(is_known) {
            return Some(dtype.clone());
        }
        let (kind, rest) = code.split_at_checked(1)?;
        let (digits, unit) = rest.split_at(rest.find('[').unwrap_or(rest.len()));
        let size = match digits {
            "" => 0,
            _ if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse::<u64>().ok()?,
            _ => return None,
        };
        let unit_is_sound = unit.is_empty() || is_unit(unit);
        if !unit_is_sound || !matches!(kind, "M" | "m") && !unit.is_empty() {
            return None;
        }
        match kind {
            "U" => {
                let itemsize = size.checked_mul(4)?;
                let name = format!("str{}", itemsize.checked_mul(8)?);
                numpy(name, format!("U{size}"), itemsize, 4)
            }
            "S" | "a" => {
                numpy(format!("bytes{}", size.checked_mul(8)?), format!("S{size}"), size, 1)
            }
            "V" => numpy(format!("void{}", size.checked_mul(8)?), format!("V{size}"), size, 1),
            // `long double`; its width depends on the machine that wrote the file.
            "f" if matches!(size, 12 | 16) => {
                numpy(format!("float{}", size * 8), code.to_owned(), size, size)
            }
            "c" if matches!(size, 24 | 32) => {
                numpy(format!("complex{}", size * 8), code.to_owned(), size, size / 2)
            }
            "M" if size == 8 => numpy(format!("datetime64{unit}"), code.to_owned(), 8, 8),
            "m" if size == 8 => numpy(format!("timedelta64{unit}"), code.to_owned(), 8, 8),
            _ => None,
        }
    }

    /// Returns the code without its byte order; `None` for a dtype that numpy does not have.
    pub fn numpy_code(&self) -> Option<&str> {
        match self {
            Self::Numpy(numpy) => Some(&numpy.code),
            _ => CODES.iter().find(|row| row.2 == *self).map(|row| row.0),
        }
    }

    /// Returns the dtype of arrays of Python objects, `numpy.dtype("O")`. No tensor has it.
    pub fn objects() -> Self {
        Self::Numpy(Arc::new(NumpyType {
            name: "object".into(),
            code: "O".into(),
            itemsize: 8,
            words: Vec::new(),
            fields: Vec::new(),
        }))
    }

    /// Returns a record. Its fields keep their own byte orders: the byte ranges of big-endian
    /// fields are listed in [`NumpyType::words`], so a tensor of records counts as big-endian.
    ///
    /// Returns `None` if a field exceeds the record, or has more numbers than any real one.
    pub fn record(itemsize: u64, fields: Vec<(Field, ByteOrder)>) -> Option<Self> {
        let mut words = Vec::new();
        for (field, order) in &fields {
            let count = field.shape.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim))?;
            let size = field.dtype.itemsize();
            let end = field.offset.checked_add(size.checked_mul(count)?)?;
            if end > itemsize {
                return None;
            }
            if *order == ByteOrder::Big {
                let one = field.dtype.words();
                if field.dtype.unit().is_some() {
                    return None;
                }
                if count.checked_mul(one.len() as u64)? + words.len() as u64 > MAX_WORDS {
                    return None;
                }
                // Skips a loop over perhaps very many elements without anything to reverse.
                let count = if one.is_empty() { 0 } else { count };
                for index in 0..count {
                    let start = field.offset + index * size;
                    words.extend(one.iter().map(|(at, len)| (start + at, *len)));
                }
            }
        }
        Some(Self::Numpy(Arc::new(NumpyType {
            name: format!("void{}", itemsize.checked_mul(8)?),
            code: format!("V{itemsize}"),
            itemsize,
            words,
            fields: fields.into_iter().map(|(field, _)| field).collect(),
        })))
    }

    /// Returns the dtype that numpy calls `name` (`dtype.name`), for names that torch doesn't have.
    pub fn from_numpy_name(name: &str) -> Option<Self> {
        let sized = [("str", 'U', 32), ("bytes", 'S', 8), ("void", 'V', 8)];
        for (start, code, bits) in sized {
            if let Some(size) = name.strip_prefix(start) {
                let size: u64 = size.parse().ok()?;
                let whole = size.is_multiple_of(bits);
                return Self::from_numpy_code(&format!("{code}{}", size / bits)).filter(|_| whole);
            }
        }
        let dated = |start: &str, code: &str| Some(format!("{code}{}", name.strip_prefix(start)?));
        let code = match name {
            "float128" => Some("f16".into()),
            "complex256" => Some("c32".into()),
            _ => dated("datetime64", "M8").or_else(|| dated("timedelta64", "m8")),
        };
        Self::from_numpy_code(&code?)
    }

    /// Returns the bytes of each of the equal units of a very long string; its
    /// [`words`](Self::words) list only the first one.
    pub fn unit(&self) -> Option<u64> {
        let Self::Numpy(numpy) = self else { return None };
        let [(0, unit)] = *numpy.words else { return None };
        let many = numpy.fields.is_empty() && numpy.itemsize / unit.max(1) > MAX_WORDS;
        many.then_some(unit)
    }

    /// Returns the byte ranges that are reversed in one big-endian element: `(offset, size)`.
    pub fn words(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Numpy(numpy) => numpy.words.clone(),
            Self::Blocks(block) => block.words.to_vec(),
            _ if self.word() <= 1 => Vec::new(),
            _ => {
                let word = self.word();
                (0..self.itemsize() / word).map(|index| (index * word, word)).collect()
            }
        }
    }
}

/// Returns whether a text is the unit of a date: `[s]`, `[25s]`.
fn is_unit(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or("");
    let name = inner.trim_start_matches(|c: char| c.is_ascii_digit());
    let count = &inner[..inner.len() - name.len()];
    UNITS.contains(&name) && (count.is_empty() || count.parse::<i32>().is_ok())
}

/// Builds a type with one byte range per code unit. For a very long string the list would take more
/// memory than the file, so it has only the first unit. See [`DType::unit`].
fn numpy(name: String, code: String, itemsize: u64, word: u64) -> Option<DType> {
    let count = if word > 1 { itemsize / word } else { 0 };
    let count = if count > MAX_WORDS { 1 } else { count };
    let words = (0..count).map(|n| (n * word, word)).collect();
    Some(DType::Numpy(Arc::new(NumpyType { name, code, itemsize, words, fields: Vec::new() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_numpy_codes() {
        for (code, name, itemsize, words) in [
            ("f4", "float32", 4, 1),
            ("b1", "bool", 1, 0),
            ("c16", "complex128", 16, 2),
            ("U3", "str96", 12, 3),
            ("S2", "bytes16", 2, 0),
            ("V12", "void96", 12, 0),
            ("S0", "bytes0", 0, 0),
            ("f16", "float128", 16, 1),
            ("c32", "complex256", 32, 2),
            ("M8[25s]", "datetime64[25s]", 8, 1),
            ("m8", "timedelta64", 8, 1),
        ] {
            let dtype = DType::from_numpy_code(code).unwrap();
            assert_eq!(dtype.numpy_code(), Some(code));
            assert_eq!((dtype.name(), dtype.itemsize()), (name, itemsize));
            assert_eq!(dtype.words().len(), words, "{code}");
            let named = DType::from_torch_name(name).or_else(|| DType::from_numpy_name(name));
            assert_eq!(named, Some(dtype), "{name}");
        }
        let wrong =
            ["", "g", "f3", "q4", "U-1", "U+1", "é4", "O", "f4[s]", "U99999999999999999999"];
        for code in wrong.into_iter().chain([
            "U9223372036854775807",
            "M8[s",
            "M8[foo]",
            "M4[s]",
            "S9223372036854775807",
        ]) {
            assert_eq!(DType::from_numpy_code(code), None, "{code}");
        }
        // Longer strings are readable, too, but only their first unit is listed.
        let long = DType::from_numpy_code("U70000").unwrap();
        assert_eq!((long.words().as_slice(), long.unit()), ([(0, 4)].as_slice(), Some(4)));
        assert_eq!(DType::from_numpy_code("U3").unwrap().unit(), None);
        assert_eq!(DType::BF16.numpy_code(), None);
        for name in ["str33", "str", "void", "datetime64[", "object", "float129", "bytes-8"] {
            assert_eq!(DType::from_numpy_name(name), None, "{name}");
        }
    }

    #[test]
    fn records_keep_the_byte_order_of_each_field() {
        let field = |name: &str, offset, code, shape: &[u64]| Field {
            name: name.into(),
            title: String::new(),
            offset,
            dtype: DType::from_numpy_code(code).unwrap(),
            shape: shape.to_vec(),
        };
        let fields = || {
            vec![
                (field("a", 0, "i2", &[2]), ByteOrder::Big),
                (field("b", 4, "f4", &[]), ByteOrder::Little),
                (field("c", 8, "c8", &[]), ByteOrder::Big),
            ]
        };
        let record = DType::record(16, fields()).unwrap();
        assert_eq!(record.words(), [(0, 2), (2, 2), (8, 4), (12, 4)]);
        assert_eq!((record.name(), record.numpy_code()), ("void128", Some("V16")));
        assert_eq!(DType::record(15, fields()), None);
        let many = vec![(field("a", 0, "i2", &[1 << 20]), ByteOrder::Big)];
        assert_eq!(DType::record(4 << 20, many), None);
    }
}
