//! Advice and errors that several formats give.

use statelens_checkpoint::{Advice, Error, Setting, Text, advice};

/// Returns the advice for an entry that can't be written.
pub(crate) fn exclude() -> Advice {
    advice!["Leave it out with ", Setting::Exclude, "."]
}

/// Returns the advice for an entry that can't be written under its name.
pub(crate) fn rename_or_exclude() -> Advice {
    advice!["Rename it with ", Setting::Rename, ", or leave it out with ", Setting::Exclude, "."]
}

/// Returns the advice for values that would have one name. No pattern selects just one of several
/// keys (`count`) that are written alike: `a.b` and `b` in `a`.
pub(crate) fn rename_one(count: usize) -> Advice {
    match count {
        ..2 => rename_or_exclude(),
        _ => {
            "Patterns find both: rename one where the file was made, or convert to PyTorch, which \
              keeps both."
                .into()
        }
    }
}

/// Returns the error for `count` tensors whose data is missing, with the first keys and a reason.
pub(crate) fn no_data(count: usize, keys: impl Iterator<Item = String>, why: &Text) -> Error {
    let shown: Vec<String> = keys.take(5).collect();
    let shown = shown.join(", ");
    let advice = advice![
        "Open the files that hold them as well, or leave the tensors out with ",
        Setting::Exclude,
        "."
    ];
    let what = match count {
        1 => format!("the tensor {shown} has no data to write"),
        _ => format!("{count} tensors have no data to write, {shown} among them"),
    };
    Error::refused(format!("{what}: {why}")).advice(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_single_tensor_without_data() {
        let text = |keys: &[&str]| {
            let names = keys.iter().map(|key| (*key).to_owned());
            no_data(keys.len(), names, &"the file is missing".into()).to_string()
        };
        assert!(text(&["w"]).contains("the tensor w has no data to write: the file is missing"));
        assert!(text(&["w", "v"]).contains("2 tensors have no data to write, w, v among them"));
    }
}
