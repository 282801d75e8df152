//! The result of a verification.

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Error, Grade, counted, grouped, shape_text, size_text};
use statelens_quantised::ScaleFault;
use statelens_values::{fields, non_finite_counts, non_finite_text, report_json};

/// Maximum number of tensors that are listed for the same reason, one per line.
const MAX_LISTED: usize = 20;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VerificationReport {
    /// The results, with the names of the command's JSON.
    pub result: VerificationResult,
    /// Whether the format has checksums at all, even if only for structures.
    pub summed: bool,
    /// Whether checksums cover the structure.
    pub structure: bool,
    /// Whether there is a manifest, and the checkpoint has attributes, which no manifest covers.
    pub attributes: bool,
}

/// The problems found, and the numbers of tensors, bytes and checksums that were checked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VerificationResult {
    /// The problems found, in the order of the files.
    pub problems: Vec<Problem>,
    /// Number of tensors read.
    pub tensors: u64,
    /// Number of logical bytes of the tensors read.
    pub bytes: u64,
    /// Number of checksums compared, by kind.
    #[serde(with = "statelens_values::json::object")]
    pub checksums: Vec<(String, u64)>,
    /// Number of places for a checksum that are empty.
    pub without_checksum: u64,
    /// Number of tensors read that are not covered by a checksum that is compared here.
    pub unchecked_tensors: u64,
    /// Tensors that have no bytes, or only a few that are repeated excessively.
    pub unread: Vec<UnreadTensor>,
    /// Tensors with numbers that are not finite, in the order of the tree.
    pub not_finite: Vec<NonFiniteTensor>,
    /// Plain values and arrays of objects with such numbers. They count if the caller requires
    /// finite numbers: schedulers store infinity as a start value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_finite_values: Vec<NonFiniteTensor>,
    /// Quantised weights whose scales or codes have faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scales: Vec<ScaleFault>,
    /// Tensors and objects whose numbers can't be decoded to see whether they are finite.
    pub not_checked: Vec<UnreadTensor>,
    /// The comparison with a manifest, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<MatchingEntries>,
}

/// A tensor that was not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadTensor {
    /// Its flat key.
    pub key: String,
    /// The reason.
    pub why: String,
}

/// Counts of a comparison with a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchingEntries {
    /// Number of entries in the manifest.
    pub entries: u64,
    /// How many of them match.
    pub matching: u64,
}

/// A line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportLine {
    /// The severity.
    pub grade: Grade,
    /// The kind of problem, in a word or two.
    pub word: &'static str,
    /// The flat key of the tensor, or the name of an archive member; may be empty.
    pub key: String,
    /// The description.
    pub text: String,
}

/// A tensor, or a plain value, with numbers that are not finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NonFiniteTensor {
    /// Its flat key.
    pub key: String,
    /// Number of NaN values.
    pub nan: u64,
    /// Number of infinite values of either sign.
    pub inf: u64,
    /// Number of elements of the tensor.
    #[serde(rename = "elements")]
    pub params: u64,
    /// The multi-dimensional index of the first such element.
    pub first: Vec<u64>,
}

/// A problem found in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The kind of problem.
    #[serde(rename = "what")]
    pub trouble: Trouble,
    /// The flat key of the tensor, or the name of an archive member; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The name of the file; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The byte offset in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The description of the problem.
    pub text: String,
    /// The expected state; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// The actual state; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub found: String,
}

/// The kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trouble {
    /// A checksum does not match the bytes.
    Checksum,
    /// Something can't be decoded, or is not where it should be.
    Damaged,
    /// Two tensors overlap in the file.
    Overlap,
    /// A tensor extends past the end of the file.
    #[serde(rename = "past end")]
    PastEnd,
    /// Copies of a piece of a tensor differ.
    Copies,
    /// The manifest differs.
    Manifest,
    /// A finding from opening the checkpoint.
    Finding,
}

impl Trouble {
    /// Returns a word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Damaged => "damaged",
            Self::Overlap => "overlap",
            Self::PastEnd => "past end",
            Self::Copies => "copies",
            Self::Manifest => "manifest",
            Self::Finding => "finding",
        }
    }
}

impl Problem {
    /// Creates the problem for an error.
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

