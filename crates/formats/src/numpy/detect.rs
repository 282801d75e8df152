use super::header::MAGIC;
use crate::archive::{behind, first_name, is_array, is_zip};
use crate::{Probe, Score};

pub(crate) fn array(probe: &Probe<'_>) -> Score {
    if probe.head().starts_with(MAGIC) { Score::Magic } else { Score::No }
}

/// Scores a zip archive whose first member is an array, or that is named `.npz`.
pub(crate) fn archive(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    if !is_zip(head) {
        return if behind(head).is_some_and(is_array) { Score::Holds } else { Score::No };
    }
    // numpy keeps members that are not arrays, which may come first. An archive without arrays has
    // no members at all. In these cases the name distinguishes it from other zip archives.
    let array = first_name(head).is_some_and(is_array);
    match array || probe.name().to_ascii_lowercase().ends_with(".npz") {
        true => Score::Member,
        false => Score::No,
    }
}
