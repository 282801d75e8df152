use super::members;
use super::table::is_table;
use crate::{Probe, Score, not_a_checkpoint};

/// Scores a file with the magic number at the end of a table, a state file that names a checkpoint,
/// or a file next to a table with the same prefix.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let files = probe.files();
    let Ok(main) = files.main() else { return Score::No };
    if is_table(files, main) || super::state::is_state(probe.head()) {
        return Score::Exact;
    }
    match members::index_of(probe.name()) {
        Some(index) if files.find(&index).is_some_and(|id| is_table(files, id)) => Score::Exact,
        // The table is missing; reading will report that.
        Some(_) => Score::Maybe,
        // A truncated index; reading will report that. Other kinds of files are reported elsewhere.
        None if members::is_index(files, probe.name())
            && !not_a_checkpoint::is_explained(probe) =>
        {
            Score::Maybe
        }
        None => Score::No,
    }
}
