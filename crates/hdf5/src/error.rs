//! Conversion between errors of hdf5-reader and ours.

use hdf5_reader::error::Error as ReaderError;
use statelens_checkpoint::Error;

/// Converts an error of hdf5-reader; the kind says what the user can do about it.
pub(crate) fn from_reader(error: ReaderError) -> Error {
    use ReaderError as R;
    let what = error.to_string();
    match error {
        R::Io(io) => match io.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(ours) => ours.clone(),
            None => Error::io(what),
        },
        R::UnsupportedSuperblockVersion(_) => Error::unsupported(what),
        R::UnsupportedFilter(_) => Error::unsupported(what).coded(crate::NOT_DECODED),
        // All versions and classes that libhdf5 knows are handled, so an unknown one is damage.
        R::UnsupportedObjectHeaderVersion(_)
        | R::UnsupportedDatatypeClass(_)
        | R::UnsupportedLayoutClass(_)
        | R::UnsupportedLayoutVersion(_)
        | R::UnsupportedFilterPipelineVersion(_)
        | R::UnsupportedLinkVersion(_)
        | R::UnsupportedLinkType(_) => {
            Error::damaged(format!("{what}: it is damaged, or newer than HDF5 2.0"))
        }
        R::ResourceLimit(_) => Error::limit(what),
        R::UnexpectedEof { offset, .. } => Error::damaged("a structure ends too early").at(offset),
        R::InvalidMagic => Error::damaged("there is no HDF5 signature"),
        _ => Error::damaged(what),
    }
}

/// Wraps our error for a callback of hdf5-reader; [`from_reader`] unwraps it.
pub(crate) fn to_reader(error: Error) -> ReaderError {
    ReaderError::Io(std::io::Error::other(error))
}
