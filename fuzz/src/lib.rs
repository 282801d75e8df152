//! The fuzz targets. Most open the fuzzer's input and do with it what a user would.
//!
//! A hostile file must lead to a checkpoint or an error. A panic, an overflow, a hang or memory
//! beyond the limits is a failure; so is a result that differs when the same bytes are read in
//! other pieces.

mod cerebras_s3;
mod config;
mod dcp;
mod link;
mod pickle;
mod quantised;
mod ranks;
mod recipe;
mod scan;
mod sweep;
mod tensorflow;
mod texts;

use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, ErrorKind, FileSet, Limits, Memory, Progress, Result, Span, Unwatched,
};
use statelens_convert::{Run, Step, TensorWriter, WriteTarget, plan};
use statelens_describe::model::Model;
use statelens_describe::{CheckpointSummary, Info, ParameterCount, write_manifest};
use statelens_formats::{FORMATS, RequestedOptions, writings};
use statelens_tensor::{Machine as _, Need};

/// Maximum number of logical bytes that a target reads: a file of a few bytes may describe a
/// terabyte.
const READ: u64 = 4 << 20;

/// The targets by name. `seeds/NAME.txt` lists the folders with the inputs that a target starts from.
/// Every format whose id is not here has a target of its own, which starts from the fixtures in
/// `tests/fixtures/ID`.
const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("cerebras", |bytes| examine("x.mdl", bytes)),
    ("cerebras_s3", cerebras_s3::run),
    ("config", config::run),
    ("dcp", dcp::run),
    ("jinja", texts::jinja),
    ("json", texts::json),
    ("link", link::run),
    ("numpy", |bytes| examine("x.npz", bytes)),
    ("pickle", pickle::run),
    ("quantised", quantised::run),
    ("ranks", ranks::run),
    ("recipe", recipe::run),
    ("scan", scan::run),
    ("split_reads", split_reads),
    ("sweep", sweep::run),
    ("tensorflow", tensorflow::run),
    ("torch", |bytes| examine("x.pt", bytes)),
    ("yaml", texts::yaml),
];

/// A fuzz target.
pub type Target = Box<dyn Fn(&[u8]) + Send + Sync>;

/// Returns the target with this name: one of [`TARGETS`], or the format with this id.
pub fn target(name: &str) -> Option<Target> {
    if let Some((_, run)) = TARGETS.iter().find(|(known, _)| *known == name) {
        return Some(Box::new(run));
    }
    let format = FORMATS.iter().find(|format| format.ids.contains(&name))?;
    let file = format!("x.{}", format.extensions.first().unwrap_or(&name));
    Some(Box::new(move |bytes| examine(&file, bytes)))
}

/// The last four bytes determine how the file before them is cut, so that the fixtures are usable as
/// seeds.
fn split_reads(bytes: &[u8]) {
    let (file, pieces) = bytes.split_at(bytes.len().saturating_sub(4));
    compare("x", file, pieces);
}

/// Opens a file and runs all operations that read it.
fn examine(name: &str, bytes: &[u8]) {
    examine_files(FileSet::single(name, Memory::from(bytes.to_vec())));
}

/// As [`examine`], for several files.
fn examine_files(files: FileSet) {
    let opened = statelens_formats::open(files, &Limits::default(), &mut Unwatched);
    let Ok(checkpoint) = opened else { return };
    let leaves = checkpoint.leaves();
    let summary = CheckpointSummary::new(&checkpoint, &leaves);
    let _ = Info::new(&checkpoint, summary, ParameterCount::default(), Model::default()).json();
    let _ = manifest(&checkpoint);
    let checkpoint = Arc::new(checkpoint);
    for target in targets() {
        let _ = convert(&checkpoint, &target, &mut |left| left);
    }
}

