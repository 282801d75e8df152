//! Finds the file to open, reads its structure, and converts it into rows.

pub mod address;
mod folder;
pub mod progress;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{
    Advice, Checkpoint, DType, Error, FileId, FileSet, Finding, FindingKind, Grade, Layout, Leaf,
    Limits, Tensor, Unwatched, order, visible,
};
use statelens_describe::info::{FormatText, View};
use statelens_describe::model::parameters;
use statelens_describe::share::LeafSummary;
use statelens_describe::{CheckpointSummary, Info, dtype_of, fields_text};
use statelens_formats::archives::{self, ARCHIVE};
use statelens_recipes::adapter;
use statelens_recipes::conversion::OPTIMIZER_FILE;

use web_sys::File;

use crate::open::message::{
    FetchConsent, FileName, FoundCheckpoint, OpenedCheckpoint, StoredMember,
};
use crate::open::worker::progress::OpenProgress;
use crate::protocol::FromWorker;
use crate::protocol::assist::AssistedSide;
use crate::protocol::error::ErrorText;
use crate::read_as::message::ReadAs;
use crate::read_as::worker::typed;
use crate::rows::{PackedRows, Row};
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;
use crate::worker::port::now;
use crate::worker::sources::Sources;
use crate::{family, open, pieces, plan, quantised, repair, share, text};

/// Number of files of a drop that are tried before giving up.
const TRIES: usize = 8;

/// Opens the files as one checkpoint.
///
/// # Errors
/// Why the requested file can't be opened; for a drop of several, why the first can't.
pub fn open(
    names: &[FileName],
    sources: Rc<Sources>,
    requested: Option<u32>,
    (limits, read_as): (&Limits, ReadAs),
    job: &Job,
) -> Result<(OpenCheckpoint, OpenedCheckpoint), Box<ErrorText>> {
    let began = now();
    let set = sources.set(names);
    let mut open_progress = OpenProgress::new(job, Some(sources.read_counter()));
    let (order, found_any) = candidates(&set, requested);
    // Otherwise the files are tried only to find out why they can't be opened.
    let are_checkpoints = found_any && folder::looks_like(&set).is_none() || requested.is_some();
    if order.len() > 1 && are_checkpoints {
        job.post(&FromWorker::Checkpoints(found_among(&set, &order)));
    }
    // Bytes read so far were spent on finding the checkpoints among the files.
    let search_bytes = sources.read_counter().so_far().0;
    let mut failed: Option<(FileId, ErrorText)> = None;
    // If a file was requested, no other is opened in its place.
    let tries = if requested.is_some() { 1 } else { TRIES };
    for found in order.iter().take(tries) {
        let files = set.opened_at(found.main);
        // Files touched by an earlier attempt do not belong to this checkpoint.
        set.untouch();
        let opened = statelens_formats::open(files, limits, &mut open_progress);
        match opened.and_then(|checkpoint| typed(checkpoint, read_as)).map(text::worded) {
            Ok(checkpoint) => {
                // Take the size before other files are read to find out why they can't be opened.
                let size = set.touched_size();
                let others = order.iter().filter(|other| other.main != found.main);
                let mut opened =
                    describe(&checkpoint, found, others.map(|other| other.main.0).collect());
                let unrelated_checkpoint = || {
                    let at = unrelated_checkpoint(&set, &order, &checkpoint)?;
                    Some((at, open_error(&set, at)?))
                };
                if let Some((at, error)) = failed.or_else(unrelated_checkpoint) {
                    opened.0.findings.push(not_opened(set.name(at), &error));
                }
                opened.0.size = size;
                let strangers = set.count().saturating_sub(found.members.len().max(1));
                if strangers > 0 {
                    opened.0.searched = (set.count() as u64, search_bytes);
                }
                let effort = sources.read_counter().so_far();
                return Ok(finished((checkpoint, limits, read_as), sources, opened, effort, began));
            }
            Err(error) => {
                let members = match error.code() {
                    ARCHIVE if order.len() == 1 => stored_members(&set, found.main, limits),
                    _ => Vec::new(),
                };
                if !members.is_empty() {
                    job.post(&FromWorker::Members(found.main.0, members));
                }
                failed.get_or_insert((found.main, explained(&set, found.main, &error)));
            }
        }
    }
    if order.len() > 1 && !are_checkpoints {
        return Err(Box::new(folder::nothing_to_open(&set)));
    }
    Err(Box::new(failed.map_or_else(
        || text::error(&statelens_checkpoint::Error::io("no file was given")),
        |(_, error)| error,
    )))
}

