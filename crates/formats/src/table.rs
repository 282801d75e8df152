//! Every format in one table: what the README, `statelens formats`, `--to` and the page's sheet
//! say is made from it.

use std::fmt::Write as _;

use statelens_checkpoint::{Error, Result};

use crate::{Target, cerebras, numpy, safetensors, tensorflow, torch};

/// A format, as far as users know it.
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
}

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
    make: fn(&Asked) -> Target,
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
pub struct Asked {
    /// One of [`Writing::versions`].
    pub version: Option<String>,
    /// One of [`Writing::compressions`].
    pub compression: Option<String>,
    /// Names after objects, and a graph of them: TensorFlow only.
    pub object_graph: bool,
    /// A file that names the latest checkpoint of the folder: TensorFlow only.
    pub state_file: bool,
}

/// What `--to` calls TensorFlow's format.
const TENSORFLOW: &str = "tensorflow";

const fn choice(id: &'static str, name: &'static str) -> Choice {
    Choice { id, name }
}

/// Every format, in the order in which they are shown.
pub const FORMATS: &[Format] = &[
    Format {
        ids: &["cerebras-h5"],
        name: "Cerebras HDF5",
        extensions: &["mdl", "h5", "hdf5"],
        reads: "0.1 to 0.5 (releases 1.7 to 2.10)",
        writes: Some(Writing {
            id: "cerebras",
            name: "Cerebras HDF5",
            label: "Cerebras .mdl",
            extensions: &["mdl", "h5", "hdf5"],
            about: "HDF5 with the nesting, types and links of the state. Read by cstorch.load and any HDF5 tool.",
            what: "0.5; 0.4 with `--format-version 0.4`",
            versions: &[
                choice("0.5", "0.5, releases 2.5 to 2.10"),
                choice("0.4", "0.4, releases 2.0 to 2.4"),
            ],
            compressions: &[choice("", "none"), choice("lz4", "LZ4"), choice("gzip", "gzip")],
            make: |asked| {
                Target::Cerebras(cerebras::write::Options {
                    version: match asked.version.as_deref() {
                        Some("0.4") => cerebras::write::Version::V04,
                        _ => cerebras::write::Version::V05,
                    },
                    compression: match asked.compression.as_deref() {
                        Some("lz4") => cerebras::write::Compression::Lz4,
                        Some("gzip") => cerebras::write::Compression::Gzip,
                        _ => cerebras::write::Compression::None,
                    },
                })
            },
        }),
        notes: "",
    },
    Format {
        ids: &["torch-zip", "torch-legacy", "torch-tar", "torch-export", "pickle"],
        name: "PyTorch",
        extensions: &["pt", "pth", "bin", "ckpt", "pkl"],
        reads: "zip files of all versions, the stream of before 1.6, tar files of 0.1, TorchScript, `.pt2`, bare pickles",
        writes: Some(Writing {
            id: "torch",
            name: "PyTorch zip",
            label: "PyTorch .pt",
            extensions: &["pt", "pth", "bin"],
            about: "A zip of a pickle and raw tensors. Loads with torch.load(weights_only=True): nothing in it can run.",
            what: "zip, as `torch.load(weights_only=True)` takes it; one file, or shards with an index",
            versions: &[],
            compressions: &[],
            make: |_| Target::Torch(torch::write::Options::default()),
        }),
        notes: "",
    },
    Format {
        ids: &["safetensors"],
        name: "safetensors",
        extensions: &["safetensors"],
        reads: "one file, or shards with or without their index; all dtypes of release 0.8",
        writes: Some(Writing {
            id: "safetensors",
            name: "safetensors",
            label: "safetensors",
            extensions: &["safetensors"],
            about: "A header of names and the tensors behind it. Read by Hugging Face libraries; plain values go into its metadata.",
            what: "one file, or shards with an index",
            versions: &[],
            compressions: &[],
            make: |_| Target::Safetensors(safetensors::write::Options::default()),
        }),
        notes: "",
    },
    Format {
        ids: &["torch-dcp"],
        name: "PyTorch distributed checkpoint",
        extensions: &["distcp"],
        reads: "folders of `.metadata` and `__*.distcp`; chunked tensors are put together",
        writes: None,
        notes: "",
    },
    Format {
        ids: &["tensorflow", "tensorflow-v1"],
        name: "TensorFlow",
        extensions: &["index"],
        reads: "bundles of `.index` and `.data-*` (V2 Saver, `tf.train.Checkpoint`, SavedModel variables), V1 Saver files",
        writes: Some(Writing {
            id: TENSORFLOW,
            name: "TensorFlow checkpoint",
            label: "TensorFlow .index",
            extensions: &["index", "ckpt"],
            about: "An index and the raw tensors beside it. Restored by tf.compat.v1.train.Saver and tf.train.Checkpoint.",
            what: "V2: bundles by name or with an object graph, in one or more data files",
            versions: &[],
            compressions: &[],
            make: |asked| {
                Target::TensorFlow(tensorflow::write::Options {
                    object_graph: asked.object_graph,
                    state_file: asked.state_file,
                    ..tensorflow::write::Options::default()
                })
            },
        }),
        notes: "",
    },
    Format {
        ids: &["npy"],
        name: "NumPy array",
        extensions: &["npy"],
        reads: "versions 1 to 3, all dtypes; arrays of objects stay inert",
        writes: Some(Writing {
            id: "npy",
            name: "NumPy array",
            label: "NumPy .npy",
            extensions: &["npy"],
            about: "One array, for numpy.load. For checkpoints of which one tensor is taken.",
            what: "one array",
            versions: &[],
            compressions: &[],
            make: |_| Target::Numpy(numpy::write::Options { single: true }),
        }),
        notes: "",
    },
    Format {
        ids: &["npz"],
        name: "NumPy archive",
        extensions: &["npz"],
        reads: "arrays of all dtypes, stored or deflated; other members as bytes",
        writes: Some(Writing {
            id: "npz",
            name: "NumPy archive",
            label: "NumPy .npz",
            extensions: &["npz"],
            about: "A zip of arrays under their whole names. Read by numpy.load and everything that builds on it.",
            what: "stored, as `numpy.load(allow_pickle=False)` takes it",
            versions: &[],
            compressions: &[],
            make: |_| Target::Numpy(numpy::write::Options::default()),
        }),
        notes: "",
    },
    Format {
        ids: &["keras", "keras-h5", "keras-weights"],
        name: "Keras",
        extensions: &["keras", "weights.h5", "weights.json"],
        reads: "`.keras`, Keras 2 `.h5`, Keras 3 `.weights.h5`, in shards too; layers in the model's order",
        writes: None,
        notes: "",
    },
    Format {
        ids: &["gguf"],
        name: "GGUF",
        extensions: &["gguf"],
        reads: "versions 1 to 3, either byte order, sets of numbered files; values of plain, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 tensors",
        writes: None,
        notes: "",
    },
    Format {
        ids: &["flax"],
        name: "Flax msgpack",
        extensions: &["msgpack", "flax"],
        reads: "state dicts with all dtypes of JAX, arrays in pieces put together",
        writes: None,
        notes: "",
    },
    Format {
        ids: &["hdf5"],
        name: "any other HDF5",
        extensions: &["h5", "hdf5"],
        reads: "as a tree of groups, datasets, attributes",
        writes: None,
        notes: "",
    },
];

