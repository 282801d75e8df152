//! Code other than pickles: names in configurations of models, templates that programs render, and
//! compiled libraries.

use statelens_checkpoint::json::{Document, Id, JsonNode, utf8};
use statelens_checkpoint::{FileSet, Finding, Grade, Result};

use super::super::section::some;
use super::{Blob, Search, SharedSource, graphs};
use crate::paths::is_outside;
use crate::{gguf, keras, template};

/// The maximum length of a configuration in bytes.
const MAX_LEN: u64 = 32 << 20;
/// The maximum number of findings of one kind per text.
const MAX_FINDINGS: usize = 50;

const ADVICE: &str = "Do not load the model unless you know what that is.";

/// Examines a run of bytes that begins with `head`.
pub(super) fn examine(search: &mut Search<'_>, blob: &Blob, head: &[u8]) -> Result<()> {
    if head.starts_with(gguf::detect::MAGIC) {
        let region = search.region(blob, 0, "the metadata of a GGUF file");
        let files = FileSet::single("", SharedSource(blob.source.clone()));
        match gguf::read::read(files, search.limits, &mut search.quiet()) {
            Ok(checkpoint) => {
                search.report(blob, checkpoint.findings);
                region.done();
            }
            // There is a separate finding if the file itself can't be opened.
            Err(_) if search.is_file(blob) => region.done(),
            Err(error) => region.failed(&error)?,
        }
    }
    // Python's zipfile ends names at a NUL.
    let name = search.name_of(blob).split('\0').next().unwrap_or_default().to_ascii_lowercase();
    if is_native(head) && !name.is_empty() || is_library(&name) && !blob.name.is_empty() {
        search.report(blob, vec![native()]);
    }
    graphs::examine(search, blob, head, &name)?;
    let is_json = utf8(head).trim_ascii_start().starts_with(b"{")
        || name.ends_with(".json") && utf8(head).trim_ascii_start().starts_with(b"[");
    let is_root = blob.name.is_empty();
    let json = is_json && (name.ends_with(".json") || is_root);
    let jinja = [".jinja", ".jinja2"].iter().any(|end| name.ends_with(end));
    let yaml = [".yaml", ".yml"].iter().any(|end| name.ends_with(end));
    if !(json || jinja || yaml) {
        return Ok(());
    }
    if blob.source.len() > MAX_LEN {
        // Indexes of tensors have no length limit.
        if !is_json {
            search.unseen(blob, "a configuration", "It is longer than any configuration.");
        }
        return Ok(());
    }
    let text = some(&*blob.source, 0, MAX_LEN)?;
    let text = utf8(&text);
    let findings = match () {
        () if jinja => {
            template::finding(&name, &String::from_utf8_lossy(&text)).into_iter().collect()
        }
        () if yaml => of_yaml(&String::from_utf8_lossy(&text)),
        () => match Document::parse(&text) {
            Ok(document) => {
                let mut findings = keras::code::of_document(&document);
                findings.extend(of_hub(&document));
                findings
            }
            Err(_) if name.ends_with("config.json") => keras::code::findings(&text),
            Err(_) => Vec::new(),
        },
    };
    search.report(blob, findings);
    Ok(())
}

/// Returns findings about code that the configuration of a Hugging Face model, or of a program
/// based on Hydra, runs.
fn of_hub(document: &Document) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut open = vec![document.root()];
    while let Some(id) = open.pop()
        && found.len() < MAX_FINDINGS
    {
        match document.node(id) {
            JsonNode::Array(items) => open.extend(items),
            JsonNode::Object(entries) => {
                for (key, value) in entries {
                    found.extend(entry(document, &key.to_lossy(), *value));
                    open.push(*value);
                }
                found.extend(module(document, id));
            }
            _ => {}
        }
    }
    found.dedup();
    found
}

