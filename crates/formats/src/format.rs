//! The description of a format: how it is detected, opened, scanned, checked and written, and the
//! texts about it in the README, `statelens formats`, `--to` and the page.

use std::fmt::Write as _;
use std::sync::Arc;
#[cfg(not(target_arch = "wasm32"))]
use std::sync::{PoisonError, RwLock};

use statelens_checkpoint::{
    Checkpoint, DType, Error, FileSet, FormatTraits, Limits, Loss, Plan, Progress, Result, Setting,
    advice,
};

use crate::checks::Checks;
use crate::snippet::SnippetsOf;
use crate::{FORMATS, Probe, Score, Shards};

/// A format. Each has a `static` of this type in its folder; [`FORMATS`] lists them.
#[derive(Debug)]
pub struct Format {
    /// The values of [`statelens_checkpoint::FormatInfo::id`] that this format uses.
    pub ids: &'static [&'static str],
    pub name: &'static str,
    /// The name in a list of formats and files; formats with the same one share a line.
    pub short: &'static str,
    /// The usual file extensions, without the dot. Formats are detected by content.
    pub extensions: &'static [&'static str],
    /// The versions and variants that are read.
    pub reads: &'static str,
    /// How the format is written; `None` if it is read only.
    pub writes: Option<Writing>,
    /// How the format is written to object stores only, with an object for each value. It is not
    /// among [`writings`].
    pub writes_objects: Option<Writing>,
    /// Further remarks; may be empty.
    pub notes: &'static str,
    /// Facts by which other code decides; opening a checkpoint copies them to its
    /// [`FormatInfo`](statelens_checkpoint::FormatInfo).
    pub traits: FormatTraits,
    /// The extensions of files that are split into numbered shards (`x-00001-of-00003.bin`), without
    /// the dot.
    pub shard_extensions: &'static [&'static str],
    /// The extensions that files other than weights rarely have, without the dot. Such a file whose
    /// content no format recognises is damaged.
    pub weights_extensions: &'static [&'static str],
    /// How training runs name such files.
    pub run_names: RunNames,
    /// Scores how likely a file is of this format, by its first bytes and what they refer to.
    pub score: fn(&Probe<'_>) -> Score,
    /// Reads the structure of the first file of the set; see [`crate::open`].
    pub open: fn(FileSet, &Limits, &mut dyn Progress) -> Result<Checkpoint>,
    /// Whether a scan of the raw file already finds everything that opening it would report. If so,
    /// a scan does not open it.
    pub searched: bool,
    /// Finds the checksums of its files, unless they are those of a zip archive. The function
    /// returns `None` for a checkpoint whose checksums are those of a zip archive.
    pub checks: Option<FindChecks>,
    /// Returns Python code that reads a leaf with the libraries of the format, the usual one first.
    pub snippets: Option<SnippetsOf>,
    /// Returns a loss for content of such a checkpoint that no other format can hold.
    pub left_out: Option<fn(&Checkpoint) -> Option<Loss>>,
}

impl Format {
    /// Returns a format that claims no file, is read only, and has no checksums of its own. Set the
    /// other fields of your own format with `..Format::named(…)`.
    pub const fn named(ids: &'static [&'static str], name: &'static str) -> Self {
        Self {
            ids,
            name,
            short: name,
            extensions: ids,
            reads: "",
            writes: None,
            writes_objects: None,
            notes: "",
            traits: FormatTraits::DEFAULT,
            shard_extensions: &[],
            weights_extensions: &[],
            run_names: RunNames::Other,
            score: |_| Score::No,
            open: |_, _, _| Err(Error::unsupported("this format has no reader")),
            searched: false,
            checks: None,
            snippets: None,
            left_out: None,
        }
    }
}

/// How training runs name the checkpoints of a format, by their extensions, without the dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunNames {
    /// By the step or the epoch, as PyTorch Lightning, fairseq and most scripts do:
    /// `checkpoint_500.pt`.
    Steps(&'static [&'static str]),
    /// By the epoch and metrics, as Keras does: `weights.03-0.21.h5`.
    Epochs(&'static [&'static str]),
    /// In another way, or not at all.
    Other,
}

impl RunNames {
    /// Returns the name without its extension, if it is one of these.
    pub fn stem<'a>(&self, name: &'a str) -> Option<&'a str> {
        let (Self::Steps(extensions) | Self::Epochs(extensions)) = self else { return None };
        let stems = extensions.iter().filter_map(|end| name.strip_suffix(end)?.strip_suffix('.'));
        stems.min_by_key(|stem| stem.len())
    }
}

