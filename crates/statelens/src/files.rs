//! Files as sources. They are read with positioned reads, never memory-mapped: if another program
//! truncated a mapped file, the process would be killed.

mod source;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use statelens_checkpoint::{
    Checkpoint, Error, FileSet, Limits, Progress, ReadAt, Result, Scratch, Siblings, counted,
    listed,
};
use statelens_compare::runs::{LATEST_FILES, MAX_LATEST, named_latest, weights_of};
use statelens_formats::archives;
use statelens_formats::cerebras::s3::METADATA;
use statelens_formats::deepspeed::UNIVERSAL;
use statelens_formats::sets::{CheckpointFiles, ORBAX};

pub(crate) use source::read_exact_at;
pub use source::{FileSource, open_error};

use crate::AllCores;
use crate::listings::{self, Listings, MAX_SIBLINGS, files_in};
use source::{DANGLING, with_dangling};

/// Files in the folder with the storages of an unpacked checkpoint.
const MAX_STORAGES: usize = 1 << 16;

/// Depth to which subfolders are searched: a SavedModel has its variables in one.
const MAX_DEPTH: usize = 2;

/// Depth of folders in the keys of a checkpoint copied from S3.
const MAX_NESTED: usize = 16;

/// Files in subfolders that are opened with a checkpoint.
const MAX_BELOW: usize = 1_000;

/// The files of a checkpoint, and the files on disk that they are read from.
#[derive(Default)]
pub struct OpenedFiles {
    /// The set of files for readers.
    pub files: FileSet,
    added: Vec<Arc<FileSource>>,
    siblings: Option<Arc<FolderFiles>>,
}

/// The files next to a checkpoint. The folder is listed when one of them is looked up.
#[derive(Debug)]
struct FolderFiles {
    folder: PathBuf,
    listings: Listings,
    /// Names that were given with the checkpoint.
    except: Vec<String>,
    entries: OnceLock<(Vec<String>, Vec<OsString>)>,
    sources: OnceLock<Vec<Arc<FileSource>>>,
}

/// Opens the file at `path` with the files that it may link to: those in `with`, and the other
/// files of its folder, which are opened only if the checkpoint refers to them.
///
/// For a folder, opens the only checkpoint in it.
pub fn open(path: &Path, with: &[PathBuf]) -> Result<OpenedFiles> {
    open_listed(path, with, &Listings::default())
}

/// Opens files as [`open`] does, with the listings of folders that were listed before.
pub fn open_listed(path: &Path, with: &[PathBuf], listings: &Listings) -> Result<OpenedFiles> {
    let mut opened = OpenedFiles::default();
    if let Some((archive, member)) = in_archive(path) {
        opened.push(FileSource::named(archive)?);
        for path in with {
            opened.push(FileSource::new(path)?);
        }
        let entered = archives::enter(&opened.files, Some(member), &Limits::default())?;
        return Ok(OpenedFiles { files: entered, ..opened });
    }
    let main = FileSource::named(path)?;
    main.file()?;
    let path = &main.path.clone();
    opened.push(main);
    for path in with {
        let source = FileSource::new(path)?;
        source.file()?;
        opened.push(source);
    }
    let except = opened.files.names().map(|(_, name)| name.to_owned()).collect();
    for (path, name) in unpacked(path) {
        if let Ok(source) = FileSource::new(&path) {
            opened.push_named(name, source);
        }
    }
    let siblings = |except: Vec<String>| {
        Arc::new(FolderFiles {
            folder: folder(path).to_owned(),
            listings: listings.clone(),
            except,
            entries: OnceLock::new(),
            sources: OnceLock::new(),
        })
    };
    let near = opened.files.clone().with_siblings(siblings(Vec::clone(&except)));
    for name in statelens_formats::sets::below(&near) {
        if let Some(file) = inside(folder(path), &name).and_then(|path| FileSource::new(&path).ok())
        {
            opened.push_named(name, file);
        }
    }
    let siblings = siblings(except);
    opened.files = opened.files.with_siblings(siblings.clone());
    opened.siblings = Some(siblings);
    Ok(opened)
}

