//! Advice that several formats give.

use statelens_checkpoint::{Advice, Setting, advice};

/// Returns the advice for an entry that can't be written.
pub(crate) fn exclude() -> Advice {
    advice!["Leave it out with ", Setting::Exclude, "."]
}

/// Returns the advice for an entry that can't be written under its name.
pub(crate) fn rename_or_exclude() -> Advice {
    advice!["Rename it with ", Setting::Rename, ", or leave it out with ", Setting::Exclude, "."]
}

/// Returns the advice for tensors whose files are missing.
pub(crate) fn open_or_exclude() -> Advice {
    advice![
        "Open the files that hold them as well, or leave the tensors out with ",
        Setting::Exclude,
        "."
    ]
}
