//! One word for whether a checkpoint can be used.

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Finding, FindingKind, Grade};

/// A grade for the use of a checkpoint, from its findings, verification and statistics. The best is the least.
///
/// A checkpoint whose values were not read is *whole*, not *checked*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileGrade {
    /// It is whole, all of it was read, and its checksums are right.
    Checked,
    /// Its structure was read to the end, and nothing in it is missing.
    Whole,
    /// A part of it is missing: a shard, a state, or the end of a save.
    Incomplete,
    /// It has values that are NaN or infinite.
    #[serde(rename = "not finite")]
    NotFinite,
    /// A part of it can't be read, or differs from its checksum.
    Damaged,
    /// Loading it with the usual library would call code that Statelens doesn't know.
    #[serde(rename = "unknown code")]
    UnknownCode,
    /// Loading it with the usual library would do harm.
    Dangerous,
}

impl FileGrade {
    /// All grades, the worst first.
    pub const ALL: [Self; 7] = [
        Self::Dangerous,
        Self::UnknownCode,
        Self::Damaged,
        Self::NotFinite,
        Self::Incomplete,
        Self::Whole,
        Self::Checked,
    ];

    /// Returns the grade of a checkpoint of which only the structure was read, by the findings about
    /// it, and the finding that decides.
    pub fn of_findings(findings: &[Finding]) -> (Self, Option<&Finding>) {
        let graded = findings.iter().filter_map(|finding| Some((of_finding(finding)?, finding)));
        // The first of several equally bad findings decides.
        let worst = graded.reduce(|worst, next| if next.0 > worst.0 { next } else { worst });
        worst.map_or((Self::Whole, None), |(grade, finding)| (grade, Some(finding)))
    }

    /// Returns the grade once values were read, of which `not_finite` are NaN or infinite.
    #[must_use]
    pub fn with_values(self, not_finite: u64) -> Self {
        if not_finite > 0 { self.max(Self::NotFinite) } else { self }
    }

    /// Returns the grade once all of it was read; `passed` says whether everything was as stored.
    #[must_use]
    pub fn verified(self, passed: bool) -> Self {
        match (passed, self) {
            (true, Self::Whole) => Self::Checked,
            (true, grade) => grade,
            (false, grade) => grade.max(Self::Damaged),
        }
    }

    /// Returns whether there is no known reason not to use it.
    pub fn is_good(self) -> bool {
        self <= Self::Whole
    }

    /// Returns the word for it: "not finite".
    pub fn word(self) -> &'static str {
        match self {
            Self::Dangerous => "dangerous",
            Self::UnknownCode => "unknown code",
            Self::Damaged => "damaged",
            Self::NotFinite => "not finite",
            Self::Incomplete => "incomplete",
            Self::Whole => "whole",
            Self::Checked => "checked",
        }
    }
}

/// Returns the grade that a finding gives; `None` if it says nothing about use.
fn of_finding(finding: &Finding) -> Option<FileGrade> {
    let lacks = !finding.missing.is_empty()
        || matches!(
            finding.kind,
            FindingKind::UnlistedFiles | FindingKind::MissingValues | FindingKind::IncompleteSource
        );
    match finding.grade {
        Grade::Danger => Some(FileGrade::Dangerous),
        Grade::UnknownCode => Some(FileGrade::UnknownCode),
        Grade::Damage if lacks => Some(FileGrade::Incomplete),
        Grade::Damage => Some(FileGrade::Damaged),
        Grade::Warning | Grade::Note => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_finding_decides() {
        let find = |grade, title: &str| Finding::new(grade, title);
        let shard = find(Grade::Damage, "shard").missing(vec!["2.bin".into()]);
        let all = [
            find(Grade::Warning, "old"),
            shard,
            find(Grade::Damage, "cut"),
            find(Grade::Damage, "hole"),
            find(Grade::UnknownCode, "code"),
            find(Grade::Danger, "eval"),
        ];
        let of = |count: usize| {
            let (grade, finding) = FileGrade::of_findings(&all[..count]);
            (grade.word(), finding.map_or("", |it| it.title.as_str()))
        };
        assert_eq!(of(0), ("whole", ""));
        assert_eq!(of(1), ("whole", ""), "a warning says nothing about use");
        assert_eq!(of(2), ("incomplete", "shard"));
        assert_eq!(of(4), ("damaged", "cut"), "the first of two");
        assert_eq!(of(5), ("unknown code", "code"));
        assert_eq!(of(6), ("dangerous", "eval"));
    }

    #[test]
    fn only_a_whole_file_becomes_checked() {
        let words = |grade: FileGrade| {
            [grade.with_values(0).verified(true), grade.with_values(1).verified(true)]
                .map(FileGrade::word)
        };
        assert_eq!(words(FileGrade::Whole), ["checked", "not finite"]);
        assert_eq!(words(FileGrade::Incomplete), ["incomplete", "not finite"]);
        assert_eq!(words(FileGrade::Dangerous), ["dangerous"; 2]);
        assert_eq!(FileGrade::Whole.verified(false), FileGrade::Damaged);
        assert_eq!(FileGrade::UnknownCode.verified(false), FileGrade::UnknownCode);
        let good: Vec<&str> =
            FileGrade::ALL.iter().filter(|it| it.is_good()).map(|it| it.word()).collect();
        assert_eq!(good, ["whole", "checked"]);
        for grade in FileGrade::ALL {
            let json = serde_json::to_string(&grade).unwrap();
            assert_eq!(json, format!("\"{}\"", grade.word()));
        }
    }
}
