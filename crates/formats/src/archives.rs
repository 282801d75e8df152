//! Archives of files with checkpoints in them: zip and tar. Members that are stored without
//! compression are opened in place, as files of the same set; nothing is unpacked.
//!
//! A compressed tar archive is only listed ([`stream`]).
//!
//! A zip archive that is itself a checkpoint (PyTorch, `.npz`, Keras) is not one of these.

mod stream;

use std::sync::Arc;

use statelens_checkpoint::{
    Error, FileId, FileSet, Layout, Limits, Progress, ReadAt, Result, Span, Unwatched, listed,
    order, size_text,
};

pub use crate::archive::ARCHIVE;
use crate::archive::{Archive, Record, is_zip, names};
use crate::section::Section;
use crate::tar::{self, Walk};
use crate::{paths, sets};

/// The maximum number of members of an archive that is opened in place.
const MAX_MEMBERS: usize = 10_000;
/// The maximum number of members that an error lists.
const MAX_LISTED: usize = 20;

/// A file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveMember {
    /// Its name in the archive.
    pub name: String,
    /// Its length in bytes when unpacked.
    pub len: u64,
    /// The range of its bytes in the archive; the error says why it can't be read in place.
    pub place: std::result::Result<Span, &'static str>,
}

const ENCRYPTED: &str = "encrypted";
const COMPRESSED: &str = "compressed";
const SPARSE: &str = "stored without its empty parts";
const PACKED_TAR: &str = "in a compressed tar archive";

/// Returns the members of the archive that is the main file. `None` if that is not a zip or tar
/// archive.
///
/// # Errors
/// Fails if the archive is damaged, if its members overlap, if they are too many, or if a name leads
/// out of the folder of the archive.
pub fn members(files: &FileSet, limits: &Limits) -> Result<Option<Vec<ArchiveMember>>> {
    let main = files.main()?;
    let source = files.structure(main)?;
    let head = files.read_vec(main, 0, files.len(main).min(512))?;
    let members = if is_zip(&head) {
        let archive = Archive::open(source, main, limits)?;
        let files = archive.records().iter().filter(|record| !is_folder(&record.name()));
        let members = files.take(MAX_MEMBERS + 1).map(|record| of_zip(&archive, record));
        members.collect::<Result<Vec<_>>>()?
    } else if tar::is_header(&*source, 0) {
        let source: Arc<dyn ReadAt> = source;
        of_tar(&source, main)
    } else if let Some(listing) = stream::members(files, &mut Unwatched)? {
        listing.members
    } else {
        return Ok(None);
    };
    check(&members)?;
    Ok(Some(members))
}

/// Returns an error if there are too many members, or if one leads out of the folder.
fn check(members: &[ArchiveMember]) -> Result<()> {
    if members.len() > MAX_MEMBERS {
        return Err(Error::limit(format!("this archive has more than {MAX_MEMBERS} files"))
            .coded(ARCHIVE)
            .advice("Unpack it and open the checkpoint in it."));
    }
    if let Some(member) = members.iter().find(|member| names::leads_out(&member.name)) {
        return Err(Error::refused(format!(
            "this archive has a member whose name leads outside its folder: {:?}",
            member.name
        ))
        .coded(ARCHIVE)
        .advice("Do not unpack it: a careless program would write that file elsewhere."));
    }
    Ok(())
}

/// Returns the error for a compressed tar archive: its members, and how to unpack it. `None` for
/// other files, and for files on a server, which would have to be fetched whole.
///
/// # Errors
/// Fails if a name leads out of the folder of the archive, or the user cancels.
pub(crate) fn packed_tar(files: &FileSet, progress: &mut dyn Progress) -> Result<Option<Error>> {
    let Some(listing) = stream::members(files, progress)? else { return Ok(None) };
    let name = files.name(files.main()?);
    check(&listing.members).map_err(|error| error.in_file(name))?;
    let members = match listing.members.as_slice() {
        [] => "no files".to_owned(),
        members => list(members),
    };
    let rest = match listing.ended {
        None => String::new(),
        Some(why) => format!("; {why}"),
    };
    let what = format!("this is a compressed tar archive. It holds {members}{rest}");
    Ok(Some(Error::unsupported(what).in_file(name).advice(unpack(name, PACKED_TAR))))
}

