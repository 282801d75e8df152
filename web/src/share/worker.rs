//! Summaries: made for the share sheet, and opened from links.

use std::collections::HashMap;
use std::rc::Rc;

use statelens_checkpoint::{Layout, TensorId, float_repr, shape_text};
use statelens_describe::info::View;
use statelens_describe::share::{
    KeysAs, LeafSummary, LinkOptions, LinkParts, Outline, lines, link, open_link,
    structure_fingerprint, without_link, write_html, write_json, write_markdown, write_picture,
};
use statelens_values::SummaryStatistics;

use crate::open::message::OpenedCheckpoint;
use crate::protocol::error::ErrorText;
use crate::rows::{LeafKind, PackedRows, Row};
use crate::share::message::{SharedLine, SharedSummary, SummaryKind};
use crate::state::fmt::cell;
use crate::worker::measurements::Measurements;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::session::Session;
use crate::{family, text};

/// Maximum number of lines of a link shown.
const MAX_LINES: usize = 200;

/// A summary, and the lengths of its files.
#[derive(Clone)]
pub struct MadeSummary {
    /// The contents.
    pub outline: Rc<Outline>,
    sizes: [u64; 3],
}

/// The summary that the session keeps.
#[derive(Default)]
struct KeptSummary {
    made: Option<MadeSummary>,
    /// The number of scans whose results it includes; `None` if it was opened from a link.
    scans: Option<u32>,
}

/// Keeps a summary that was opened from a link.
pub(crate) fn store(session: &mut Session, summary: MadeSummary) {
    session.kept(|kept: &mut KeptSummary| kept.made = Some(summary));
}

/// Returns the summary of the open checkpoint, with the results so far. It is made on first use, and
/// again after a scan.
pub(crate) fn summary(session: &mut Session) -> Option<MadeSummary> {
    let Some((open, found)) = session.measurements() else {
        return session.kept(|kept: &mut KeptSummary| kept.made.clone());
    };
    let found = found.borrow();
    session.kept(|kept: &mut KeptSummary| {
        if kept.scans != Some(found.scans) {
            let made = MadeSummary::of(&open.stored(), &found);
            (kept.made, kept.scans) = (Some(made), Some(found.scans));
        }
        kept.made.clone()
    })
}

/// Returns the outline of a summary that was opened from a link.
pub(crate) fn shared(session: &mut Session) -> Option<Rc<Outline>> {
    session.kept(|kept: &mut KeptSummary| kept.made.as_ref().map(|made| made.outline.clone()))
}

/// Returns the statistics of a row in the summary.
pub(crate) fn statistics(session: &mut Session, row: u32) -> Option<SummaryStatistics> {
    session.kept(|kept: &mut KeptSummary| kept.made.as_ref()?.statistics(row))
}

impl MadeSummary {
    /// Makes a summary from an outline.
    pub fn new(outline: Outline) -> Self {
        let length = |text: String| text.len() as u64;
        let sizes = [
            length(write_html(&outline)),
            length(write_markdown(&outline)),
            length(write_json(&outline)),
        ];
        Self { outline: Rc::new(outline), sizes }
    }

    /// Makes a summary of an open checkpoint with the known results: statistics, and the
    /// fingerprint of the content once all tensors are hashed.
    pub(crate) fn of(open: &OpenCheckpoint, measurements: &Measurements) -> Self {
        let config = family::worker::config_values(&open.checkpoint.files);
        let mut outline = Outline::new(&open.checkpoint, &open.leaves, config.as_ref());
        if measurements.scans > 0 {
            let known = |id| {
                measurements
                    .measured
                    .get(&id)
                    .map(|known| SummaryStatistics::from(&known.statistics))
            };
            outline.take_statistics(&open.checkpoint, &open.leaves, known);
        }
        if let Some(hashes) = hashes(open, measurements) {
            outline.take_hashes(&open.checkpoint, &open.leaves, hashes);
        }
        Self::new(outline)
    }

    /// Returns the statistics of a row, if they were computed.
    pub fn statistics(&self, row: u32) -> Option<SummaryStatistics> {
        self.outline.entries.get(row as usize)?.statistics
    }

