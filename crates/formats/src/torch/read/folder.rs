//! Finds the folder of the records in a torch archive.
//!
//! The rules are those of `PyTorchStreamReader` in `caffe2/serialize/inline_container.cc`, whose
//! `getAllRecords` torch.load calls (release 2.4), and of miniz, which reads stored and deflated
//! records.

use std::sync::Arc;

use statelens_checkpoint::{
    Finding, Grade, Limits, Packing, ReadAt, Result, Setting, Span, advice, counted,
};

use crate::archive::{Archive, Record, names};

/// Opens the archive in this part of a file, with the folder that holds `data.pkl` as its root.
/// Also returns the findings.
pub(super) fn open(
    source: Arc<dyn ReadAt>,
    span: Span,
    limits: &Limits,
) -> Result<(Archive, Vec<Finding>)> {
    let mut archive = Archive::open_within(source, span, limits)?;
    let mut findings = Vec::new();
    if archive.records().iter().all(|record| !record.raw_name().contains(&b'/'))
        && archive.records().iter().any(|record| record.raw_name().ends_with(b"\\data.pkl"))
    {
        archive.take_backslashes_for_slashes();
        findings.push(refused(
            "The names of the records have backslashes",
            "torch.load expects slashes, and refuses the archive.",
        ));
    }
    findings.extend(names::finding(archive.records().iter()));
    if archive.is_led_by_something() {
        findings.push(refused(
            "There are bytes before the archive",
            "torch.load refuses a file that does not begin with the archive.",
        ));
    }
    findings.extend(compressed(archive.records()));
    let root = root(archive.records());
    let is_saved = |record: &Record| record.raw_name() == format!("{root}data.pkl").as_bytes();
    if archive.records().iter().any(is_saved) {
        findings.extend(outside(archive.records(), &root));
    }
    archive.enter(root);
    Ok((archive, findings))
}

fn refused(title: impl Into<String>, detail: impl Into<String>) -> Finding {
    let advice = advice!["Write a copy with ", Setting::Convert, ": torch.load reads that."];
    Finding::new(Grade::Warning, title).detail(detail).advice(advice).refused()
}

/// Returns the folder with `data.pkl`: that of the first record, where torch looks for it, or else
/// any other.
fn root(records: &[Record]) -> String {
    let first = records.first().and_then(|record| folder(record.raw_name()));
    let holds = |root: &&[u8]| {
        let name = [root, b"data.pkl".as_slice()].concat();
        records.iter().any(|record| record.raw_name() == name)
    };
    let root = first.filter(holds).or_else(|| {
        records.iter().find_map(|record| {
            let root = record.raw_name().strip_suffix(b"data.pkl")?;
            (root.is_empty() || root.ends_with(b"/")).then_some(root)
        })
    });
    String::from_utf8_lossy(root.unwrap_or_default()).into_owned()
}

/// Returns the top folder of a name, with a trailing slash.
fn folder(name: &[u8]) -> Option<&[u8]> {
    let end = name.iter().position(|byte| *byte == b'/')?;
    name.get(..=end)
}

/// Returns the finding for records outside of the first record's folder, or for a checkpoint in
/// another folder.
fn outside(records: &[Record], root: &str) -> Option<Finding> {
    let first = records.first().and_then(|record| folder(record.raw_name()));
    let outside =
        |record: &&Record| first.is_none_or(|first| !record.raw_name().starts_with(first));
    let place = records.iter().find(outside).map(Record::name);
    if place.is_none() && first == Some(root.as_bytes()) {
        return None;
    }
    let count = records.iter().filter(outside).count() as u64;
    let (title, detail) = match (first, count) {
        (Some(_), 0) => (
            format!("The checkpoint is in the folder {root}"),
            "torch.load expects it in the top folder of the archive.".to_owned(),
        ),
        (Some(first), count) => (
            format!(
                "{} not in the folder {}",
                if count == 1 {
                    "1 record is".to_owned()
                } else {
                    format!("{} are", counted(count, "record"))
                },
                String::from_utf8_lossy(first)
            ),
            "torch.load refuses an archive with records outside of its first record's folder."
                .to_owned(),
        ),
        (None, _) => (
            "The records are not in a folder".to_owned(),
            "torch.load expects all of them in one folder, and refuses the archive.".to_owned(),
        ),
    };
    Some(refused(title, detail).place(place.unwrap_or_default()))
}

/// Returns the finding for records with a compression that torch does not read.
fn compressed(records: &[Record]) -> Option<Finding> {
    let (record, packing) = records.iter().find_map(|record| {
        let packing = record.packing().filter(|packing| *packing != Packing::Deflate)?;
        Some((record, packing))
    })?;
    let title = format!("Records are {}", packing.past());
    Some(refused(title, "torch.load reads stored and deflated records.").place(record.name()))
}
