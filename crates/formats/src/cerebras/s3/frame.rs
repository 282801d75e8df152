//! Frames of Zstandard, <https://www.rfc-editor.org/rfc/rfc8878>, section 3.1.1: their ends, without
//! decompressing them.

use statelens_checkpoint::{Error, FileId, FileSet, Result};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Checks the frame that an object of `len` bytes should be: `plain` bytes once decompressed. Adds
/// what would keep the Cerebras library from reading it, or what it would not read.
pub(super) fn check(
    files: &FileSet,
    id: FileId,
    len: u64,
    plain: Option<u64>,
    problems: &mut Vec<Error>,
) -> Result<()> {
    let read = |at: u64, bytes: &mut [u8]| -> Result<bool> {
        match at.checked_add(bytes.len() as u64).is_some_and(|end| end <= len.min(files.len(id))) {
            true => files.source(id)?.read_at(at, bytes).map(|()| true),
            false => Ok(false),
        }
    };
    let damaged = |what: &str, at: u64| Error::damaged(what.to_owned()).at(at);
    let mut head = [0; 5];
    if !read(0, &mut head)? || head[..4] != MAGIC {
        problems.push(damaged("its body is not a Zstandard frame", 0));
        return Ok(());
    }
    let [.., flags] = head;
    let is_single = flags & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(flags & 3)];
    let size = match (flags >> 6, is_single) {
        (0, false) => 0,
        (0, true) => 1,
        (power, _) => 1usize << power,
    };
    let at = 5 + u64::from(!is_single) + dictionary;
    let mut bytes = [0; 8];
    if !read(at, &mut bytes[..size])? {
        problems.push(damaged("its Zstandard frame ends early", len));
        return Ok(());
    }
    let stated = u64::from_le_bytes(bytes).saturating_add(if size == 2 { 256 } else { 0 });
    match plain {
        _ if size == 0 => problems.push(
            damaged("its Zstandard frame does not state the size of its content", 4)
                .advice("The Cerebras library can't read it. Convert the checkpoint."),
        ),
        Some(plain) if plain != stated => problems.push(
            damaged(&format!("its Zstandard frame holds {stated} bytes"), 4)
                .expected(format!("{plain} bytes")),
        ),
        _ => {}
    }
    let mut at = at + size as u64;
    loop {
        let mut block = [0; 3];
        if !read(at, &mut block)? {
            problems.push(damaged("its Zstandard frame ends early", len));
            return Ok(());
        }
        let block = u32::from_le_bytes([block[0], block[1], block[2], 0]);
        let content = match block >> 1 & 3 {
            1 => 1,
            3 => {
                problems.push(damaged("a block of its Zstandard frame is of an unknown type", at));
                return Ok(());
            }
            _ => u64::from(block >> 3),
        };
        at = at.saturating_add(3 + content);
        if block & 1 == 1 {
            break;
        }
    }
    let end = at + if flags & 4 != 0 { 4 } else { 0 };
    match end.cmp(&len) {
        std::cmp::Ordering::Greater => {
            problems.push(damaged("its Zstandard frame ends early", len));
        }
        std::cmp::Ordering::Less => {
            let more = len - end;
            problems.push(damaged(
                &format!("{more} bytes after its Zstandard frame are not read"),
                end,
            ));
        }
        std::cmp::Ordering::Equal => {}
    }
    Ok(())
}
