//! What there is to know of a format: how it is told apart, opened, scanned, checked and written,
//! and what the README, `statelens formats`, `--to` and the page's sheet say of it.

use std::fmt::Write as _;
use std::sync::Arc;
#[cfg(not(target_arch = "wasm32"))]
use std::sync::{PoisonError, RwLock};

use statelens_checkpoint::{
    Checkpoint, DType, Error, FileSet, Limits, Loss, Plan, Progress, Result,
};

use crate::checks::Checks;
use crate::{FORMATS, Probe, Score, Shards};

/// A format. Each has one of these, a `static` in its folder; [`FORMATS`] lists them.
#[derive(Debug)]
pub struct Format {
    /// What [`statelens_checkpoint::FormatInfo::id`] may be for checkpoints of it.
    pub ids: &'static [&'static str],
    /// Its name for people.
    pub name: &'static str,
    /// How names of its files usually end, without the dot. Formats are told apart by content.
    pub extensions: &'static [&'static str],
    /// What of it is read.
    pub reads: &'static str,
    /// How it is written; `None` if it is only read.
    pub writes: Option<Writing>,
    /// What else is worth knowing; may be empty.
    pub notes: &'static str,
    /// How sure it is, by the first bytes and what they lead to, that a file is its own.
    pub score: fn(&Probe<'_>) -> Score,
    /// Reads the structure of the first file of the set; see [`crate::open`].
    pub open: fn(FileSet, &Limits, &mut dyn Progress) -> Result<Checkpoint>,
    /// Scanning a file looks at all that opening one of these notices, so that it is not opened
    /// for that.
    pub searched: bool,
    /// The checksums of its files, where they are not those of a zip archive; `None` from the
    /// function for those of a checkpoint that are.
    pub checks: Option<FindChecks>,
    /// What a checkpoint of it has that no other format holds.
    pub left_out: Option<fn(&Checkpoint) -> Option<Loss>>,
}

impl Format {
    /// One by that name that claims no file yet, is only read, and has no checksums of its own: the
    /// rest of a format of your own is filled in with `..Format::named(…)`.
    pub const fn named(ids: &'static [&'static str], name: &'static str) -> Self {
        Self {
            ids,
            name,
            extensions: ids,
            reads: "",
            writes: None,
            notes: "",
            score: |_| Score::No,
            open: |_, _, _| Err(Error::unsupported("this format has no reader")),
            searched: false,
            checks: None,
            left_out: None,
        }
    }
}

/// Formats of others, in the order in which they were registered.
#[cfg(not(target_arch = "wasm32"))]
static REGISTERED: RwLock<Vec<&'static Format>> = RwLock::new(Vec::new());

/// Takes a format of your own for one of ours from now on: files that it is surer of than all others
/// are opened and scanned by it, its checksums are verified, and it can be written, if it says how.
/// The page, where nobody else's code runs, does without.
///
/// Fails if one of its ids, or that of how it is written, is another format's.
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

/// [`FORMATS`], and those that were registered.
#[cfg(not(target_arch = "wasm32"))]
pub fn formats() -> impl DoubleEndedIterator<Item = &'static Format> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
    FORMATS.iter().copied().chain(registered)
}

/// [`FORMATS`]: there are no others in the page.
#[cfg(target_arch = "wasm32")]
pub fn formats() -> impl DoubleEndedIterator<Item = &'static Format> {
    FORMATS.iter().copied()
}

/// Finds the checksums of a checkpoint's files: the checkpoint, the files to read them from (only those that are
/// verified, of a set), and limits that are fitted to them, as for [`Format::open`].
///
/// `None` says that there are none but those of a zip archive, which the library finds by itself. An error ends
/// the verification; a checksum that is not where it should be goes to [`Checks::broken`] instead. Each check is read by
/// itself, so a format should give one for a run of bytes that several tensors share, not one for each of them.
pub type FindChecks = fn(&Checkpoint, &FileSet, &Limits) -> Result<Option<Checks>>;