/// Returns the formats that are written, or those that are only read: the short name of each and
/// its extensions with dots.
pub fn short_list(written: bool) -> Vec<(&'static str, Vec<String>)> {
    let mut list: Vec<(&str, Vec<String>)> = Vec::new();
    for format in formats().filter(|format| format.writes.is_some() == written) {
        let extensions = format.extensions.iter().map(|extension| format!(".{extension}"));
        match list.iter_mut().find(|(short, _)| *short == format.short) {
            Some((_, others)) => others.extend(extensions),
            None => list.push((format.short, extensions.collect())),
        }
    }
    list
}

/// Registered external formats, in order of registration.
#[cfg(not(target_arch = "wasm32"))]
static REGISTERED: RwLock<Vec<&'static Format>> = RwLock::new(Vec::new());

/// Registers an external format, which is treated like a built-in one from now on: it opens and
/// scans files for which it has the highest score, its checksums are verified, and it can be
/// written if it implements that. Not available in the page, which runs no external code.
///
/// Fails if another format already uses one of its ids or the id of its writer.
#[cfg(not(target_arch = "wasm32"))]
pub fn register(format: &'static Format) -> Result<()> {
    let written = |format: &Format| format.writes.as_ref().map(|writing| writing.id);
    let taken = formats().find(|known| {
        known.ids.iter().any(|id| format.ids.contains(id))
            || written(known).is_some() && written(known) == written(format)
    });
    match taken {
        Some(known) if std::ptr::eq(known, format) => Ok(()),
        Some(known) => Err(Error::refused(format!(
            "the format {} has an id of {}, which is there already",
            format.name, known.name
        ))),
        None => {
            REGISTERED.write().unwrap_or_else(PoisonError::into_inner).push(format);
            Ok(())
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
pub fn formats() -> impl DoubleEndedIterator<Item = &'static Format> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
    FORMATS.iter().copied().chain(registered)
}

/// Returns [`FORMATS`]; the page has no registered formats.
#[cfg(target_arch = "wasm32")]
pub fn formats() -> impl DoubleEndedIterator<Item = &'static Format> {
    FORMATS.iter().copied()
}

/// Finds the checksums of a checkpoint's files. The arguments are the checkpoint, the files to read
/// them from (of a set, only those to verify), and limits fitted to them, as for [`Format::open`].
///
/// Returns `None` if the only checksums are those of a zip archive, which the library finds itself.
/// An error ends the verification; a checksum that is not in its place goes to [`Checks::broken`]
/// instead. Every check reads its own bytes, so if several tensors share a run of bytes, return one
/// check for the run.
pub type FindChecks = fn(&Checkpoint, &FileSet, &Limits) -> Result<Option<Checks>>;

#[derive(Debug)]
pub struct Writing {
    /// The argument of `--to`.
    pub id: &'static str,
    /// The display name of the format written.
    pub name: &'static str,
    /// A short name, with the extension where that makes it clearer.
    pub label: &'static str,
    /// The extensions of file names that select this format, without the dot; the usual one first.
    pub extensions: &'static [&'static str],
    /// What the format holds and which programs read it, in one or two sentences.
    pub about: &'static str,
    /// The versions and variants that are written.
    pub what: &'static str,
    /// Versions that can be written, the default first; empty if there is only one.
    pub versions: &'static [Choice],
    /// Compressions, the default (no compression) first; empty if the format can't be compressed.
    pub compressions: &'static [Choice],
    /// Whether a checkpoint can be split into several files.
    pub shards: bool,
    /// Whether a text that occurs repeatedly is stored once.
    pub stores_texts_once: bool,
    /// Whether an object graph and a file that names the latest checkpoint can be written.
    pub graphs: bool,
    /// Whether the format holds elements of a dtype that torch lacks (quantised blocks, small
    /// floats) unchanged. `plan` gets all others unpacked. It gets dtypes that torch has, such as
    /// float64 or bool, without a call of this function.
    pub has: fn(&DType) -> bool,
    /// Plans the files; see [`crate::plan`], which unpacks dtypes that the format lacks, and adds
    /// the losses of damaged sources and of content that only the source format holds.
    ///
    /// This function must report all other losses, as one [`Loss`] with the keys for each kind:
    /// plain values that the format can't hold, dtypes that it lacks (or an error that says which
    /// dtype to cast to), names that collide, and tensors whose file is missing
    /// ([`Layout::Missing`](statelens_checkpoint::Layout::Missing); their dtype may be a guess). If
    /// the format has no links, a link is written as a copy of its target. If the root is not a
    /// dict, it is itself a leaf, with an empty key.
    pub plan: fn(Arc<Checkpoint>, &WriteTarget, &str) -> Result<Plan>,
}

