//! Configs are converted to the same text as by the original tool (Cerebras Model Zoo 2.10), or
//! refused where it refuses.
//!
//! `STATELENS_RECIPE_CASES` names a folder with more cases of the same layout, `FAMILY/CASE/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use statelens_checkpoint::Result;
use statelens_recipes::Implementation;
use statelens_recipes::config::{Converted, Families, Language, Map, Value, parse};

/// The outcome of a case.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Verdict {
    /// The same text as the original.
    Identical,
    /// Refused, as by the original.
    Refused,
    /// The original refuses the tensors, a release or a name; the config converts.
    Beyond,
    Wrong,
}

struct Case {
    folder: PathBuf,
    facts: Value,
}

impl Case {
    fn open(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("case.json")).ok()?;
        let facts = parse(&text, Language::Json).unwrap();
        let case = Self { folder: folder.to_owned(), facts };
        // Folding LoRA only reads a config.
        case.text("command").contains("convert").then_some(case)
    }

    fn text(&self, key: &str) -> String {
        self.facts.as_map().unwrap().get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn name(&self) -> String {
        let parts: Vec<_> = self.folder.components().rev().take(2).collect();
        format!("{}/{}", parts[1].as_os_str().display(), parts[0].as_os_str().display())
    }

    fn failed(&self) -> bool {
        self.text("status") != "ok"
    }

    /// Returns whether the original refused the config.
    fn config_refused(&self) -> bool {
        const OF_CONFIGS: [&str; 4] =
            ["line 1625", "in pre_config_convert", "in _handle_mup_conversion", "in convert_pi"];
        let error = self.facts.as_map().unwrap().get("error").and_then(Value::as_map);
        let Some(error) = error else { return false };
        let kind = error.get("type").and_then(Value::as_str).unwrap_or_default();
        let at = error.get("at").map(Value::to_json).unwrap_or_default();
        let place = OF_CONFIGS.iter().any(|place| at.contains(place));
        let tensors = at.contains("in extract_model_dict");
        (kind == "ConfigConversionError" && !tensors) || place
    }

    fn config(&self) -> PathBuf {
        let command = self.text("command");
        let mut words = command.split_whitespace().skip_while(|word| !word.starts_with("convert"));
        let words: Vec<&str> = words.by_ref().skip_while(|word| word.ends_with(".py")).collect();
        let at = words.iter().position(|word| *word == "--config").map_or(1, |at| at + 1);
        self.folder.join(words[at])
    }

    fn source(&self, parts: &[String]) -> Value {
        let config = self.config();
        if config.is_dir() && !parts.is_empty() {
            let whole: Map = parts
                .iter()
                .map(|part| (part.as_str(), read(&config.join(part).join("config.json"))))
                .collect();
            return whole.into();
        }
        read(&config)
    }

    fn convert(&self) -> Result<Converted> {
        let (model, families) = (self.text("model"), Families::known()?);
        let source: Implementation = self.text("src_fmt").parse()?;
        let target: Implementation = self.text("tgt_fmt").parse()?;
        let parts = families.parts(&model).unwrap_or_default();
        let config = self.source(&parts);
        let mut converted = families.convert(&model, source, target, &config)?;
        converted.locate("out");
        Ok(converted)
    }

    /// Returns the configs that the original wrote: paths relative to `out`, and texts.
    fn written(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut todo = vec![self.folder.join("out")];
        while let Some(folder) = todo.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let config = name.ends_with(".yaml")
                    || (name.ends_with(".json") && !name.ends_with(".index.json"));
                if path.is_dir() {
                    todo.push(path);
                } else if config {
                    let below =
                        path.strip_prefix(self.folder.join("out")).unwrap().display().to_string();
                    found.insert(below, fs::read_to_string(path).unwrap());
                }
            }
        }
        found
    }

    fn verdict(&self) -> (Verdict, String) {
        let ours = self.convert();
        if self.failed() {
            return match ours {
                Err(error) if error.to_string().is_empty() => (Verdict::Wrong, String::new()),
                Err(error) => (Verdict::Refused, error.to_string()),
                Ok(_) if self.config_refused() => {
                    (Verdict::Wrong, "converted, where the original refuses".to_owned())
                }
                Ok(_) => (Verdict::Beyond, String::new()),
            };
        }
        let converted = match ours {
            Ok(converted) => converted,
            Err(error) => return (Verdict::Wrong, error.to_string()),
        };
        let ours = texts(&converted);
        let theirs = self.written();
        for (path, text) in &theirs {
            // The path depends on the command, the contents do not.
            let path = Path::new(path);
            let part = converted.parts.iter().find(|part| path.starts_with(part));
            let name = match part {
                Some(_) => path.display().to_string(),
                None => String::new(),
            };
            match ours.get(&name) {
                Some(ours) if ours == text => {}
                Some(ours) => return (Verdict::Wrong, differences(ours, text)),
                None => return (Verdict::Wrong, format!("{name} is not made")),
            }
        }
        if theirs.is_empty() || theirs.len() != ours.len() {
            return (Verdict::Wrong, format!("{} files instead of {}", ours.len(), theirs.len()));
        }
        (Verdict::Identical, String::new())
    }
}