/// Opens files as another worker has opened them before.
///
/// # Errors
/// If they were changed since.
pub(crate) fn reopen(
    side: &AssistedSide,
    files: Vec<File>,
) -> statelens_checkpoint::Result<OpenCheckpoint> {
    let sources = Rc::new(Sources::from_disk(files));
    let files = sources.set(&side.files).opened_at(FileId(side.main));
    let limits = Limits::times(side.times);
    let checkpoint = statelens_formats::open(files, &limits, &mut Unwatched)?;
    let checkpoint = typed(checkpoint, side.read_as)?;
    let (shown, leaves) = (quantised::worker::shown_weights(&checkpoint), checkpoint.leaves());
    let open = OpenCheckpoint::new(Arc::new(checkpoint), leaves.into(), sources, limits);
    Ok(match shown {
        Some(shown) => {
            let leaves = shown.0.leaves().into();
            open.with_weights(shown, leaves)
        }
        None => open,
    })
}

/// Opens the file at an address; see [`address::open`].
///
/// # Errors
/// Why it can't be opened.
pub async fn open_address(
    url: &str,
    agreed: FetchConsent,
    token: &str,
    job: &Job,
) -> Result<(OpenCheckpoint, OpenedCheckpoint), Box<ErrorText>> {
    let began = now();
    let found = open::worker::address::open(url, agreed, token, job)
        .await
        .map_err(|error| Box::new(text::error(&error)))?;
    let files = &found.files;
    let main = files.main().unwrap_or(FileId(0));
    let name = files.name(main);
    let sorted = statelens_formats::sets::sort(files).into_iter().find(|set| set.main == name);
    let name = sorted.map_or_else(|| name.to_owned(), |set| set.name);
    let checkpoint = typed(found.checkpoint, agreed.read_as).map(text::worded);
    let checkpoint = checkpoint.map_err(|error| Box::new(text::error(&error)))?;
    let mut opened =
        describe(&checkpoint, &Candidate { main, name, members: Vec::new() }, Vec::new());
    opened.0.size = files.iter().map(|(id, _)| files.len(id)).sum();
    let facts =
        checkpoint.format.facts.iter().filter(|(name, _)| address::FACTS.contains(&name.as_str()));
    let facts = facts.map(|(name, value)| (name.to_lowercase(), visible(value)));
    opened.0.facts.extend(facts);
    let effort = (job.meter().fetched(), job.meter().requests());
    let limits = Limits::times(agreed.times);
    Ok(finished(
        (checkpoint, &limits, agreed.read_as),
        Rc::new(found.sources),
        opened,
        effort,
        began,
    ))
}

/// Returns the checkpoints found, for the page's list.
fn found_among(set: &FileSet, order: &[Candidate]) -> Vec<FoundCheckpoint> {
    let ids: HashMap<&str, u32> = set.iter().map(|(id, file)| (&*file.name, id.0)).collect();
    let found = |candidate: &Candidate| {
        let members = candidate.members.iter().filter_map(|name| ids.get(name.as_str()).copied());
        // Names of sets come without their folder.
        let folder = set.name(candidate.main).rsplit_once('/').map_or("", |(folder, _)| folder);
        let base = candidate.name.rsplit('/').next().unwrap_or_default();
        let name = if folder.is_empty() { base.to_owned() } else { format!("{folder}/{base}") };
        FoundCheckpoint { main: candidate.main.0, name, members: members.collect() }
    };
    order.iter().map(found).collect()
}

