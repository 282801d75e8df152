//! Element types by TensorFlow's numbers (`tensorflow/core/framework/types.proto`).

use statelens_checkpoint::{Checkpoint, DType, Tensor, ValueId};

/// Numbers of dtypes that are no plain elements.
pub(super) const STRING: u64 = 7;
pub(super) const RESOURCE: u64 = 20;
pub(super) const VARIANT: u64 = 21;

/// What TensorFlow calls a dtype, and what its elements are here.
struct DTypeRow(u64, &'static str, Option<DType>);

/// Quantised integers come without a scale, so they are plain ones, as they are to numpy; their
/// real name stays with them, see [`original`]. Small integers take a byte each, whose upper bits
/// are zeros: those with a sign are no `int8`. What has no dtype here may have one by its name,
/// see [`elements`].
const TABLE: [DTypeRow; 32] = [
    DTypeRow(1, "float32", Some(DType::F32)),
    DTypeRow(2, "float64", Some(DType::F64)),
    DTypeRow(3, "int32", Some(DType::I32)),
    DTypeRow(4, "uint8", Some(DType::U8)),
    DTypeRow(5, "int16", Some(DType::I16)),
    DTypeRow(6, "int8", Some(DType::I8)),
    DTypeRow(STRING, "string", None),
    DTypeRow(8, "complex64", Some(DType::C64)),
    DTypeRow(9, "int64", Some(DType::I64)),
    DTypeRow(10, "bool", Some(DType::Bool)),
    DTypeRow(11, "qint8", Some(DType::I8)),
    DTypeRow(12, "quint8", Some(DType::U8)),
    DTypeRow(13, "qint32", Some(DType::I32)),
    DTypeRow(14, "bfloat16", Some(DType::BF16)),
    DTypeRow(15, "qint16", Some(DType::I16)),
    DTypeRow(16, "quint16", Some(DType::U16)),
    DTypeRow(17, "uint16", Some(DType::U16)),
    DTypeRow(18, "complex128", Some(DType::C128)),
    DTypeRow(19, "float16", Some(DType::F16)),
    DTypeRow(RESOURCE, "resource", None),
    DTypeRow(VARIANT, "variant", None),
    DTypeRow(22, "uint32", Some(DType::U32)),
    DTypeRow(23, "uint64", Some(DType::U64)),
    DTypeRow(24, "float8_e5m2", Some(DType::F8E5M2)),
    DTypeRow(25, "float8_e4m3fn", Some(DType::F8E4M3FN)),
    DTypeRow(26, "float8_e4m3fnuz", Some(DType::F8E4M3FNUZ)),
    DTypeRow(27, "float8_e4m3b11fnuz", None),
    DTypeRow(28, "float8_e5m2fnuz", Some(DType::F8E5M2FNUZ)),
    DTypeRow(29, "int4", None),
    DTypeRow(30, "uint4", Some(DType::U8)),
    DTypeRow(31, "int2", None),
    DTypeRow(32, "uint2", Some(DType::U8)),
];

/// Added to the number of a variable's dtype in old files.
const REFERENCE: u64 = 100;

fn row(number: u64) -> Option<&'static DTypeRow> {
    let number = if number > REFERENCE { number - REFERENCE } else { number };
    TABLE.iter().find(|row| row.0 == number)
}

/// The dtype without the mark of a variable.
pub(super) fn plain(number: u64) -> u64 {
    row(number).map_or(number, |row| row.0)
}

/// TensorFlow's name.
pub(super) fn name(number: u64) -> Option<&'static str> {
    row(number).map(|row| row.1)
}

/// The number of a dtype by TensorFlow's name.
pub(super) fn known(name: &str) -> Option<u64> {
    TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// [`known`], for a name that is in the table; 0 (no dtype) for any other.
pub(super) fn number(name: &str) -> u64 {
    known(name).unwrap_or(0)
}

/// What the file says of a leaf whose dtype exists in TensorFlow only: the name of that dtype.
pub(super) const ATTRIBUTE: &str = "dtype";

/// TensorFlow's number and name for the elements of a leaf that came from one of its files, or of
/// Flax's, where they are more than its dtype here says: `qint8` for an `int8`. Nothing once it was cast.
pub(super) fn original(
    source: &Checkpoint,
    leaf: ValueId,
    tensor: &Tensor,
) -> Option<(u64, &'static str)> {
    if !matches!(source.format.id, "tensorflow" | "tensorflow-v1" | "flax") {
        return None;
    }
    let attributes = source.raw_attributes(leaf);
    let (_, name) = attributes.iter().find(|(name, _)| name.as_str() == Some(ATTRIBUTE))?;
    let number = known(name.as_str()?)?;
    let same = elements(number)? == tensor.dtype && tensor.stored == tensor.dtype;
    same.then_some((number, row(number)?.1))
}

/// What the elements are; `None` for strings, variants and numbers that nobody knows.
pub(super) fn elements(number: u64) -> Option<DType> {
    let row = row(number)?;
    row.2.clone().or_else(|| DType::from_ml_dtypes_name(row.1))
}

/// Whether TensorFlow has a dtype that torch lacks.
pub(crate) fn has(dtype: &DType) -> bool {
    matches!(dtype, DType::Numpy(numpy) if numpy.itemsize == 1 && known(&numpy.name).is_some())
}
