//! What a target can't represent unchanged: losses, and their kinds.

use crate::Advice;

/// Something that the target can't represent unchanged. Its code and its keys identify it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Loss {
    /// The kind of the loss.
    #[serde(skip)]
    pub code: LossCode,
    /// The flat keys concerned, in order.
    pub keys: Vec<String>,
    /// What happens to them: a sentence without a full stop.
    pub what: String,
    /// The reason, and how to avoid the loss, in whole sentences.
    pub why: Advice,
    /// Only the form changes (a numpy scalar becomes a plain number): shown, but needs no consent.
    pub harmless: bool,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The kind of a loss, for programs: the same in all versions, whatever the text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum LossCode {
            $($(#[$doc])* $name,)*
        }

        impl LossCode {
            /// Returns the stable name: lower case, words joined by hyphens.
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }
        }
    };
}

codes! {
    /// A numpy array becomes a tensor.
    Array = "array",
    /// An array that the target's library refuses is replaced.
    ArrayLeftOut = "array-left-out",
    /// A numpy scalar becomes an array or a tensor without dimensions.
    ArrayScalar = "array-scalar",
    /// Python attributes of dicts, and possibly of tensors, are left out.
    Attributes = "attributes",
    /// Elements of bfloat16 become integers.
    Bfloat16 = "bfloat16",
    /// A numpy array of bfloat16 becomes a tensor.
    Bfloat16Array = "bfloat16-array",
    /// An integer is too large for the target.
    BigInt = "big-int",
    /// Bits, or integers of an unusual size, become plain integers.
    Bits = "bits",
    /// Quantised blocks that can't be decoded become bytes.
    BlockBytes = "block-bytes",
    /// Quantised blocks become numbers.
    Blocks = "blocks",
    /// A bytearray becomes a byte string.
    ByteArray = "byte-array",
    /// A byte string becomes an array.
    Bytes = "bytes",
    /// Numbers change because the user requested another dtype.
    Cast = "cast",
    /// A container that occurs several times becomes several containers.
    Copies = "copies",
    /// A counter of saves is added.
    CounterAdded = "counter-added",
    /// The source is damaged.
    Damage = "damage",
    /// The data of keys is missing from the source or damaged.
    DamagedData = "damaged-data",
    /// A defaultdict becomes a dict.
    DefaultDict = "default-dict",
    /// A deque becomes a list.
    Deque = "deque",
    /// A deque loses its maximum length.
    DequeLength = "deque-length",
    /// A dict of another class becomes a plain dict.
    DictClass = "dict-class",
    /// A dtype or a device becomes its name.
    DtypeText = "dtype-text",
    /// Elements become their bytes.
    ElementBytes = "element-bytes",
    /// Empty containers, and other values without content, are left out.
    Empty = "empty",
    /// Titles of the fields of a record are left out.
    FieldTitles = "field-titles",
    /// A numpy float64 scalar becomes a float.
    Float64Scalar = "float64-scalar",
    /// Floats of eight bits or fewer become integers.
    Float8 = "float8",
    /// A frozenset becomes a set.
    Frozenset = "frozenset",
    /// A frozenset is left out.
    FrozensetLeftOut = "frozenset-left-out",
    /// Nested values are named by their full keys.
    FullNames = "full-names",
    /// A tensor no longer requires a gradient.
    Gradient = "gradient",
    /// Complex numbers of 32 bits become pairs of real numbers.
    HalfComplex = "half-complex",
    /// A text key gets quotes, since another key has the same text.
    KeyQuoted = "key-quoted",
    /// A key that is not a string becomes one.
    KeyType = "key-type",
    /// The metadata of the file is left out.
    Metadata = "metadata",
    /// Tensors without data are left out.
    MissingData = "missing-data",
    /// Files that belong to the checkpoint are missing.
    MissingFiles = "missing-files",
    /// A value without a name gets one.
    NameAdded = "name-added",
    /// A name that leads outside the folder is escaped.
    NameEscaped = "name-escaped",
    /// The name of the only array is left out.
    NameLeftOut = "name-left-out",
    /// A named tuple becomes a plain tuple.
    NamedTuple = "named-tuple",
    /// Byte strings need a later release of the target's library.
    NewerBytes = "newer-bytes",
    /// Complex numbers need a later release of the target's library.
    NewerComplex = "newer-complex",
    /// A dtype needs a later release of the target's library.
    NewerDtype = "newer-dtype",
    /// Sets need a later release of the target's library.
    NewerSet = "newer-set",
    /// `None` is left out.
    NoneLeftOut = "none-left-out",
    /// A numpy dtype becomes its name.
    NumpyDtype = "numpy-dtype",
    /// An object becomes a dict of its attributes.
    ObjectFields = "object-fields",
    /// An object is left out.
    ObjectLeftOut = "object-left-out",
    /// An object becomes the text that Python prints for it, or the name of its class.
    ObjectText = "object-text",
    /// The state of the optimizer is left out.
    Optimizer = "optimizer",
    /// A loss of a format outside this repository.
    Other = "other",
    /// Contents of modules outside the state dict are left out.
    OutsideState = "outside-state",
    /// A parameter becomes a tensor or an array.
    Parameter = "parameter",
    /// A path becomes a string.
    Path = "path",
    /// A plain value becomes an array or metadata.
    PlainValue = "plain-value",
    /// Tensors of a quantised dtype become plain integers.
    QuantizedDtype = "quantized-dtype",
    /// The scale and the zero point of a quantised tensor are left out or do not exist.
    Quantizer = "quantizer",
    /// A record becomes bytes.
    Record = "record",
    /// Further occurrences of a container are left out.
    RepeatedContainer = "repeated-container",
    /// A set becomes a list.
    Set = "set",
    /// Tensors that share memory are written separately.
    SharedMemory = "shared-memory",
    /// A part of the source file is left out.
    SourceLeftOut = "source-left-out",
    /// A sparse tensor becomes its parts.
    Sparse = "sparse",
    /// Attributes of tensors are left out.
    TensorAttributes = "tensor-attributes",
    /// A tensor of another class becomes a plain tensor.
    TensorClass = "tensor-class",
    /// Tied tensors, or other values that were one object, are no longer tied, or keep only one of
    /// their names.
    Ties = "ties",
    /// A `torch.Size` becomes a tuple.
    TorchSize = "torch-size",
    /// A text loses the NULs at its end.
    TrailingNul = "trailing-nul",
    /// An array of strings becomes UTF-8.
    UnicodeArray = "unicode-array",
    /// A tensor is left out because the target lacks its dtype.
    UnsupportedDtype = "unsupported-dtype",
    /// Elements get a wider dtype that holds their values.
    Widened = "widened",
}

