//! Telling it apart.

use super::members;
use super::table::is_table;
use crate::{Probe, Score, stray};

/// How sure this format is: the magic number at the end of a table; a state file that names a
/// checkpoint; a file whose table stands beside it under the same prefix.
pub fn score(probe: &Probe<'_>) -> Score {
    let files = probe.files();
    let Ok(main) = files.main() else { return Score::No };
    if is_table(files, main) || super::state::is_state(probe.head()) {
        return Score::Exact;
    }
    match members::index_of(probe.name()) {
        Some(index) if files.find(&index).is_some_and(|id| is_table(files, id)) => Score::Exact,
        // Alone, which is for an error that says what is missing.
        Some(_) => Score::Maybe,
        // For an error that says that it is cut short; what it is else is said elsewhere.
        None if members::is_index(files, probe.name()) && !stray::is_told(probe) => Score::Maybe,
        None => Score::No,
    }
}
