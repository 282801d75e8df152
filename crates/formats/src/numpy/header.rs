//! The header of an array.

use statelens_checkpoint::{ByteOrder, DType, Error, Field, Limits, Result, Tensor, numel, order};

use super::literal::{self, Literal};

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// Magic number, version, and the length of the text in its longest form.
pub(super) const PREFIX: u64 = 12;
/// The maximum length of the text in bytes. numpy refuses more than 10,000 unless it trusts the
/// file.
const MAX_LEN: u64 = 4 << 20;

/// The entries of the dict.
const KEYS: [&str; 3] = ["descr", "fortran_order", "shape"];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Header {
    pub(super) version: (u8, u8),
    pub(super) element: ElementType,
    /// Whether the first index varies fastest.
    pub(super) fortran: bool,
    pub(super) shape: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ElementType {
    /// Elements of fixed size.
    Plain(DType, ByteOrder),
    /// Python objects; a pickle of the whole array follows.
    Objects,
}

/// Returns the offset and the length of the text, given the first [`PREFIX`] bytes of an array
/// (fewer if the array is shorter).
pub(super) fn lengths(prefix: &[u8]) -> Result<(u64, u64)> {
    let cut = || {
        Error::damaged("a numpy array ends within its description")
            .advice("The file may be cut short: compare its size with the original.")
    };
    let (start, len) = match prefix.get(6).ok_or_else(cut)? {
        // NumPy refuses other minor versions: they may have another layout.
        major @ 1..=3 if prefix.get(7).is_some_and(|minor| *minor != 0) => {
            return Err(Error::unsupported(format!(
                "a numpy array of version {major}.{} of its format",
                prefix[7]
            ))
            .expected("version 1.0, 2.0 or 3.0"));
        }
        1 => match prefix.get(8..10) {
            Some(&[a, b]) => (10, u64::from(u16::from_le_bytes([a, b]))),
            _ => return Err(cut()),
        },
        2 | 3 => match prefix.get(8..12) {
            Some(&[a, b, c, d]) => (12, u64::from(u32::from_le_bytes([a, b, c, d]))),
            _ => return Err(cut()),
        },
        version => {
            return Err(Error::unsupported(format!(
                "a numpy array of version {version} of its format"
            ))
            .expected("version 1.0, 2.0 or 3.0"));
        }
    };
    Limits::check("bytes of the description of a numpy array", len, MAX_LEN)?;
    Ok((start, len))
}

/// Returns the bytes of an array; `None` if numpy refuses its shape: even for an empty array, the
/// other dimensions must fit 63 bits.
pub(super) fn array_len(tensor: &Tensor) -> Option<u64> {
    let others: Vec<u64> = tensor.shape.iter().map(|dim| (*dim).max(1)).collect();
    let most = numel(&others)?.checked_mul(tensor.dtype.itemsize())?;
    tensor.nbytes().filter(|_| most <= i64::MAX as u64)
}

impl Header {
    /// Parses a header; `text` is the range that [`lengths`] returned.
    pub(super) fn parse(version: (u8, u8), text: &[u8]) -> Result<Self> {
        let text = match version.0 {
            3 => std::str::from_utf8(text)
                .map_err(|_| Error::damaged("the description of a numpy array is not UTF-8"))?
                .to_owned(),
            // Latin-1: the first 256 code points.
            _ => text.iter().map(|byte| char::from(*byte)).collect(),
        };
        let wrong = |what: &str| Error::damaged(format!("the description of a numpy array {what}"));
        let Literal::Dict(entries) = literal::parse(&text)? else {
            return Err(wrong("is not a dict"));
        };
        let is_known = |key: &Literal| matches!(key, Literal::Str(key) if KEYS.contains(&&**key));
        if !entries.iter().all(|(key, _)| is_known(key)) {
            return Err(wrong("has other entries").expected(KEYS.join(", ")));
        }
        let field = |name: &str| {
            let entry = entries.iter().rev().find(|(key, _)| *key == Literal::Str(name.into()));
            entry.map(|(_, value)| value).ok_or_else(|| wrong(&format!("has no {name:?}")))
        };
        let descr = field("descr")?;
        // A sub-array at the top would change the shape of the array, which numpy refuses.
        let is_one = |(element, dims): &(ElementType, Vec<u64>)| {
            *element == ElementType::Objects || dims.iter().all(|dim| *dim == 1)
        };
        let element = element(descr).filter(is_one).map(|(element, _)| element);
        let element = element.ok_or_else(|| {
            let descr = match descr {
                Literal::Str(code) => format!("'{code}'"),
                _ => "a record with a field of such a type".to_owned(),
            };
            let descr = shorten(&descr);
            Error::unsupported(format!("a numpy array of an unknown type: {descr}"))
        })?;
        let fortran = match field("fortran_order")? {
            Literal::Bool(fortran) => *fortran,
            _ => return Err(wrong("does not give the order of the elements")),
        };
        let shape = match field("shape")? {
            Literal::Tuple(dims) => dims.iter().map(dim).collect(),
            _ => None,
        };
        let shape: Vec<u64> = shape.ok_or_else(|| wrong("has no valid shape"))?;
        Ok(Self { version, element, fortran, shape })
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the shape of a field, which may be a single number.
fn shape(literal: &Literal) -> Option<Vec<u64>> {
    match literal {
        Literal::Tuple(items) | Literal::List(items) => items.iter().map(dim).collect(),
        number => Some(vec![dim(number)?]),
    }
}

fn dim(literal: &Literal) -> Option<u64> {
    match literal {
        Literal::Int(int) => u64::try_from(*int).ok(),
        _ => None,
    }
}

/// Returns the element type that `descr` describes, and the shape of the sub-array that each
/// element is. Its nesting is limited by the literal parser.
fn element(descr: &Literal) -> Option<(ElementType, Vec<u64>)> {
    match descr {
        Literal::Str(code) => codes(code),
        Literal::List(fields) => Some((record(fields)?, Vec::new())),
        Literal::Tuple(pair) => match pair.as_slice() {
            [base, dims] => repeated(base, dims),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the type of a sub-array with these dimensions. A number that follows a string type
/// without a size is the size: `('S', 2)` is `S2`.
fn repeated(base: &Literal, dims: &Literal) -> Option<(ElementType, Vec<u64>)> {
    let (element, inner) = element(base)?;
    if let (ElementType::Plain(DType::Numpy(numpy), order), Literal::Str(_)) = (&element, base)
        && let Some(kind) = numpy.code.strip_suffix('0').filter(|kind| kind.len() == 1)
    {
        let Literal::Int(size) = dims else { return None };
        let sized = DType::from_numpy_code(&format!("{kind}{size}"))?;
        return Some((ElementType::Plain(sized, *order), inner));
    }
    Some((element, [shape(dims)?, inner].concat()))
}

/// Parses a code, or several, separated by commas: a record with fields `f0`, `f1`, etc. Each may
/// begin with the shape of a sub-array: `2f4, (2, 3)<i1`.
fn codes(text: &str) -> Option<(ElementType, Vec<u64>)> {
    let (_, start) = order(text);
    let has_shape = start.starts_with(|c: char| c.is_ascii_digit()) || start.starts_with("()");
    if !has_shape && !text.contains(',') {
        return Some((single(text)?, Vec::new()));
    }
    let (mut types, mut rest, mut is_record) = (Vec::new(), text, false);
    while !rest.is_empty() {
        let (outer, start) = order(rest);
        let code = start.trim_start_matches(|c: char| " (),".contains(c) || c.is_ascii_digit());
        let dims = &start[..start.len() - code.len()];
        let (inner, code) = order(code);
        let (code, after) =
            code.split_at(code.find(|c: char| c == ',' || c.is_whitespace()).unwrap_or(code.len()));
        let contradicts = !outer.is_empty() && !inner.is_empty() && outer != inner;
        if contradicts || code.starts_with(|c: char| c == '(' || c.is_ascii_digit()) {
            return None;
        }
        let code = Literal::Str([outer, if outer.is_empty() { inner } else { "" }, code].concat());
        types.push(match dims {
            "" => code,
            _ if dims.trim().is_empty() => return None,
            // Two numbers are a tuple without parentheses, too.
            _ => Literal::Tuple(vec![code, literal::parse(&format!("({dims})")).ok()?]),
        });
        rest = after.trim_start();
        if !rest.is_empty() {
            is_record = true;
            rest = rest.strip_prefix(',')?.trim_start();
        }
    }
    if !is_record {
        return element(types.first()?);
    }
    let field = |(at, descr)| Literal::Tuple(vec![Literal::Str(format!("f{at}")), descr]);
    Some((record(&types.into_iter().enumerate().map(field).collect::<Vec<_>>())?, Vec::new()))
}

/// Splits off the character for the byte order.
fn order(code: &str) -> (&str, &str) {
    code.split_at(usize::from(code.starts_with(['<', '>', '=', '|'])))
}

/// Other letters and names of types. The sizes are those of 64-bit Linux. Names follow no byte
/// order; letters may.
const ALIASES: [(&str, &str); 23] = [
    ("b1", "bool_"),
    ("i1", "byte"),
    ("u1", "ubyte"),
    ("i2", "short"),
    ("u2", "ushort"),
    ("i4", "intc"),
    ("u4", "uintc"),
    ("i8", "l n p int int_ intp long longlong"),
    ("u8", "L N P uint uintp ulong ulonglong"),
    ("f2", "half"),
    ("f4", "single"),
    ("f8", "float double"),
    ("f16", "g float128 longdouble"),
    ("c8", "csingle"),
    ("c16", "complex cdouble"),
    ("c32", "G complex256 clongdouble"),
    ("S1", "c"),
    ("S0", "bytes bytes_"),
    ("U0", "str str_ unicode"),
    ("V0", "void"),
    ("M8", "M"),
    ("m8", "m"),
    ("O", "T O4 O8 object object_"),
];

/// Parses codes such as `<f4`, `|S3`, `>U2`, `|O`, and names such as `float32`.
fn single(text: &str) -> Option<ElementType> {
    let named = DType::from_torch_name(text).filter(|dtype| dtype.numpy_code().is_some());
    if let Some(dtype) = named {
        return Some(ElementType::Plain(dtype, ByteOrder::Little));
    }
    let dated = [("datetime64", "M8"), ("timedelta64", "m8")];
    let dated = dated.iter().find_map(|(name, code)| Some((code, text.strip_prefix(name)?)));
    if let Some((code, unit)) = dated {
        return single(&format!("{code}{unit}"));
    }
    let (order, code) = order(text);
    let is_name = |name: &str| name == code && (name.len() <= 2 || order.is_empty());
    let code = match code {
        // Codes of floats that extensions add to NumPy, and that NumPy alone can't read.
        "f1" => "V1",
        "E2" => "V2",
        code => {
            let row = ALIASES.iter().find(|row| row.1.split(' ').any(is_name));
            row.map_or(code, |row| row.0)
        }
    };
    let order = if order == ">" { ByteOrder::Big } else { ByteOrder::Little };
    match code {
        "O" => Some(ElementType::Objects),
        _ => Some(ElementType::Plain(DType::from_numpy_code(code)?, order)),
    }
}

/// Parses a record such as `[('a', '<i4'), ('b', '>f8', (2, 3)), (('title', 'c'), …), ('',
/// '|V4')]`. Fields are contiguous; one without a name is padding.
fn record(parts: &[Literal]) -> Option<ElementType> {
    let mut fields = Vec::with_capacity(parts.len());
    let mut offset = 0u64;
    for part in parts {
        let (Literal::Tuple(part) | Literal::List(part)) = part else { return None };
        let (name, (element, dims)) = match part.as_slice() {
            [name, descr] => (name, element(descr)?),
            [name, descr, dims] => (name, repeated(descr, dims)?),
            _ => return None,
        };
        let (title, name) = match name {
            Literal::Str(name) => (String::new(), name),
            Literal::Tuple(names) => match names.as_slice() {
                [Literal::Str(title), Literal::Str(name)] => (title.clone(), name),
                [_, Literal::Str(name)] => (String::new(), name),
                _ => return None,
            },
            _ => return None,
        };
        let ElementType::Plain(dtype, order) = element else { return Some(element) };
        let count = dims.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim))?;
        let len = dtype.itemsize().checked_mul(count)?;
        let is_void = matches!(&dtype, DType::Numpy(numpy) if numpy.fields.is_empty() && numpy.code.starts_with('V'));
        if !name.is_empty() || !is_void && dims.is_empty() {
            fields.push((Field { name: name.clone(), title, offset, dtype, shape: dims }, order));
        }
        offset = offset.checked_add(len)?;
    }
    let mut names: Vec<&str> = fields.iter().map(|(field, _)| &*field.name).collect();
    order::natural(&mut names);
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    Some(ElementType::Plain(DType::record(offset, fields)?, ByteOrder::Big))
}
