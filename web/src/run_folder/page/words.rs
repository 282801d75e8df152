//! Words and notes for the entries of a run folder.

use statelens_compare::runs::RunFile;

use crate::run_folder::model::RunView;

pub(super) fn kind_word(kind: &RunFile) -> &'static str {
    match kind {
        RunFile::Checkpoint(_) => "full",
        RunFile::Temporary => "leftover",
        other => other.word(),
    }
}

/// Returns whether the run is one of the Cerebras trainer, which alone writes `.mdl` files and the
/// index.
pub(super) fn is_cerebras(view: &RunView) -> bool {
    let run = &view.sorted.run;
    run.indexed || run.checkpoints().any(|entry| entry.name.ends_with(".mdl"))
}

/// Returns the states to show for the names at the top of a checkpoint: in a flat state dict these
/// are keys, of which the states are the first parts.
pub(super) fn shown_states(names: &[String]) -> Vec<&str> {
    let mut states: Vec<&str> = Vec::new();
    for name in names {
        let state = name.split('.').next().filter(|state| !state.is_empty()).unwrap_or(name);
        if !states.contains(&state) {
            states.push(state);
        }
    }
    states
}

/// Returns warnings about an entry.
pub(super) fn notes(view: &RunView, entry: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let Some(of) = view.sorted.run.entries.get(entry) else { return notes };
    match of.kind {
        RunFile::Temporary => {
            notes.push("A writer stopped before this was complete. It is not a checkpoint.".into())
        }
        RunFile::NoDate => {
            notes.push("The timestamp in its name is not a date: the trainer skips it.".into())
        }
        _ => {}
    }
    if !view.problem(entry).is_empty() {
        notes.push(view.problem(entry).to_owned());
    }
    let row = view.sorted.rows.iter().find(|row| row.entry == entry);
    let groups = row.map_or_else(Vec::new, |row| view.not_finite_groups(row.file as u32));
    if !groups.is_empty() {
        notes.push(format!("NaN or infinity is in: {}.", groups.join(", ")));
    }
    if view.sorted.run.only_folder.contains(&of.name) {
        notes.push("The index does not list it: autoload skips it.".into());
    }
    notes
}
