//! Rules of llama.cpp that are not needed for reading. Files that break them open here, but
//! llama.cpp refuses them.
//!
//! Source: `gguf_init_from_file_impl` and `gguf_kv` in `ggml/src/gguf.cpp`, and `GGML_MAX_NAME` and
//! `GGML_MAX_DIMS` in `ggml/include/ggml.h` of llama.cpp (2025).

use statelens_checkpoint::{Finding, Grade, Text};

/// `GGML_MAX_NAME`: the maximum length of a name in bytes, including the NUL.
const MAX_NAME: usize = 64;
const MAX_DIMS: usize = 4;

/// The broken rules, each with the first entry and the number of entries.
#[derive(Debug, Default)]
pub(super) struct Broken(Vec<(Rule, Text, u64)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Version 1.
    OldVersion,
    EmptyKey,
    NestedArray,
    /// `general.alignment` is not a uint32.
    AlignmentType,
    LongName,
    ManyDimensions,
    /// A tensor does not begin where the previous one ends.
    Misplaced,
    /// The type of a tensor was removed or is unknown.
    Type,
}

impl Broken {
    pub(super) fn add(&mut self, rule: Rule, name: &Text) {
        match self.0.iter_mut().find(|(known, ..)| *known == rule) {
            Some((.., count)) => *count += 1,
            None => self.0.push((rule, name.clone(), 1)),
        }
    }

    /// Checks the name and the number of dimensions of a tensor.
    pub(super) fn tensor(&mut self, name: &Text, rank: usize) {
        if name.as_bytes().len() >= MAX_NAME {
            self.add(Rule::LongName, name);
        }
        if rank > MAX_DIMS {
            self.add(Rule::ManyDimensions, name);
        }
    }

    pub(super) fn findings(self) -> impl Iterator<Item = Finding> {
        self.0.into_iter().map(|(rule, first, count)| {
            let more = match count {
                1 => String::new(),
                2 => " There is 1 more.".to_owned(),
                count => format!(" There are {} more.", count - 1),
            };
            let (title, detail) = rule.words();
            Finding::new(Grade::Warning, title)
                .detail(format!("{detail} llama.cpp refuses the file.{more}"))
                .place(first.to_lossy())
                .advice("Write the file again with the program it came from, or with `gguf` for Python.")
                .refused()
        })
    }
}

impl Rule {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::OldVersion => (
                "The file has version 1 of the format",
                "Versions 2 and 3 count in 64 bits, version 1 in 32.",
            ),
            Self::EmptyKey => {
                ("A key of the metadata is empty", "Keys have at least one character.")
            }
            Self::NestedArray => {
                ("An array of the metadata holds arrays", "Arrays hold numbers, bools or texts.")
            }
            Self::AlignmentType => {
                ("`general.alignment` is not a uint32", "The alignment is read as a uint32 only.")
            }
            Self::LongName => ("A tensor's name is too long", "Names have at most 63 bytes."),
            Self::ManyDimensions => {
                ("A tensor has too many dimensions", "Tensors have at most 4 dimensions.")
            }
            Self::Misplaced => (
                "A tensor is not where it should be",
                "Each tensor begins at the first multiple of the alignment after the one before it.",
            ),
            Self::Type => (
                "A tensor has a type that was removed or is not known",
                "Its values can't be read.",
            ),
        }
    }
}
