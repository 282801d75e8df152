//! Converts the core's errors into the page's texts.

use statelens_checkpoint::{Error, ErrorKind, capitalised};

use crate::protocol;
use crate::protocol::error::ErrorText;
use crate::state::fmt::exact;

/// Options of the command, and what the page calls them.
const OPTIONS: [(&str, &str); 28] = [
    ("--drop-unmatched-keys", "\u{201c}Leave them out\u{201d}"),
    ("--src-fmt hf", "Hugging Face under \u{201c}From\u{201d}"),
    ("--src-fmt cs-2.4", "2.4 under \u{201c}From\u{201d}"),
    ("--recipe FILE", "\u{201c}Edit rules\u{201d}"),
    ("--model", "\u{201c}Model\u{201d}"),
    ("Name it with --config.", "Choose its config.json in the row \u{201c}Config\u{201d}."),
    ("--config", "\u{201c}Config\u{201d}"),
    ("--unwrap", "\u{201c}Unwrap\u{201d}"),
    ("--format-version 0.4", "\u{201c}Version\u{201d} 0.4"),
    ("--format-version", "\u{201c}Version\u{201d}"),
    ("--prefix NAME", "\u{201c}Add prefix\u{201d}"),
    ("--strip-prefix", "\u{201c}Remove prefix\u{201d}"),
    ("--prefix", "\u{201c}Add prefix\u{201d}"),
    ("--cast float32", "\u{201c}Cast\u{201d} f32"),
    ("--cast", "\u{201c}Cast\u{201d}"),
    ("--select", "\u{201c}Include\u{201d}"),
    ("--exclude", "\u{201c}Exclude\u{201d}"),
    ("--rename", "\u{201c}Rename\u{201d}"),
    ("--states", "\u{201c}States\u{201d}"),
    ("--shard-size", "\u{201c}Shards\u{201d}"),
    ("--shard", "\u{201c}Shards\u{201d}"),
    ("--compress", "\u{201c}Compress\u{201d}"),
    ("--object-graph", "\u{201c}Object graph\u{201d}"),
    ("--state-file", "\u{201c}State file\u{201d}"),
    ("--untie", "\u{201c}Untie\u{201d}"),
    ("--nest", "\u{201c}Nest\u{201d}"),
    ("--to tensorflow", "TensorFlow under \u{201c}Target\u{201d}"),
    ("--to", "\u{201c}Target\u{201d}"),
];

/// Replaces the names of the command's options in a text of the core by the page's.
pub fn of_page(text: &str) -> String {
    if !text.contains("--") {
        return text.to_owned();
    }
    let mut text = text.to_owned();
    for (option, word) in OPTIONS {
        text = text.replace(&format!("`{option}`"), word).replace(option, word);
    }
    text
}