fn entry(document: &Document, key: &str, value: Id) -> Option<Finding> {
    let text = |id: Id| document.node(id).text().map(|text| text.to_lossy().into_owned());
    match (key, document.node(value)) {
        ("auto_map" | "custom_pipelines", JsonNode::Object(entries)) if !entries.is_empty() => {
            let detail = "transformers loads these classes from Python files of the repository if \
                          `trust_remote_code` is set.";
            Some(unknown("The model comes with Python code", detail))
        }
        ("trust_remote_code", JsonNode::Bool(true)) => {
            let detail = "With this option, libraries run Python files of the repository.";
            Some(unknown("The configuration has `trust_remote_code` set", detail))
        }
        ("_class_name", JsonNode::Array(_)) => {
            let detail = "diffusers loads the pipeline from a Python file of the repository.";
            Some(unknown("The pipeline comes with Python code", detail))
        }
        ("_target_", _) => text(value).and_then(|target| target_of(&target)),
        ("weight_map", JsonNode::Object(entries)) => {
            let mut files = entries.iter().filter_map(|(_, id)| text(*id));
            let file = files.find(|file| is_outside(file))?;
            let title = format!("The index names the file {file:?}, outside of its folder");
            Some(unknown(&title, "A program that loads the model may read this file as weights."))
        }
        ("chat_template", JsonNode::Object(entries)) => entries
            .iter()
            .filter_map(|(_, id)| text(*id))
            .find_map(|text| template::finding(key, &text)),
        _ if key.ends_with("template") => {
            text(value).and_then(|text| template::finding(key, &text))
        }
        _ => None,
    }
}

/// Returns a finding for an entry of `modules.json`, whose type sentence-transformers imports.
fn module(document: &Document, id: Id) -> Option<Finding> {
    let text = |name: &str| document.field(id, name).and_then(JsonNode::text);
    let class = text("type")?.to_lossy().into_owned();
    let is_module = text("path").is_some() && text("name").is_some() && class.contains('.');
    let known = class.starts_with("sentence_transformers.");
    (is_module && document.field(id, "idx").is_some() && !known).then(|| {
        let title = format!("The configuration names the class `{class}`");
        unknown(&title, "sentence-transformers imports it and creates an object of it.")
    })
}

/// Returns a finding for a target that a configuration of Hydra or NeMo calls.
fn target_of(target: &str) -> Option<Finding> {
    let target = target.trim().trim_matches(['"', '\'']);
    let (module, class) = target.rsplit_once('.')?;
    let is_class = class.starts_with(|first: char| first.is_ascii_uppercase());
    let known = (module == "nemo" || module.starts_with("nemo.")) && is_class;
    (!known).then(|| {
        let title = format!("The configuration calls `{target}`");
        unknown(&title, "Hydra imports what `_target_` names and calls it when the model is built.")
    })
}

/// Examines YAML for tags that construct Python objects, and for names that are called.
fn of_yaml(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if text.lines().any(|line| {
        let tags = ["!!python/", "!python/", "tag:yaml.org,2002:python/", "%TAG"];
        tags.iter().any(|tag| line.contains(tag)) || line.contains('!') && line.contains("%7")
    }) {
        let detail = "YAML loaders other than the safe one create the objects that such tags name.";
        found.push(unknown("The configuration has tags that create Python objects", detail));
    }
    if text.contains("chat_template") {
        found.extend(template::finding("chat_template", text));
    }
    for line in text.lines() {
        let entry = line.trim_start().trim_start_matches(['-', '{', ' ', '?']);
        let places = entry.match_indices("target").map(|(at, _)| &entry[at + 6..]);
        for rest in places {
            let rest = rest.strip_prefix('_').unwrap_or(rest).trim_start_matches(['"', '\'']);
            let Some(value) = rest.trim_start().strip_prefix(':') else { continue };
            let value = value.split([',', '}', '#']).next().unwrap_or_default();
            found.extend(target_of(value));
        }
        if entry.contains("\\x5f") || entry.contains("\\u005f") || entry.contains("\\U0000005") {
            let detail = "One of them may be the key `_target_`, which is called.";
            found
                .push(unknown("The configuration has letters that are written as escapes", detail));
        }
    }
    found.truncate(MAX_FINDINGS);
    found
}

