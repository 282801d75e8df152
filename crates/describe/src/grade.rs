//! Names of grades.

use statelens_checkpoint::Grade;

/// Returns the name of a grade: `note`, `warning`, `damage`, `unknown code`, `danger`.
pub fn grade_word(grade: Grade) -> &'static str {
    match grade {
        Grade::Note => "note",
        Grade::Warning => "warning",
        Grade::Damage => "damage",
        Grade::UnknownCode => "unknown code",
        Grade::Danger => "danger",
    }
}
