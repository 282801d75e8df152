//! Lists the members of a compressed tar archive. The archive is decompressed as a stream, and only
//! names and lengths are kept.

use std::io::{self, Read};
use std::sync::Arc;

use statelens_checkpoint::{FileSet, Memory, Progress, ReadAt, Result};

use super::{ArchiveMember, MAX_MEMBERS, PACKED_TAR, is_folder};
use crate::packed::{self, Packing, UsedInput};
use crate::section::Section;
use crate::tar::{self, Walk};

/// The number of bytes that are decompressed, fewer for slow compressions: some seconds of work.
const MOST: u64 = if cfg!(target_arch = "wasm32") { 128 << 20 } else { 1 << 30 };
/// The number of bytes read for a header: first, and if extended headers are longer.
const FIRST: usize = 4 << 10;
const LONGEST: usize = 4 << 20;
/// The number of bytes that are skipped at once.
const STEP: u64 = 8 << 20;

pub(super) struct Listing {
    pub(super) members: Vec<ArchiveMember>,
    /// Why the listing may lack members.
    pub(super) ended: Option<&'static str>,
}

const DAMAGED: &str = "the rest can't be decompressed: the file may be cut short";
const TOO_LONG: &str = "what follows was not read, because the archive is very long";

/// Lists the main file. `None` if it is not a compressed tar archive, or is on a server.
pub(super) fn members(files: &FileSet, progress: &mut dyn Progress) -> Result<Option<Listing>> {
    let main = files.main()?;
    let head = files.read_vec(main, 0, files.len(main).min(512))?;
    let Some(packing) = Packing::at_start(&head).filter(|packing| packing.is_certain()) else {
        return Ok(None);
    };
    if files.is_remote() {
        return Ok(None);
    }
    let part = Section::new(files.source(main)?.clone(), 0, u64::MAX);
    let Ok(reader) = packing.reader(part, packed::WINDOW, UsedInput::default()) else {
        return Ok(None);
    };
    let mut reader = reader.take(MOST / packing.weight());
    let mut listing = Listing { members: Vec::new(), ended: None };
    // The bytes from the next header on.
    let (mut held, mut wanted) = (Vec::new(), FIRST);
    let mut is_tar = false;
    while listing.members.len() <= MAX_MEMBERS {
        progress.check(0, 0)?;
        let filled = packed::fill(&mut reader, &mut held, wanted as u64);
        let source: Arc<dyn ReadAt> = Arc::new(Memory::from(held.clone()));
        is_tar |= tar::is_header(&*source, 0);
        if !is_tar {
            return Ok(None);
        }
        let mut walk = Walk::new(&source, 0);
        let member = walk.member(&mut |_| true);
        let (Some(member), Some(next)) = (member, walk.next()) else {
            if held.len() >= wanted && wanted < LONGEST {
                wanted *= 4;
                continue;
            }
            listing.ended = why(filled, &reader);
            break;
        };
        if member.link.is_empty() && !is_folder(&member.name) {
            let place = Err(PACKED_TAR);
            listing.members.push(ArchiveMember { name: member.name, len: member.len, place });
        }
        wanted = FIRST;
        let behind = next.saturating_sub(held.len() as u64);
        held.drain(..held.len().min(usize::try_from(next).unwrap_or(usize::MAX)));
        let skipped = skip(&mut reader, behind, progress)?;
        if !matches!(skipped, Ok(true)) {
            listing.ended = why(skipped.map(drop), &reader).or(Some(DAMAGED));
            break;
        }
    }
    Ok(Some(listing))
}

/// Returns why nothing more was read, unless the archive ended.
fn why(read: io::Result<()>, reader: &io::Take<Box<dyn Read>>) -> Option<&'static str> {
    match read {
        Err(_) => Some(DAMAGED),
        Ok(()) if reader.limit() == 0 => Some(TOO_LONG),
        Ok(()) => None,
    }
}

/// Skips bytes. Returns whether there were as many. The outer error is that the user cancelled.
fn skip(
    reader: &mut dyn Read,
    mut len: u64,
    progress: &mut dyn Progress,
) -> Result<io::Result<bool>> {
    while len > 0 {
        progress.check(0, 0)?;
        let step = len.min(STEP);
        match io::copy(&mut (&mut *reader).take(step), &mut io::sink()) {
            Ok(read) if read == step => len -= step,
            Ok(_) => return Ok(Ok(false)),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(true))
}