/// Opens the checkpoint at a path on disk, with the files that it refers to. Also returns its files
/// on disk.
pub fn open_checkpoint(
    path: &Path,
    with: &[PathBuf],
    listings: &Listings,
    limits: &Limits,
    scratch: &Arc<dyn Scratch>,
    progress: &mut dyn Progress,
) -> Result<(Checkpoint, Vec<Arc<FileSource>>)> {
    let opened = open_listed(path, with, listings)?;
    let set = side_by_side(&opened.files, scratch).noting_missed();
    let main = opened.added.first().map_or(path, |main| &main.path);
    let mut checkpoint =
        open_or_enter(set, limits, progress).map_err(|error| with_dangling(error, main))?;
    note_dangling(&mut checkpoint, main);
    let below = below(main, &checkpoint.files.missed());
    if below.is_empty() {
        return Ok((checkpoint, opened.sources()));
    }
    // It refers to files in folders below its own.
    let opened = open_listed(path, &[with, &below].concat(), listings)?;
    let set = side_by_side(&opened.files, scratch);
    let checkpoint = statelens_formats::open(set, limits, progress)?;
    Ok((checkpoint, opened.sources()))
}

/// Returns the files with scratch space, to be opened on all cores.
pub(crate) fn side_by_side(files: &FileSet, scratch: &Arc<dyn Scratch>) -> FileSet {
    files.clone().with_scratch(scratch.clone()).with_workers(Arc::new(AllCores))
}

/// Notes for missing files that there are links in their place.
fn note_dangling(checkpoint: &mut Checkpoint, main: &Path) {
    for finding in &mut checkpoint.findings {
        let links = finding.missing.iter().filter(|name| {
            let path = folder(main).join(name);
            fs::read_link(&path).is_ok() && !path.exists()
        });
        let links: Vec<&str> = links.map(String::as_str).collect();
        if !links.is_empty() {
            let detail = &finding.detail;
            finding.detail =
                format!("{} is a link to a file that does not exist. {detail}", listed(&links, 5));
            finding.advice = DANGLING.into();
        }
    }
}

/// Opens a checkpoint; if the file is an archive of files, the only checkpoint in it.
pub(crate) fn open_or_enter(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    match statelens_formats::open(files.clone(), limits, progress) {
        Err(error) if error.code() == archives::ARCHIVE => {
            let inside = archives::enter(&files, None, limits)?;
            statelens_formats::open(inside, limits, progress)
        }
        opened => opened,
    }
}

/// Splits the path of a member of an archive, `models.zip/a.pt`, into that of the archive and the
/// name of the member.
fn in_archive(path: &Path) -> Option<(&Path, &str)> {
    if path.exists() {
        return None;
    }
    let archive = path.ancestors().skip(1).find(|above| above.is_file())?;
    Some((archive, path.strip_prefix(archive).ok()?.to_str()?))
}

/// Returns the file that a path means: the file itself, the only checkpoint in a folder, the model's
/// weights in a folder of the Hugging Face Hub or of a trainer, or the file to open for the name
/// prefix of a TensorFlow checkpoint. Fails unless it is a regular file.
pub fn named(path: &Path) -> Result<PathBuf> {
    FileSource::named(path).map(|file| file.path)
}

/// Returns the files in a folder, with paths relative to it, and the checkpoints among them. Skips
/// files and folders for which `keep` returns false.
pub fn checkpoints(
    folder: &Path,
    keep: impl Fn(&Path) -> bool,
) -> Result<(FileSet, Vec<CheckpointFiles>)> {
    // The cache of Hugging Face has the files of a model in `snapshots`, which links to `blobs`.
    let is_blobs = |path: &Path| {
        (path.ends_with("blobs") || path.ends_with("refs"))
            && path.with_file_name("snapshots").is_dir()
    };
    match checkpoints_in(folder, |path| keep(path) && !is_blobs(path))? {
        (_, found) if found.is_empty() => checkpoints_in(folder, keep),
        found => Ok(found),
    }
}

