//! Intentional differences from the original tool: conversions that it refuses.

use std::fs;
use std::path::Path;

use statelens_recipes::config::{Families, Language, Value, parse};

fn config(path: &str) -> Value {
    let path = statelens_fixtures::path(&format!("recipes/{path}"));
    let language = Language::of_name(&path.display().to_string()).unwrap();
    parse(&fs::read_to_string(path).unwrap(), language).unwrap()
}

fn converted(model: &str, source: &str, target: &str, config: &Value) -> String {
    let families = Families::known().unwrap();
    let converted =
        families.convert(model, source.parse().unwrap(), target.parse().unwrap(), config);
    converted.unwrap().config.to_yaml()
}

#[test]
fn release_2_10_equals_2_9_in_both_directions() {
    let llama = config("llama/config_only.hf-to-cs2.9/in/config.json");
    let text = converted("llama", "hf", "cs-2.9", &llama);
    assert_eq!(converted("llama", "hf", "cs-2.10", &llama), text);
    assert_eq!(converted("llama", "hf", "cs-current", &llama), text);
    let back = parse(&text, Language::Yaml).unwrap();
    let hf = converted("llama", "cs-2.9", "hf", &back);
    assert_eq!(converted("llama", "cs-2.10", "hf", &back), hf);
    assert_eq!(converted("llama", "cs-2.9", "cs-2.10", &back), text);
}

#[test]
fn chained_releases_equal_single_steps() {
    let mut step = config("gpt2/config_only_rich.cs2.0-to-cs2.1/in/params.yaml");
    let whole = converted("gpt2", "cs-2.0", "cs-2.9", &step);
    let releases: Vec<String> = (0..=9).map(|minor| format!("cs-2.{minor}")).collect();
    for pair in releases.windows(2) {
        step = parse(&converted("gpt2", &pair[0], &pair[1], &step), Language::Yaml).unwrap();
    }
    assert_eq!(parse(&whole, Language::Yaml).unwrap().to_yaml(), step.to_yaml());
    assert!(whole.contains("trainer:") && whole.contains("name: gpt2"));
}

#[test]
fn reads_rope_parameters_of_transformers_5() {
    let rope = r#""rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}"#;
    let sizes = r#""model_type": "llama", "hidden_size": 32, "num_attention_heads": 4"#;
    let of = |rope: &str| parse(&format!("{{{sizes}, {rope}}}"), Language::Json).unwrap();
    let text = converted("llama", "hf", "cs-2.9", &of(rope));
    assert!(text.contains("rope_theta: 500000.0"), "{text}");
    assert_eq!(text, converted("llama", "hf", "cs-2.9", &of(r#""rope_theta": 500000.0"#)));
    let now = r#""rope_parameters": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500000.0, "rope_type": "llama3"}"#;
    let before = r#""rope_theta": 500000.0, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}"#;
    assert_eq!(
        converted("llama", "hf", "cs-2.9", &of(now)),
        converted("llama", "hf", "cs-2.9", &of(before))
    );
    let now = r#""rope_parameters": {"factor": 2.0, "rope_type": "linear", "rope_theta": 10000.0}"#;
    let text = converted("llama", "hf", "cs-2.9", &of(now));
    assert!(
        text.contains("pos_scaling_type: linear") && text.contains("pos_scaling_factor: 2.0"),
        "{text}"
    );
}

#[test]
fn converts_models_that_the_original_lists_but_misses() {
    let llama = config("llama/config_only.hf-to-cs2.9/in/config.json");
    for (model, name) in [("llamaV2", "llamaV2"), ("code-llama", "llama"), ("wizardlm", "llama")] {
        let ours = converted(model, "hf", "cs-2.9", &llama);
        let theirs = converted("llama", "hf", "cs-2.9", &llama);
        assert_eq!(ours, theirs.replace("name: llama", &format!("name: {name}")), "{model}");
    }
    for (model, like, case) in [
        ("flan-ul2", "t5", "t5/config_only.hf-to-cs2.9"),
        ("sqlcoder", "starcoder", "starcoder/mha.hf-to-cs2.9"),
    ] {
        let config = config(&format!("{case}/in/config.json"));
        let ours = converted(model, "hf", "cs-2.9", &config);
        assert!(ours.contains(&format!("name: {model}")), "{ours}");
        let theirs = converted(like, "hf", "cs-2.9", &config);
        assert_eq!(ours, theirs.replace(&format!("name: {like}"), &format!("name: {model}")));
    }
}

#[test]
fn model_section_gets_its_name_in_2_4() {
    let config = parse("model: {hidden_size: 8}\n", Language::Yaml).unwrap();
    let text = converted("bert", "cs-2.3", "cs-2.4", &config);
    assert_eq!(text, "model:\n    hidden_size: 8\n    name: bert\n");
}

#[test]
fn notes_unusable_output_of_the_original() {
    let jais = config("jais/alibi_scaling.hf-to-cs2.9/in/config.json");
    let families = Families::known().unwrap();
    let converted =
        families.convert("jais", "hf".parse().unwrap(), "cs-2.9".parse().unwrap(), &jais).unwrap();
    assert!(
        converted.notes.iter().any(|note| note.contains("set it to jais")),
        "{:?}",
        converted.notes
    );
}

/// This is not a difference: no case covers it, and the original's list of releases begins with
/// 2.1.
#[test]
fn writes_precision_for_releases_2_1_to_2_3_only() {
    let text = "{model_type: gptj, use_bfloat16: true, n_head: 4, n_embd: 8}";
    let config = parse(text, Language::Yaml).unwrap();
    for (release, told) in
        [("cs-2.0", false), ("cs-2.1", true), ("cs-2.3", true), ("cs-2.4", false)]
    {
        assert_eq!(
            converted("gptj", "hf", release, &config).contains("fp16_type: bfloat16"),
            told,
            "{release}"
        );
    }
}

/// `docs/recipes.md` lists every difference with the tests for it: `FILE::TEST`.
#[test]
fn listed_differences_have_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_to_string(root.join("docs/recipes.md")).unwrap();
    let (_, list) = docs.split_once("## Differences to the original converters\n").unwrap();
    let list = list.split("\n## ").next().unwrap();
    let mut counted = 0;
    for difference in list.split("\n- ").skip(1) {
        let named = difference.split('`').filter(|word| word.contains("::"));
        let mut tests = 0;
        for name in named {
            let (file, test) = name.split_once("::").unwrap();
            let text = fs::read_to_string(root.join("crates").join(file));
            let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
            let there = text.contains(&format!("#[test]\n    fn {test}()"))
                || text.contains(&format!("#[test]\nfn {test}()"));
            assert!(there, "{name}");
            tests += 1;
        }
        assert!(tests > 0, "no test is named: {difference}");
        counted += 1;
    }
    assert!(counted > 5);
}
