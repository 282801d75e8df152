//! Writes the files of a plan to the disk, or to an object store.

#[cfg(feature = "object-store")]
mod objects;
#[cfg(feature = "object-store")]
mod prefix;
mod stream;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, Limits, Plan, Progress, Result};
use statelens_compare::ReadBack;
use statelens_convert::RunReport;

use crate::files::PathText as _;
use crate::files::{self, FileSource, path_text};
use crate::output::{
    FolderLock, Folders, Output, Sync, check_target, keep_all, old_shards, same_file,
};
use crate::refusal::Refusal;
use crate::sink::FileSink;
use crate::{executor, remote};

pub use stream::write_stream;

/// What existing files may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replace {
    /// None.
    #[default]
    Nothing,
    /// Any files, once the new ones are complete.
    Any,
    /// The checkpoint that is read, once the new files are complete.
    Source,
}

impl Replace {
    /// Returns `Any` if existing files may be replaced.
    pub fn of(replace: bool) -> Self {
        if replace { Self::Any } else { Self::Nothing }
    }
}

/// Options for writing files.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions<'a> {
    /// Existing files that may be replaced.
    pub replace: Replace,
    /// Whether to wait until the files are on the disk.
    pub sync: Sync,
    /// Limits on the output and on reading it back.
    pub limits: &'a Limits,
    /// The files that the plan reads, which are not overwritten unless `replace` says so.
    pub sources: &'a [Arc<FileSource>],
    /// How losses are refused; with `None`, they are accepted.
    pub refusal: Option<Refusal>,
    /// Reports data that an object store may have kept from a cancelled upload.
    pub warn: fn(&str),
}

impl<'a> FileOptions<'a> {
    /// Returns the options that replace no files and refuse losses.
    pub fn new(limits: &'a Limits, sources: &'a [Arc<FileSource>]) -> Self {
        Self {
            replace: Replace::Nothing,
            sync: Sync::IfReplacing,
            limits,
            sources,
            refusal: Some(Refusal::default()),
            warn: |_| {},
        }
    }

    /// Fails if losses are refused and the plan has any.
    pub fn check_losses(&self, plan: &Plan) -> Result<()> {
        self.refusal.map_or(Ok(()), |refusal| refusal.check_losses(plan))
    }

    /// Fails if a file of the source was overwritten during the run, or if losses are refused and
    /// casts lost numbers.
    fn check_run(&self, source: &Checkpoint, report: &RunReport) -> Result<()> {
        self.sources.iter().try_for_each(|source| source.unchanged())?;
        self.refusal.map_or(Ok(()), |refusal| refusal.check_casts(source, report))
    }
}

/// Returns the paths of the files of a plan, all in the folder of `path`. The plan's names begin
/// with that of [`file_name`].
pub fn output_paths(plan: &Plan, path: &Path) -> Vec<PathBuf> {
    if statelens_formats::cerebras::s3::is_prefix(plan) {
        // Joined as texts: a path would normalise the names.
        let address = path.to_string_lossy();
        return plan.files.iter().map(|file| format!("{address}/{}", file.name).into()).collect();
    }
    plan.files.iter().map(|file| path.with_file_name(system_name(&file.name, path))).collect()
}

/// Returns the last component of `path` for planning; bytes that are not UTF-8 are replaced. Fails
/// if the path does not end with a file name.
pub fn file_name(path: &Path) -> Result<Cow<'_, str>> {
    path.file_name()
        .map(OsStr::to_string_lossy)
        .ok_or_else(|| Error::refused("this does not name a file").in_file(path_text(path)))
}

/// Returns a planned name as the system has it: the beginning that it shares with the requested
/// name has the bytes of that name.
#[cfg(unix)]
fn system_name(planned: &str, requested: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let requested = requested.file_name().unwrap_or_default().as_bytes();
    let mut name = Vec::new();
    let mut rest = planned;
    'shared: for chunk in requested.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let Some(after) = rest.strip_prefix(letter) else { break 'shared };
            name.extend(letter.encode_utf8(&mut [0; 4]).as_bytes());
            rest = after;
        }
        if !chunk.invalid().is_empty() {
            let Some(after) = rest.strip_prefix(char::REPLACEMENT_CHARACTER) else { break };
            name.extend(chunk.invalid());
            rest = after;
        }
    }
    name.extend(rest.as_bytes());
    OsString::from_vec(name)
}