fn checkpoints_in(
    folder: &Path,
    keep: impl Fn(&Path) -> bool,
) -> Result<(FileSet, Vec<CheckpointFiles>)> {
    let mut files = FileSet::default();
    let mut open = vec![(folder.to_owned(), String::new())];
    while let Some((path, top)) = open.pop() {
        let entries = fs::read_dir(&path).map_err(|error| open_error(&error, &path))?;
        for entry in entries.flatten() {
            let (path, base) = (entry.path(), shown(&entry.file_name()));
            let name = format!("{top}{base}");
            if !keep(&path) {
                continue;
            }
            if path.is_dir() {
                let is_cache = |part: &&str| *part == "snapshots" || part.starts_with("models--");
                let depth = name.split('/').filter(|part| !is_cache(part)).count();
                if depth <= MAX_DEPTH && !base.starts_with('.') {
                    open.push((path, name + "/"));
                }
                continue;
            }
            if files.count() == MAX_SIBLINGS {
                return Err(Error::limit(format!(
                    "this folder holds more than {MAX_SIBLINGS} files"
                ))
                .in_file(path_text(folder))
                .advice("Name the checkpoint in it."));
            }
            let len = entry.metadata().map_or(0, |metadata| metadata.len());
            if path.is_file() {
                files.push(name, Arc::new(Glance { path, len }));
            }
        }
    }
    let found = statelens_formats::sets::sort(&files);
    Ok((files, found))
}

/// Returns the files that a checkpoint refers to in subfolders of its own folder. Paths that lead
/// out of that folder are not followed.
fn below(checkpoint: &Path, names: &[String]) -> Vec<PathBuf> {
    let below = names.iter().filter(|name| name.contains('/'));
    below.filter_map(|name| inside(folder(checkpoint), name)).take(MAX_BELOW).collect()
}

/// Returns the file with this name in a folder below `folder`. `None` if it does not exist, or if a
/// link leads elsewhere.
fn inside(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut parts = Path::new(name).components();
    let path = folder.join(name);
    if !parts.all(|part| matches!(part, Component::Normal(_))) || !path.is_file() {
        return None;
    }
    let (top, below) = (fs::canonicalize(folder).ok()?, fs::canonicalize(path.parent()?).ok()?);
    below.starts_with(top).then_some(path)
}

/// Returns the files of a folder as a set that keeps none of them open.
pub fn glance(paths: &[PathBuf]) -> FileSet {
    let mut files = FileSet::default();
    for path in paths {
        files.push(file_name(path), closed(path));
    }
    files
}

/// Returns a file that is opened for each read, and closed again.
pub(crate) fn closed(path: &Path) -> Arc<dyn ReadAt> {
    let len = fs::metadata(path).map_or(0, |metadata| metadata.len());
    Arc::new(Glance { path: path.to_owned(), len })
}

/// Returns a newly written file for reading back, before it gets its name.
pub fn written(file: &Arc<fs::File>) -> Result<Arc<dyn ReadAt>> {
    let metadata = file.metadata();
    let len = metadata
        .map_err(|error| Error::io(format!("the written file can't be read: {error}")))?
        .len();
    Ok(Arc::new(FileSource::unnamed(file.clone(), len)))
}

/// Opens one file, without the others of its folder.
pub fn open_alone(path: &Path) -> Result<FileSet> {
    let mut opened = OpenedFiles::default();
    let source = FileSource::new(path)?;
    source.file()?;
    opened.push(source);
    Ok(opened.files)
}

/// Returns the file to open for the only checkpoint in a folder, or for the one whose name says that
/// it has the model's weights; if there are several others, the error lists them.
fn within(folder: &Path) -> Result<PathBuf> {
    let (files, found) = match checkpoints(folder, |_| true) {
        Ok(found) => found,
        Err(error) => {
            // Orbax may write a file for each array. Opening one of them reports what the folder
            // is.
            let part = ORBAX.iter().map(|name| folder.join(name)).find(|part| part.is_file());
            return part.ok_or(error);
        }
    };
    let main = match found.as_slice() {
        [] => match statelens_formats::explaining_file(&files) {
            // Opening this file reports why there is no checkpoint.
            Some(file) => Ok(files.name(file).to_owned()),
            None => Err(nothing_in(&files)),
        },
        found => main_of(&files, found),
    };
    main.map(|main| on_disk(folder, &main)).map_err(|error| error.in_file(path_text(folder)))
}

