//! Telling it apart.

use super::header::MAGIC;
use crate::archive::{first_name, is_zip};
use crate::{Probe, Score};

/// How sure it is one array: the magic number.
pub fn array(probe: &Probe<'_>) -> Score {
    if probe.head().starts_with(MAGIC) { Score::Magic } else { Score::No }
}

/// How sure it is an archive of arrays: a zip archive whose first member is one.
pub fn archive(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    if !is_zip(head) {
        return Score::No;
    }
    // numpy keeps members that are no arrays, and one of those may come first; an archive without
    // any has no member at all. Then the name decides between it and other zip archives.
    let array = first_name(head).is_some_and(|name| name.ends_with(b".npy"));
    match array || probe.name().to_ascii_lowercase().ends_with(".npz") {
        true => Score::Member,
        false => Score::No,
    }
}