    /// Makes a link, and describes what it contains.
    pub fn shared(&self, options: LinkOptions) -> SharedSummary {
        let link = link(&self.outline, &options);
        let parts = LinkParts::measure(&self.outline, &options);
        let all = lines(&without_link(&self.outline, &options));
        let lines = all.iter().take(MAX_LINES).map(|line| SharedLine {
            key: line.entry.key.clone(),
            times: line.times,
            what: entry_kind(&line.entry),
            std: line.std.map_or_else(String::new, |(least, most)| {
                let [least, most] = [least, most].map(|std| cell(&float_repr(std)));
                if least == most { least } else { format!("{least}\u{2013}{most}") }
            }),
        });
        SharedSummary {
            options,
            length: parts.length() as u64,
            link: link.map_err(|error| text::sentence(error.what())),
            parts,
            measured: self.outline.entries.iter().any(|entry| entry.statistics.is_some()),
            sizes: self.sizes,
            picture: write_picture(&self.outline, options.keys == KeysAs::Plain),
            lines: lines.collect(),
            more: all.len().saturating_sub(MAX_LINES) as u64,
            structure: structure_fingerprint(&self.outline.entries).short,
            content: self.outline.content.as_ref().map(|print| print.short.clone()),
        }
    }

    /// Returns the name and contents of a file.
    pub fn file(&self, kind: SummaryKind) -> (String, String) {
        let (extension, text) = match kind {
            SummaryKind::Html => ("html", write_html(&self.outline)),
            SummaryKind::Markdown => ("md", write_markdown(&self.outline)),
            SummaryKind::Json => ("json", write_json(&self.outline)),
        };
        (format!("{}.summary.{extension}", self.outline.name), text)
    }
}

/// Returns the SHA-256 of all tensors, in hexadecimal; `None` until all are known.
fn hashes(open: &OpenCheckpoint, measurements: &Measurements) -> Option<HashMap<TensorId, String>> {
    let checkpoint = &open.checkpoint;
    let ids = open.leaves.iter().filter_map(|leaf| checkpoint.tensor_of(leaf.target));
    let mut hashes = HashMap::new();
    for (id, tensor) in ids {
        match measurements.sha256.get(&id) {
            Some(hash) => {
                hashes.insert(id, hash.clone());
            }
            None if matches!(tensor.layout, Layout::Missing(_)) => {}
            None => return None,
        }
    }
    (!hashes.is_empty()).then_some(hashes)
}

/// Opens the summary in a link.
///
/// # Errors
/// Why it can't be opened.
pub fn open(fragment: &str) -> Result<(MadeSummary, OpenedCheckpoint), Box<ErrorText>> {
    let outline = open_link(fragment).map_err(|error| Box::new(text::error(&error)))?;
    let rows: Vec<Row> = outline.entries.iter().cloned().map(row).collect();
    let info = outline.info();
    let opened = OpenedCheckpoint {
        name: outline.name.clone(),
        format_id: outline.format.name.clone(),
        slash_keys: outline.slash_keys,
        format: outline.format.clone(),
        facts: info.lines(View::Page),
        size: outline.size,
        rows: PackedRows::pack(&rows),
        findings: outline.findings.clone(),
        summary: true,
        model_params: info.parameters.model,
        ..OpenedCheckpoint::default()
    };
    Ok((MadeSummary::new(outline), opened))
}

fn entry_kind(entry: &LeafSummary) -> String {
    if entry.is_tensor() {
        format!("{} {}", crate::state::dtype::short(&entry.dtype), shape_text(&entry.shape))
    } else if entry.value.is_empty() {
        entry.kind.word().to_owned()
    } else {
        entry.value.clone()
    }
}

/// Converts a leaf into a row.
pub fn row(entry: LeafSummary) -> Row {
    // The page shows sparse tensors as tensors.
    let kind = if entry.kind == LeafKind::Sparse { LeafKind::Tensor } else { entry.kind };
    Row {
        key: entry.key,
        kind,
        dtype: if kind.has_shape() { entry.dtype } else { String::new() },
        shape: entry.shape,
        params: entry.params,
        bytes: entry.bytes,
        value: entry.value,
        link: entry.link,
    }
}