impl Writing {
    /// Returns a writer of single files without versions or compressions that can hold any dtype.
    /// Set the other fields with `..Writing::named(…)`.
    pub const fn named(
        id: &'static str,
        name: &'static str,
        extensions: &'static [&'static str],
        plan: fn(Arc<Checkpoint>, &WriteTarget, &str) -> Result<Plan>,
    ) -> Self {
        Self {
            id,
            name,
            label: name,
            extensions,
            about: "",
            what: "",
            versions: &[],
            compressions: &[],
            shards: false,
            stores_texts_once: false,
            graphs: false,
            has: |_| true,
            plan,
        }
    }
}

#[derive(Debug, Clone)]
pub struct WriteTarget {
    pub writing: &'static Writing,
    pub requested: RequestedOptions,
    pub shards: Shards,
}

impl PartialEq for WriteTarget {
    fn eq(&self, other: &Self) -> bool {
        self.writing.id == other.writing.id
            && (&self.requested, &self.shards) == (&other.requested, &other.shards)
    }
}

impl WriteTarget {
    /// Returns this target with output split into several files. Fails if the format can't be
    /// split.
    pub fn sharded(self, shards: Shards) -> Result<Self> {
        if shards == Shards::One || self.writing.shards {
            return Ok(Self { shards, ..self });
        }
        let name = self.writing.name.split(' ').next().unwrap_or_default();
        Err(Error::refused(format!("{name} files can't be sharded")).advice(advice![
            "Remove ",
            Setting::Shards,
            ", or write safetensors or PyTorch."
        ]))
    }
}

/// One of the values of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The value on the command line; empty for no effect.
    pub id: &'static str,
    pub name: &'static str,
}

/// Options for writing a format. The default selects the default of each option.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestedOptions {
    pub version: Option<String>,
    pub compression: Option<String>,
    /// Whether to name variables after objects and to write the object graph: TensorFlow only.
    pub object_graph: bool,
    /// Whether to write a file that names the latest checkpoint in the folder: TensorFlow only.
    pub state_file: bool,
}

pub(crate) const fn choice(id: &'static str, name: &'static str) -> Choice {
    Choice { id, name }
}

pub fn writings() -> impl Iterator<Item = &'static Writing> {
    formats().filter_map(|format| format.writes.as_ref())
}

/// Returns the writers of formats that are written to object stores only.
pub fn object_writings() -> impl Iterator<Item = &'static Writing> {
    formats().filter_map(|format| format.writes_objects.as_ref())
}

impl Writing {
    /// Returns the extensions of its files that no other format uses; they are aliases of its id.
    pub fn aliases(&'static self) -> impl Iterator<Item = &'static str> {
        let formats = |extension| {
            let of = |format: &&'static Format| {
                let written = format.writes.as_ref().map_or(&[][..], |writes| writes.extensions);
                format.extensions.contains(extension) || written.contains(extension)
            };
            formats().filter(of).count()
        };
        let extensions = self.extensions.iter().filter(move |one| formats(*one) == 1);
        extensions.copied().filter(|extension| *extension != self.id)
    }
}

/// Returns the writer with the id `id` (as for `--to`), or with that alias (see
/// [`Writing::aliases`]).
pub fn writing(id: &str) -> Result<&'static Writing> {
    let is =
        |writing: &&'static Writing| writing.id == id || writing.aliases().any(|alias| alias == id);
    let mut all = writings().chain(object_writings());
    all.find(is).ok_or_else(|| {
        let ids: Vec<&str> =
            writings().chain(object_writings()).map(|writing| writing.id).collect();
        Error::refused(format!("there is no format `{id}` to write"))
            .expected(format!("one of {}", ids.join(", ")))
    })
}

/// Returns the writer that the extension of a file name selects, if any.
pub fn writing_for_name(name: &str) -> Option<&'static Writing> {
    let (_, extension) = name.rsplit_once('.')?;
    let extension = extension.to_ascii_lowercase();
    writings().find(|writing| writing.extensions.contains(&extension.as_str()))
}

pub fn format_of(id: &str) -> Option<&'static Format> {
    formats().find(|format| format.ids.contains(&id))
}

/// Returns the writer of the format with this [`statelens_checkpoint::FormatInfo::id`].
pub fn writing_of(format: &str) -> Option<&'static Writing> {
    format_of(format)?.writes.as_ref()
}

impl Writing {
    /// Returns the target with these options. Fails if the format does not support one of them.
    pub fn target(&'static self, requested: &RequestedOptions) -> Result<WriteTarget> {
        self.check("version", Setting::FormatVersion, self.versions, requested.version.as_deref())?;
        self.check(
            "compression",
            Setting::Compress,
            self.compressions,
            requested.compression.as_deref(),
        )?;
        for (what, requested) in
            [("object graph", requested.object_graph), ("state file", requested.state_file)]
        {
            if requested && !self.graphs {
                return Err(Error::refused(format!("{} has no {what}", self.name)).advice(
                    advice!["Leave it out, or name the format with ", Setting::ToTensorflow, "."],
                ));
            }
        }
        Ok(WriteTarget { writing: self, requested: requested.clone(), shards: Shards::One })
    }

