//! What came of it.

use statelens_checkpoint::{Error, Grade};

use super::tally::NonFinite;
use crate::{Json, grouped, shape_text, size_text};

/// Tensors of which the same is told, each on a line.
const MOST: usize = 20;

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VerificationReport {
    /// What is wrong, in the order of the files.
    pub problems: Vec<Problem>,
    /// Checksums that were looked at, by kind.
    pub checksums: Vec<(&'static str, u64)>,
    /// Places for a checksum with none in them.
    pub without: u64,
    /// Tensors that were read.
    pub tensors: u64,
    /// Of those, how many no checksum covers that is looked at here.
    pub unchecked: u64,
    /// Whether the format has checksums at all, be it of structures only.
    pub summed: bool,
    /// Whether checksums cover the structure.
    pub structure: bool,
    /// Logical bytes of the tensors that were read.
    pub bytes: u64,
    /// Tensors that have no bytes, or a few that are repeated beyond measure: key and reason.
    pub unread: Vec<(String, String)>,
    /// Tensors with elements that are no finite numbers, in the order of the tree.
    pub numbers: Vec<NonFiniteTensor>,
    /// Entries of the manifest, and how many of them match; `None` without one.
    pub manifest: Option<(u64, u64)>,
}

/// A line of what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportLine {
    /// How grave it is.
    pub grade: Grade,
    /// In which way, a word or two.
    pub word: &'static str,
    /// The flat key of the tensor, or the name of an archive's member; may be empty.
    pub key: String,
    /// What it is.
    pub text: String,
}

/// A tensor with elements that are no finite numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct NonFiniteTensor {
    /// Its flat key.
    pub key: String,
    /// How many, and the first.
    pub found: NonFinite,
    /// How many elements it has.
    pub elements: u64,
    /// The index of the first.
    pub first: Vec<u64>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// In which way.
    pub trouble: Trouble,
    /// The flat key of the tensor, or the name of an archive's member; may be empty.
    pub key: String,
    /// The file; may be empty.
    pub file: String,
    /// The byte in the file.
    pub offset: Option<u64>,
    /// What is wrong.
    pub text: String,
    /// What should be; may be empty.
    pub expected: String,
    /// What is; may be empty.
    pub found: String,
}

/// The ways in which a file can be unsound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// A checksum is not that of the bytes.
    Checksum,
    /// Something does not decode, or is not where it should be.
    Damaged,
    /// Two tensors lie in one place.
    Overlap,
    /// A tensor runs past the end of the file.
    PastEnd,
    /// The manifest has something else.
    Manifest,
    /// What opening the checkpoint noticed.
    Finding,
}

impl Trouble {
    /// A word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Damaged => "damaged",
            Self::Overlap => "overlap",
            Self::PastEnd => "past end",
            Self::Manifest => "manifest",
            Self::Finding => "finding",
        }
    }
}

impl Problem {
    /// What an error says.
    pub fn of_error(trouble: Trouble, key: &str, error: &Error) -> Self {
        Self {
            trouble,
            key: key.to_owned(),
            file: error.file().unwrap_or_default().to_owned(),
            offset: error.offset(),
            text: error.what().to_owned(),
            expected: error.expectation().unwrap_or_default().to_owned(),
            found: String::new(),
        }
    }

    /// All of it but the word and the key.
    pub fn text(&self) -> String {
        let mut text = self.text.clone();
        match (self.file.as_str(), self.offset) {
            ("", None) => {}
            ("", Some(offset)) => text += &format!(", at byte {offset}"),
            (file, None) => text += &format!(", in {file}"),
            (file, Some(offset)) => text += &format!(", in {file} at byte {offset}"),
        }
        for (word, what) in [("expected", &self.expected), ("found", &self.found)] {
            if !what.is_empty() {
                text += &format!("; {word} {what}");
            }
        }
        text
    }
}

/// `3 NaN, 1 infinite`.
fn counts(nan: u64, inf: u64) -> String {
    match (nan, inf) {
        (0, inf) => format!("{} infinite", grouped(inf)),
        (nan, 0) => format!("{} NaN", grouped(nan)),
        (nan, inf) => format!("{} NaN, {} infinite", grouped(nan), grouped(inf)),
    }
}

