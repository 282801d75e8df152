//! Losses of an archive of arrays.

use statelens_checkpoint::{Checkpoint, Loss};

/// Losses found so far.
#[derive(Default)]
pub(super) struct Losses(Vec<(LossKind, Vec<String>)>);

/// The kind of a loss: what happens to values, and why.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LossKind {
    what: &'static str,
    why: &'static str,
    harmless: bool,
}

const fn lost(what: &'static str, why: &'static str) -> LossKind {
    LossKind { what, why, harmless: false }
}

const fn harmless(what: &'static str, why: &'static str) -> LossKind {
    LossKind { what, why, harmless: true }
}

const FLAT: &str = "A NumPy archive is a flat set of named arrays.";
const LACKS: &str = "NumPy has no such dtype; the bits are the same.";

pub(super) const NESTING: LossKind = harmless("nested entries are named by their full path", FLAT);
pub(super) const TIED: LossKind = harmless("tied tensors are written once for each name", FLAT);
pub(super) const SCALAR: LossKind =
    harmless("plain values become arrays without dimensions, of the same value", FLAT);
pub(super) const GRADIENT: LossKind =
    harmless("parameters and tensors that require a gradient become arrays", FLAT);
pub(super) const BYTES: LossKind = harmless(
    "byte strings become arrays of uint8",
    "NumPy's own byte strings lose zeros at their end.",
);
pub(super) const BIG_INT: LossKind =
    lost("integers of more than 64 bits become texts of their digits", "NumPy has none.");
pub(super) const NUL: LossKind =
    lost("texts lose the NULs at their end", "NumPy pads its strings with them.");
pub(super) const BF16: LossKind = lost("bfloat16 becomes uint16", LACKS);
pub(super) const F8: LossKind = lost("floats of eight and four bits become uint8", LACKS);
pub(super) const HALVES: LossKind =
    lost("complex numbers of 32 bits get one more dimension: real, imaginary", LACKS);
pub(super) const BITS: LossKind = lost("bits and quantised numbers become plain integers", LACKS);
pub(super) const QUANTIZER: LossKind = lost(
    "scales and zero points of quantised tensors are left out",
    "NumPy has no place for them.",
);
pub(super) const SUBCLASS: LossKind = lost("tensors of other classes become plain arrays", FLAT);
pub(super) const SPARSE: LossKind =
    lost("sparse tensors become an array for each of their parts", "NumPy has no sparse arrays.");
pub(super) const OUTSIDE: LossKind = lost(
    "in names that lead outside the folder, parts are escaped, as %2E for a dot",
    "Unpacking the archive would write outside its folder.",
);
pub(super) const UNNAMED: LossKind =
    harmless("a value without a name is called `arr_0`", "NumPy's own archives name it like this.");
pub(super) const UNKNOWN: LossKind =
    lost("elements of dtypes that NumPy lacks become bytes", LACKS);
pub(super) const RECORD: LossKind = lost(
    "records become bytes",
    "A field has no name, overlaps another or has a dtype that NumPy lacks.",
);
pub(super) const NONE: LossKind = lost("entries that are None are left out", FLAT);
pub(super) const OBJECT: LossKind =
    lost("objects are left out", "NumPy would pickle them, and `allow_pickle=False` refuses that.");
pub(super) const OTHER: LossKind = lost("empty containers, dtypes and devices are left out", FLAT);

pub(super) const NAME: LossKind =
    harmless("the array's name is left out", "A .npy file holds one array and no name.");

impl Losses {
    /// Replaces the losses about names by one that says that a `.npy` file has no names.
    pub(super) fn name_is_left_out(&mut self, source: &Checkpoint) {
        self.0.retain(|(kind, _)| ![UNNAMED, NESTING].contains(kind));
        for leaf in source.leaves().iter().filter(|leaf| !leaf.flat.as_bytes().is_empty()) {
            self.add(NAME, &leaf.flat.to_lossy());
        }
    }

    /// Adds the loss `kind` for the entry `key`.
    pub(super) fn add(&mut self, kind: LossKind, key: &str) {
        match self.0.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, keys)) => keys.push(key.to_owned()),
            None => self.0.push((kind, vec![key.to_owned()])),
        }
    }

    pub(super) fn finish(self) -> Vec<Loss> {
        let loss = |(LossKind { what, why, harmless }, keys)| Loss {
            keys,
            what: what.into(),
            why: why.into(),
            harmless,
        };
        self.0.into_iter().map(loss).collect()
    }
}
