//! Compares a config before and after, line by line.

use std::collections::HashMap;

use statelens_recipes::config::Converted;

use crate::family::message::{ConfigLines, NamedText};

/// Maximum number of lines shown.
const MAX_LINES: usize = 2_000;

/// Returns the lines of both configs, with the changed ones marked.
pub(super) fn configs(old: &NamedText, new: &NamedText, converted: &Converted) -> ConfigLines {
    ConfigLines {
        old: old.name.clone(),
        before: marked(&old.text, &new.text),
        new: new.name.clone(),
        after: marked(&new.text, &old.text),
        dropped: converted.dropped.clone(),
    }
}

/// Returns the lines of a config, and whether each has no counterpart in the other one.
fn marked(own: &str, other: &str) -> Vec<(String, bool)> {
    let mut there: HashMap<String, usize> = HashMap::new();
    for line in other.lines() {
        *there.entry(normalised(line)).or_default() += 1;
    }
    let mark = |line: &str| {
        let normalised = normalised(line);
        let changed = match there.get_mut(&normalised) {
            _ if normalised.is_empty() => false,
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        };
        (line.to_owned(), changed)
    };
    own.lines().take(MAX_LINES).map(mark).collect()
}

/// Normalises a line, so that JSON and YAML compare equal.
fn normalised(line: &str) -> String {
    let line = line.trim().trim_start_matches("- ");
    let line = line.trim_end_matches(',').trim_end_matches(['{', '[']).trim();
    if line.chars().all(|c| matches!(c, '{' | '}' | '[' | ']' | ',')) {
        return String::new();
    }
    line.chars().filter(|c| !matches!(c, '"' | '\'')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_changed_config_lines() {
        let json = "{\n  \"hidden_size\": 16,\n  \"hidden_act\": \"silu\",\n  \"n\": 4\n}\n";
        let yaml = "model:\n    hidden_act: silu\n    hidden_size: 16\n    m: 4\n";
        let changed = |own, other| -> Vec<String> {
            let lines = marked(own, other).into_iter();
            lines.filter(|line| line.1).map(|line| line.0.trim().to_owned()).collect()
        };
        assert_eq!(changed(json, yaml), ["\"n\": 4"]);
        assert_eq!(changed(yaml, json), ["model:", "m: 4"]);
    }
}