#[cfg(not(unix))]
fn system_name(planned: &str, _: &Path) -> OsString {
    planned.into()
}

/// What [`write_plan`] did.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenFiles {
    /// What casting did to the numbers, and the outcome for each tensor.
    pub report: RunReport,
    /// Shards of the replaced checkpoint, which were removed.
    pub removed: Vec<PathBuf>,
}

impl From<RunReport> for WrittenFiles {
    fn from(report: RunReport) -> Self {
        Self { report, removed: Vec::new() }
    }
}

/// Writes the files of a plan to the folder of `path`, or to an object store if that is an address.
/// They get their names when all are complete and were read back; on an error, nothing remains.
/// Fails if `options` refuse losses and there are any, or if the output is far larger than its
/// source and the limits don't allow that.
pub fn write_plan(
    plan: Plan,
    path: &Path,
    options: &FileOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<WrittenFiles> {
    options.check_losses(&plan)?;
    if statelens_formats::cerebras::s3::is_prefix(&plan) {
        let written = write_objects_below(path, plan, options, progress);
        return written.map(WrittenFiles::from).map_err(|error| error.in_file(path_text(path)));
    }
    let paths = output_paths(&plan, path);
    let written = match remote::address(path) {
        None => write_files(&paths, plan, options, progress),
        #[cfg(feature = "object-store")]
        Some(_) => objects::write_objects(&paths, plan, options, progress).map(WrittenFiles::from),
        #[cfg(not(feature = "object-store"))]
        Some(url) => remote::uploads::absent(url),
    };
    written.map_err(|error| error.in_file(path_text(path)))
}

/// Writes a checkpoint of which each value is an object below an address in S3.
fn write_objects_below(
    path: &Path,
    plan: Plan,
    options: &FileOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<RunReport> {
    let is_address = statelens_formats::cerebras::s3::split(&path.to_string_lossy()).is_some();
    if !is_address {
        return Err(Error::refused("this format is written to addresses in S3 only")
            .advice("Name an address such as s3://bucket/key, or write a .mdl file."));
    }
    #[cfg(feature = "object-store")]
    return prefix::write_prefix(path, plan, options, progress);
    #[cfg(not(feature = "object-store"))]
    {
        let _ = (plan, options, progress);
        remote::uploads::absent(&path.to_string_lossy())
    }
}

fn write_files(
    paths: &[PathBuf],
    plan: Plan,
    writing: &FileOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<WrittenFiles> {
    let replace = writing.replace != Replace::Nothing;
    let create = |_, path: &Path, room| Output::create(path, replace, room);
    let (mut folders, outputs) = begin(paths, &plan, writing, &create)?;
    let files: Vec<Arc<fs::File>> = outputs.iter().map(|output| output.file.clone()).collect();
    let (read_back, source) = (ReadBack::of(&plan), plan.source.clone());
    let mut sink = FileSink::new(files.clone());
    let report = executor::run(plan, &mut sink, progress)?;
    writing.check_run(&source, &report)?;
    sink.finish()?;
    let mut progress = Finishing { of: progress, bytes: report.bytes };
    let removed = complete(&read_back, &files, paths, outputs, writing, &mut progress)?;
    folders.keep();
    Ok(WrittenFiles { report, removed })
}

/// The progress of reading written files back, which counts keys: repeats the figures of a run that has
/// written all bytes.
pub(crate) struct Finishing<'a> {
    pub(crate) of: &'a mut dyn Progress,
    pub(crate) bytes: u64,
}

impl Progress for Finishing<'_> {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        self.of.report(self.bytes, self.bytes)
    }
}

/// Creates the temporary files of a plan, with space on their disk, and the folders for them.
/// `create` is called with the index and the path of each file, and the bytes that must be free.
pub(crate) fn begin(
    paths: &[PathBuf],
    plan: &Plan,
    writing: &FileOptions<'_>,
    create: &dyn Fn(usize, &Path, u64) -> Result<Output>,
) -> Result<(Folders, Vec<Output>)> {
    let size = plan.bounded(writing.limits)?;
    let in_place = writing.replace == Replace::Source;
    for path in paths.iter().filter(|_| !in_place) {
        // Checked again when the file gets its name.
        check_target(path, writing.replace == Replace::Any, writing.sources)?;
    }
    let folders = Folders::make(paths.first().and_then(|path| path.parent()))?;
    let mut outputs = Vec::new();
    for (index, (path, file)) in paths.iter().zip(&plan.files).enumerate() {
        // The space for all files is checked with the first.
        let output = create(index, path, if index == 0 { size } else { 0 })?;
        output.reserve(file.size(&plan.source)?.bytes())?;
        outputs.push(output);
    }
    Ok((folders, outputs))
}

