//! Converts datatypes to element types of tensors.

use std::sync::Arc;

use statelens_checkpoint::{ByteOrder, DType, Field, NumpyType, order};

use crate::datatype::{Class, Datatype, FloatFormat};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementType {
    pub dtype: DType,
    /// Byte order in the file. For a record, `Big` if any field is: the dtype's words list those
    /// fields.
    pub order: ByteOrder,
    /// Further dimensions from an array in each element, after the dataset's own.
    pub dims: Vec<u64>,
}

/// Maximum number of numbers in one big-endian record: more than in any real one, few enough to
/// list.
const MAX_WORDS: usize = 65_536;

impl Datatype {
    /// Returns the element type if elements have a fixed size and need no heap: for all but
    /// sequences and strings of variable length. References are opaque bytes.
    pub fn element(&self) -> Option<ElementType> {
        let plain = |dtype| Some(ElementType { dtype, order: ByteOrder::Little, dims: Vec::new() });
        let ordered = |dtype, order| Some(ElementType { dtype, order, dims: Vec::new() });
        match &self.class {
            Class::Int { signed, order } => ordered(self.int(*signed)?, *order),
            Class::Bits { order } => ordered(self.int(false)?, *order),
            Class::Float { format, order } => match order {
                Some(order) => ordered(self.float(*format), *order),
                None => plain(self.void(Vec::new(), Vec::new())),
            },
            Class::Enum { base, .. } if self.is_bool() => {
                base.element().and_then(|_| plain(DType::Bool))
            }
            Class::Enum { base, .. } => base.element(),
            Class::Str(_) => plain(numpy(
                format!("bytes{}", self.size * 8),
                format!("S{}", self.size),
                self.size,
            )),
            Class::Opaque { tag } => {
                let tag = tag.to_lossy();
                let big = tag.starts_with("NUMPY:>");
                let order = if big { ByteOrder::Big } else { ByteOrder::Little };
                ordered(self.opaque(&tag), order)
            }
            Class::Time | Class::Reference { .. } => plain(self.void(Vec::new(), Vec::new())),
            Class::Complex(base) => complex(&base.element()?),
            Class::Compound(_) => self.compound(),
            Class::Array { base, dims } => {
                let mut element = base.element()?;
                element.dims = dims.iter().chain(&element.dims).copied().collect();
                Some(element)
            }
            Class::VlenStr | Class::Vlen(_) => None,
        }
    }

    fn int(&self, signed: bool) -> Option<DType> {
        Some(match (self.size, signed) {
            (1, false) => DType::U8,
            (2, false) => DType::U16,
            (4, false) => DType::U32,
            (8, false) => DType::U64,
            (1, true) => DType::I8,
            (2, true) => DType::I16,
            (4, true) => DType::I32,
            (8, true) => DType::I64,
            _ => self.void(Vec::new(), vec![(0, self.size)]),
        })
    }

    /// Returns the dtype whose sizes, positions and bias are those of `format`; bytes if there is
    /// none, as for a 16-byte float of the IEEE kind, which is not numpy's `long double` on x86.
    fn float(&self, format: FloatFormat) -> DType {
        let FloatFormat { exponent, mantissa, bias, .. } = format;
        let in_order = format.mantissa_at == 0
            && format.exponent_at == mantissa
            && u16::from(format.sign_at) == u16::from(mantissa) + u16::from(exponent);
        match (self.size, exponent, mantissa, bias) {
            _ if !in_order => self.void(Vec::new(), vec![(0, self.size)]),
            (1, 4, 3, 7) if format.implied => DType::F8E4M3FN,
            (1, 5, 2, 15) if format.implied => DType::F8E5M2,
            (2, 5, 10, 15) if format.implied => DType::F16,
            (2, 8, 7, 127) if format.implied => DType::BF16,
            (4, 8, 23, 127) if format.implied => DType::F32,
            (8, 11, 52, 1023) if format.implied => DType::F64,
            (12 | 16, 15, 64, 16383) if !format.implied => DType::Numpy(Arc::new(NumpyType {
                words: vec![(0, self.size)],
                ..named(format!("float{}", self.size * 8), format!("f{}", self.size), self.size)
            })),
            _ => self.void(Vec::new(), vec![(0, self.size)]),
        }
    }