/// Every format that can be written.
pub fn writings() -> impl Iterator<Item = &'static Writing> {
    FORMATS.iter().filter_map(|format| format.writes.as_ref())
}

/// How to write the format that `--to` calls `id`.
pub fn writing(id: &str) -> Result<&'static Writing> {
    writings().find(|writing| writing.id == id).ok_or_else(|| {
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

/// How to write the format that a checkpoint is in, by [`statelens_checkpoint::FormatInfo::id`].
pub fn writing_of(format: &str) -> Option<&'static Writing> {
    FORMATS.iter().find(|row| row.ids.contains(&format))?.writes.as_ref()
}

impl Writing {
    /// The target, with what was asked for; an error if the format does not have it.
    pub fn target(&self, asked: &Asked) -> Result<Target> {
        self.check("version", "--format-version", self.versions, asked.version.as_deref())?;
        self.check("compression", "--compress", self.compressions, asked.compression.as_deref())?;
        for (what, asked) in
            [("object graph", asked.object_graph), ("state file", asked.state_file)]
        {
            if asked && self.id != TENSORFLOW {
                return Err(Error::refused(format!("{} has no {what}", self.name))
                    .advice("Leave it out, or name the format with --to tensorflow."));
            }
        }
        Ok((self.make)(asked))
    }

    /// Its name with the version, where there are several.
    pub fn full_name(&self, asked: &Asked) -> String {
        match (asked.version.as_deref(), self.versions.first()) {
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
            assert!(writing.target(&Asked::default()).is_ok(), "{}", writing.id);
            for choice in writing.versions {
                let asked = Asked { version: Some(choice.id.into()), ..Asked::default() };
                assert!(writing.target(&asked).is_ok(), "{} {}", writing.id, choice.id);
            }
            let asked = Asked { compression: Some("none such".into()), ..Asked::default() };
            assert!(writing.target(&asked).is_err(), "{}", writing.id);
        }
        assert!(writing("none such").unwrap_err().to_string().contains("cerebras"));
        let old = Asked { version: Some("0.4".into()), ..Asked::default() };
        let cerebras = writing("cerebras").unwrap();
        assert_eq!(cerebras.full_name(&old), "Cerebras HDF5 0.4");
        assert_eq!(cerebras.full_name(&Asked::default()), "Cerebras HDF5 0.5");
    }
}