/// Reads the complete `files` back, and gives those that are in `outputs` their names, which are
/// among `paths`. Removes the shards of a checkpoint that they replace, and returns their paths.
pub(crate) fn complete(
    read_back: &ReadBack,
    files: &[Arc<fs::File>],
    paths: &[PathBuf],
    outputs: Vec<Output>,
    writing: &FileOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<Vec<PathBuf>> {
    let written = files.iter().map(files::written).collect::<Result<_>>()?;
    read_back.check(written, writing.limits, progress)?;
    // Held until the shards of the replaced checkpoint are removed: they might belong to another
    // writer.
    let folder = paths.first().and_then(|path| path.parent());
    let _lock = folder.map(FolderLock::wait);
    let old = replaced_shards(paths, writing);
    keep_all(outputs, writing.sync)?;
    // Removed last, when nothing refers to them.
    for shard in &old {
        fs::remove_file(shard).map_err(|error| {
            Error::io(format!("this shard of the replaced checkpoint can't be removed: {error}"))
                .in_file(shard.to_text())
                .advice("The new checkpoint is complete and does not use this file.")
                .caused_by(error)
        })?;
    }
    Ok(old)
}

/// Returns the shards of an existing checkpoint that are removed when files are written to `paths`.
/// Shards of the checkpoint that is read stay.
pub fn replaced_shards(paths: &[PathBuf], writing: &FileOptions<'_>) -> Vec<PathBuf> {
    if writing.replace != Replace::Any {
        return Vec::new();
    }
    let read = |old: &PathBuf| {
        let mut open = writing.sources.iter().filter(|source| source.is_open());
        open.any(|source| same_file(old, source.path()))
    };
    let mut old = old_shards(paths);
    old.retain(|old| !read(old));
    old
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use statelens_checkpoint::{Segment, Unwatched};

    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
    }

    /// Files that don't hold what their plan says are not kept, and existing files stay unchanged.
    #[test]
    fn discards_output_that_fails_verification() {
        let folder = std::env::temp_dir().join(format!("statelens-wrong-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let (new, old) = (folder.join("new.safetensors"), folder.join("old.safetensors"));
        fs::write(&old, b"mine").unwrap();
        let checkpoint = crate::open(fixture("torch/zip_module_state_dict.pt")).unwrap();
        let other = fixture("safetensors/f4.safetensors");
        let other: Arc<[u8]> = fs::read(other).unwrap().into();
        let nothing: Arc<[u8]> = (*b"weights and nothing else").into();
        let run = |path: &Path, bytes: Option<&Arc<[u8]>>, replace| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let conversion = crate::convert(&checkpoint, crate::Target::Safetensors);
            let mut plan = conversion.plan(name).unwrap();
            if let Some(bytes) = bytes {
                plan.files[0].segments = vec![Segment::Bytes(bytes.clone())];
            }
            let limits = &Limits::default();
            let options = FileOptions { replace, ..FileOptions::new(limits, &[]) };
            write_plan(plan, path, &options, &mut Unwatched)
        };
        for (bytes, said) in
            [(&nothing, "can't be opened again"), (&other, "is not in the written file")]
        {
            for (path, replace) in [(&new, Replace::Nothing), (&old, Replace::Any)] {
                let error = run(path, Some(bytes), replace).unwrap_err();
                assert!(error.to_string().contains(said), "{error}");
                // No new file, no temporary file, and the old one unchanged.
                let names: Vec<_> = fs::read_dir(&folder).unwrap().collect();
                assert_eq!(names.len(), 1, "{names:?}");
                assert_eq!(fs::read(&old).unwrap(), b"mine");
            }
        }
        // The plan itself is sound.
        run(&new, None, Replace::Nothing).unwrap();
        run(&old, None, Replace::Any).unwrap();
        assert_eq!(fs::read(&new).unwrap(), fs::read(&old).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }
}