    /// Returns the dtype of opaque bytes; h5py stores numpy's dates in this form, tagged with their
    /// dtype.
    fn opaque(&self, tag: &str) -> DType {
        let code =
            tag.strip_prefix("NUMPY:").map(|code| code.trim_start_matches(['<', '>', '|', '=']));
        let name = code.and_then(|code| match code.split_at_checked(2)? {
            ("M8", unit) => Some(format!("datetime64{unit}")),
            ("m8", unit) => Some(format!("timedelta64{unit}")),
            _ => None,
        });
        match (code, name) {
            (Some(code), Some(name)) if self.size == 8 => DType::Numpy(Arc::new(NumpyType {
                words: vec![(0, 8)],
                ..named(name, code.to_owned(), 8)
            })),
            _ => self.void(Vec::new(), Vec::new()),
        }
    }

    fn compound(&self) -> Option<ElementType> {
        let Class::Compound(members) = &self.class else { return None };
        if let [re, im] = members.as_slice()
            && re.name == "r"
            && im.name == "i"
            && re.datatype == im.datatype
            && (re.offset, im.offset) == (0, re.datatype.size)
            && self.size == 2 * re.datatype.size
            && let Some(element) = re.datatype.element().as_ref().and_then(complex)
        {
            return Some(element);
        }
        let mut fields = Vec::new();
        let mut words = Vec::new();
        for member in members {
            let element = match member.datatype.class {
                // A value in a heap is shown as the bytes of its reference.
                Class::VlenStr | Class::Vlen(_) => ElementType {
                    dtype: member.datatype.void(Vec::new(), Vec::new()),
                    order: ByteOrder::Little,
                    dims: Vec::new(),
                },
                _ => member.datatype.element()?,
            };
            if element.order == ByteOrder::Big {
                let room = MAX_WORDS - words.len();
                words.extend(
                    element.words(room)?.iter().map(|(at, size)| (at + member.offset, *size)),
                );
            }
            fields.push(Field {
                name: member.name.to_lossy().into_owned(),
                title: String::new(),
                offset: member.offset,
                dtype: element.dtype,
                shape: element.dims,
            });
        }
        order::natural(&mut words);
        let order = if words.is_empty() { ByteOrder::Little } else { ByteOrder::Big };
        Some(ElementType { dtype: self.void(fields, words), order, dims: Vec::new() })
    }

    fn void(&self, fields: Vec<Field>, words: Vec<(u64, u64)>) -> DType {
        let Self { size, .. } = self;
        let plain = named(format!("void{}", size * 8), format!("V{size}"), *size);
        DType::Numpy(Arc::new(NumpyType { words, fields, ..plain }))
    }
}

impl ElementType {
    /// Returns the byte ranges to reverse in one element, its own dimensions included; `None` if
    /// there are more than `room`.
    fn words(&self, room: usize) -> Option<Vec<(u64, u64)>> {
        let one: Vec<(u64, u64)> = match &self.dtype {
            DType::Numpy(numpy) => numpy.words.clone(),
            dtype => (0..dtype.itemsize())
                .step_by(dtype.word().max(1) as usize)
                .map(|at| (at, dtype.word()))
                .collect(),
        };
        let size = self.dtype.itemsize();
        let count = self.dims.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim))?;
        if count.checked_mul(one.len() as u64)? > room as u64 {
            return None;
        }
        let words =
            (0..count).flat_map(|index| one.iter().map(move |(at, len)| (at + index * size, *len)));
        Some(words.collect())
    }
}

