//! The numbers of dtypes in the protocol of the appliance.

use statelens_checkpoint::DType;

static DTYPES: [(i64, DType); 12] = [
    (1, DType::Bool),
    (3, DType::I16),
    (4, DType::I32),
    (5, DType::I64),
    (6, DType::U8),
    (7, DType::U16),
    (8, DType::U32),
    (9, DType::U64),
    (10, DType::F16),
    (11, DType::F32),
    (12, DType::F64),
    (15, DType::BF16),
];

pub(super) fn dtype(number: i64) -> Option<DType> {
    DTYPES.iter().find(|(known, _)| *known == number).map(|(_, dtype)| dtype.clone())
}

pub(super) fn number(dtype: &DType) -> Option<i64> {
    DTYPES.iter().find(|(_, known)| known == dtype).map(|(number, _)| *number)
}
