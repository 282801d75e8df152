//! Pickles in HDF5: PyTables, pandas and Cerebras keep Python objects in attributes and in datasets
//! of strings, opaque bytes and sequences of bytes. Keras keeps its configuration in an attribute.

use std::sync::Arc;

use statelens_checkpoint::{FileSet, Limits, Result};
use statelens_hdf5::{Class, Datatype, Hdf5File, Object};

use super::super::fatal;
use super::{Blob, Container, Search, SharedSource};
use crate::keras;

/// Bytes of attributes and datasets that are read at most, all together.
const MOST: u64 = 64 << 20;
/// Datasets that are longer hold weights, not objects.
const LONGEST: u64 = 1 << 20;
/// The shortest pickle that calls something.
const SHORTEST: usize = 6;

/// Looks at all values of a container that may be pickles. One that is damaged is told where it
/// is opened; of the rest of it, what is there is looked at.
pub(super) fn look(search: &mut Search<'_>, blob: &Blob) -> Result<()> {
    let mut limits: Limits = search.limits.clone();
    limits.structure = 8 << 20;
    let files = FileSet::single("", SharedSource(blob.source.clone()));
    let id = files.main()?;
    let file = match Hdf5File::open(&files, id, &limits) {
        Ok(file) => file,
        Err(error) => return fatal(&error),
    };
    let start = file.user_block();
    if !search.is_new(Container::Hdf5, blob, start, 0) {
        return Ok(());
    }
    let tree = match file.tree(&mut search.quiet()) {
        Ok(tree) => tree,
        Err(error) => return fatal(&error),
    };
    let mut spent = 0;
    for object in tree.objects.values() {
        let object = match object {
            Ok(object) => object,
            Err(error) => {
                fatal(error)?;
                continue;
            }
        };
        let mut values = attributes(&file, object)?;
        if let Some(dataset) = object.dataset()
            && may_hold(&dataset.datatype)
            && dataset
                .count()
                .is_ok_and(|count| count.saturating_mul(dataset.datatype.size) <= LONGEST)
        {
            match file.read(dataset, &files) {
                Ok(data) => {
                    let elements = elements(&file, &dataset.datatype, &data)?;
                    values.push(("a dataset".to_owned(), elements));
                }
                Err(error) => fatal(&error)?,
            }
        }
        for (name, values) in values {
            for bytes in values {
                spent += bytes.len() as u64;
                if spent > MOST {
                    search.unseen(
                        blob,
                        "all attributes and strings of the HDF5 file",
                        "There are too many bytes of them.",
                    );
                    return Ok(());
                }
                if matches!(&*name, "model_config" | "training_config" | "layer_config") {
                    search.tell(blob, keras::code::findings(&bytes));
                }
                if bytes.len() >= SHORTEST {
                    search.decoded(blob, &name, bytes)?;
                }
            }
        }
    }
    Ok(())
}

/// The values of the attributes of an object that may be pickles, by their names.
fn attributes(file: &Hdf5File, object: &Object) -> Result<Vec<(String, Vec<Vec<u8>>)>> {
    let attributes = object.attributes.iter().filter(|attribute| may_hold(&attribute.datatype));
    attributes
        .map(|attribute| {
            let name = attribute.name.to_lossy().into_owned();
            Ok((name, elements(file, &attribute.datatype, &attribute.data)?))
        })
        .collect()
}

/// Whether elements of that type can be bytes of any kind.
fn may_hold(datatype: &Datatype) -> bool {
    match &datatype.class {
        Class::Str(_) | Class::Opaque { .. } | Class::VlenStr => true,
        Class::Int { .. } => datatype.size == 1,
        Class::Vlen(base) | Class::Array { base, .. } => is_byte(base),
        _ => false,
    }
}

fn is_byte(datatype: &Arc<Datatype>) -> bool {
    datatype.size == 1 || matches!(datatype.class, Class::Str(_) | Class::Opaque { .. })
}

/// The bytes of each element; numbers of one byte are one run.
fn elements(file: &Hdf5File, datatype: &Datatype, data: &[u8]) -> Result<Vec<Vec<u8>>> {
    Ok(match &datatype.class {
        Class::VlenStr | Class::Vlen(_) => match file.vlen_elements(datatype, data) {
            Ok(elements) => elements,
            Err(error) => fatal(&error).map(|()| Vec::new())?,
        },
        Class::Int { .. } => vec![data.to_vec()],
        _ => {
            let size = usize::try_from(datatype.size).unwrap_or(usize::MAX).max(1);
            data.chunks_exact(size).map(<[u8]>::to_vec).collect()
        }
    })
}
