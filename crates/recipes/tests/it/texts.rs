//! Configs are written as Python's own libraries write them, and parsed again.

use statelens_recipes::config::{Language, Value, parse};

/// Values with the texts that PyYAML 6.0.3 and Python's `json` wrote for them.
const WRITTEN: &str = include_str!("../../../../tests/fixtures/recipes/pyyaml.json");

fn written() -> Vec<Value> {
    parse(WRITTEN, Language::Json).unwrap().as_list().unwrap().to_vec()
}

#[test]
fn written_texts_match_python() {
    let mut wrong = 0;
    for case in written() {
        let case = case.as_map().unwrap();
        let value = case.get("value").unwrap();
        let yaml = case.get("yaml").unwrap().as_str().unwrap();
        if value.to_yaml() != yaml {
            wrong += 1;
            if wrong < 6 {
                println!("--- ours\n{}--- PyYAML's\n{yaml}", value.to_yaml());
            }
        }
        assert_eq!(value.to_json(), case.get("json").unwrap().as_str().unwrap());
    }
    assert_eq!(wrong, 0);
}

#[test]
fn written_texts_are_read_back() {
    let mut wrong = 0;
    for case in written() {
        let case = case.as_map().unwrap();
        let value = case.get("value").unwrap();
        let yaml = case.get("yaml").unwrap().as_str().unwrap();
        match parse(yaml, Language::Yaml) {
            Ok(read) if read.equals(value) => {}
            other => {
                wrong += 1;
                println!("--- text\n{yaml}--- value\n{}\n--- read\n{other:?}", value.to_json());
            }
        }
    }
    assert_eq!(wrong, 0);
}