/// Returns the main file of the only checkpoint in a folder, or of the one whose name says that it
/// has the model's weights; if there are several others, the error lists them.
pub(crate) fn main_of(files: &FileSet, found: &[CheckpointFiles]) -> Result<String> {
    match found {
        [] => Err(without_checkpoint(files)),
        [one] => Ok(one.main.clone()),
        several => {
            if let Some(main) = weights_of(several.iter().map(|one| one.main.as_str())) {
                return Ok(main.to_owned());
            }
            if let Some(main) = latest(files, several) {
                return Ok(main.to_owned());
            }
            let names: Vec<&str> = several.iter().map(|one| one.main.as_str()).collect();
            let what =
                format!("this folder holds {} checkpoints: {}", several.len(), listed(&names, 8));
            Err(Error::unsupported(what).advice(match files.find("checkpoint") {
                // TensorFlow's record of the latest checkpoint.
                Some(_) => "Name one of them, or the file `checkpoint`, which names the latest.",
                None => "Name one of them.",
            }))
        }
    }
}

/// Returns the main file of the checkpoint that a file such as `latest` of DeepSpeed or Megatron
/// names, or of the only one other than the state of a data loader.
fn latest<'a>(files: &FileSet, several: &'a [CheckpointFiles]) -> Option<&'a str> {
    let named = LATEST_FILES.iter().copied().chain(["latest_universal"]).find_map(|file| {
        let id = files.find(file).filter(|id| files.len(*id) <= MAX_LATEST)?;
        let text = String::from_utf8(files.read_vec(id, 0, files.len(id)).ok()?).ok()?;
        named_latest(if file == "latest_universal" { "latest" } else { file }, &text)
    });
    let step = |name: &str| name.strip_prefix("iter_")?.parse::<u64>().ok();
    let is_inside = |main: &str, name: &str| {
        let top = main.split('/').next().unwrap_or_default();
        // verl writes the same file as Megatron, and has other names of folders.
        top == name || step(name).is_some_and(|step| top == format!("global_step_{step}"))
    };
    let mut inside = several.iter().filter(|set| match &named {
        Some(name) => is_inside(&set.main, name) && set.name != "data.pt",
        None => set.members.len() > 1 && set.name != "data.pt",
    });
    let first = inside.next()?;
    let are_states = || several.iter().all(|set| set.main == first.main || set.name == "data.pt");
    (inside.next().is_none() && (named.is_some() || are_states())).then_some(first.main.as_str())
}

/// Returns the error for a folder without a checkpoint, which lists its content or says why it can't be read.
fn nothing_in(files: &FileSet) -> Error {
    let read = |id| if files.len(id) > 0 { files.read(id, 0, &mut [0]) } else { Ok(()) };
    let failed = files.iter().take(MAX_SIBLINGS).find_map(|(id, _)| read(id).err());
    failed.unwrap_or_else(|| without_checkpoint(files))
}

/// Returns the error for a folder without a checkpoint, which lists its content.
pub(crate) fn without_checkpoint(files: &FileSet) -> Error {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for (_, name) in files.names() {
        let base = name.rsplit('/').next().unwrap_or(name);
        let kind = base.rsplit_once('.').map_or(base, |(_, end)| end).to_lowercase();
        *kinds.entry(kind).or_default() += 1;
    }
    let mut kinds: Vec<(String, u64)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| Reverse(*count));
    let shown: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let error = Error::unsupported("this folder holds no checkpoint that Statelens reads");
    match files.count() {
        0 => error.advice("It has no files, or only in deeper folders."),
        count => error.advice(format!(
            "It has {}: {}.",
            counted(count as u64, "file"),
            listed(&shown, 5)
        )),
    }
}

/// A file that is opened for each read and closed again, for reading the first bytes of many files.
#[derive(Debug)]
struct Glance {
    path: PathBuf,
    len: u64,
}

/// The files of a folder that is listed once, and from which several checkpoints are opened in
/// turn.
pub struct Neighbours {
    files: Vec<(String, Arc<Glance>)>,
}

