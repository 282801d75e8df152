//! The destination of a new checkpoint.

use std::borrow::Cow;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens::PathText as _;
use statelens::parts::checkpoint::{Checkpoint, Plan};
use statelens::parts::formats::{Format, writing_of};
use statelens::{Error, Result, Writing};

use crate::args::{Edits, Writes};
use crate::output::check_not_addressed;
use crate::remote;
use crate::source::{self, FileSource};

/// The destination of a new checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A file; further shards go into the same folder.
    File(PathBuf),
    /// The input file, which is replaced when the new one is complete.
    InPlace(PathBuf),
    Output,
}

impl Destination {
    /// Uses the path `output`, in the format of its extension or of `--to`. Without `output`, the
    /// file goes into the folder of the input, under the name that the trainer gives to a subset of
    /// states.
    pub(crate) fn of(
        input: &Path,
        output: Option<PathBuf>,
        edits: &Edits,
        writes: &Writes,
    ) -> Result<(Self, &'static Writing)> {
        let named = |writing: &Writing| named(input, &edits.states, writing);
        let requested = writes.to.as_deref().map(statelens::parts::formats::writing).transpose()?;
        let Some(output) = output else {
            let name = input.file_name().unwrap_or_default().to_string_lossy();
            let writing = match requested {
                Some(writing) => writing,
                None => by_extension(&input.with_file_name(&*name), input)?,
            };
            return Ok((Self::File(input.with_file_name(named(writing))), writing));
        };
        if output == Path::new("-") {
            let writing = requested.ok_or_else(|| {
                Error::refused("the format for standard output is not given")
                    .advice(format!("Choose it with {}.", options()))
            })?;
            if std::io::stdout().is_terminal() {
                return Err(Error::refused("standard output is a terminal")
                    .advice("Send it to a file or a program: `… - --to safetensors > FILE`."));
            }
            return Ok((Self::Output, writing));
        }
        let text = output.to_string_lossy();
        let is_folder = remote::address(&output).is_none()
            && (output.is_dir() || text.ends_with(std::path::is_separator));
        if !is_folder {
            let writing = requested.map_or_else(|| by_extension(&output, input), Ok)?;
            return Ok((Self::File(output), writing));
        }
        let writing = requested.ok_or_else(|| {
            Error::refused("the format for this folder is not given")
                .in_file(output.to_text())
                .advice(format!("Choose it with {}, or name a file in the folder.", options()))
        })?;
        let name = named(writing);
        Ok((Self::File(output.join(name)), writing))
    }

    /// Replaces the input file, in its own format unless `--to` names another.
    pub(crate) fn in_place(
        input: &Path,
        source: &Checkpoint,
        sources: &[Arc<FileSource>],
        writes: &Writes,
    ) -> Result<(Self, &'static Writing)> {
        let refused = |why: &str| {
            let error = Error::refused(why).in_file(input.to_text());
            Err(error.advice("Name another file to write."))
        };
        let is_address = remote::address(input).is_some();
        if sources.is_empty() || input == Path::new("-") || is_address {
            return refused("only a file on disk can be replaced in place");
        }
        let main = source.files.main().map_or("", |main| source.files.name(main));
        if main.contains('/') {
            return refused("a member of an archive can't be replaced");
        }
        let path = source::named(input)?;
        check_not_addressed(&path)?;
        if statelens::parts::describe::CheckpointSummary::of(source).files.len() > 1 {
            return refused("this checkpoint has several files, which can't be replaced at once");
        }
        let writing = match &writes.to {
            Some(id) => statelens::parts::formats::writing(id)?,
            None => match writing_of(source.format.id) {
                Some(writing) => writing,
                None => return refused("Statelens does not write the format of this file"),
            },
        };
        Ok((Self::InPlace(path), writing))
    }

    /// Returns the name of the file, without its folder.
    pub(crate) fn file_name(&self) -> Result<Cow<'_, str>> {
        statelens::write::file_name(self.path())
    }

    /// Returns the path of the file; a placeholder for standard output.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::InPlace(path) => path,
            Self::Output => Path::new("standard output"),
        }
    }

    /// Returns the name to show in messages.
    pub(crate) fn name(&self) -> String {
        self.path().to_text()
    }

    /// Refuses a plan of several files for standard output or in place.
    pub(crate) fn check(&self, plan: &Plan) -> Result<()> {
        let what = match self {
            Self::File(_) => return Ok(()),
            Self::Output => "standard output takes",
            Self::InPlace(_) => "--in-place replaces",
        };
        match plan.files.len() {
            0 | 1 => Ok(()),
            files => Err(Error::refused(format!("this writes {files} files, but {what} only one"))
                .advice("Name an output file, or choose a format that needs one file only.")),
        }
    }
}

