//! What the palette finds for a text: actions by their words, then keys as the filter finds them.

use crate::filter::state::Filter;
use crate::rows::Row;

/// Number of keys shown.
const MAX_KEYS: usize = 20;

/// An action of the palette.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaletteAction {
    OpenFiles,
    OpenFolder,
    OpenAddress,
    Compare,
    Convert,
    WeightsOnly,
    Findings,
    Verify,
    Scan,
    Share,
    Treemap,
    Heatmap,
    FoldLayers,
    Shortcuts,
    Close,
}

/// The actions, with further words to find them by and their keys.
pub const ACTIONS: [(PaletteAction, &str, &str, &str); 15] = [
    (PaletteAction::OpenFiles, "Open files", "file load", "O"),
    (PaletteAction::OpenFolder, "Open folder", "directory run", "\u{21e7}O"),
    (PaletteAction::OpenAddress, "Open URL", "address link hugging face", "U"),
    (PaletteAction::Compare, "Compare with another checkpoint", "diff difference", "D"),
    (PaletteAction::Convert, "Convert", "save write export cast rename safetensors", "C"),
    (PaletteAction::WeightsOnly, "Convert to weights only, bf16", "cast bfloat16 model state", ""),
    (PaletteAction::Findings, "Findings", "warnings problems danger", "F"),
    (PaletteAction::Verify, "Verify", "read everything checksum damage", "V"),
    (PaletteAction::Scan, "Read values", "scan statistics nan infinite sigma largest", ""),
    (PaletteAction::Share, "Share", "link summary markdown html picture", "S"),
    (PaletteAction::Treemap, "Where the bytes are", "treemap size largest memory", "T"),
    (PaletteAction::Heatmap, "View as heatmap", "matrix picture values expand", "E"),
    (PaletteAction::FoldLayers, "Fold repeated layers", "unfold flat", "L"),
    (PaletteAction::Shortcuts, "Shortcuts", "keyboard keys help", "?"),
    (PaletteAction::Close, "Close the checkpoint", "leave start", ""),
];

/// An entry of the palette's list.
#[derive(Debug, Clone, PartialEq)]
pub enum PaletteEntry {
    /// An action, as an index into [`ACTIONS`].
    Action(usize),
    /// A row of the open checkpoint.
    Key(u32),
}

/// The actions that need no open checkpoint.
const GENERAL: [PaletteAction; 4] = [
    PaletteAction::OpenFiles,
    PaletteAction::OpenFolder,
    PaletteAction::OpenAddress,
    PaletteAction::Shortcuts,
];

/// Returns the entries for a text: all actions for an empty one. Without the rows of a checkpoint,
/// those are the actions that need none.
pub fn entries(text: &str, rows: Option<&[Row]>) -> Vec<PaletteEntry> {
    let lower = text.trim().to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let matches = |of: &str| words.iter().all(|word| of.contains(word));
    // Actions whose title has the words come before those that have them among further words.
    let titled = |at: &usize| matches(&ACTIONS[*at].1.to_lowercase());
    let all = (0..ACTIONS.len()).filter(|at| rows.is_some() || GENERAL.contains(&ACTIONS[*at].0));
    let (mut found, others): (Vec<usize>, Vec<usize>) = all.partition(titled);
    found.extend(others.into_iter().filter(|at| {
        let (_, title, more, _) = ACTIONS[*at];
        matches(&format!("{} {more}", title.to_lowercase()))
    }));
    let mut entries: Vec<PaletteEntry> = found.into_iter().map(PaletteEntry::Action).collect();
    if let Some(rows) = rows.filter(|_| !words.is_empty()) {
        entries.extend(keys(text, rows).into_iter().map(PaletteEntry::Key));
    }
    entries
}

/// Returns the first rows whose keys match, loosely if none do otherwise.
fn keys(text: &str, rows: &[Row]) -> Vec<u32> {
    let Ok(filter) = Filter::parse(text) else { return Vec::new() };
    let found = |filter: &Filter| -> Vec<u32> {
        let ids = (0..).zip(rows).filter(|(_, row)| filter.matches(row)).map(|(id, _)| id);
        ids.take(MAX_KEYS).collect()
    };
    let steps = [Some(filter.clone()), filter.clone().loosened(0), filter.loosened(1)];
    let mut results = steps.iter().flatten().map(found);
    results.find(|ids| !ids.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sample::gpt;

    fn titles(text: &str) -> Vec<String> {
        let rows = gpt(2);
        let title = |entry: &PaletteEntry| match entry {
            PaletteEntry::Action(at) => ACTIONS[*at].1.to_owned(),
            PaletteEntry::Key(row) => rows[*row as usize].key.clone(),
        };
        entries(text, Some(&rows)).iter().map(title).collect()
    }

    #[test]
    fn without_a_checkpoint_there_are_general_actions() {
        let found = |text: &str| {
            let action = |entry: &PaletteEntry| match entry {
                PaletteEntry::Action(at) => ACTIONS[*at].1,
                PaletteEntry::Key(_) => "a key",
            };
            entries(text, None).iter().map(action).collect::<Vec<_>>()
        };
        assert_eq!(found(""), ["Open files", "Open folder", "Open URL", "Shortcuts"]);
        assert_eq!(found("hugging"), ["Open URL"]);
        assert_eq!(found("convert"), [""; 0]);
    }

    #[test]
    fn actions_and_keys_are_found_by_words() {
        assert_eq!(titles("").len(), ACTIONS.len(), "all actions, no keys");
        assert_eq!(titles("bf16"), ["Convert to weights only, bf16"]);
        assert_eq!(titles("CAST b")[0], "Convert to weights only, bf16");
        assert_eq!(titles("nan"), ["Read values"]);
        assert_eq!(titles("open url")[0], "Open URL");
        let keys = titles("blocks.1 fc");
        assert_eq!(keys, ["model.model.blocks.1.fc.weight", "model.model.blocks.1.fc.bias"]);
        assert_eq!(titles("b1 f").len(), 2, "by fragments");
        assert_eq!(titles("qqq"), [""; 0]);
    }
}