/// Opens the same bytes as a local file and as a remote one, which is read in other pieces, and
/// converts it fed with whole spans and with pieces cut by `pieces`; the results must be equal.
fn compare(name: &str, bytes: &[u8], pieces: &[u8]) {
    let memory = Memory::from(bytes.to_vec());
    let mut remote = FileSet::default();
    remote.push_remote(name, Arc::new(memory.clone()), None);
    let (whole, cached) = match (open(FileSet::single(name, memory)), open(remote)) {
        (Ok(whole), Ok(cached)) => (whole, cached),
        (Err(whole), Err(cached)) => {
            assert_eq!(
                whole.to_string(),
                cached.to_string(),
                "errors depend on how reads are split"
            );
            return;
        }
        (whole, cached) => panic!("whole: {:?}, as from a server: {:?}", whole.err(), cached.err()),
    };
    let texts = |result: Result<String>| result.map_err(|error| error.to_string());
    assert_eq!(texts(manifest(&whole)), texts(manifest(&cached)), "manifests differ");
    let whole = Arc::new(whole);
    for target in targets() {
        let mut cuts = pieces.iter().cycle();
        let mut piece = |left: u64| left.min(1 + u64::from(cuts.next().copied().unwrap_or(255)));
        let one = convert(&whole, &target, &mut |left| left);
        let two = convert(&whole, &target, &mut piece);
        match (one, two) {
            (Ok(one), Ok(two)) => assert!(one == two, "{target:?} depends on how it is fed"),
            (Err(one), Err(two)) => assert_eq!(one.kind(), two.kind(), "{target:?}: {one}; {two}"),
            (one, two) => panic!("{target:?}: whole {:?}, in pieces {:?}", one.err(), two.err()),
        }
    }
}

fn open(files: FileSet) -> Result<Checkpoint> {
    statelens_formats::open(files, &Limits::default(), &mut Unwatched)
}

fn targets() -> impl Iterator<Item = WriteTarget> {
    let whole = writings().filter(|writing| writing.id != "npy");
    whole.map(|writing| writing.target(&RequestedOptions::default()).expect("the default of each"))
}

fn manifest(checkpoint: &Checkpoint) -> Result<String> {
    let mut text = String::new();
    let leaves = checkpoint.leaves();
    let result = write_manifest(checkpoint, &leaves, &mut Spent, &mut |part| {
        text.push_str(part);
        Ok(())
    });
    match result {
        // Text written before the target's own limit is worth comparing.
        Err(error) if error.kind() == ErrorKind::Cancelled => Ok(text),
        other => other.map(|_| text),
    }
}

/// Returns the converted file; empty if it would be longer than [`READ`]. `piece` returns how many
/// of the remaining bytes of a span to feed next.
fn convert(
    source: &Arc<Checkpoint>,
    target: &WriteTarget,
    piece: &mut dyn FnMut(u64) -> u64,
) -> Result<Vec<u8>> {
    let plan = plan(Arc::clone(source), &Default::default(), target, "out")?;
    if plan.size()?.bytes() > READ {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    let mut run = Run::new(plan, false)?;
    let mut read = |files: &FileSet, span: Span| {
        let len = span.len.min(READ);
        files.read_vec(span.file, span.offset, piece(len).min(len))
    };
    while let Some(step) = run.next_step()? {
        let done = run.progress().0;
        match step {
            Step::Begin(_) => {}
            Step::Bytes(bytes) => out.extend_from_slice(&bytes),
            Step::Copy(mut span) => {
                while span.len > 0 {
                    let bytes = read(run.files(), span)?;
                    out.extend_from_slice(&bytes);
                    span.offset += bytes.len() as u64;
                    span.len -= bytes.len() as u64;
                }
            }
            Step::Make(make) => {
                let mut machine = make.all(TensorWriter { run: &mut run, file: &mut out })?;
                loop {
                    match machine.need() {
                        Need::Feed(span) => {
                            let bytes = read(machine.files(), span)?;
                            machine.feed(&bytes)?;
                        }
                        Need::Step => machine.step()?,
                        Need::Done => break,
                    }
                    // Compressed input may unpack to far more than the size of the output, which is
                    // all that the check above bounds.
                    if done + machine.progress().0 > READ {
                        return Ok(Vec::new());
                    }
                }
                let cast = machine.cast_report();
                machine.into.end()?.run.made(cast);
            }
            Step::Head(head) => out[..head.len()].copy_from_slice(&head),
        }
    }
    Ok(out)
}

/// Stops a job after [`READ`] bytes.
struct Spent;

impl Progress for Spent {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        done <= READ
    }
}