/// `1 NaN in 1 tensor`; `None` if there are none.
pub(crate) fn not_finite(nan: u64, inf: u64, count: u64) -> Option<String> {
    (nan > 0 || inf > 0).then(|| format!("{} in {}", counts(nan, inf), tensors(count)))
}

/// `1 tensor`, `2 tensors`.
fn tensors(count: u64) -> String {
    match count {
        1 => "1 tensor".to_owned(),
        count => format!("{} tensors", grouped(count)),
    }
}

impl NonFiniteTensor {
    /// `3 NaN, 1 infinite of 4,096 elements, first at [0, 5]`.
    pub fn text(&self) -> String {
        let NonFinite { nan, inf, .. } = self.found;
        let counts = counts(nan, inf);
        let elements = grouped(self.elements);
        format!("{counts} of {elements} elements, first at {}", shape_text(&self.first))
    }
}

/// Counts checksums that are looked at, by kind.
pub(super) fn count(checksums: &mut Vec<(&'static str, u64)>, kind: &'static str, more: u64) {
    match checksums.iter_mut().find(|(known, _)| *known == kind) {
        Some((_, count)) => *count += more,
        None => checksums.push((kind, more)),
    }
}

impl VerificationReport {
    /// Whether nothing is wrong.
    pub fn sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether the answer is yes; with `finite`, only if all numbers are.
    pub fn answer(&self, finite: bool) -> bool {
        self.sound() && (self.numbers.is_empty() || !finite)
    }

    /// How much what was found matters: a note where all is well.
    pub fn grade(&self, finite: bool) -> Grade {
        match self.answer(finite) {
            false => Grade::Damage,
            true if !self.numbers.is_empty() || !self.unread.is_empty() => Grade::Warning,
            true => Grade::Note,
        }
    }

    /// The answer as a sentence: that it is sound only where every value was read, is a finite
    /// number, and has a checksum or a manifest that it was held against.
    pub fn verdict(&self, finite: bool) -> String {
        let held = self.manifest.is_some() || self.is_covered();
        let mut text = match (self.answer(finite), self.problems.len() as u64) {
            (true, _) if held && self.numbers.is_empty() && self.unread.is_empty() => {
                "no damage found".to_owned()
            }
            (true, _) => "structure sound".to_owned(),
            (false, 0) => "it is not finite".to_owned(),
            (false, 1) => "it is not sound: 1 problem".to_owned(),
            (false, count) => format!("it is not sound: {} problems", grouped(count)),
        };
        if let Some(numbers) = self.not_finite() {
            text += &format!("; {numbers}");
        }
        if !self.unread.is_empty() {
            text += &format!("; {} not read", tensors(self.unread.len() as u64));
        }
        text
    }

    /// `1 NaN in 1 tensor`; `None` if all numbers are finite.
    pub fn not_finite(&self) -> Option<String> {
        let sum = |of: fn(&NonFinite) -> u64| {
            self.numbers.iter().fold(0u64, |sum, numbers| sum.saturating_add(of(&numbers.found)))
        };
        let (nan, inf) = (sum(|found| found.nan), sum(|found| found.inf));
        not_finite(nan, inf, self.numbers.len() as u64)
    }

    /// All that is wrong, and the first of what should be known besides: where numbers are not
    /// finite, which is wrong with `finite`, and what was not read.
    pub fn lines(&self, finite: bool) -> Vec<ReportLine> {
        let (grade, word) = match finite {
            true => (Grade::Damage, "not finite"),
            false => (Grade::Warning, "not finite"),
        };
        let line =
            |grade, word, key: &String, text| ReportLine { grade, word, key: key.clone(), text };
        let problems = self.problems.iter().map(|problem| {
            line(Grade::Damage, problem.trouble.word(), &problem.key, problem.text())
        });
        let numbers = self.numbers.iter().take(MOST);
        let unread = self.unread.iter().take(MOST);
        problems
            .chain(numbers.map(|numbers| line(grade, word, &numbers.key, numbers.text())))
            .chain(unread.map(|(key, why)| line(Grade::Warning, "not read", key, why.clone())))
            .collect()
    }

    /// What [`VerificationReport::lines`] leaves out, and the JSON has.
    pub fn more(&self) -> Vec<String> {
        [(self.numbers.len(), "not finite"), (self.unread.len(), "not read")]
            .into_iter()
            .filter(|(len, _)| *len > MOST)
            .map(|(len, what)| {
                format!("and {} more tensors that are {what}", grouped((len - MOST) as u64))
            })
            .collect()
    }

    /// Whether checksums cover all there is: of plain values alone, those of the structure do.
    fn is_covered(&self) -> bool {
        self.unchecked == 0 && (self.tensors > 0 || self.structure)
    }

    /// What was looked at: a label and a text of each kind.
    pub fn looked_at(&self) -> Vec<(&'static str, String)> {
        let sums = self.checksums.iter().filter(|(_, count)| *count > 0);
        let sums: Vec<String> =
            sums.map(|(kind, count)| format!("{} {kind}", grouped(*count))).collect();
        let unseen = "changed values can't be seen";
        let mut checksums = match sums.is_empty() {
            true if self.is_covered() => "none are needed for what is here".to_owned(),
            true if self.summed => format!("none of values in this file: {unseen}"),
            true => format!("no checksums in this format: {unseen}"),
            false => sums.join(", "),
        };
        if self.unchecked > 0 && !sums.is_empty() {
            checksums += &format!("; none covers {}, where {unseen}", tensors(self.unchecked));
        }
        if self.without > 0 {
            checksums += &format!("; {} are left blank", grouped(self.without));
        }
        let read = format!("{}, {}", tensors(self.tensors), size_text(self.bytes));
        let mut looked_at = vec![("read", read), ("checksums", checksums)];
        if let Some((entries, matching)) = self.manifest {
            let text = format!("{} of {} entries match", grouped(matching), grouped(entries));
            looked_at.push(("manifest", text));
        }
        looked_at
    }

    /// As JSON; `answer` is that of the whole, which may ask for more.
    pub fn json(&self, answer: bool) -> String {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            self.write(answer, json);
        });
        json.take()
    }

    /// The fields of [`VerificationReport::json`].
    pub fn write(&self, answer: bool, json: &mut Json) {
        json.name("sound").bool(answer);
        json.name("verdict").str(&self.verdict(false));
        json.name("grade").str(crate::grade_word(self.grade(false)));
        json.name("problems").array(|json| {
            self.problems.iter().for_each(|problem| problem.json(json));
        });
        json.name("tensors").number(self.tensors);
        json.name("bytes").number(self.bytes);
        json.name("checksums").object(|json| {
            for (kind, count) in &self.checksums {
                json.name(kind).number(*count);
            }
        });
        json.name("without_checksum").number(self.without);
        json.name("unchecked_tensors").number(self.unchecked);
        json.name("unread").array(|json| {
            for (key, why) in &self.unread {
                json.object(|json| {
                    json.name("key").str(key);
                    json.name("why").str(why);
                });
            }
        });
        json.name("not_finite").array(|json| {
            for numbers in &self.numbers {
                json.object(|json| {
                    json.name("key").str(&numbers.key);
                    json.name("nan").number(numbers.found.nan);
                    json.name("inf").number(numbers.found.inf);
                    json.name("params").number(numbers.elements);
                    json.name("first").numbers(&numbers.first);
                });
            }
        });
        if let Some((entries, matching)) = self.manifest {
            json.name("manifest").object(|json| {
                json.name("entries").number(entries);
                json.name("matching").number(matching);
            });
        }
    }
}

impl Problem {
    fn json(&self, json: &mut Json) {
        json.object(|json| {
            json.name("what").str(self.trouble.word());
            for (name, text) in [("key", &self.key), ("file", &self.file)] {
                if !text.is_empty() {
                    json.name(name).str(text);
                }
            }
            if let Some(offset) = self.offset {
                json.name("offset").number(offset);
            }
            json.name("text").str(&self.text);
            for (name, text) in [("expected", &self.expected), ("found", &self.found)] {
                if !text.is_empty() {
                    json.name(name).str(text);
                }
            }
        });
    }
}
