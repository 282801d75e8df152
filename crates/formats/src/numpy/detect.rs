//! Telling it apart.

use super::header::MAGIC;
use crate::archive::{first_name, is_zip};
use crate::{Probe, Score};

/// How sure this format is: the magic number of an array, or a zip archive whose first member is
/// one.
pub fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    if head.starts_with(MAGIC) {
        return Score::YES;
    }
    if !is_zip(head) {
        return Score::NO;
    }
    // numpy keeps members that are no arrays, and one of those may come first; an archive without
    // any has no member at all. Then the name decides between it and other zip archives.
    let array = first_name(head).is_some_and(|name| name.ends_with(b".npy"));
    match array || probe.name().to_ascii_lowercase().ends_with(".npz") {
        true => Score(Score::YES.0 + 2),
        false => Score::NO,
    }
}