fn read(path: &Path) -> Value {
    let language = Language::of_name(&path.display().to_string()).unwrap();
    parse(&fs::read_to_string(path).unwrap(), language).unwrap()
}

/// Returns the files of a converted config; a single file has an empty name.
fn texts(converted: &Converted) -> BTreeMap<String, String> {
    let text = |value: &Value| match converted.language {
        Language::Json => value.to_json(),
        Language::Yaml => value.to_yaml(),
    };
    if converted.parts.is_empty() {
        return BTreeMap::from([(String::new(), text(&converted.config))]);
    }
    let config = converted.config.as_map().unwrap();
    let parts = converted.parts.iter();
    let parts = parts.map(|part| (format!("{part}/config.json"), text(config.get(part).unwrap())));
    parts.chain(converted.files.iter().map(|(path, value)| (path.clone(), text(value)))).collect()
}

fn differences(ours: &str, theirs: &str) -> String {
    let (left, right): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    let only = |these: &[&str], others: &[&str]| -> Vec<String> {
        these
            .iter()
            .filter(|line| !others.contains(line))
            .take(8)
            .map(|line| (*line).to_owned())
            .collect()
    };
    let (more, fewer) = (only(&left, &right), only(&right, &left));
    if more.is_empty() && fewer.is_empty() {
        return format!("the same lines in another order\n{ours}\n{theirs}");
    }
    format!("ours only: {more:#?}, theirs only: {fewer:#?}")
}

fn cases(root: &Path) -> Vec<Case> {
    let folders = |path: &Path| {
        let mut folders: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        folders.sort();
        folders
    };
    folders(root)
        .iter()
        .flat_map(|family| folders(family))
        .filter_map(|folder| Case::open(&folder))
        .collect()
}

/// Runs all cases below a folder and prints the outcomes, by family.
fn run(root: &Path) -> (usize, Vec<String>) {
    let mut families: BTreeMap<String, BTreeMap<Verdict, usize>> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut total = 0;
    for case in cases(root) {
        let (verdict, told) = case.verdict();
        total += 1;
        let name = case.name();
        let family = name.split('/').next().unwrap().to_owned();
        *families.entry(family).or_default().entry(verdict).or_default() += 1;
        match verdict {
            Verdict::Wrong => wrong.push(format!("{name}: {told}")),
            Verdict::Refused => println!("{name}: refused: {told}"),
            Verdict::Beyond => println!("{name}: converts, which the original doesn't"),
            Verdict::Identical => {}
        }
    }
    for (family, verdicts) in families {
        println!("{family}: {verdicts:?}");
    }
    for wrong in &wrong {
        println!("{wrong}");
    }
    println!("{total} cases, {} wrong", wrong.len());
    (total, wrong)
}

#[test]
fn configs_match_the_original_or_are_refused() {
    let own = statelens_fixtures::path("recipes");
    let (total, wrong) =
        run(&std::env::var_os("STATELENS_RECIPE_CASES").map_or(own, PathBuf::from));
    assert!(total > 20, "only {total} cases were found");
    assert_eq!(wrong, Vec::<String>::new());
}
