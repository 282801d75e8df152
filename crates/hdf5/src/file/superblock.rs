//! Repeats libhdf5's checks of superblocks of version 0 and 1, which have no checksum.
//!
//! hdf5-reader skips most of these fields, since they don't matter for reading. A flipped bit in
//! them is damage all the same, and libhdf5 does not open such a file (`H5F__super_read` and
//! `H5F__cache_superblock_deserialize` of HDF5 2.0).

use hdf5_reader::io::Cursor;
use hdf5_reader::superblock::Superblock;
use statelens_checkpoint::{Error, Result};

use crate::source::Source;

/// Flags of a file that is being written, was closed, or is being read meanwhile.
const KNOWN_FLAGS: u32 = 0x07;
/// The last known kind of cached information in a group's entry.
const LAST_ENTRY: u32 = 2;
/// The size of a driver block's head: version 0, reserved, length, name.
const DRIVER_HEAD: u64 = 16;

/// Fails if libhdf5 would not open the file.
pub(super) fn check(whole: &Source, superblock: &Superblock) -> Result<()> {
    if superblock.version > 1 {
        return Ok(());
    }
    let start = superblock.base_address;
    let wrong = |what: String, at: u64| Err(Error::damaged(what).at(start.saturating_add(at)));
    let head = whole.bytes(start, 24)?;
    for (at, what) in [(9, "free space"), (10, "the root group"), (12, "shared messages")] {
        if head[at] != 0 {
            let what = format!("the superblock says that {what} has version {}", head[at]);
            return wrong(what, at as u64);
        }
    }
    let wide = [superblock.group_leaf_node_k, superblock.group_internal_node_k];
    if wide.contains(&0) {
        return wrong("the superblock says that nodes of trees hold 0 entries".into(), 16);
    }
    if superblock.consistency_flags & !KNOWN_FLAGS != 0 {
        let what = format!("the superblock has the flags {:#x}", superblock.consistency_flags);
        return wrong(what, 20);
    }
    let entry = superblock.root_symbol_table_entry.as_ref();
    if let Some(kind) = entry.map(|entry| entry.cache_type).filter(|kind| *kind > LAST_ENTRY) {
        return wrong(format!("the root group is an entry of the unknown kind {kind}"), 0);
    }
    driver(whole, superblock)
}

/// Checks the block of a libhdf5 driver that splits files.
fn driver(whole: &Source, superblock: &Superblock) -> Result<()> {
    let address = superblock.driver_info_address;
    if Cursor::is_undefined_offset(address, superblock.offset_size) {
        return Ok(());
    }
    let address = superblock.base_address.saturating_add(address);
    let head = whole.bytes(address, DRIVER_HEAD);
    let head =
        head.map_err(|error| error.context("the driver's block that the superblock names"))?;
    match *head {
        [0, _, _, _, _, _, _, _, b'N', b'C', b'S', b'A', ref name @ ..]
            if name == b"fami" || name == b"mult" =>
        {
            Err(Error::unsupported("this is one of several files that a container is split into")
                .advice("`h5repart` joins a family into one file; h5py opens it with its driver."))
        }
        [0, ..] => Ok(()),
        _ => Err(Error::damaged("the driver information block has no signature").at(address)),
    }
}