/// Builds a file name like `model_checkpoint.safetensors`: states, input name, extension.
fn named(input: &Path, states: &[String], writing: &Writing) -> String {
    let name = match input.file_name() {
        _ if input == Path::new("-") => "checkpoint".into(),
        Some(name) => name.to_string_lossy(),
        // A folder such as `.` or `..`.
        None => "checkpoint".into(),
    };
    let stem = match input.is_dir() {
        true => &*name,
        false => {
            let name = name.strip_suffix(".index.json").unwrap_or(&name);
            name.rsplit_once('.').map_or(name, |(stem, _)| stem)
        }
    };
    let own = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    let keeps = own.as_deref().is_some_and(|end| writing.extensions.contains(&end));
    let file = match keeps && !input.is_dir() {
        true => name.clone().into_owned(),
        false => match writing.extensions.first() {
            Some(extension) => format!("{stem}.{extension}"),
            None => stem.to_owned(),
        },
    };
    match states {
        [] => file,
        states => format!("{}_{file}", states.join("_")),
    }
}

/// Returns the format of an output's extension. `.ckpt` belongs to two formats, so it keeps that of
/// the input.
fn by_extension(output: &Path, input: &Path) -> Result<&'static Writing> {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let error = |what: &str| Error::refused(what).in_file(output.to_text());
    if name.to_ascii_lowercase().ends_with(".ckpt") {
        let of_input = format_of(input).and_then(|format| format.writes.as_ref());
        if let Some(writing) = of_input.filter(|it| matches!(it.id, "torch" | "tensorflow")) {
            return Ok(writing);
        }
        return Err(error("`.ckpt` may be a PyTorch or a TensorFlow checkpoint")
            .advice("Choose one with --to torch or --to tensorflow."));
    }
    let by_name = statelens::parts::formats::writing_for_name(&name);
    let by_address = || statelens::parts::formats::writing_for_address(&output.to_string_lossy());
    by_name.or_else(by_address).ok_or_else(|| {
        let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
        let is_its = |known: &&str| end.as_deref() == Some(*known);
        let read_only = statelens::parts::formats::formats()
            .find(|format| format.writes.is_none() && format.extensions.iter().any(is_its));
        let what = match read_only {
            Some(format) => format!("{} is read, but not written", format.name),
            None => "the extension is not that of a format".to_owned(),
        };
        error(&what)
            .advice(format!("Choose the format by its extension or with --to: {}.", options()))
    })
}

/// Returns the format of a file on disk.
fn format_of(input: &Path) -> Option<&'static Format> {
    let is_file = input != Path::new("-") && remote::address(input).is_none();
    let opened = is_file.then(|| source::open(input, &[]).ok())??;
    statelens::parts::formats::detect(&opened.files).ok()?
}

/// Lists the `--to` option and the extension of every format.
fn options() -> String {
    let say: Vec<String> = statelens::parts::formats::writings()
        .map(|writing| format!("--to {} (.{})", writing.id, writing.extensions[0]))
        .collect();
    say.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_selects_the_format() {
        let id = |name: &str| by_extension(Path::new(name), Path::new("-")).map(|it| it.id);
        assert_eq!(id("a/b.MDL").unwrap(), "cerebras");
        assert_eq!(id("b.x.pth").unwrap(), "torch");
        assert!(id("mdl").unwrap_err().to_string().contains("--to torch (.pt)"));
        let gguf = id("a.gguf").unwrap_err().to_string();
        assert!(gguf.contains("GGUF is read, but not written"), "{gguf}");
        assert!(id("a.CKPT").unwrap_err().to_string().contains("--to tensorflow"));
        // The input's format decides.
        for (input, expected) in [
            ("torch/legacy_0d_empty.pt", Some("torch")),
            ("tf/saver_v2_basic/model.ckpt-1", Some("tensorflow")),
            ("safetensors/f4.safetensors", None),
        ] {
            let input = statelens_fixtures::root().join(input);
            let found = by_extension(Path::new("a.ckpt"), &input).ok().map(|it| it.id);
            assert_eq!(found, expected, "{}", input.to_text());
        }
    }

    #[test]
    fn output_name_derives_from_the_source() {
        let name = |input: &str, states: &[&str], to: &str| {
            let states: Vec<String> = states.iter().map(|state| (*state).to_owned()).collect();
            named(Path::new(input), &states, statelens::parts::formats::writing(to).unwrap())
        };
        assert_eq!(name("x/g.mdl", &["model"], "safetensors"), "model_g.safetensors");
        assert_eq!(name("x/g.h5", &["model", "rng"], "cerebras"), "model_rng_g.h5");
        assert_eq!(name("model.safetensors.index.json", &[], "torch"), "model.pt");
        assert_eq!(name("-", &[], "npz"), "checkpoint.npz");
    }
}
