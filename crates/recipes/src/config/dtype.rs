//! The dtype of the weights in Hugging Face's config.

use statelens_checkpoint::DType;

use super::{Converted, Language, Value};

/// The key in transformers: up to version 4, and from 5 on.
const NAMES: [&str; 2] = ["torch_dtype", "dtype"];

impl Converted {
    /// Sets the dtype in Hugging Face's config, if it has one, after all weights were cast to
    /// `dtype`. With `None`, only some were cast: the config stays, and a note for the user is
    /// returned.
    pub fn cast(&mut self, dtype: Option<&DType>) -> Option<String> {
        let mut stays = None;
        let mut open = match self.language {
            Language::Json => vec![&mut self.config],
            Language::Yaml => Vec::new(),
        };
        // Models of several parts have a section per part.
        while let Some(section) = open.pop().and_then(Value::as_map_mut) {
            for (key, value) in section.iter_mut() {
                let name = key.as_str().filter(|key| NAMES.contains(key));
                let current = value.as_str().and_then(DType::from_torch_name);
                match (name.zip(current), dtype) {
                    (Some(_), Some(dtype)) => *value = dtype.name().into(),
                    (Some((name, current)), None) => stays = Some((name.to_owned(), current)),
                    (None, _) if value.as_map().is_some() => open.push(value),
                    (None, _) => {}
                }
            }
        }
        let (name, current) = stays?;
        Some(format!(
            "`{name}` stays {current} in the config: not all weights are cast to one dtype"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn converted(text: &str, language: Language) -> Converted {
        Converted {
            config: parse(text, language).unwrap(),
            language,
            parts: Vec::new(),
            files: Vec::new(),
            steps: Vec::new(),
            notes: Vec::new(),
            dropped: Vec::new(),
        }
    }

    #[test]
    fn cast_updates_the_dtype_in_the_config() {
        let text = r#"{"a": 1, "torch_dtype": "bfloat16", "text_config": {"dtype": "float32"},
            "vision_config": {"dtype": "auto"}}"#;
        let mut all = converted(text, Language::Json);
        assert_eq!(all.cast(Some(&DType::F16)), None);
        let new = all.config.to_json();
        assert_eq!(new.matches("float16").count(), 2, "{new}");
        assert!(new.contains("auto"), "{new}");
        let mut some = converted(text, Language::Json);
        assert!(some.cast(None).unwrap().contains("stays"));
        assert_eq!(some.config, converted(text, Language::Json).config);
        let mut none = converted("{}", Language::Json);
        assert_eq!((none.cast(Some(&DType::F16)), none.config.to_json().trim()), (None, "{}"));
        let mut ours = converted("dtype: float32", Language::Yaml);
        assert_eq!((ours.cast(None), ours.config.to_yaml().trim()), (None, "dtype: float32"));
    }
}