/// Completes the description of an opened checkpoint with the effort of opening it.
fn finished(
    (checkpoint, limits, read_as): (Checkpoint, &Limits, ReadAs),
    sources: Rc<Sources>,
    (mut opened, leaves): (OpenedCheckpoint, Vec<Leaf>),
    effort: (u64, u64),
    began: f64,
) -> (OpenCheckpoint, OpenedCheckpoint) {
    (opened.read, opened.calls) = effort;
    opened.millis = now() - began;
    let all = checkpoint.unfolded();
    opened.unfolds = all
        .is_over(limits)
        .then(|| (all.tensor_bytes.saturating_add(all.text_bytes), all.stored_bytes));
    let shown = quantised::worker::shown_weights(&checkpoint);
    let shown = shown.map(|shown| (shown.0.leaves(), shown));
    let (all, of) = match &shown {
        Some((leaves, (checkpoint, _))) => (&leaves[..], checkpoint),
        None => (&leaves[..], &checkpoint),
    };
    let mut rows = rows(of, all);
    if let Some((_, (_, weights))) = &shown {
        quantised::worker::mark_rows(&mut rows, weights, &checkpoint);
        opened.findings.extend(quantised::worker::findings(weights));
        opened.quantised = weights.count();
    }
    opened.quantised +=
        checkpoint.tensors().iter().filter(|tensor| is_blocks(tensor)).count() as u64;
    let decoded = |tensor: &&Tensor| {
        matches!(tensor.dtype, DType::Blocks(_)) && statelens_tensor::dequantized(tensor).is_some()
    };
    opened.blocks = checkpoint.tensors().iter().filter(decoded).count() as u64;
    opened.stacked = statelens_convert::unstacked(&checkpoint).is_ok_and(|apart| apart.is_some());
    let (index, places) = {
        let by_key = shown.as_ref().map(|_| quantised::worker::by_key(&checkpoint));
        pieces::worker::places(&checkpoint, &rows, |at| {
            let leaf = all.get(at)?;
            let (_, tensor) = of.tensor_of(leaf.target)?;
            let codes = match (&shown, &by_key) {
                (Some((_, (_, weights))), Some(tensors)) => weights
                    .get(&rows[at].key)
                    .and_then(|weight| tensors.get(weight.parts.first()?))
                    .map(|(tensor, _)| *tensor),
                _ => None,
            };
            Some((leaf, codes.unwrap_or(tensor)))
        })
    };
    opened.places = places;
    // There may be as many findings as keys, so each place is looked up in a set.
    let wanted: HashSet<&str> = opened.findings.iter().map(|found| &*found.place).collect();
    let keys = rows.iter().map(|row| &row.key).filter(|key| wanted.contains(key.as_str()));
    opened.finding_keys = keys.cloned().collect();
    opened.rows = PackedRows::pack(&rows);
    let (checkpoint, limits) = (Arc::new(checkpoint), limits.clone());
    let mut open = OpenCheckpoint::new(checkpoint, leaves.into(), sources, limits);
    if let Some((leaves, shown)) = shown {
        open = open.with_weights(shown, leaves.into());
    }
    (open.read_as, open.places) = (read_as, Rc::new(index));
    (open, opened)
}

fn is_blocks(tensor: &Tensor) -> bool {
    matches!(tensor.dtype, DType::Blocks(_)) || tensor.quantizer.is_some()
}

/// A file that may be opened, and the name of the checkpoint that it leads to.
#[derive(Debug, PartialEq)]
struct Candidate {
    main: FileId,
    name: String,
    /// The names of the files that it consists of.
    members: Vec<String>,
}

