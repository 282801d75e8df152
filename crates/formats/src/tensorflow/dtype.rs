//! Element types by TensorFlow's numbers (`tensorflow/core/framework/types.proto`).

use statelens_checkpoint::{Checkpoint, DType, Tensor, ValueId};

/// The numbers of dtypes whose elements are not plain numbers.
pub(super) const STRING: u64 = 7;
pub(super) const RESOURCE: u64 = 20;
pub(super) const VARIANT: u64 = 21;

/// TensorFlow's number and name of a dtype, and the dtype of its elements here.
struct DTypeRow(u64, &'static str, Option<DType>);

/// Quantised integers come without a scale, so they are treated as plain integers, as in numpy;
/// [`original`] returns their real name. Integers of less than a byte take one byte each with zero
/// upper bits, so the signed ones are not `int8`. A row without a dtype may still have one by its
/// name, see [`elements`].
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

/// Old files add this to the dtype number of variables.
const REFERENCE: u64 = 100;

fn row(number: u64) -> Option<&'static DTypeRow> {
    let number = if number > REFERENCE { number - REFERENCE } else { number };
    TABLE.iter().find(|row| row.0 == number)
}

/// Returns the dtype number without the mark of a variable.
pub(super) fn plain(number: u64) -> u64 {
    row(number).map_or(number, |row| row.0)
}

pub(super) fn name(number: u64) -> Option<&'static str> {
    row(number).map(|row| row.1)
}

/// Returns the number of the dtype with this name.
pub(super) fn known(name: &str) -> Option<u64> {
    TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// Like [`known`], but returns 0 (no dtype) for unknown names.
pub(super) fn number(name: &str) -> u64 {
    known(name).unwrap_or(0)
}

/// The attribute of a leaf with the name of its dtype, if only TensorFlow has that dtype.
pub(super) const ATTRIBUTE: &str = "dtype";

/// Returns TensorFlow's number and name of a leaf's original dtype, if the leaf came from a file of
/// TensorFlow or Flax and its dtype here is less specific: `qint8` for an `int8`. Returns `None`
/// after a cast.
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

/// Returns the dtype of the elements; `None` for strings, variants and unknown numbers.
pub(super) fn elements(number: u64) -> Option<DType> {
    let row = row(number)?;
    row.2.clone().or_else(|| DType::from_ml_dtypes_name(row.1))
}

/// Returns whether TensorFlow has a dtype that torch lacks.
pub(crate) fn has(dtype: &DType) -> bool {
    matches!(dtype, DType::Numpy(numpy) if numpy.itemsize == 1 && known(&numpy.name).is_some())
}
