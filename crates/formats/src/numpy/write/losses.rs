//! Losses of an archive of arrays.

use statelens_checkpoint::{LossCode, LossKind};

const FLAT: &str = "A NumPy archive is a flat set of named arrays.";
const LACKS: &str = "NumPy has no such dtype; the bits are the same.";

pub(super) const NESTING: LossKind =
    LossCode::FullNames.harmless("nested entries are named by their full path", FLAT);
pub(super) const TIED: LossKind =
    LossCode::Ties.harmless("tied tensors are written once for each name", FLAT);
pub(super) const SCALAR: LossKind = LossCode::PlainValue
    .harmless("plain values become arrays without dimensions, of the same value", FLAT);
pub(super) const GRADIENT: LossKind = LossCode::Parameter
    .harmless("parameters and tensors that require a gradient become arrays", FLAT);
pub(super) const BYTES: LossKind = LossCode::Bytes.harmless(
    "byte strings become arrays of uint8",
    "NumPy's own byte strings lose zeros at their end.",
);
pub(super) const BIG_INT: LossKind = LossCode::BigInt
    .lost("integers of more than 64 bits become texts of their digits", "NumPy has none.");
pub(super) const NUL: LossKind = LossCode::TrailingNul
    .lost("texts lose the NULs at their end", "NumPy pads its strings with them.");
pub(super) const BF16: LossKind = LossCode::Bfloat16.lost("bfloat16 becomes uint16", LACKS);
pub(super) const F8: LossKind =
    LossCode::Float8.lost("floats of eight and four bits become uint8", LACKS);
pub(super) const HALVES: LossKind = LossCode::HalfComplex
    .lost("complex numbers of 32 bits get one more dimension: real, imaginary", LACKS);
pub(super) const BITS: LossKind =
    LossCode::Bits.lost("bits and quantised numbers become plain integers", LACKS);
pub(super) const QUANTIZER: LossKind = LossCode::Quantizer.lost(
    "scales and zero points of quantised tensors are left out",
    "NumPy has no place for them.",
);
pub(super) const SUBCLASS: LossKind =
    LossCode::TensorClass.lost("tensors of other classes become plain arrays", FLAT);
pub(super) const SUBARRAY: LossKind = LossCode::TensorClass
    .harmless("arrays of other classes, such as `numpy.matrix`, become plain arrays", FLAT);
pub(super) const SPARSE: LossKind = LossCode::Sparse
    .lost("sparse tensors become an array for each of their parts", "NumPy has no sparse arrays.");
pub(super) const OUTSIDE: LossKind = LossCode::NameEscaped.lost(
    "in names that are not safe as file names, characters are escaped, as %2E for a dot",
    "They lead outside the folder into which the archive is unpacked, or have characters that file \
     names must not have, such as line breaks.",
);
pub(super) const UNNAMED: LossKind = LossCode::NameAdded.harmless(
    "a value without a name is called `arr_0`",
    "NumPy's own archives name it like this.",
);
pub(super) const UNKNOWN: LossKind =
    LossCode::ElementBytes.lost("elements of dtypes that NumPy lacks become bytes", LACKS);
pub(super) const RECORD: LossKind = LossCode::Record.lost(
    "records become bytes",
    "A field has no name, overlaps another or has a dtype that NumPy lacks.",
);
pub(super) const NONE: LossKind =
    LossCode::NoneLeftOut.lost("entries that are None are left out", FLAT);
pub(super) const OBJECT: LossKind = LossCode::ObjectLeftOut.lost(
    "objects are left out",
    "NumPy would pickle them, and `allow_pickle=False` refuses that.",
);
pub(super) const OTHER: LossKind =
    LossCode::Empty.lost("empty containers, dtypes and devices are left out", FLAT);

pub(super) const NAME: LossKind = LossCode::NameLeftOut
    .harmless("the array's name is left out", "A .npy file holds one array and no name.");
