//! Model configs: parses YAML and JSON as Python does, writes them again, and converts them.

use statelens_recipes::Implementation;
use statelens_recipes::config::{Families, Language, parse};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for language in [Language::Yaml, Language::Json] {
        let Ok(value) = parse(text, language) else { continue };
        let written = value.to_yaml();
        let again =
            parse(&written, Language::Yaml).expect("a file that was just written can be read");
        assert_eq!(again.to_yaml(), written);
        let families = Families::known().expect("the tables that come along are sound");
        for guess in families.recognise(&value) {
            for target in [
                Implementation::HuggingFace,
                Implementation::cerebras(2, 1),
                Implementation::CURRENT,
            ] {
                let _ = families.convert(&guess.model, guess.format, target, &value);
            }
        }
        for model in ["bert", "gpt2", "t5", "falcon", "gemma2", "mixtral", "llava", "dpo"] {
            let _ = families.convert(
                model,
                Implementation::HuggingFace,
                Implementation::cerebras(2, 9),
                &value,
            );
            let _ = families.convert(
                model,
                Implementation::cerebras(2, 9),
                Implementation::HuggingFace,
                &value,
            );
        }
        for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 4)] {
            let _ = families.convert(
                "gpt2",
                Implementation::cerebras(2, from),
                Implementation::cerebras(2, to),
                &value,
            );
        }
    }
}
