//! The core's errors and findings, as the page shows them.

use statelens_checkpoint::{Error, ErrorKind, Finding, Grade};

use crate::protocol::{self, ErrorText, Severity};
use crate::state::fmt::exact;

/// A sentence with a capital and a full stop.
#[must_use]
pub fn sentence(text: &str) -> String {
    let mut chars = text.trim().chars();
    let Some(first) = chars.next() else { return String::new() };
    let mut out: String = first.to_uppercase().chain(chars).collect();
    if !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

/// A title: a capital, and no full stop.
#[must_use]
pub fn title(text: &str) -> String {
    let out = sentence(text);
    out.strip_suffix('.').unwrap_or(&out).to_owned()
}

/// An error.
#[must_use]
pub fn error(error: &Error) -> ErrorText {
    let kind = match error.kind() {
        ErrorKind::Damaged => protocol::ErrorKind::Damaged,
        ErrorKind::Limit => protocol::ErrorKind::Limit,
        ErrorKind::Refused => protocol::ErrorKind::Refused,
        ErrorKind::Io | ErrorKind::Cancelled => protocol::ErrorKind::Io,
        _ => protocol::ErrorKind::Unsupported,
    };
    let mut place = Vec::new();
    if let Some(file) = error.file() {
        place.push(file.to_owned());
    }
    if let Some(offset) = error.offset() {
        place.push(format!("at byte {}", exact(offset)));
    }
    ErrorText {
        kind,
        title: sentence(error.what()),
        text: error
            .expectation()
            .map(|text| sentence(&format!("expected {text}")))
            .unwrap_or_default(),
        place: place.join(", "),
        lines: Vec::new(),
        next: error.next_step().map(|text| (sentence(text), String::new())).into_iter().collect(),
    }
}

/// An error, unless it is the user's own wish to stop.
#[must_use]
pub fn failure(failed: &Error) -> Option<ErrorText> {
    (failed.kind() != ErrorKind::Cancelled).then(|| error(failed))
}

/// How grave something is.
#[must_use]
pub fn severity(grade: Grade) -> Severity {
    match grade {
        Grade::Danger => Severity::Danger,
        Grade::Warning => Severity::Warning,
        Grade::Note => Severity::Note,
    }
}

/// A finding.
#[must_use]
pub fn finding(finding: &Finding) -> protocol::Finding {
    let call = finding.call.as_ref().map_or_else(Vec::new, |call| {
        [
            ("module", call.module.clone()),
            ("name", call.name.clone()),
            ("arguments", call.arguments.clone()),
            ("seen at", finding.place.clone()),
        ]
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(label, text)| (label.to_owned(), text))
        .collect()
    });
    protocol::Finding {
        severity: severity(finding.grade),
        title: title(&finding.title),
        text: finding.detail.clone(),
        advice: finding.advice.clone(),
        place: if call.is_empty() { finding.place.clone() } else { String::new() },
        call,
        keys: Vec::new(),
        missing: !finding.missing.is_empty(),
    }
}

/// What a small text file says about itself, where that explains why it is no checkpoint: the
/// lines of a Git LFS pointer, the first lines of a web page.
#[must_use]
pub fn explain(mut error: ErrorText, name: &str, head: &[u8]) -> ErrorText {
    let text = String::from_utf8_lossy(head);
    let lines = |most: usize| -> Vec<String> {
        text.lines().take(most).map(|line| line.chars().take(160).collect()).collect()
    };
    let base = name.rsplit('/').next().unwrap_or(name);
    if text.starts_with("version https://git-lfs.github.com/spec/") {
        let size =
            text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse::<u64>().ok());
        error.kind = protocol::ErrorKind::NotACheckpoint;
        error.title =
            "This is a Git LFS pointer, not a checkpoint. The weights were never downloaded."
                .into();
        error.text = match size {
            Some(size) => format!(
                "The file holds a few lines that name the real one, which has {} bytes:",
                exact(size)
            ),
            None => "The file holds a few lines that name the real one:".into(),
        };
        error.lines = lines(5);
        error.place = String::new();
        error.next = vec![(
            "Fetch it in the clone it came from".into(),
            format!("git lfs pull --include {base}"),
        )];
    } else if text.trim_start().to_ascii_lowercase().starts_with("<!doctype html")
        || text.trim_start().to_ascii_lowercase().starts_with("<html")
    {
        error.kind = protocol::ErrorKind::NotACheckpoint;
        error.lines = lines(4);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_have_a_capital_and_a_full_stop() {
        assert_eq!(sentence("the file is empty"), "The file is empty.");
        assert_eq!(sentence("Done."), "Done.");
        assert_eq!(title("the checkpoint was not finished"), "The checkpoint was not finished");
    }

    #[test]
    fn an_error_says_where_and_what_to_do() {
        let text = error(
            &Error::damaged("the header ends too early")
                .at(12_345)
                .in_file("a.pt")
                .expected("40 bytes")
                .advice("Fetch it again."),
        );
        assert_eq!(text.title, "The header ends too early.");
        assert_eq!(text.text, "Expected 40 bytes.");
        assert_eq!(text.place, "a.pt, at byte 12,345");
        assert_eq!(text.next, [("Fetch it again.".to_owned(), String::new())]);
        assert!(failure(&Error::cancelled()).is_none());
    }

    #[test]
    fn a_pointer_explains_itself() {
        let head =
            b"version https://git-lfs.github.com/spec/v1\noid sha256:61c9\nsize 4938993736\n";
        let text = explain(error(&Error::unsupported("x")), "dir/model.mdl", head);
        assert!(text.text.contains("4,938,993,736"));
        assert_eq!(text.lines.len(), 3);
        assert_eq!(text.next[0].1, "git lfs pull --include model.mdl");
    }
}