/// Returns the same files with the stored members of the main file, which is an archive, as further
/// files, and one of them as main file: `member`, or the only checkpoint among them. The name of a
/// member follows that of the archive: `models.zip/a.pt`.
///
/// # Errors
/// Fails if the archive lacks the member or compresses it; without a name, unless it has exactly one
/// checkpoint. The error lists the members.
pub fn enter(files: &FileSet, member: Option<&str>, limits: &Limits) -> Result<FileSet> {
    let archive = files.main()?;
    let not_one = || {
        Error::unsupported("this is not a zip or tar archive")
            .in_file(files.name(archive))
            .advice("Name the file itself.")
    };
    let members = members(files, limits)?.ok_or_else(not_one)?;
    let full = |name: &str| format!("{}/{name}", files.name(archive));
    // Requests to a server go through the cache of the archive.
    let source: Arc<dyn ReadAt> = match files.is_remote() {
        true => files.structure(archive)?,
        false => files.source(archive)?.clone(),
    };
    let mut inside = FileSet::default();
    let mut all = files.clone();
    for member in &members {
        let Ok(span) = member.place else { continue };
        let section = Arc::new(Section::new(source.clone(), span.offset, span.len));
        inside.push(full(&member.name), section.clone());
        all.push(full(&member.name), section);
    }
    let main = match member {
        Some(name) => {
            let known = members.iter().find(|member| member.name == name);
            match known.map(|member| member.place) {
                Some(Ok(_)) => full(name),
                Some(Err(how)) => {
                    return Err(Error::unsupported(format!("this member is {how}"))
                        .in_file(full(name))
                        .advice(unpack(files.name(archive), how)));
                }
                None => {
                    return Err(Error::unsupported("the archive has no such member")
                        .in_file(full(name))
                        .advice(format!("It holds {}.", list(&members))));
                }
            }
        }
        None => match sets::sort(&inside).as_slice() {
            [one] => one.main.clone(),
            [] => return Err(explain(files, &members)),
            several => {
                let mut mains: Vec<&str> = several.iter().map(|one| one.main.as_str()).collect();
                order::natural(&mut mains);
                return Err(Error::unsupported(format!(
                    "this archive holds {} checkpoints: {}",
                    mains.len(),
                    listed(&mains, MAX_LISTED)
                ))
                .coded(ARCHIVE)
                .in_file(files.name(archive))
                .advice("Name one of them as it is listed here, or unpack the archive."));
            }
        },
    };
    let id = all.find(&main).ok_or_else(not_one)?;
    Ok(all.opened_at(id))
}

/// Returns the error for a zip or tar archive that is not a checkpoint, given the error of its
/// reader: lists the members, and says how to open them.
pub(crate) fn described(files: &FileSet, limits: &Limits, error: Error) -> Error {
    match members(files, limits) {
        Ok(Some(members)) => explain(files, &members),
        Ok(None) => error,
        Err(error) => error.in_file(files.main().map_or("", |main| files.name(main))),
    }
}

fn explain(files: &FileSet, members: &[ArchiveMember]) -> Error {
    let name = files.main().map_or("", |main| files.name(main));
    if members.is_empty() {
        return Error::unsupported("this archive holds no files").coded(ARCHIVE).in_file(name);
    }
    let stored = members.iter().filter(|member| member.place.is_ok()).count();
    let how = members.iter().find_map(|member| member.place.err());
    let (what, advice) = match how {
        Some(ENCRYPTED) => (
            format!("this archive is encrypted. It holds {}", list(members)),
            unpack(name, ENCRYPTED),
        ),
        Some(how) if stored == 0 => {
            (format!("this archive holds {}, {how}", list(members)), unpack(name, how))
        }
        _ => (
            format!("this archive holds {}", list(members)),
            "Unpack it, or name a member after the archive, as in `ARCHIVE/MEMBER`.".to_owned(),
        ),
    };
    Error::unsupported(what).coded(ARCHIVE).in_file(name).advice(advice)
}

/// Returns advice on a member that can't be read in place.
fn unpack(archive: &str, how: &str) -> String {
    let archive = paths::base(archive);
    match how {
        ENCRYPTED => {
            format!("Unpack it with its password, as with `7z x {archive}`, and open the result.")
        }
        _ if how == PACKED_TAR || archive.ends_with(".tar") => {
            format!("Unpack it with `tar -xf {archive}`, and open the result.")
        }
        _ => format!(
            "Unpack it with `unzip {archive}` and open the result, or pack it without compression \
             (`zip -0`)."
        ),
    }
}

