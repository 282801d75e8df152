//! Code other than pickles: names in configurations of models, templates that programs render, and
//! compiled libraries.

mod json;
mod rules;
mod yaml;

use statelens_checkpoint::json::utf8;
use statelens_checkpoint::{Error, ErrorKind, FileSet, Finding, Grade, Result};

use self::rules::Rules;
use super::super::section::some;
use super::{Blob, Search, SharedSource, graphs};
use crate::{gguf, keras, template};

/// The maximum length of a configuration in bytes. Vocabularies and indices in JSON are longer.
const MAX_LEN: u64 = 32 << 20;
const MAX_JSON: u64 = 128 << 20;
/// The length in bytes of the longest usual metadata of a GGUF file, and the cost of a byte.
const MAX_METADATA: u64 = 64 << 20;
const METADATA: u64 = 20;

const ADVICE: &str = "Do not load the model unless you know what that is.";

/// Examines a run of bytes that begins with `head`.
pub(super) fn examine(search: &mut Search<'_>, blob: &Blob, head: &[u8]) -> Result<()> {
    if head.starts_with(gguf::detect::MAGIC) {
        if !search.spend(blob.source.len().min(MAX_METADATA) * METADATA) {
            return Ok(());
        }
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
    let is_brace = search.is_file(blob)
        && blob.source.len() <= MAX_JSON
        && utf8(head).trim_ascii_start().starts_with(b"{");
    let Some(syntax) = syntax(&name).or(is_brace.then_some(Syntax::Json)) else { return Ok(()) };
    let most = if syntax == Syntax::Json { MAX_JSON } else { MAX_LEN };
    if blob.source.len() > most {
        search.unseen(blob, "a configuration", "It is longer than any configuration.");
        return Ok(());
    }
    if !search.spend(blob.source.len() * syntax.weight()) {
        return Ok(());
    }
    let bytes = some(&*blob.source, 0, most)?;
    let findings = read(syntax, &name, &bytes);
    search.report(blob, findings);
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Jinja,
    Json,
    Yaml,
}

impl Syntax {
    /// Returns the cost per byte, in units of the budget.
    fn weight(self) -> u64 {
        match self {
            Self::Jinja => 100,
            Self::Json => 60,
            Self::Yaml => 200,
        }
    }
}

/// Returns whether a name is that of a text that loaders interpret.
pub(super) fn is_text(name: &str) -> bool {
    syntax(&name.to_ascii_lowercase()).is_some()
}

fn syntax(name: &str) -> Option<Syntax> {
    let ends = |extensions: &[&str]| extensions.iter().any(|end| name.ends_with(end));
    match () {
        () if ends(&[".jinja", ".jinja2", ".j2"]) => Some(Syntax::Jinja),
        () if ends(&[".yaml", ".yml"]) => Some(Syntax::Yaml),
        () if ends(&[".json", ".zarray", ".zmetadata"]) => Some(Syntax::Json),
        () => None,
    }
}

/// Returns the findings for a text. `name` is its path in lower case.
fn read(syntax: Syntax, name: &str, bytes: &[u8]) -> Vec<Finding> {
    let mut rules = Rules::of(name, syntax == Syntax::Yaml);
    // Other loaders than those of JSON expect UTF-8, in which a NUL is a letter like any other.
    let bytes = &*if syntax == Syntax::Json { utf8(bytes) } else { bytes.into() };
    let unread = match syntax {
        Syntax::Json => match json::read(bytes, &mut rules) {
            // Loaders parse all of these, and only some of the other files.
            Err(error) if LOADED.iter().any(|end| name.ends_with(end)) && is_syntax(&error) => {
                // A loader of YAML accepts more, such as a pointer to another file.
                let mut again = Rules::of(name, true);
                let text = String::from_utf8_lossy(bytes);
                let unread = yaml::read(&text, &mut again).map_err(|_| error.to_string()).err();
                rules.has_classes |= again.has_classes;
                rules.found.extend(again.found);
                unread
            }
            Err(error) if !is_syntax(&error) => Some(error.to_string()),
            _ => None,
        },
        _ => match str::from_utf8(bytes) {
            Ok(text) if syntax == Syntax::Yaml => yaml::read(text, &mut rules).err(),
            Ok(text) => {
                rules.found.extend(template::finding(name, text));
                None
            }
            Err(_) => Some("It is not UTF-8.".to_owned()),
        },
    };
    if rules.has_classes && syntax == Syntax::Json {
        rules.found.extend(keras::code::findings(bytes));
    }
    rules.found.extend(unread.map(|why| unknown("The configuration can't be read", &why)));
    rules.found
}

/// Endings of the names of JSON files that loaders act on.
const LOADED: [&str; 4] = ["chat_template.json", "config.json", "model_index.json", "modules.json"];

fn is_syntax(error: &Error) -> bool {
    error.kind() == ErrorKind::Damaged
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

    fn count(syntax: Syntax, name: &str, text: &str) -> usize {
        let found = read(syntax, name, text.as_bytes());
        assert!(found.iter().all(|finding| finding.grade > Grade::Warning), "{found:?}");
        found.len()
    }

    #[test]
    fn finds_configurations_that_load_code() {
        for (name, text, expected) in [
            ("config.json", r#"{"auto_map": {"AutoModel": "modeling.X"}}"#, 1),
            ("config.json", r#"{"auto_map": ["tok.X", null]}"#, 1),
            ("config.json", r#"{"auto_map": {"AutoTokenizer": [null, "tok.X"]}}"#, 1),
            ("config.json", r#"{"\u0061uto_map": "tok.X"}"#, 1),
            ("config.json", r#"{"auto_map": {"AutoModel": "a.X"}, "auto_map": {}}"#, 1),
            ("config.json", r#"{"auto_map": {}, "model_type": "llama"}"#, 0),
            ("config.json", r#"{"auto_map": [], "x": [{"auto_map": null}]}"#, 0),
            ("config.json", r#"{"custom_pipelines": {"a": {"impl": "a.X"}}}"#, 1),
            ("x.json", r#"{"a": [{"trust_remote_code": true}]}"#, 1),
            ("x.json", r#"{"trust_remote_code": false}"#, 0),
            ("x.json", r#"{"chat_template": "{{ ''.__class__ }}"}"#, 1),
            (
                "x.json",
                r#"{"chat_template": [{"name": "x", "template": "{{ ''.__class__ }}"}]}"#,
                1,
            ),
            ("x.json", r#"{"chat_template": {"default": "{{ ''.__class__ }}"}}"#, 1),
            ("x.json", r#"{"chat_template": "{{ messages[0]['content'] }}"}"#, 0),
            ("model_index.json", r#"{"_class_name": ["pipeline", "Mine"]}"#, 1),
            ("model_index.json", r#"{"_class_name": "X", "unet": ["diffusers", "UNet"]}"#, 0),
            ("model_index.json", r#"{"_class_name": "X", "a": [null, null]}"#, 0),
            ("model_index.json", r#"{"_class_name": "X", "unet": ["my_unet", "UNet"]}"#, 1),
            ("config.json", r#"{"model": {"_target_": "os.system"}}"#, 1),
            ("config.json", r#"{"model": {"_target_": "${x}"}, "x": "os.system"}"#, 1),
            ("config.json", r#"{"model": {"_target_": {"a": 1}}}"#, 1),
            ("x.index.json", r#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#, 0),
            ("x.index.json", r#"{"weight_map": {"a": "x.bin", "b": "../../x.bin"}}"#, 1),
            ("x.index.json", r#"{"weight_map": {"target": "/etc/passwd"}}"#, 1),
            ("modules.json", r#"[{"idx": 0, "name": "0", "path": "", "type": "os.Thing"}]"#, 1),
            ("modules.json", r#"[{"type": "os.Thing"}]"#, 1),
            ("modules.json", r#"[{"type": "sentence_transformers.models.Pooling"}]"#, 0),
            ("modules.json", r#"[{"type": "sentence_transformersx.models.Pooling"}]"#, 1),
            ("adapter_config.json", r#"{"auto_mapping": {"parent_library": "x"}}"#, 1),
            (
                "adapter_config.json",
                r#"{"auto_mapping": {"parent_library": "transformers.models.a"}}"#,
                0,
            ),
            (
                "adapter_config.json",
                r#"{"auto_mapping": null, "megatron_core": "megatron.core"}"#,
                0,
            ),
            ("adapter_config.json", r#"{"megatron_core": "antigravity"}"#, 1),
            ("config.json", r#"{"activation_function": "gelu_new"}"#, 0),
            ("config.json", r#"{"activation_function": "torch.nn.modules.activation.Tanh"}"#, 0),
            ("config.json", r#"{"activation_function": "os.getpid"}"#, 1),
            ("config.json", r#"{"_attn_implementation": "someone/kernel"}"#, 1),
            (".zarray", r#"{"filters": [{"id": "pickle", "protocol": 5}]}"#, 1),
            ("a/zarr.json", r#"{"codecs": [{"name": "numcodecs.pickle"}]}"#, 1),
            (".zmetadata", r#"{"metadata": {"w/.zarray": {"filters": [{"id": "pickle"}]}}}"#, 1),
            (".zarray", r#"{"compressor": {"id": "blosc", "cname": "lz4"}, "filters": null}"#, 0),
            ("config.json", "{not: JSON", 1),
            ("config.json", "{'class_name': 'Lambda',}", 1),
            ("config.json", "x:\n  _target_: os.system", 1),
            ("config.json", "../../blobs/0123", 0),
            (
                "config.json",
                "version https://git-lfs.github.com/spec/v1\noid sha256:01\nsize 9\n",
                0,
            ),
            ("lines.json", "{}\n{}", 0),
        ] {
            assert_eq!(count(Syntax::Json, name, text), expected, "{text}");
        }
        let deep = format!("{}1", "[".repeat(200_000));
        assert_eq!(count(Syntax::Json, "x.json", &deep), 1);
    }

    #[test]
    fn reads_yaml_as_loaders_do() {
        for (text, expected) in [
            ("encoder:\n  _target_: nemo.collections.asr.modules.ConformerEncoder\n", 0),
            ("encoder:\n  _target_: os.system\n", 1),
            ("encoder:\n  _target_: nemo.utils.subprocess.Popen\n", 1),
            ("encoder:\n  _target_: Thing\n", 1),
            ("encoder:\n  _target_:\n    os.system\n", 1),
            ("encoder:\n  _target_: >-\n    os.system\n", 1),
            ("encoder:\n  ? _target_\n  : os.system\n", 1),
            ("encoder:\n  ? |-\n    _target_\n  : os.system\n", 1),
            ("x: &x os.system\n_target_: *x\n", 1),
            ("x: &x nemo.core.Model\n_target_: *x\n", 0),
            ("x: &k _target_\ny: {*k : os.system}\n", 1),
            ("x: &m {a: 1}\n_target_: *m\n", 1),
            ("a: &a {_target_: os.system}\nb:\n  <<: *a\n", 1),
            ("a: 1\n---\n_target_: os.system\n", 1),
            ("x: os.system\n_target_: ${x}\n", 1),
            ("x: ${oc.create:${y}}\n", 1),
            ("x: ${oc.env:HOME}/${a.b[0]}\ny: ${.z}\n", 0),
            ("x: '${oc.select:a,{_target_: os.system}}'\n", 1),
            ("command: echo ${PORT:-80}\n", 0),
            ("{encoder: {_target_: builtins.eval, x: 1}}", 1),
            ("\"_target_\": subprocess.Popen\n", 1),
            ("\"_t\\x61rget_\": subprocess.Popen\n", 1),
            ("target: nemo.collections.asr.models.EncDecCTCModel\n", 0),
            ("target: nemo.utils.model_utils.import_class_by_path\n", 1),
            ("target: my.Model\n", 1),
            ("target: 0.5\nx: {target: [a.b, c.d]}\n", 0),
            ("# _target_: os.system\ntext: 'a _target_: os.system'\n", 0),
            ("a: !!python/object/apply:os.system [id]\n", 1),
            ("a: !!pyt%68on/object/apply:os.system [id]\n", 1),
            ("a: !<tag:yaml.org,2002:python/name:os.system> ''\n", 1),
            ("%TAG ! tag:yaml.org,2002:python/\n---\na: !name:os.system ''\n", 1),
            ("a: !mine 1\n", 1),
            ("a: [!!str 1, !!float 2, ! x, !!set {b}]\n", 0),
            ("chat_template: \"{{ ''.__class__ }}\"\n", 1),
            ("chat_template: \"{{ messages[0]['content'] }}\"\n", 0),
            ("auto_map: {AutoModel: a.X}\n", 1),
            ("a: 1\nb: [2, 3]\n", 0),
            ("? [a]\n: 1\n", 1),
            ("|\n---\n_target_: os.system\n", 1),
            ("a: |\n  ---\n  _target_: os.system\n", 0),
            ("a: [1\n", 1),
            ("a: 1 # \u{2028}_target_: os.system\n", 1),
            ("", 0),
        ] {
            assert_eq!(count(Syntax::Yaml, "x.yaml", text), expected, "{text}");
        }
    }

    #[test]
    fn text_in_another_encoding_is_unknown() {
        assert_eq!(read(Syntax::Yaml, "x.yaml", b"a: \xff").len(), 1);
        assert_eq!(read(Syntax::Jinja, "x.jinja", b"\xff").len(), 1);
        // UTF-16 for JSON only.
        assert_eq!(read(Syntax::Jinja, "x.jinja", b"a\0{{ x.__class__ }}").len(), 1);
        assert_eq!(read(Syntax::Yaml, "x.yaml", b"a\0\n_target_: os.system").len(), 1);
        assert_eq!(read(Syntax::Yaml, "x.yaml", b"\xff\xfea\0").len(), 1);
        let wide: Vec<u8> =
            br#"{"auto_map": ["a.X"]}"#.iter().flat_map(|byte| [*byte, 0]).collect();
        assert_eq!(read(Syntax::Json, "x.json", &wide).len(), 1);
    }
}