    /// Returns the whole description, without the word and the key.
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

impl NonFiniteTensor {
    /// Describes the counts: `3 NaN, 1 infinite of 4,096 elements, first at [0, 5]`.
    pub fn text(&self) -> String {
        let counts = non_finite_counts(self.nan, self.inf);
        if self.params == 1 && self.first.is_empty() {
            return counts;
        }
        let elements = counted(self.params, "element");
        format!("{counts} of {elements}, first at {}", shape_text(&self.first))
    }
}

/// Adds `more` checksums of a kind.
pub(super) fn count(checksums: &mut Vec<(String, u64)>, kind: &str, more: u64) {
    match checksums.iter_mut().find(|(known, _)| known == kind) {
        Some((_, count)) => *count += more,
        None => checksums.push((kind.to_owned(), more)),
    }
}

impl VerificationReport {
    /// Creates the report of a checkpoint that is too damaged to open.
    pub fn of_damage(error: &Error) -> Self {
        let problems = vec![Problem::of_error(Trouble::Damaged, "", error)];
        Self {
            result: VerificationResult { problems, ..VerificationResult::default() },
            ..Self::default()
        }
    }

    /// Returns whether there are no problems.
    pub fn sound(&self) -> bool {
        self.result.problems.is_empty()
    }

    /// Returns whether the checkpoint passes; with `finite`, only if all numbers were checked and
    /// are finite, and the scales of quantised weights have no faults.
    pub fn answer(&self, finite: bool) -> bool {
        let all_finite = self.all_finite(true) && self.without_check() == 0;
        self.sound() && (all_finite || !finite)
    }

    /// Returns whether no numbers are known that are not finite, and no scales with faults. Plain
    /// values count with `finite`.
    fn all_finite(&self, finite: bool) -> bool {
        let values = !finite || self.result.not_finite_values.is_empty();
        values && self.result.not_finite.is_empty() && self.result.scales.is_empty()
    }

    /// Returns whether nothing is wrong, but `finite` asks for a check that some tensors did not
    /// get.
    pub fn is_incomplete(&self, finite: bool) -> bool {
        finite && self.sound() && self.all_finite(true) && self.without_check() > 0
    }

    /// Returns the number of tensors that were not checked for numbers that are not finite.
    fn without_check(&self) -> u64 {
        (self.result.not_checked.len() + self.result.unread.len()) as u64
    }

    /// Returns the overall severity: a note if all is well.
    pub fn grade(&self, finite: bool) -> Grade {
        match self.answer(finite) {
            false if self.is_incomplete(finite) => Grade::Warning,
            false => Grade::Damage,
            true if !self.all_finite(finite) || !self.result.unread.is_empty() => Grade::Warning,
            true => Grade::Note,
        }
    }

    /// Returns the verdict in a few words, without counts.
    pub fn outcome(&self, finite: bool) -> &'static str {
        let result = &self.result;
        let held = result.manifest.is_some() || self.is_covered();
        match (self.answer(finite), result.problems.is_empty()) {
            (true, _) if held && self.all_finite(finite) && result.unread.is_empty() => {
                "no damage found"
            }
            (true, _) => "structure sound",
            (false, true) if self.is_incomplete(finite) => "not checked completely",
            (false, true)
                if result.not_finite.is_empty() && result.not_finite_values.is_empty() =>
            {
                "not scaled correctly"
            }
            (false, true) => "not finite",
            (false, false) => "not sound",
        }
    }

    /// Returns the verdict as a sentence. It reports no damage only if every value was read, is
    /// finite, and was compared with a checksum or a manifest.
    pub fn verdict(&self, finite: bool) -> String {
        let outcome = self.outcome(finite);
        let mut text = match (self.answer(finite), self.result.problems.len() as u64) {
            (true, _) => outcome.to_owned(),
            (false, 0) => format!("it is {outcome}"),
            (false, count) => format!("it is {outcome}: {}", counted(count, "problem")),
        };
        if let Some(numbers) = self.not_finite() {
            text += &format!("; {numbers}");
        }
        let values = self.result.not_finite_values.len() as u64;
        if finite && values > 0 {
            text += &format!("; {} not finite", counted(values, "plain value"));
        }
        let faulty = self.result.scales.len() as u64;
        if faulty > 0 {
            text += &format!("; {} with faulty scales", counted(faulty, "quantised weight"));
        }
        if !self.result.unread.is_empty() {
            text += &format!("; {} not read", counted(self.result.unread.len() as u64, "tensor"));
        }
        let not_checked = self.result.not_checked.len() as u64;
        if finite && not_checked > 0 {
            text +=
                &format!("; not checked for NaN and infinity: {}", counted(not_checked, "value"));
        }
        text
    }

    /// Formats the counts: `1 NaN in 1 tensor`; `None` if all numbers are finite.
    pub fn not_finite(&self) -> Option<String> {
        let tensors = &self.result.not_finite;
        let sum = |of: fn(&NonFiniteTensor) -> u64| {
            tensors.iter().fold(0u64, |sum, tensor| sum.saturating_add(of(tensor)))
        };
        let count = tensors.len() as u64;
        non_finite_text(sum(|tensor| tensor.nan), sum(|tensor| tensor.inf), count)
    }