/// How a format is written.
#[derive(Debug)]
pub struct Writing {
    /// What `--to` calls it.
    pub id: &'static str,
    /// What is written, by its name for people.
    pub name: &'static str,
    /// A short name, with the extension where that helps to recognise it.
    pub label: &'static str,
    /// The extensions of names that ask for it, without the dot; the usual one first.
    pub extensions: &'static [&'static str],
    /// What it holds and who reads it, in a sentence or two.
    pub about: &'static str,
    /// What of the format is written.
    pub what: &'static str,
    /// Versions that can be written, the default first; empty if there is one only.
    pub versions: &'static [Choice],
    /// Compressions, the default (none at all) first; empty if there are none.
    pub compressions: &'static [Choice],
    /// Whether it can be several files.
    pub shards: bool,
    /// Whether it can have a graph of objects, and a file that names the latest checkpoint.
    pub graphs: bool,
    /// Whether it holds elements of a dtype that torch lacks (quantised blocks, small numbers) as
    /// they are; others come to `plan` unpacked. All that torch has, such as float64 or bool, come there unasked.
    pub has: fn(&DType) -> bool,
    /// Plans the files; see [`crate::plan`], which unpacks what the format has no dtype for, and adds what is lost of
    /// damaged sources and of other formats.
    ///
    /// The rest is this function's to tell, as a [`Loss`] for each kind of it, with the keys: plain values that the
    /// format has no place for, dtypes that it lacks (or an error that says which to cast to), names that come out alike, and
    /// tensors whose file is missing ([`Layout::Missing`](statelens_checkpoint::Layout::Missing); their dtype may be a guess).
    /// A link is written as what it leads to, if the format has no links. The root itself is a leaf with an empty key where
    /// it is no dict.
    pub plan: fn(Arc<Checkpoint>, &WriteTarget, &str) -> Result<Plan>,
}

impl Writing {
    /// How one file is written that has no versions or compressions, and that may hold any dtype: the
    /// rest is filled in with `..Writing::named(…)`.
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
            graphs: false,
            has: |_| true,
            plan,
        }
    }
}

/// What to write: a format, and what is asked of it.
#[derive(Debug, Clone)]
pub struct WriteTarget {
    /// How the format is written.
    pub writing: &'static Writing,
    /// What was asked of it; it has all of that.
    pub requested: RequestedOptions,
    /// How it is cut into files.
    pub shards: Shards,
}

impl PartialEq for WriteTarget {
    fn eq(&self, other: &Self) -> bool {
        self.writing.id == other.writing.id
            && (&self.requested, &self.shards) == (&other.requested, &other.shards)
    }
}

impl WriteTarget {
    /// The same, cut into several files; an error if the format can't be.
    pub fn sharded(self, shards: Shards) -> Result<Self> {
        if shards == Shards::One || self.writing.shards {
            return Ok(Self { shards, ..self });
        }
        let name = self.writing.name.split(' ').next().unwrap_or_default();
        Err(Error::refused(format!("{name} files can't be sharded"))
            .advice("Remove --shard-size or --shard, or write safetensors or PyTorch."))
    }
}

/// One of a few values to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// What the command line calls it; empty for doing nothing.
    pub id: &'static str,
    /// What it is called where there is room.
    pub name: &'static str,
}

/// What is asked of a format to be written; the default takes the default of each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestedOptions {
    /// One of [`Writing::versions`].
    pub version: Option<String>,
    /// One of [`Writing::compressions`].
    pub compression: Option<String>,
    /// Names after objects, and a graph of them: TensorFlow only.
    pub object_graph: bool,
    /// A file that names the latest checkpoint of the folder: TensorFlow only.
    pub state_file: bool,
}

/// A choice by what it is called.
pub(crate) const fn choice(id: &'static str, name: &'static str) -> Choice {
    Choice { id, name }
}

/// Every format that can be written.
pub fn writings() -> impl Iterator<Item = &'static Writing> {
    formats().filter_map(|format| format.writes.as_ref())
}

impl Writing {
    /// Other words for it: the extensions of its names that no other format's names have.
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

/// How to write the format that `--to` calls `id`, or by one of [`Writing::aliases`].
pub fn writing(id: &str) -> Result<&'static Writing> {
    let is =
        |writing: &&'static Writing| writing.id == id || writing.aliases().any(|alias| alias == id);
    writings().find(is).ok_or_else(|| {
        let ids: Vec<&str> = writings().map(|writing| writing.id).collect();
        Error::refused(format!("there is no format `{id}` to write"))
            .expected(format!("one of {}", ids.join(", ")))
    })
}

