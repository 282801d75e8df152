//! The number of parameters is the same everywhere.

use std::path::{Path, PathBuf};

use statelens::open;
use statelens_checkpoint::grouped;
use statelens_describe::model::{Model, parameters};
use statelens_describe::share::{
    KeysAs, LinkOptions, Outline, link, open_link, write_json, write_markdown,
};
use statelens_describe::{CheckpointSummary, Info};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.path().is_dir() {
                true => open.push(entry.path()),
                // Skip files that are designed to take long.
                false if entry.path().to_string_lossy().contains("attacks") => {}
                false => found.push(entry.path()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn parameter_counts_agree_across_reports() {
    let mut opened = 0;
    for path in files(&fixtures()) {
        let Ok(checkpoint) = open(&path) else { continue };
        opened += 1;
        let name = path.display();
        let inner = checkpoint.inner();
        let leaves = inner.leaves();
        let count = parameters(inner, &leaves, &CheckpointSummary::new(inner, &leaves), None);
        let summary = CheckpointSummary::new(inner, &leaves);
        let (model, counted) = Model::counted(inner, &leaves, &summary, None);
        assert_eq!(counted, count, "the count of a description: {name}");
        let fact = model.number("parameters");
        assert_eq!(fact, Some(count.model), "the inspector: {name}");
        let summary = CheckpointSummary::of(inner);
        let summary = Info::new(inner, summary, count.clone(), Model::default()).json();
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        assert_eq!(summary["model_parameters"], count.model, "info --json: {name}");
        let outline = Outline::new(inner, &leaves, None);
        assert_eq!(outline.parameters().model, count.model, "the summary: {name}");
        let of_model = |outline: &Outline| outline.model().number("parameters");
        assert_eq!(of_model(&outline), fact, "the facts of the page: {name}");
        let text = count.text();
        let markdown = write_markdown(&outline);
        let line = markdown.lines().find(|line| line.starts_with("| parameters |"));
        let line = line.unwrap_or_else(|| panic!("{name}: {markdown}"));
        assert!(line.contains(&grouped(count.model)), "{name}: {line}, not {text}");
        let json: serde_json::Value = serde_json::from_str(&write_json(&outline)).unwrap();
        assert_eq!(json["totals"]["model_parameters"], count.model, "JSON: {name}");
        // A link has no space for more.
        let kinds: &[KeysAs] = match outline.entries.len() {
            ..5_000 => &[KeysAs::Plain, KeysAs::Hidden],
            _ => &[],
        };
        for keys in kinds.iter().copied() {
            let Ok(link) = link(&outline, &LinkOptions { keys, ..LinkOptions::default() }) else {
                continue;
            };
            let shared = open_link(&link).unwrap();
            assert_eq!(shared.parameters().model, count.model, "a link: {name}");
            assert_eq!(of_model(&shared), fact, "the inspector of a link: {name}");
        }
    }
    assert!(opened > 250, "{opened} fixtures were opened");
}

#[test]
fn parameter_count_excludes_optimizer_ties_and_buffers() {
    for (name, model, all) in [
        ("keras/k3_seq_compiled.keras", 218, 656),
        ("trainer/gpt2/pytorch_model.bin", 1952, 2080),
        // Two moments for each of 1,960 elements, and 12 counters of steps.
        ("trainer/gpt2/optimizer.pt", 0, 3932),
    ] {
        let checkpoint = open(fixtures().join(name)).unwrap();
        let (inner, leaves) = (checkpoint.inner(), checkpoint.inner().leaves());
        let count = parameters(inner, &leaves, &CheckpointSummary::new(inner, &leaves), None);
        assert_eq!((count.model, count.all), (model, all), "{name}");
    }
}