    /// Returns all problems, then the first warnings: tensors that are not finite (a problem if
    /// `finite` is set), and tensors that were not read.
    pub fn lines(&self, finite: bool) -> Vec<ReportLine> {
        let (grade, word) = match finite {
            true => (Grade::Damage, "not finite"),
            false => (Grade::Warning, "not finite"),
        };
        let line =
            |grade, word, key: &String, text| ReportLine { grade, word, key: key.clone(), text };
        let problems = self.result.problems.iter().map(|problem| {
            line(Grade::Damage, problem.trouble.word(), &problem.key, problem.text())
        });
        let numbers = self.result.not_finite.iter().take(MAX_LISTED);
        let if_finite = if finite { MAX_LISTED } else { 0 };
        let values = self.result.not_finite_values.iter().take(if_finite);
        let scales = self.result.scales.iter().take(MAX_LISTED);
        let unread = self.result.unread.iter().take(MAX_LISTED);
        let not_checked = self.result.not_checked.iter().take(if_finite);
        problems
            .chain(
                numbers
                    .chain(values)
                    .map(|numbers| line(grade, word, &numbers.key, numbers.text())),
            )
            .chain(scales.map(|fault| line(grade, "scales", &fault.key, fault.text())))
            .chain(unread.map(|it| line(Grade::Warning, "not read", &it.key, it.why.clone())))
            .chain(
                not_checked.map(|it| line(Grade::Warning, "not checked", &it.key, it.why.clone())),
            )
            .collect()
    }

    /// Returns lines for the tensors that [`VerificationReport::lines`] omits but the JSON has.
    pub fn more(&self, finite: bool) -> Vec<String> {
        let result = &self.result;
        let if_finite = |len: usize| if finite { len } else { 0 };
        let not_checked = if_finite(result.not_checked.len());
        [
            (result.not_finite.len(), "not finite"),
            (if_finite(result.not_finite_values.len()), "plain and not finite"),
            (result.scales.len(), "quantised with faulty scales"),
            (result.unread.len(), "not read"),
            (not_checked, "not checked"),
        ]
        .into_iter()
        .filter(|(len, _)| *len > MAX_LISTED)
        .map(|(len, what)| {
            format!("and {} more values that are {what}", grouped((len - MAX_LISTED) as u64))
        })
        .collect()
    }

    /// Returns whether checksums cover everything. Without tensors, those of the structure suffice.
    fn is_covered(&self) -> bool {
        self.result.unchecked_tensors == 0 && (self.result.tensors > 0 || self.structure)
    }

    /// Returns the scope of the verification, as pairs of label and text.
    pub fn scope(&self) -> Vec<(&'static str, String)> {
        let sums = self.result.checksums.iter().filter(|(_, count)| *count > 0);
        let sums: Vec<String> =
            sums.map(|(kind, count)| format!("{} {kind}", grouped(*count))).collect();
        let unseen = "changed values can't be detected";
        let mut checksums = match sums.is_empty() {
            true if self.is_covered() => "the values here need none".to_owned(),
            true if self.summed => format!("no checksums of values in this file: {unseen}"),
            true => format!("no checksums in this format: {unseen}"),
            false => sums.join(", "),
        };
        if self.result.unchecked_tensors > 0 && !sums.is_empty() {
            checksums += &format!(
                "; {} not covered, where {unseen}",
                counted(self.result.unchecked_tensors, "tensor")
            );
        }
        if self.result.without_checksum > 0 {
            checksums += &format!("; {} are left blank", grouped(self.result.without_checksum));
        }
        let tensors = counted(self.result.tensors, "tensor");
        let read = format!("{tensors}, {}", size_text(self.result.bytes));
        let mut scope = vec![("read", read), ("checksums", checksums)];
        if let Some(MatchingEntries { entries, matching }) = self.result.manifest {
            let mut text = format!("{} of {} entries match", grouped(matching), grouped(entries));
            if self.attributes {
                text += "; attributes are not compared";
            }
            scope.push(("manifest", text));
        }
        scope
    }

    /// Returns the report as JSON. `answer` is the overall result, which may depend on further
    /// criteria.
    pub fn json(&self, answer: bool) -> String {
        report_json(&self.answered(answer))
    }

    /// Returns the fields of [`VerificationReport::json`].
    pub fn answered(&self, answer: bool) -> impl Serialize + use<> {
        fields! {
            sound: answer,
            verdict: self.verdict(false),
            grade: self.grade(false),
            #[serde(flatten)]
            result: self.result.clone(),
        }
    }
}