/// How to write the format that a file name asks for by its extension, if it does.
pub fn writing_for_name(name: &str) -> Option<&'static Writing> {
    let (_, extension) = name.rsplit_once('.')?;
    let extension = extension.to_ascii_lowercase();
    writings().find(|writing| writing.extensions.contains(&extension.as_str()))
}

/// The format that a checkpoint is in, by [`statelens_checkpoint::FormatInfo::id`].
pub fn format_of(id: &str) -> Option<&'static Format> {
    formats().find(|format| format.ids.contains(&id))
}

/// How to write the format that a checkpoint is in, by [`statelens_checkpoint::FormatInfo::id`].
pub fn writing_of(format: &str) -> Option<&'static Writing> {
    format_of(format)?.writes.as_ref()
}

impl Writing {
    /// The target, with what was asked for; an error if the format does not have it.
    pub fn target(&'static self, asked: &RequestedOptions) -> Result<WriteTarget> {
        self.check("version", "--format-version", self.versions, asked.version.as_deref())?;
        self.check("compression", "--compress", self.compressions, asked.compression.as_deref())?;
        for (what, asked) in
            [("object graph", asked.object_graph), ("state file", asked.state_file)]
        {
            if asked && !self.graphs {
                return Err(Error::refused(format!("{} has no {what}", self.name))
                    .advice("Leave it out, or name the format with --to tensorflow."));
            }
        }
        Ok(WriteTarget { writing: self, requested: asked.clone(), shards: Shards::One })
    }

    /// Its name with the version, where there are several.
    pub fn full_name(&self, requested: &RequestedOptions) -> String {
        match (requested.version.as_deref(), self.versions.first()) {
            (_, None) => self.name.to_owned(),
            (asked, Some(first)) => format!("{} {}", self.name, asked.unwrap_or(first.id)),
        }
    }

    fn check(&self, what: &str, flag: &str, choices: &[Choice], asked: Option<&str>) -> Result<()> {
        let Some(asked) = asked else { return Ok(()) };
        if choices.iter().any(|choice| choice.id == asked) {
            return Ok(());
        }
        let error = Error::refused(format!("{} has no {what} `{asked}`", self.name));
        let ids: Vec<&str> =
            choices.iter().map(|choice| choice.id).filter(|id| !id.is_empty()).collect();
        Err(match ids.as_slice() {
            [] => error.advice(format!("Leave `{flag}` out, or take another format.")),
            ids => error.expected(ids.join(" or ")),
        })
    }
}

/// The table in Markdown, as the README has it.
pub fn markdown() -> String {
    let mut text = "| format | files | read | written |\n|---|---|---|---|\n".to_owned();
    for format in FORMATS {
        let files: Vec<String> = format.extensions.iter().map(|end| format!("`.{end}`")).collect();
        let note = match format.notes {
            "" => String::new(),
            notes => format!("; {notes}"),
        };
        let written = format.writes.as_ref().map_or("no", |writing| writing.what);
        // Writing to a text can't fail.
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
    fn names_are_told_apart() {
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
    fn only_what_a_format_has_can_be_asked_of_it() {
        for writing in writings() {
            assert!(writing.target(&RequestedOptions::default()).is_ok(), "{}", writing.id);
            for choice in writing.versions {
                let asked = RequestedOptions {
                    version: Some(choice.id.into()),
                    ..RequestedOptions::default()
                };
                assert!(writing.target(&asked).is_ok(), "{} {}", writing.id, choice.id);
            }
            let asked = RequestedOptions {
                compression: Some("none such".into()),
                ..RequestedOptions::default()
            };
            assert!(writing.target(&asked).is_err(), "{}", writing.id);
        }
        assert!(writing("none such").unwrap_err().to_string().contains("cerebras"));
        let old = RequestedOptions { version: Some("0.4".into()), ..RequestedOptions::default() };
        let cerebras = writing("cerebras").unwrap();
        assert_eq!(cerebras.full_name(&old), "Cerebras HDF5 0.4");
        assert_eq!(cerebras.full_name(&RequestedOptions::default()), "Cerebras HDF5 0.5");
    }
}