fn unknown(title: &str, detail: &str) -> Finding {
    Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE)
}

fn native() -> Finding {
    let detail = "Loading the model also loads this library, whose machine code runs with all \
                  rights of the program. Archives of AOTInductor (`.pt2`) contain such libraries.";
    unknown("The archive holds a compiled library", detail)
}

/// Returns whether the first bytes are those of a compiled library: ELF, Mach-O or a Windows
/// executable.
fn is_native(head: &[u8]) -> bool {
    match head {
        [0x7f, b'E', b'L', b'F', 1 | 2, 1 | 2, 1, ..]
        | [0xfe, 0xed, 0xfa, 0xce | 0xcf, 0 | 1, ..]
        | [0xce | 0xcf, 0xfa, 0xed, 0xfe, _, 0, 0, 0 | 1, ..]
        | [0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 1..=40, ..] => true,
        [b'M', b'Z', ..] => {
            let at =
                head.get(0x3c..0x40).map(|at| u32::from_le_bytes([at[0], at[1], at[2], at[3]]));
            at.and_then(|at| head.get(at as usize..))
                .is_some_and(|rest| rest.starts_with(b"PE\0\0"))
        }
        _ => false,
    }
}

/// Returns whether a name is that of a compiled library.
fn is_library(name: &str) -> bool {
    let base = name.rsplit('/').next().unwrap_or(name);
    [".so", ".dll", ".dylib", ".pyd"].iter().any(|end| base.ends_with(end)) || base.contains(".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_configurations_that_load_code() {
        for (text, expected) in [
            (r#"{"auto_map": {"AutoModel": "modeling.X"}}"#, 1),
            (r#"{"auto_map": {}, "model_type": "llama"}"#, 0),
            (r#"{"a": [{"trust_remote_code": true}]}"#, 1),
            (r#"{"trust_remote_code": false}"#, 0),
            (r#"{"chat_template": "{{ ''.__class__ }}"}"#, 1),
            (r#"{"chat_template": [{"name": "x", "template": "{{ ''.__class__ }}"}]}"#, 1),
            (r#"{"chat_template": "{{ messages[0]['content'] }}"}"#, 0),
            (r#"{"_class_name": ["pipeline", "Mine"]}"#, 1),
            (r#"{"_class_name": "StableDiffusionPipeline"}"#, 0),
            (r#"{"model": {"_target_": "os.system"}}"#, 1),
            (r#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#, 0),
            (r#"{"weight_map": {"a": "x.bin", "b": "../../x.bin"}}"#, 1),
            (r#"{"weight_map": {"a": "/etc/passwd"}}"#, 1),
            (r#"[{"idx": 0, "name": "0", "path": "", "type": "os.Thing"}]"#, 1),
            (
                r#"[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Pooling"}]"#,
                0,
            ),
        ] {
            let found = of_hub(&Document::parse(text.as_bytes()).unwrap());
            assert_eq!(found.len(), expected, "{text}: {found:?}");
        }
    }

    #[test]
    fn finds_targets_and_tags_in_yaml() {
        for (text, expected) in [
            ("encoder:\n  _target_: nemo.collections.asr.modules.ConformerEncoder\n", 0),
            ("encoder:\n  _target_: os.system\n", 1),
            ("{encoder: {_target_: builtins.eval, x: 1}}", 1),
            ("\"_target_\": subprocess.Popen\n", 1),
            ("target: nemo.collections.asr.models.EncDecCTCModel\n", 0),
            ("target: nemo.utils.model_utils.import_class_by_path\n", 1),
            ("target: my.Model\n", 1),
            ("\"\\x5ftarget\\x5f\": os.system\n", 1),
            ("a: !!python/object/apply:os.system [id]\n", 1),
            ("chat_template: \"{{ ''.__class__ }}\"\n", 1),
            ("chat_template: \"{{ messages[0]['content'] }}\"\n", 0),
            ("a: 1\nb: [2, 3]\n", 0),
        ] {
            let found = of_yaml(text);
            assert_eq!(found.len().min(1), expected, "{text}: {found:?}");
        }
    }
}
