//! The loss of attributes and of the names of an enum, which no written format has a place for.

use std::collections::HashSet;

use statelens_checkpoint::{Checkpoint, Loss, LossCode, ValueId, has_enum, order};

/// Attributes by which libraries store structure: dimension scales and netCDF, objects that have a
/// `CLASS` (PyTables among them), and Keras.
const SCALES: [&str; 5] =
    ["DIMENSION_LIST", "REFERENCE_LIST", "_NCProperties", "_Netcdf4Coordinates", "_Netcdf4Dimid"];
const CLASS: [&str; 7] =
    ["CLASS", "NAME", "VERSION", "FLAVOR", "EXTDIM", "NROWS", "PYTABLES_FORMAT_VERSION"];
const KERAS: [&str; 3] = ["backend", "dtype", "keras_version"];

/// Returns the loss of the attributes of an HDF5 file.
pub(crate) fn attributes_left_out(source: &Checkpoint) -> Option<Loss> {
    let is_keras = source.format.id.starts_with("keras");
    if !is_keras && source.format.id != "hdf5" {
        return None;
    }
    let all = (0..source.values().len() as u32).map(ValueId);
    let owners: HashSet<ValueId> =
        all.filter(|id| !source.raw_attributes(*id).is_empty()).collect();
    let mut owners: Vec<_> = source.flat_keys(&owners).into_iter().collect();
    order::by(&mut owners, |(_, one), (_, other)| one.cmp(other));
    let mut keys = Vec::new();
    for (id, key) in owners {
        let attributes = source.raw_attributes(id);
        let has_class = attributes.iter().any(|(name, _)| *name == "CLASS");
        for (name, text) in attributes {
            let (name, text) = (name.to_lossy(), text.to_lossy());
            let is_structure = SCALES.contains(&&*name)
                || has_class
                    && (CLASS.contains(&&*name)
                        || name.starts_with("FIELD_")
                        || name == "TITLE" && text == "nothing")
                || name.starts_with("MATLAB_")
                || is_keras
                    && (KERAS.contains(&&*name)
                        || name.starts_with("layer_names")
                        || name.starts_with("weight_names"));
            let is_storage = name.starts_with('(');
            let is_enum = name == "(datatype)" && has_enum(&text);
            if is_enum || !is_storage && !is_structure {
                keys.push(format!("{key} @{name}").trim_start().to_owned());
            }
        }
    }
    let what = "HDF5 attributes, and names of enum values, are left out";
    let loss = LossCode::Attributes.harmless(what, "The format has no place for them.");
    (!keys.is_empty()).then(|| loss.of(keys))
}
