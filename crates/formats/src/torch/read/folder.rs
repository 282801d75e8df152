//! The folder in the archive that all records of a torch file lie in.

use std::sync::Arc;

use statelens_checkpoint::{Finding, Grade, Limits, ReadAt, Result, Span};

use crate::archive::{Archive, Record, names};

/// Opens the archive in that part of a file, at the folder that holds `data.pkl`, and what was noticed.
pub(super) fn open(
    source: Arc<dyn ReadAt>,
    span: Span,
    limits: &Limits,
) -> Result<(Archive, Vec<Finding>)> {
    let mut archive = Archive::open_within(source, span, limits)?;
    let mut findings: Vec<Finding> = names::finding(archive.records().iter()).into_iter().collect();
    if archive.is_led_by_something() {
        findings.push(
            Finding::new(Grade::Warning, "Something lies before the archive")
                .detail("torch refuses a file that does not begin with the archive."),
        );
    }
    archive.enter(root(archive.records(), &mut findings));
    Ok((archive, findings))
}

/// The folder: torch takes that of the first record, and refuses a file without.
fn root(records: &[Record], findings: &mut Vec<Finding>) -> String {
    let folder = |name: &[u8]| {
        let end = name.iter().position(|byte| *byte == b'/')?;
        Some(String::from_utf8_lossy(&name[..=end]).into_owned())
    };
    let holds = |root: &str| {
        let name = [root, "data.pkl"].concat();
        records.iter().any(|record| record.raw_name() == name.as_bytes())
    };
    let first = records.first().and_then(|record| folder(record.raw_name()));
    if let Some(root) = first.filter(|root| holds(root)) {
        return root;
    }
    let other = records.iter().find_map(|record| {
        let root = record.raw_name().strip_suffix(b"data.pkl")?;
        (root.is_empty() || root.ends_with(b"/")).then_some(root)
    });
    if other.is_some() {
        findings.push(
            Finding::new(Grade::Warning, "The records do not lie in one folder at the top")
                .detail("torch refuses to load such an archive."),
        );
    }
    String::from_utf8_lossy(other.unwrap_or_default()).into_owned()
}