impl Neighbours {
    /// Takes the names and lengths in bytes of the files in `folder`.
    pub fn new<'a>(folder: &Path, files: impl Iterator<Item = (&'a str, u64)>) -> Self {
        let files = files
            .map(|(name, len)| (name.to_owned(), Arc::new(Glance { path: folder.join(name), len })))
            .collect();
        Self { files }
    }

    /// Returns all files, with `name` as the file to open.
    pub fn opened_at(&self, name: &str) -> FileSet {
        let mut set = FileSet::default();
        let mut main = None;
        for (other, glance) in &self.files {
            let id = set.push(other.clone(), glance.clone());
            if other == name {
                main = Some(id);
            }
        }
        main.map_or(set.clone(), |main| set.opened_at(main))
    }
}

impl ReadAt for Glance {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let file = fs::File::open(&self.path).map_err(|error| open_error(&error, &self.path))?;
        read_exact_at(&file, offset, buffer).map_err(|error| Error::io(error.to_string()))
    }
}

/// Returns the file to open if `path` does not exist, but is the name prefix of a TensorFlow
/// checkpoint: the index of a bundle, or the first shard of an older checkpoint.
fn prefix(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let index = path.with_file_name(format!("{name}.index"));
    if index.exists() {
        return Some(index);
    }
    let first = files_in(folder(path)).into_iter().find(|other| {
        let rest = other.to_str().and_then(|other| other.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with("-00000-of-"))
    });
    first.map(|first| path.with_file_name(first))
}

impl Siblings for FolderFiles {
    fn names(&self) -> &[String] {
        &self.entries().0
    }

    fn with_extension(&self, extension: &'static str) -> Arc<[String]> {
        listings::with_extension(&self.folder, extension)
    }

    fn sources(&self) -> Vec<Arc<dyn ReadAt>> {
        let sources = self.sources.get_or_init(|| {
            let paths = self.entries().1.iter().map(|name| self.folder.join(name));
            paths.map(|path| Arc::new(FileSource::listed(path))).collect()
        });
        sources.iter().map(|source| source.clone() as Arc<dyn ReadAt>).collect()
    }
}

impl FolderFiles {
    /// Returns the names of the files for display, and as the system has them.
    fn entries(&self) -> &(Vec<String>, Vec<OsString>) {
        self.entries.get_or_init(|| {
            let names = self.listings.of(&self.folder);
            let shown = names.iter().map(|name| (shown(name), name));
            let others = shown.filter(|(shown, _)| !self.except.contains(shown));
            others.map(|(shown, name)| (shown, name.clone())).unzip()
        })
    }
}

impl OpenedFiles {
    /// Takes an open file without a name of its own, with the files in `with` that it may link to.
    pub fn unnamed(name: &str, file: fs::File, with: &[PathBuf]) -> Result<Self> {
        let len = file.metadata().map_err(|error| open_error(&error, Path::new(name)))?.len();
        let mut opened = Self::default();
        opened.push_named(name.to_owned(), FileSource::unnamed(Arc::new(file), len));
        for path in with {
            let source = FileSource::new(path)?;
            source.file()?;
            opened.push(source);
        }
        Ok(opened)
    }

    /// Returns the files for writers that copy spans directly, indexed by `FileId`: those that were
    /// added, and the others of the folder if one of them was looked up.
    pub fn sources(&self) -> Vec<Arc<FileSource>> {
        let siblings = self.siblings.iter().filter_map(|siblings| siblings.sources.get()).flatten();
        self.added.iter().chain(siblings).cloned().collect()
    }

    fn push(&mut self, source: FileSource) {
        self.push_named(file_name(&source.path), source);
    }

    fn push_named(&mut self, name: String, source: FileSource) {
        let source = Arc::new(source);
        self.files.push(name, source.clone());
        self.added.push(source);
    }
}