/// What happens to values that a target can't hold, and why.
#[derive(Debug, Clone, Copy)]
pub struct LossKind {
    /// The code of its losses. A writer has one kind for a code.
    pub code: LossCode,
    what: &'static str,
    why: &'static str,
    harmless: bool,
}

impl LossCode {
    /// Returns a kind of loss that needs the user's consent.
    pub const fn lost(self, what: &'static str, why: &'static str) -> LossKind {
        LossKind { code: self, what, why, harmless: false }
    }

    /// Returns a kind of loss that changes only the form of a value.
    pub const fn harmless(self, what: &'static str, why: &'static str) -> LossKind {
        LossKind { code: self, what, why, harmless: true }
    }
}

impl LossKind {
    /// Returns the loss of this kind for `keys`.
    pub fn of(self, keys: Vec<String>) -> Loss {
        let Self { code, what, why, harmless } = self;
        Loss { code, keys, what: what.into(), why: why.into(), harmless }
    }
}

/// Losses found so far, by kind, in the order in which they were found. `K` identifies a value: by
/// its key, or by an ID for which the key is computed later.
#[derive(Debug)]
pub struct Losses<K = String>(Vec<(LossKind, Vec<K>)>);

impl<K> Default for Losses<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K> Losses<K> {
    /// Adds the loss `kind` for the value `key`.
    pub fn add(&mut self, kind: LossKind, key: impl Into<K>) {
        let key = key.into();
        match self.0.iter_mut().find(|(known, _)| known.code == kind.code) {
            Some((_, keys)) => keys.push(key),
            None => self.0.push((kind, vec![key])),
        }
    }

    /// Removes the losses with one of these codes.
    pub fn remove(&mut self, codes: &[LossCode]) {
        self.0.retain(|(kind, _)| !codes.contains(&kind.code));
    }

    /// Iterates over all values that were added.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().flat_map(|(_, keys)| keys)
    }

    /// Returns the losses; `key` returns the key of a value, or `None` to leave it out.
    pub fn finish(self, key: impl Fn(K) -> Option<String>) -> Vec<Loss> {
        let keys = |keys: Vec<K>| keys.into_iter().filter_map(&key).collect();
        self.0.into_iter().map(|(kind, found)| kind.of(keys(found))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_grouped_by_code() {
        let mut losses: Losses<u32> = Losses::default();
        let sparse = LossCode::Sparse.lost("sparse", "");
        losses.add(sparse, 1u32);
        losses.add(LossCode::Ties.harmless("ties", ""), 2u32);
        losses.add(sparse, 3u32);
        let found = losses.finish(|key| (key != 2).then(|| key.to_string()));
        let found: Vec<_> = found.iter().map(|loss| (loss.code.code(), loss.keys.len())).collect();
        assert_eq!(found, [("sparse", 2), ("ties", 0)]);
    }
}