/// Lists members with their sizes.
fn list(members: &[ArchiveMember]) -> String {
    let shown = |member: &ArchiveMember| format!("{} ({})", member.name, size_text(member.len));
    let shown: Vec<String> = members.iter().take(MAX_LISTED).map(shown).collect();
    match members.len().saturating_sub(MAX_LISTED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns whether a name is that of a folder, or of a file that macOS adds to archives.
fn is_folder(name: &str) -> bool {
    name.ends_with('/') || name.starts_with("__MACOSX/") || paths::base(name).starts_with("._")
}

fn of_zip(archive: &Archive, record: &Record) -> Result<ArchiveMember> {
    let place = match record.hindrance() {
        None => match archive.layout(record)? {
            Layout::Span(span) => Ok(span),
            _ => Err(COMPRESSED),
        },
        Some(how) if how == ENCRYPTED => Err(ENCRYPTED),
        Some(_) => Err(COMPRESSED),
    };
    Ok(ArchiveMember { name: record.name(), len: record.len, place })
}

fn of_tar(source: &Arc<dyn ReadAt>, file: FileId) -> Vec<ArchiveMember> {
    let mut walk = Walk::new(source, 0);
    let mut members = Vec::new();
    while let Some(member) = walk.member(&mut |_| true) {
        let end = member.start.checked_add(member.len);
        let is_inside = end.is_some_and(|end| end <= source.len());
        if !member.link.is_empty() || is_folder(&member.name) || !is_inside {
            continue;
        }
        let span = Span { file, offset: member.start, len: member.len };
        let place = if member.sparse.is_none() { Ok(span) } else { Err(SPARSE) };
        members.push(ArchiveMember { name: member.name, len: member.len, place });
        if members.len() > MAX_MEMBERS {
            break;
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzEncoder;
    use statelens_checkpoint::{Checkpoint, Memory, Unwatched};

    use super::*;

    const TENSORS: &[u8] =
        b"\x3c\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}       \x07\x08";

    /// A member of a zip archive: name, bytes, method, flags.
    type ZipMember<'a> = (&'a str, &'a [u8], u16, u16);

    fn zip(members: &[ZipMember<'_>]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, bytes, method, flags) in members {
            let crc = statelens_tensor::crc::crc32(0, bytes);
            let (at, len) = (out.len() as u32, bytes.len() as u32);
            let mut common = [20u16, *flags, *method, 0, 0].map(u16::to_le_bytes).concat();
            common.extend([crc, len, len].map(u32::to_le_bytes).concat());
            common.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
            out.extend(b"PK\x03\x04");
            out.extend(&common);
            out.extend(name.bytes());
            out.extend(*bytes);
            directory.extend(b"PK\x01\x02\x14\0");
            directory.extend(common);
            directory.extend([0; 10]);
            directory.extend(at.to_le_bytes());
            directory.extend(name.bytes());
        }
        let (at, len) = (out.len() as u32, directory.len() as u32);
        out.extend(directory);
        out.extend(b"PK\x05\x06\0\0\0\0");
        out.extend([members.len() as u16; 2].map(u16::to_le_bytes).concat());
        out.extend([len, at].map(u32::to_le_bytes).concat());
        out.extend([0, 0]);
        out
    }

    fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, bytes) in members {
            let mut header = [0; 512];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
            header[156] = b'0';
            header[257..263].copy_from_slice(b"ustar\0");
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            out.extend(header);
            out.extend(*bytes);
            out.resize(out.len().next_multiple_of(512), 0);
        }
        out.resize(out.len() + 1024, 0);
        out
    }

    fn set(name: &str, bytes: Vec<u8>) -> FileSet {
        FileSet::single(name, Memory::from(bytes))
    }

    fn entered(files: &FileSet, member: Option<&str>) -> Result<Checkpoint> {
        let inside = enter(files, member, &Limits::default())?;
        crate::open(inside, &Limits::default(), &mut Unwatched)
    }

    fn error(files: &FileSet) -> String {
        let opened = crate::open(files.clone(), &Limits::default(), &mut Unwatched);
        let error = opened.unwrap_err();
        assert_eq!(error.code(), ARCHIVE, "{error}");
        assert!(error.next_step().is_some(), "{error}");
        error.to_string()
    }

    #[test]
    fn opens_stored_members_in_place() {
        let members: [ZipMember<'_>; 2] =
            [("m/config.json", b"{}", 0, 0), ("m/model.safetensors", TENSORS, 0, 0)];
        let tarred = tar(&[("m/config.json", b"{}"), ("m/model.safetensors", TENSORS)]);
        for files in [set("set.zip", zip(&members)), set("set.tar", tarred)] {
            let listed = error(&files);
            assert!(listed.contains("m/model.safetensors (70 bytes)"), "{listed}");
            for member in [None, Some("m/model.safetensors")] {
                let checkpoint = entered(&files, member).unwrap();
                let name = checkpoint.files.name(checkpoint.files.main().unwrap());
                assert!(name.ends_with("/m/model.safetensors"), "{name}");
                let leaf = &checkpoint.leaves()[0];
                let (_, tensor) = checkpoint.tensor_of(leaf.id).unwrap();
                let bytes = statelens_tensor::elements(&checkpoint.files, tensor, 0..2).unwrap();
                assert_eq!(bytes, [7, 8]);
            }
            let absent = entered(&files, Some("x")).unwrap_err().to_string();
            assert!(
                absent.contains("no such member") && absent.contains("config.json"),
                "{absent}"
            );
        }
    }

    #[test]
    fn joins_shards_in_an_archive() {
        let index = br#"{"weight_map": {"w": "a.safetensors"}}"#;
        let members: [ZipMember<'_>; 2] =
            [("m/a.safetensors", TENSORS, 0, 0), ("m/x.safetensors.index.json", index, 0, 0)];
        let checkpoint = entered(&set("set.zip", zip(&members)), None).unwrap();
        assert!(checkpoint.findings.is_empty(), "{:?}", checkpoint.findings);
        assert_eq!(checkpoint.leaves().len(), 1);
    }

    #[test]
    fn names_what_can_t_be_opened() {
        let several: [ZipMember<'_>; 2] =
            [("a.safetensors", TENSORS, 0, 0), ("b.safetensors", TENSORS, 0, 0)];
        let several = entered(&set("s.zip", zip(&several)), None).unwrap_err().to_string();
        assert!(several.contains("2 checkpoints: s.zip/a.safetensors, s.zip/b"), "{several}");
        for (member, words) in [
            (("a.safetensors", TENSORS, 8, 0), ["compressed", "unzip s.zip"]),
            (("a.safetensors", TENSORS, 93, 0), ["compressed", "unzip s.zip"]),
            (("a.safetensors", TENSORS, 0, 1), ["encrypted", "7z x s.zip"]),
            (("readme.txt", b"a text", 0, 0), ["readme.txt (6 bytes)", "ARCHIVE/MEMBER"]),
            (("../a.safetensors", TENSORS, 0, 0), ["leads outside", "Do not unpack"]),
        ] {
            let found = error(&set("s.zip", zip(&[member])));
            assert!(words.iter().all(|word| found.contains(word)), "{found}");
        }
        let out = tar(&[("../../a", b"1")]);
        assert!(error(&set("s.tar", out)).contains("leads outside"));
    }

    #[test]
    fn refuses_overlapping_and_too_many_members() {
        let mut bytes = zip(&[("a", TENSORS, 0, 0), ("b", TENSORS, 0, 0)]);
        // The second entry of the directory gets the offset of the first member.
        let second = bytes.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
        bytes[second + 42..second + 46].fill(0);
        let opened = crate::open(set("s.zip", bytes), &Limits::default(), &mut Unwatched);
        assert!(opened.unwrap_err().to_string().contains("overlap"));
        let names: Vec<String> = (0..=MAX_MEMBERS).map(|at| format!("{at}")).collect();
        let many: Vec<ZipMember<'_>> =
            names.iter().map(|name| (name.as_str(), &b"1"[..], 0, 0)).collect();
        assert!(error(&set("s.zip", zip(&many))).contains("more than 10000 files"));
    }

    /// Compresses bytes with gzip and zstd.
    fn compressed(bytes: &[u8]) -> [(&'static str, Vec<u8>); 2] {
        let mut gzip = Vec::new();
        GzEncoder::new(bytes, flate2::Compression::fast()).read_to_end(&mut gzip).unwrap();
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        [("m.tar.gz", gzip), ("m.tar.zst", ruzstd::encoding::compress_to_vec(bytes, level))]
    }

    fn refusal(files: &FileSet) -> String {
        crate::open(files.clone(), &Limits::default(), &mut Unwatched).unwrap_err().to_string()
    }

    #[test]
    fn lists_compressed_tar_archives_whole() {
        // Longer than the read-ahead of a header, and with a name longer than a header.
        let noise = |at: u32| at.wrapping_mul(0x9e37_79b9).rotate_left(at % 31) as u8;
        let long: Vec<u8> = (0..1 << 20).map(noise).collect();
        let name = format!("m/{}/b.pt", "n".repeat(90));
        let plain = tar(&[("m/config.json", b"{}"), ("m/a.pt", &long), (&name, TENSORS)]);
        for (archive, bytes) in compressed(&plain) {
            let files = set(archive, bytes.clone());
            let found = refusal(&files);
            let unpack = format!("tar -xf {archive}");
            for words in ["m/config.json (2 bytes), m/a.pt (1.05 MB)", &name, &unpack] {
                assert!(found.contains(words), "{words}: {found}");
            }
            let member = enter(&files, Some("m/a.pt"), &Limits::default()).unwrap_err();
            assert!(member.to_string().contains(&unpack), "{member}");
            // The error of a stream that is cut short says so.
            let found = refusal(&set(archive, bytes[..bytes.len() / 2].to_vec()));
            assert!(found.contains("m/config.json") && !found.contains(&name), "{found}");
            assert!(found.contains("; the rest can't be decompressed"), "{found}");
        }
        for (archive, bytes) in compressed(&tar(&[("../../a", b"1")])) {
            assert!(refusal(&set(archive, bytes)).contains("leads outside"));
        }
        for (archive, bytes) in compressed(b"no archive") {
            assert!(refusal(&set(archive, bytes)).contains("this is a compressed file"));
        }
    }
}