    /// Returns the display name, with the version if there are several.
    pub fn full_name(&self, requested: &RequestedOptions) -> String {
        match (requested.version.as_deref(), self.versions.first()) {
            (_, None) => self.name.to_owned(),
            (requested, Some(first)) => {
                format!("{} {}", self.name, requested.unwrap_or(first.id))
            }
        }
    }

    fn check(
        &self,
        what: &str,
        setting: Setting,
        choices: &[Choice],
        requested: Option<&str>,
    ) -> Result<()> {
        let Some(requested) = requested else { return Ok(()) };
        if choices.iter().any(|choice| choice.id == requested) {
            return Ok(());
        }
        let error = Error::refused(format!("{} has no {what} `{requested}`", self.name));
        let ids: Vec<&str> =
            choices.iter().map(|choice| choice.id).filter(|id| !id.is_empty()).collect();
        Err(match ids.as_slice() {
            [] => error.advice(advice!["Leave ", setting, " out, or choose another format."]),
            ids => error.expected(ids.join(" or ")),
        })
    }
}

/// Returns the table of formats for the README, in Markdown.
pub fn markdown() -> String {
    let mut text = "| format | files | read | written |\n|---|---|---|---|\n".to_owned();
    for format in FORMATS {
        let files: Vec<String> = format.extensions.iter().map(|end| format!("`.{end}`")).collect();
        let note = match format.notes {
            "" => String::new(),
            notes => format!("; {notes}"),
        };
        let writes = format.writes.as_ref().or(format.writes_objects.as_ref());
        let written = writes.map_or("no", |writing| writing.what);
        // Writing to a `String` can't fail.
        let _ = writeln!(
            text,
            "| {} | {} | {}{note} | {written} |",
            format.name,
            files.join(" "),
            format.reads
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_and_extensions_are_unique() {
        let mut ids = HashSet::new();
        let mut extensions = HashSet::new();
        for writing in writings() {
            assert!(ids.insert(writing.id), "{}", writing.id);
            assert!(!writing.extensions.is_empty());
            for extension in writing.extensions {
                assert!(extensions.insert(extension), ".{extension} asks for two formats");
                let name = format!("a.b.{}", extension.to_ascii_uppercase());
                assert_eq!(writing_for_name(&name).map(|found| found.id), Some(writing.id));
            }
        }
        let mut ids = HashSet::new();
        assert!(FORMATS.iter().flat_map(|format| format.ids).all(|id| ids.insert(id)));
        assert!(writing_for_name("mdl").is_none());
    }

    #[test]
    fn short_lists_have_every_extension_once() {
        let lists = [short_list(true), short_list(false)].concat();
        let names: HashSet<&str> = lists.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), lists.len());
        let listed: usize = lists.iter().map(|(_, extensions)| extensions.len()).sum();
        assert_eq!(listed, FORMATS.iter().map(|format| format.extensions.len()).sum::<usize>());
        assert!(lists.contains(&("NumPy", vec![".npy".to_owned(), ".npz".to_owned()])));
    }

    #[test]
    fn run_names_end_at_the_longest_extension() {
        let names = RunNames::Epochs(&["h5", "weights.h5"]);
        assert_eq!(names.stem("cp-0005.weights.h5"), Some("cp-0005"));
        assert_eq!(names.stem("weights.03.h5"), Some("weights.03"));
        assert_eq!((names.stem("weightsh5"), RunNames::Other.stem("a.h5")), (None, None));
    }

    #[test]
    fn refuses_options_that_a_format_lacks() {
        for writing in writings() {
            assert!(writing.target(&RequestedOptions::default()).is_ok(), "{}", writing.id);
            for choice in writing.versions {
                let requested = RequestedOptions {
                    version: Some(choice.id.into()),
                    ..RequestedOptions::default()
                };
                assert!(writing.target(&requested).is_ok(), "{} {}", writing.id, choice.id);
            }
            let requested = RequestedOptions {
                compression: Some("none such".into()),
                ..RequestedOptions::default()
            };
            assert!(writing.target(&requested).is_err(), "{}", writing.id);
        }
        assert!(writing("none such").unwrap_err().to_string().contains("cerebras"));
        let old = RequestedOptions { version: Some("0.4".into()), ..RequestedOptions::default() };
        let cerebras = writing("cerebras").unwrap();
        assert_eq!(cerebras.full_name(&old), "Cerebras HDF5 0.4");
        assert_eq!(cerebras.full_name(&RequestedOptions::default()), "Cerebras HDF5 0.5");
    }
}