/// Returns a text as a sentence: with a capital, unless it begins with a name, and a full stop.
pub fn sentence(text: &str) -> String {
    let mut out = capitalised(text.trim());
    if !out.is_empty() && !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

/// Returns a text as a title: as [`sentence`], but without a full stop.
pub fn title(text: &str) -> String {
    let out = sentence(text);
    out.strip_suffix('.').unwrap_or(&out).to_owned()
}

/// Converts an error of the core into the text that the page shows.
pub fn error(error: &Error) -> ErrorText {
    let kind = match error.kind() {
        ErrorKind::Damaged => protocol::error::ErrorKind::Damaged,
        ErrorKind::Limit if error.code() == "fetch-cap" => protocol::error::ErrorKind::FetchCap,
        ErrorKind::Limit => protocol::error::ErrorKind::Limit,
        ErrorKind::Refused => protocol::error::ErrorKind::Refused,
        ErrorKind::Io | ErrorKind::Cancelled => protocol::error::ErrorKind::Io,
        _ => protocol::error::ErrorKind::Unsupported,
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
        title: of_page(&sentence(error.what())),
        text: error
            .expectation()
            .map(|text| of_page(&sentence(&format!("expected {text}"))))
            .unwrap_or_default(),
        place: place.join(", "),
        lines: Vec::new(),
        next: error.next_step().map(next).into_iter().collect(),
    }
}

/// Splits advice into a sentence and the command it ends with, if there is one.
fn next(text: &str) -> (String, String) {
    let command = text.strip_suffix("`.").and_then(|text| text.split_once(": `"));
    match command {
        Some((text, command)) => (of_page(&sentence(text)), command.to_owned()),
        None => (of_page(&sentence(text)), String::new()),
    }
}

/// As [`error`], but returns `None` if the user cancelled.
pub fn failure(failed: &Error) -> Option<ErrorText> {
    (failed.kind() != ErrorKind::Cancelled).then(|| error(failed))
}

/// Returns the error for a model's config that is opened without its weights, recognised by its
/// name or by what Hugging Face writes at its beginning; `None` for any other file.
pub fn config_alone(path: &str, head: &[u8]) -> Option<ErrorText> {
    const CONFIGS: [&str; 4] =
        ["config.json", "generation_config.json", "params.yaml", "params.json"];
    let name = path.rsplit('/').next().unwrap_or(path);
    let says = |field: &str| String::from_utf8_lossy(head).contains(field);
    let is_config = CONFIGS.contains(&name)
        || name.ends_with(".json") && (says("\"model_type\":") || says("\"architectures\":"));
    is_config.then(|| ErrorText {
        kind: protocol::error::ErrorKind::NotACheckpoint,
        title: "This is the config of a model, without its weights.".to_owned(),
        text: String::new(),
        place: path.to_owned(),
        lines: Vec::new(),
        next: vec![(
            "Drop it together with the weights, or the whole folder.".to_owned(),
            String::new(),
        )],
    })
}

/// As [`error`], and quotes the first lines of a small text file that stands where the checkpoint
/// should be: they show why it can't be opened.
pub fn explained(of: &Error, head: &[u8]) -> ErrorText {
    let mut error = error(of);
    if of.code() == statelens_formats::STAND_IN {
        let text = String::from_utf8_lossy(head);
        error.kind = protocol::error::ErrorKind::NotACheckpoint;
        let lines = text.lines().take(5);
        error.lines = lines.map(|line| line.chars().take(160).collect()).collect();
    }
    error
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{FileSet, Limits, Memory, Unwatched};

    use super::*;

    #[test]
    fn sentences_get_a_capital_and_a_full_stop() {
        assert_eq!(sentence("the file is empty"), "The file is empty.");
        assert_eq!(sentence("Done."), "Done.");
        assert_eq!(title("the checkpoint was not finished"), "The checkpoint was not finished");
    }

    #[test]
    fn errors_name_the_place_and_the_next_step() {
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
    fn page_texts_do_not_name_command_options() {
        for (text, expected) in [
            (
                "Leave it out with --exclude, or rename it.",
                "Leave it out with \u{201c}Exclude\u{201d}, or rename it.",
            ),
            (
                "Write several files with --shard-size.",
                "Write several files with \u{201c}Shards\u{201d}.",
            ),
            (
                "Format 0.4 holds them unchanged: --format-version 0.4.",
                "Format 0.4 holds them unchanged: \u{201c}Version\u{201d} 0.4.",
            ),
            (
                "Give a value without a name one with --prefix NAME.",
                "Give a value without a name one with \u{201c}Add prefix\u{201d}.",
            ),
            ("a\u{2013}b and a - b stay", "a\u{2013}b and a - b stay"),
        ] {
            assert_eq!(of_page(text), expected);
        }
    }

    #[test]
    fn config_without_weights_is_recognised() {
        let found = config_alone("model/config.json", b"").unwrap();
        assert!(found.title.contains("config of a model") && found.next[0].0.contains("weights"));
        let head = b"{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n";
        assert!(config_alone("llama-7b_config.json", head).is_some());
        assert!(config_alone("model.safetensors", head).is_none());
        assert!(config_alone("tokenizer.json", b"{\"version\": \"1.0\"").is_none());
    }

    #[test]
    fn lfs_pointer_is_explained() {
        let head =
            b"version https://git-lfs.github.com/spec/v1\noid sha256:61c9\nsize 4938993736\n";
        let files = FileSet::single("dir/model.mdl", Memory::from(head.to_vec()));
        let failed = statelens_formats::open(files, &Limits::default(), &mut Unwatched);
        let text = explained(&failed.unwrap_err(), head);
        assert_eq!(text.kind, protocol::error::ErrorKind::NotACheckpoint);
        assert!(text.title.contains("4,938,993,736 bytes"), "{}", text.title);
        assert_eq!(text.lines.len(), 3);
        assert!(text.next[0].0.ends_with("came from."), "{}", text.next[0].0);
        assert_eq!(text.next[0].1, "git lfs pull --include model.mdl");
    }
}