/// Returns the candidates in the order in which they are tried: the requested file, then the
/// checkpoints among the files; if there are no checkpoints, every file, to find out why it can't
/// be opened. Also returns whether there are any.
fn candidates(set: &FileSet, requested: Option<u32>) -> (Vec<Candidate>, bool) {
    let mut order = Vec::new();
    let requested = requested.map(FileId).filter(|main| set.source(*main).is_ok());
    let alone = |main: FileId| {
        let name = set.name(main).to_owned();
        Candidate { main, members: vec![name.clone()], name }
    };
    order.extend(requested.map(alone));
    let ids: HashMap<&str, FileId> = set.iter().map(|(id, file)| (&*file.name, id)).collect();
    for found in statelens_formats::sets::sort(set) {
        if let Some(&main) = ids.get(&*found.main)
            && requested != Some(main)
        {
            order.push(Candidate { main, name: found.name, members: found.members });
        }
    }
    // Optimizers and adapters, which trainers save next to the model, come after the model.
    order::by_key(&mut order, |found| {
        let name = found.name.rsplit('/').next();
        let sibling =
            name.is_some_and(|name| name == OPTIMIZER_FILE || adapter::FILES.contains(&name));
        requested != Some(found.main) && sibling
    });
    if order.is_empty() {
        order.extend(statelens_formats::explaining_file(set).map(alone));
    }
    let found_any = !order.is_empty();
    if !found_any {
        order.extend(set.iter().map(|(main, _)| alone(main)));
    }
    (order, found_any)
}

fn explained(set: &FileSet, file: FileId, error: &Error) -> ErrorText {
    // In a set, the error names the file that it is about.
    let file = error.file().and_then(|name| set.find(name)).unwrap_or(file);
    let head = set.read_vec(file, 0, set.len(file).min(1024)).unwrap_or_default();
    text::config_alone(set.name(file), &head).unwrap_or_else(|| text::explained(error, &head))
}

/// Returns the members of an archive that are stored without compression, if checkpoints are among
/// them.
fn stored_members(set: &FileSet, archive: FileId, limits: &Limits) -> Vec<StoredMember> {
    let members = archives::members(&set.opened_at(archive), limits).ok().flatten();
    let stored = members.into_iter().flatten().filter_map(|member| {
        let place = member.place.ok()?;
        Some(StoredMember { name: member.name, offset: place.offset, size: place.len })
    });
    let stored: Vec<StoredMember> = stored.collect();
    match stored.iter().any(|member| statelens_formats::has_known_extension(&member.name)) {
        true => stored,
        false => Vec::new(),
    }
}

/// Returns the first file that is named like a checkpoint and belongs to none of those found.
fn unrelated_checkpoint(set: &FileSet, found: &[Candidate], opened: &Checkpoint) -> Option<FileId> {
    let used: HashSet<FileId> = opened
        .tensors()
        .iter()
        .filter_map(|tensor| match &tensor.layout {
            Layout::Span(span) => Some(span.file),
            _ => None,
        })
        .collect();
    let members: HashSet<&str> =
        found.iter().flat_map(|found| &found.members).map(String::as_str).collect();
    let mut files = set.iter();
    files.find_map(|(id, file)| {
        let name = file.name.as_str();
        let is_free = !members.contains(name) && !used.contains(&id);
        (is_free && statelens_formats::has_known_extension(name)).then_some(id)
    })
}

/// Returns why a file can't be opened; `None` if it can.
fn open_error(set: &FileSet, file: FileId) -> Option<ErrorText> {
    let files = set.opened_at(file);
    let error = statelens_formats::open(files, &Limits::default(), &mut Unwatched).err()?;
    Some(explained(set, file, &error))
}

fn not_opened(name: &str, error: &ErrorText) -> Finding {
    Finding::new(Grade::Warning, format!("{name} could not be opened"))
        .detail(format!("{} {}", error.title, error.text).trim())
        .place(text::place(error))
}

