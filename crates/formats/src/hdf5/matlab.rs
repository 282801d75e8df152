//! Conventions of MATLAB's version 7.3 files, which store MATLAB's classes in HDF5.
//!
//! Source: the attributes `MATLAB_class` and `MATLAB_empty` that MATLAB writes, as read by `mat73`
//! 0.65 and `hdf5storage` 0.1. Arrays keep the order of HDF5's dimensions, the reverse of MATLAB's.

use statelens_checkpoint::{
    ByteOrder, DType, Error, ErrorKind, FileSet, Global, Layout, Opaque, Result, Tensor, Text,
    Value,
};
use statelens_hdf5::{Dataset, Hdf5File, Object, ObjectTree};

/// The value of a MATLAB dataset that is not a plain array.
pub(super) enum Matlab {
    /// The rows of a character array.
    Texts(Vec<Text>),
    /// The references in a cell array.
    Cells(Vec<Value>),
    /// An array without elements, or with a dtype different from the dataset's.
    Array(Tensor),
}

/// The maximum number of elements read of a character or cell array.
const MAX_ELEMENTS: u64 = 1 << 20;

/// Converts a dataset according to its MATLAB class. Returns `None` for a plain array.
pub(super) fn read(
    file: &Hdf5File,
    tree: &ObjectTree,
    files: &FileSet,
    object: &Object,
    dataset: &Dataset,
) -> Result<Option<Matlab>> {
    let Some(class) = object.attribute("MATLAB_class") else { return Ok(None) };
    let class = class.values(file)?.text().map(|text| text.to_lossy().into_owned());
    let empty = match object.attribute("MATLAB_empty") {
        Some(empty) => empty.values(file)?.truth() == Some(true),
        None => false,
    };
    let shape = dataset.shape.as_deref().unwrap_or_default();
    if dataset.count()? > MAX_ELEMENTS
        && !matches!(class.as_deref(), Some("logical" | "double" | "single"))
    {
        return Ok(None);
    }
    Ok(match class.as_deref() {
        Some("char") if empty => Some(Matlab::Texts(vec!["".into()])),
        Some("char") => texts(file, files, dataset, shape)?.map(Matlab::Texts),
        Some("cell") if !empty => cells(file, tree, files, dataset)?.map(Matlab::Cells),
        Some(class) if empty => {
            let Some(dtype) = dtype(class) else { return Ok(None) };
            // The dataset of an empty array holds its dimensions, in MATLAB's order.
            let bytes = file.read(dataset, files)?;
            let (order, size) = match dataset.element() {
                Some((element, _)) if element.dtype == DType::U64 => (element.order, 8),
                _ => return Ok(None),
            };
            let dims = bytes.chunks_exact(size).rev().map(|bytes| number(bytes, order));
            let tensor = Tensor::new(dtype, dims.collect(), Layout::Inline([].into()));
            (tensor.numel() == Some(0)).then_some(Matlab::Array(tensor))
        }
        Some("logical") => retyped(file.tensor(dataset, files)?, DType::U8, DType::Bool),
        Some(_) => complex(file.tensor(dataset, files)?),
        None => None,
    })
}

fn number(bytes: &[u8], order: ByteOrder) -> u64 {
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match order {
        ByteOrder::Little => bytes.iter().rev().fold(0, add),
        ByteOrder::Big => bytes.iter().fold(0, add),
    }
}

/// Returns the rows of a matrix of UTF-16 code units, which is stored by column.
fn texts(
    file: &Hdf5File,
    files: &FileSet,
    dataset: &Dataset,
    shape: &[u64],
) -> Result<Option<Vec<Text>>> {
    let (Some((element, _)), [columns, rows]) = (dataset.element(), shape) else {
        return Ok(None);
    };
    if element.dtype != DType::U16 {
        return Ok(None);
    }
    let bytes = file.read(dataset, files)?;
    let units: Vec<u16> =
        bytes.chunks_exact(2).map(|bytes| number(bytes, element.order) as u16).collect();
    let (columns, rows) = (*columns as usize, *rows as usize);
    let row = |row: usize| {
        let units = (0..columns).filter_map(|column| units.get(column * rows + row).copied());
        let points = char::decode_utf16(units).map(|point| match point {
            Ok(letter) => u32::from(letter),
            Err(lone) => u32::from(lone.unpaired_surrogate()),
        });
        Text::from_code_points(points)
            .map_err(|_| Error::damaged("a MATLAB text that is not valid text"))
    };
    (0..rows).map(row).collect::<Result<_>>().map(Some)
}

/// Returns the references in a cell array, with the paths of their targets.
fn cells(
    file: &Hdf5File,
    tree: &ObjectTree,
    files: &FileSet,
    dataset: &Dataset,
) -> Result<Option<Vec<Value>>> {
    let size = usize::try_from(dataset.datatype.size).unwrap_or(usize::MAX).max(1);
    if !dataset.datatype.is_reference() {
        return Ok(None);
    }
    let bytes = file.read(dataset, files)?;
    let cell = |bytes: &[u8]| {
        let mut text = String::new();
        let mut add = |piece: &str| {
            text.push_str(piece);
            Ok(())
        };
        file.render(Some(tree), &dataset.datatype, &[], bytes, &mut add)?;
        let global = Global::new("h5py", "Reference");
        Ok(Value::Opaque(Box::new(Opaque::reference(global, Some(text.into())))))
    };
    match bytes.chunks_exact(size).map(cell).collect::<Result<_>>() {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        cells => cells.map(Some),
    }
}

/// Converts a record of the floats `real` and `imag` to complex numbers.
fn complex(tensor: Tensor) -> Option<Matlab> {
    let DType::Numpy(record) = &tensor.dtype else { return None };
    let [real, imag] = record.fields.as_slice() else { return None };
    let names = (real.name.as_str(), imag.name.as_str()) == ("real", "imag");
    let apart = (real.offset, imag.offset) == (0, real.dtype.itemsize())
        && record.itemsize == 2 * real.dtype.itemsize();
    let dtype = match (&real.dtype, &imag.dtype) {
        (DType::F32, DType::F32) => DType::C64,
        (DType::F64, DType::F64) => DType::C128,
        _ => return None,
    };
    let from = tensor.dtype.clone();
    (names && apart).then(|| retyped(tensor, from, dtype)).flatten()
}

/// Changes the dtype of a tensor from `from` to `to`, of the same size. Returns `None` if it has
/// another dtype.
fn retyped(tensor: Tensor, from: DType, to: DType) -> Option<Matlab> {
    (tensor.dtype == from && tensor.stored == from)
        .then(|| Matlab::Array(Tensor { dtype: to.clone(), stored: to, ..tensor }))
}

/// Returns the dtype of a numeric class.
fn dtype(class: &str) -> Option<DType> {
    Some(match class {
        "double" => DType::F64,
        "single" => DType::F32,
        "logical" => DType::Bool,
        other => DType::from_torch_name(other).filter(DType::is_int)?,
    })
}