fn complex(part: &ElementType) -> Option<ElementType> {
    let dtype = match &part.dtype {
        DType::F16 => DType::C32,
        DType::F32 => DType::C64,
        DType::F64 => DType::C128,
        // Two `long double`s.
        DType::Numpy(long) if long.code.starts_with('f') => {
            DType::from_numpy_code(&format!("c{}", 2 * long.itemsize))?
        }
        _ => return None,
    };
    Some(ElementType { dtype, ..part.clone() })
}

fn numpy(name: String, code: String, itemsize: u64) -> DType {
    DType::Numpy(Arc::new(named(name, code, itemsize)))
}

fn named(name: String, code: String, itemsize: u64) -> NumpyType {
    NumpyType { name, code, itemsize, words: Vec::new(), fields: Vec::new() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop")]

    use super::*;
    use crate::datatype::Member;

    #[test]
    fn pairs_of_long_doubles_are_complex() {
        // numpy's complex256 on x86-64, as h5py writes it.
        let format = FloatFormat {
            precision: 80,
            exponent: 15,
            mantissa: 64,
            bias: 16383,
            sign_at: 79,
            exponent_at: 64,
            ..FloatFormat::default()
        };
        let part =
            Datatype { size: 16, class: Class::Float { format, order: Some(ByteOrder::Little) } };
        let member =
            |name: &str, offset| Member { name: name.into(), offset, datatype: part.clone() };
        let pair = Class::Compound(vec![member("r", 0), member("i", 16)]);
        let element = Datatype { size: 32, class: pair }.element().unwrap();
        assert_eq!(
            (element.dtype.to_string().as_str(), element.dtype.itemsize()),
            ("complex256", 32)
        );
    }

    #[test]
    fn only_floats_with_their_parts_in_the_usual_places_are_numbers() {
        let name = |size, format| {
            let class = Class::Float { format, order: Some(ByteOrder::Little) };
            Datatype { size, class }.element().unwrap().dtype.to_string()
        };
        let single = FloatFormat {
            precision: 32,
            exponent: 8,
            mantissa: 23,
            bias: 127,
            sign_at: 31,
            exponent_at: 23,
            mantissa_at: 0,
            implied: true,
        };
        assert_eq!(name(4, single), "float32");
        // The sign in the lowest bit, as HDF5 allows.
        let turned = FloatFormat { sign_at: 0, exponent_at: 24, mantissa_at: 1, ..single };
        assert_eq!(name(4, turned), "void32");
        assert_eq!(name(4, FloatFormat { implied: false, ..single }), "void32");
        let long = FloatFormat {
            precision: 80,
            exponent: 15,
            mantissa: 64,
            bias: 16383,
            sign_at: 79,
            exponent_at: 64,
            mantissa_at: 0,
            implied: false,
        };
        assert_eq!((name(16, long), name(12, long)), ("float128".into(), "float96".into()));
        assert_eq!(name(16, FloatFormat { implied: true, ..long }), "void128");
        // The `long double` of AArch64.
        let quad = FloatFormat {
            precision: 128,
            mantissa: 112,
            sign_at: 127,
            exponent_at: 112,
            implied: true,
            ..long
        };
        assert_eq!(name(16, quad), "void128");
    }

    #[test]
    fn reads_dates_with_byte_order_and_full_integers() {
        // Datatype messages as h5py writes them.
        let name = |message: &[u8]| {
            let element = Datatype::parse(message).unwrap().0.element().unwrap();
            (element.dtype.to_string(), element.order)
        };
        let date = [&[0x15, 16, 0, 0, 8, 0, 0, 0][..], b"NUMPY:>M8[s]\0\0\0\0"].concat();
        assert_eq!(name(&date), ("datetime64[s]".into(), ByteOrder::Big));
        let int = |offset, precision| [0x10, 8, 0, 0, 4, 0, 0, 0, offset, 0, precision, 0];
        assert_eq!(name(&int(0, 32)).0, "int32");
        assert_eq!(name(&int(0, 20)).0, "void32");
        assert_eq!(name(&int(3, 29)).0, "void32");
    }
}
