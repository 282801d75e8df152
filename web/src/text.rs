//! Converts the core's errors into the page's texts.

use statelens_checkpoint::{Advice, Checkpoint, Error, ErrorKind, Setting, capitalised};

use crate::protocol;
use crate::protocol::error::{ErrorText, FALSIFIED, UNWRITTEN};
use crate::state::fmt::exact;

/// Returns the page's name of a setting: a control, and its value if one is meant.
fn control(setting: Setting) -> &'static str {
    match setting {
        Setting::AbortJob => "`statelens job abort`",
        Setting::CastToFloat32 => "\u{201c}Cast\u{201d} f32",
        Setting::Compress => "\u{201c}Compress\u{201d}",
        Setting::Config => "\u{201c}Config\u{201d}",
        Setting::Convert | Setting::ConvertLossy => "\u{201c}Convert\u{201d}",
        Setting::DropUnmatched => "\u{201c}Leave them out\u{201d}",
        Setting::Exclude => "\u{201c}Exclude\u{201d}",
        Setting::FoldLora => "\u{201c}Fold the adapter into the model\u{201d}",
        Setting::FixSpec => "\u{201c}Fix and upgrade\u{201d}",
        Setting::FormatVersion => "\u{201c}Version\u{201d}",
        Setting::FormatVersion04 => "\u{201c}Version\u{201d} 0.4",
        Setting::FromCerebras => "2.4 under \u{201c}From\u{201d}",
        Setting::FromHuggingFace => "Hugging Face under \u{201c}From\u{201d}",
        Setting::HubToken => "\u{201c}Token\u{201d}",
        Setting::Limit10 => "a limit ten times as high",
        Setting::LimitNone => "no limit",
        Setting::ListConverters => "\u{201c}Model\u{201d}",
        Setting::ListKeys => "the table of keys",
        Setting::MakeManifest => "\u{201c}Manifest\u{201d}",
        Setting::MaxFetch => "the limit on fetching",
        Setting::Model => "\u{201c}Model\u{201d}",
        Setting::ObjectGraph => "\u{201c}Object graph\u{201d}",
        Setting::PlanJob => "`statelens job plan`",
        Setting::Prefix => "\u{201c}Add prefix\u{201d}",
        Setting::ReadAs => "\u{201c}Read as\u{201d}",
        Setting::Recipe => "\u{201c}Edit rules\u{201d}",
        Setting::Rename => "\u{201c}Rename\u{201d}",
        Setting::Select => "\u{201c}Include\u{201d}",
        Setting::ShardSize | Setting::Shards => "\u{201c}Shards\u{201d}",
        Setting::ToTensorflow => "TensorFlow under \u{201c}Target\u{201d}",
        Setting::Untie => "\u{201c}Untie\u{201d}",
        Setting::Unwrap => "\u{201c}Unwrap\u{201d}",
        Setting::Upgrade | Setting::UpgradeLossy => "\u{201c}Upgrade\u{201d}",
        Setting::WithOptimizer => "\u{201c}Convert the optimizer\u{2019}s moments, too\u{201d}",
    }
}

/// Returns advice as text, without its command, with the page's names of settings.
pub fn advice(advice: &Advice) -> String {
    advice.text(control)
}

/// Returns the checkpoint with the page's names of settings in its findings.
pub fn worded(mut checkpoint: Checkpoint) -> Checkpoint {
    checkpoint.findings.iter_mut().for_each(|finding| finding.word(control));
    checkpoint
}

/// Returns the file and the offset of an error; empty if they are not known.
pub fn place(error: &ErrorText) -> String {
    let offset = error.offset.map(|offset| format!("at byte {}", exact(offset)));
    let file = Some(error.file.clone()).filter(|file| !file.is_empty());
    file.into_iter().chain(offset).collect::<Vec<_>>().join(", ")
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
        ErrorKind::Refused if error.code() == FALSIFIED => protocol::error::ErrorKind::Falsified,
        ErrorKind::Refused if error.code().starts_with("hub-") => protocol::error::ErrorKind::Hub,
        ErrorKind::Refused => protocol::error::ErrorKind::Refused,
        ErrorKind::Io if error.code() == UNWRITTEN => protocol::error::ErrorKind::Unwritten,
        ErrorKind::Io | ErrorKind::Cancelled => protocol::error::ErrorKind::Io,
        _ => protocol::error::ErrorKind::Unsupported,
    };
    let next =
        |next: &Advice| (sentence(&advice(next)), next.to_run().unwrap_or_default().to_owned());
    ErrorText {
        kind,
        title: sentence(error.what()),
        text: error
            .expectation()
            .map(|text| sentence(&format!("expected {text}")))
            .unwrap_or_default(),
        file: error.file().unwrap_or_default().to_owned(),
        offset: error.offset(),
        lines: Vec::new(),
        next: error.next_step().map(next).into_iter().collect(),
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
        file: path.to_owned(),
        offset: None,
        lines: Vec::new(),
        next: vec![(
            "Drop it together with the weights, or the whole folder.".to_owned(),
            String::new(),
        )],
    })
}

/// As [`error`], and quotes the first lines of a small text file that is in place of the
/// checkpoint: they show why it can't be opened.
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
    use statelens_checkpoint::{FileSet, Limits, Memory, Unwatched, advice};

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
        assert_eq!(place(&text), "a.pt, at byte 12,345");
        assert_eq!(text.next, [("Fetch it again.".to_owned(), String::new())]);
        assert!(failure(&Error::cancelled()).is_none());
        let falsified = error(&Error::refused("casting loses numbers").coded(FALSIFIED));
        assert_eq!(falsified.kind, protocol::error::ErrorKind::Falsified);
        let full = error(&Error::io("the disk is full").coded(UNWRITTEN));
        assert_eq!(full.kind, protocol::error::ErrorKind::Unwritten);
        assert_eq!(error(&Error::io("it is gone")).kind, protocol::error::ErrorKind::Io);
    }

    #[test]
    fn advice_names_the_controls_of_the_page() {
        let older = advice!["Format 0.4 holds them unchanged: ", Setting::FormatVersion04];
        let error = error(&Error::refused("it is lost").advice(older.command("git pull")));
        let text = "Format 0.4 holds them unchanged: \u{201c}Version\u{201d} 0.4.";
        assert_eq!(error.next, [(text.to_owned(), "git pull".to_owned())]);
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