/// Returns the folder of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Returns the storages next to the pickle of an unpacked torch checkpoint, with the names that the
/// reader uses for them.
fn unpacked(path: &Path) -> Vec<(PathBuf, String)> {
    if file_name(path).ends_with("_model_states.pt") {
        return universal(&path.with_file_name(UNIVERSAL));
    }
    if path.file_name() == Some(METADATA.as_ref()) {
        return objects_below(folder(path));
    }
    if path.file_name() != Some("data.pkl".as_ref()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(path.with_file_name("data")) else { return Vec::new() };
    let entries = entries.flatten().take(MAX_STORAGES);
    let mut found: Vec<(PathBuf, String)> =
        entries.map(|entry| (entry.path(), format!("data/{}", file_name(&entry.path())))).collect();
    found.sort();
    found
}

/// Returns the files of the parameters in a universal checkpoint of DeepSpeed, and their names in the
/// set: `zero/PARAMETER/fp32.pt`.
fn universal(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    for entry in entries(folder) {
        let top = format!("{UNIVERSAL}/{}", shown(&entry.file_name()));
        if entry.path().is_dir() {
            let inner = entries(&entry.path())
                .map(|file| (file.path(), format!("{top}/{}", shown(&file.file_name()))));
            found.extend(inner);
        } else {
            found.push((entry.path(), top));
        }
        if found.len() > MAX_STORAGES {
            break;
        }
    }
    found.retain(|(_, name)| name.ends_with(".pt"));
    found.sort();
    found
}

/// Returns the files in the folders below that of a checkpoint copied from S3, and their names in the
/// set: keys with slashes. Links to other folders are not followed.
fn objects_below(top: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![(top.to_owned(), String::new())];
    while let Some((folder, start)) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = format!("{start}{}", shown(&entry.file_name()));
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && name.matches('/').count() < MAX_NESTED => {
                    open.push((entry.path(), name + "/"));
                }
                Ok(kind) if kind.is_file() && !start.is_empty() => found.push((entry.path(), name)),
                _ => {}
            }
        }
        if found.len() > MAX_STORAGES {
            break;
        }
    }
    found.sort();
    found
}

pub(crate) fn file_name(path: &Path) -> String {
    shown(path.file_name().unwrap_or(path.as_os_str()))
}

/// Returns a path as text; bytes that are not UTF-8 become `\xff`, so that different paths stay
/// different.
pub fn path_text(path: &Path) -> String {
    shown(path.as_os_str())
}

/// Paths in messages. [`Path::display`] would show different paths alike.
pub trait PathText {
    /// Returns the path as [`path_text`] does.
    fn to_text(&self) -> String;
}

impl PathText for Path {
    fn to_text(&self) -> String {
        path_text(self)
    }
}

/// Returns a name as text; bytes that are not UTF-8 become `\xff`, so that different names stay
/// different.
#[cfg(unix)]
fn shown(name: &OsStr) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut shown = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        shown.push_str(chunk.valid());
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

#[cfg(not(unix))]
fn shown(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Returns the file below a folder with a name as [`shown`] returns it.
fn on_disk(folder: &Path, name: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for part in name.split('/') {
        let here = path.join(part);
        let entries = fs::read_dir(&path).ok().filter(|_| !here.exists());
        let mut entries = entries.into_iter().flatten().flatten();
        let found = entries.find(|entry| shown(&entry.file_name()) == part);
        path = found.map_or(here, |entry| entry.path());
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_a_folder_once_and_asks_for_no_lengths() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.pt"), b"a").unwrap();
        fs::write(path("b.pt"), b"b").unwrap();
        fs::create_dir(path("c")).unwrap();
        let listings = Listings::default();
        let names = |opened: &OpenedFiles| -> Vec<String> {
            opened.files.iter().map(|(_, file)| file.name.clone()).collect()
        };
        let first = open_listed(&path("a.pt"), &[], &listings).unwrap();
        assert_eq!(names(&first), ["a.pt", "b.pt"]);
        fs::write(path("b.pt"), b"longer").unwrap();
        fs::write(path("d.pt"), b"d").unwrap();
        let second = open_listed(&path("b.pt"), &[], &listings).unwrap();
        assert_eq!(names(&second), ["b.pt", "a.pt"]);
        assert_eq!(names(&open(&path("b.pt"), &[]).unwrap()), ["b.pt", "a.pt", "d.pt"]);
        // The length of the other file is that when it is needed, and stays the same.
        let other = first.files.find("b.pt").unwrap();
        assert_eq!(first.files.len(other), 6);
        fs::remove_file(path("b.pt")).unwrap();
        assert_eq!(first.files.len(other), 6);
    }
}
