//! Links: parses link messages and follows paths.
//!
//! Link messages are parsed here because hdf5-reader refuses names that aren't UTF-8.

use hdf5_reader::io::Cursor;
use statelens_checkpoint::{Error, Result, Text};

use crate::decode::text;
use crate::error::from_reader;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: Text,
    pub target: LinkValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkValue {
    /// The object whose header is at that address. Links with the same address lead to one object.
    Hard(u64),
    /// A path in this file.
    Soft(Text),
    /// A path in another file. Boxed because it is rare and large.
    External(Box<External>),
}

/// A path in another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// The file name as it was written: absolute or relative to this file.
    pub file: Text,
    /// The path in that file.
    pub path: Text,
}

/// The end of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    Object(u64),
    /// Another file; the rest of the path starts there.
    External(Box<External>),
    /// A name that doesn't exist.
    Missing,
    /// More soft links than are followed; most often they form a cycle.
    Circular,
}

/// Maximum number of soft links that are followed in a row.
const MAX_CHAIN: u32 = 32;

/// Parses a link message, version 1. Returns the link and its creation order, 0 if that isn't
/// stored.
///
/// Format: "Link Message" of the HDF5 File Format Specification 3.0, section IV.A.2.g.
pub(crate) fn parse(body: &[u8], offset_size: u8) -> Result<(u64, Link)> {
    let cursor = &mut Cursor::new(body);
    let (version, flags) = (byte(cursor)?, byte(cursor)?);
    if version != 1 {
        return Err(Error::damaged(format!("a link of version {version}")).expected("version 1"));
    }
    let kind = if flags & 8 == 0 { 0 } else { byte(cursor)? };
    let order = match flags & 4 {
        0 => 0,
        _ => cursor.read_u64_le().map_err(from_reader)?,
    };
    if flags & 16 != 0 {
        // Names are ASCII or UTF-8; ASCII is valid UTF-8.
        byte(cursor)?;
    }
    let len = cursor.read_uvar(1 << (flags & 3)).map_err(from_reader)?;
    let name = fixed_text(cursor, len)?;
    let target = match kind {
        0 => LinkValue::Hard(cursor.read_offset(offset_size).map_err(from_reader)?),
        1 => {
            let len = cursor.read_u16_le().map_err(from_reader)?;
            LinkValue::Soft(fixed_text(cursor, len.into())?)
        }
        64 => {
            let len = usize::from(cursor.read_u16_le().map_err(from_reader)?);
            let value = cursor.read_bytes(len).map_err(from_reader)?;
            // A byte with version and flags, then two NUL-terminated texts.
            let mut parts = value.get(1..).unwrap_or_default().split(|byte| *byte == 0);
            match (parts.next(), parts.next(), parts.next()) {
                (Some(file), Some(path), Some(_)) => LinkValue::External(Box::new(External {
                    file: Text::decode(file),
                    path: Text::decode(path),
                })),
                _ => return Err(Error::damaged("an external link that ends too early")),
            }
        }
        kind => {
            return Err(
                Error::damaged(format!("a link of the unknown type {kind}")).expected("0, 1 or 64")
            );
        }
    };
    Ok((order, Link { name, target }))
}

fn byte(cursor: &mut Cursor<'_>) -> Result<u8> {
    cursor.read_u8().map_err(from_reader)
}

fn fixed_text(cursor: &mut Cursor<'_>, len: u64) -> Result<Text> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    cursor.read_bytes(len).map(text).map_err(from_reader)
}

/// Follows a path from a group, through soft links. Both addresses must be those of groups; `link`
/// returns the link with a given name in a group.
pub(crate) fn follow(
    root: u64,
    from: u64,
    path: &Text,
    mut link: impl FnMut(u64, &[u8]) -> Option<LinkValue>,
) -> Followed {
    let mut at = if path.as_bytes().starts_with(b"/") { root } else { from };
    let mut path = path.as_bytes().to_vec();
    let mut start = 0;
    let mut hops = 0;
    while start < path.len() {
        let rest = &path[start..];
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (step, after) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
        start += end + 1;
        if step.is_empty() || step == b"." {
            continue;
        }
        match link(at, step) {
            None => return Followed::Missing,
            Some(LinkValue::Hard(address)) => at = address,
            Some(LinkValue::Soft(target)) => {
                hops += 1;
                if hops > MAX_CHAIN {
                    return Followed::Circular;
                }
                // A soft link is relative to its group, or absolute.
                if target.as_bytes().starts_with(b"/") {
                    at = root;
                }
                (path, start) = (joined(target.as_bytes(), after), 0);
            }
            Some(LinkValue::External(external)) => {
                let External { file, path } = *external;
                let path = match after {
                    [] => path,
                    after => Text::decode(&joined(path.as_bytes(), after)),
                };
                return Followed::External(Box::new(External { file, path }));
            }
        }
    }
    Followed::Object(at)
}

fn joined(path: &[u8], after: &[u8]) -> Vec<u8> {
    [path, b"/", after].concat()
}
