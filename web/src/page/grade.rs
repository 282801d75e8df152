//! The grade of a checkpoint: one mark and one word, the same on every screen.

use statelens_checkpoint::Grade;
use statelens_describe::FileGrade;
use yew::prelude::*;

use crate::page::marks::{severity, tick_icon};

/// Renders the mark of a grade; a hollow dot if it is not known.
pub fn grade_mark(grade: Option<FileGrade>) -> Html {
    match grade {
        Some(FileGrade::Dangerous | FileGrade::UnknownCode | FileGrade::Damaged) => {
            severity(Grade::Danger)
        }
        Some(FileGrade::NotFinite | FileGrade::Incomplete) => severity(Grade::Warning),
        Some(FileGrade::Checked) => tick_icon(),
        // Whole is less than checked: the mark says so.
        Some(FileGrade::Whole) => html! {
            <svg class="fi good" viewBox="0 0 12 12" aria-hidden="true">
                <path d="m3 6.3 2.2 2.2 4-4.6" fill="none" stroke="currentColor" stroke-width="1.4" />
            </svg>
        },
        None => html! {
            <svg class="fi note" viewBox="0 0 12 12" aria-hidden="true">
                <circle cx="6" cy="6" r="3" fill="none" stroke="currentColor" stroke-width="1" stroke-dasharray="1.5 1.5" />
            </svg>
        },
    }
}

/// Returns the word for a grade, also if it is not known.
pub fn grade_text(grade: Option<FileGrade>) -> &'static str {
    grade.map_or("not checked yet", FileGrade::word)
}

/// Returns what a grade claims, in a sentence.
pub fn grade_title(grade: FileGrade) -> &'static str {
    match grade {
        FileGrade::Dangerous => "Loading it with the usual library would do harm",
        FileGrade::UnknownCode => {
            "Loading it with the usual library would call code that Statelens does not know"
        }
        FileGrade::Damaged => "A part of it can\u{2019}t be read, or is not what was written",
        FileGrade::NotFinite => "It has values that are NaN or infinite",
        FileGrade::Incomplete => "A part of it is missing",
        FileGrade::Whole => "Its structure is whole. Its values were not all read",
        FileGrade::Checked => "All of it was read, and every checksum in it is right",
    }
}