/// Returns the rows of leaves.
fn rows(checkpoint: &Checkpoint, leaves: &[Leaf]) -> Vec<Row> {
    let row = |leaf: &Leaf| {
        let mut row = share::worker::row(LeafSummary::new(checkpoint, leaf));
        // The value of a record is what its fields are.
        let fields = dtype_of(checkpoint, leaf.target).and_then(fields_text);
        if let Some(fields) = fields.filter(|_| row.value.is_empty()) {
            row.value = format!("{{{fields}}}");
        }
        row
    };
    leaves.iter().map(row).collect()
}

/// Describes an open checkpoint for the page, without its rows; also returns its leaves by row.
fn describe(
    checkpoint: &Checkpoint,
    found: &Candidate,
    others: Vec<u32>,
) -> (OpenedCheckpoint, Vec<Leaf>) {
    let leaves = checkpoint.leaves();
    let mut missing: Vec<String> =
        checkpoint.findings.iter().flat_map(|found| &found.missing).cloned().collect();
    order::natural(&mut missing);
    missing.dedup();
    let mut findings = checkpoint.findings.clone();
    // The page has a choice in the finding itself.
    for finding in findings.iter_mut().filter(|finding| finding.kind == FindingKind::Untyped) {
        finding.advice = Advice::default();
    }
    let offers = repair::worker::offers(checkpoint, &mut findings);
    let summary = CheckpointSummary::new(checkpoint, &leaves);
    let config = family::worker::config_values(&checkpoint.files);
    let parameters = parameters(checkpoint, &leaves, &summary, config.as_ref());
    let format = FormatText { name: (&checkpoint.format).into(), facts: Vec::new() };
    let info = Info::counted(format, summary.totals, parameters, Vec::new());
    let opened = OpenedCheckpoint {
        name: found.name.clone(),
        main: found.main.0,
        others,
        format_id: plan::worker::target_of(checkpoint.format.id),
        slash_keys: checkpoint.format.traits.slash_keys,
        format: info.format.name.clone(),
        facts: info.lines(View::Page),
        shards: shards(checkpoint),
        findings,
        offers,
        missing,
        model_params: info.parameters.model,
        ..OpenedCheckpoint::default()
    };
    (opened, leaves)
}

/// Returns the number of files that hold the tensors of a checkpoint; 0 if there is only one.
fn shards(checkpoint: &Checkpoint) -> u64 {
    let files: HashSet<FileId> = checkpoint
        .tensors()
        .iter()
        .filter_map(|tensor| match &tensor.layout {
            Layout::Span(span) => Some(span.file),
            _ => None,
        })
        .collect();
    if files.len() > 1 { files.len() as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_file_is_tried_first() {
        let pickle = b"\x80\x02}.".to_vec();
        let mut set = FileSet::default();
        for (name, bytes) in [
            ("a/readme.md", b"# Notes".to_vec()),
            ("a/model.pkl", pickle.clone()),
            ("a/state.pkl", pickle),
        ] {
            set.push(name, Arc::new(statelens_checkpoint::Memory::from(bytes)));
        }
        fn mains(set: &FileSet, requested: Option<u32>) -> Vec<u32> {
            candidates(set, requested).0.iter().map(|found| found.main.0).collect()
        }
        assert_eq!(mains(&set, None), [1, 2]);
        assert_eq!(mains(&set, Some(2)), [2, 1]);
        assert_eq!(mains(&set, Some(0)), [0, 1, 2]);
        for name in ["a/optimizer.pt", "a/z.pkl"] {
            let bytes = statelens_checkpoint::Memory::from(b"\x80\x02}.".to_vec());
            set.push(name, Arc::new(bytes));
        }
        assert_eq!(mains(&set, None), [1, 2, 4, 3], "a trainer's optimizer comes last");
        assert_eq!(mains(&set, Some(3)), [3, 1, 2, 4]);
        let nothing = FileSet::single("x", statelens_checkpoint::Memory::from(b"?".to_vec()));
        assert_eq!(mains(&nothing, None), [0]);
    }
}
