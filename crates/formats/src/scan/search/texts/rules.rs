//! Judges the entries of a configuration, whatever its syntax.
//!
//! The keys and the names are those that libraries act on: transformers (`dynamic_module_utils.py`),
//! diffusers (`pipeline_loading_utils.py`), PEFT (`auto.py`, `tuners/lora/config.py`),
//! sentence-transformers (`util`, `models`), Hydra (`_internal/instantiate`), OmegaConf
//! (`resolvers`), NeMo and zarr.

use statelens_checkpoint::{Finding, Grade, has_word};

use crate::paths::is_outside;
use crate::template;

/// The maximum number of findings per text.
const MAX_FINDINGS: usize = 50;

const ADVICE: &str = "Do not load the model unless you know what that is.";

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topic {
    Other,
    /// Python files of the repository.
    Code,
    Trust,
    /// The class of a pipeline: a list if it comes with code.
    Pipeline,
    /// The components of a pipeline, by library and class.
    Components,
    /// A name that is called.
    Target,
    /// The same, where other things may have this key.
    PlainTarget,
    /// A module or a class that is imported.
    Import(&'static Import),
    Kernel,
    WeightMap,
    /// A template, or several by name.
    Template,
    Codec,
}

/// A key whose value is imported, and the packages that are harmless to import.
#[derive(Debug, PartialEq, Eq)]
struct Import {
    key: &'static str,
    /// The file that the key is in; empty for any.
    file: &'static str,
    known: &'static str,
    /// Whether other values of the key are names of something else, which have no period.
    is_dotted: bool,
    what: &'static str,
}

impl Import {
    fn permits(&self, name: &str) -> bool {
        is_within(self.known, name) || self.is_dotted && !is_dotted_name(name)
    }
}

const IMPORTS: [Import; 7] = [
    Import {
        key: "type",
        file: "modules.json",
        known: "sentence_transformers",
        is_dotted: false,
        what: "sentence-transformers imports it and creates an object of it.",
    },
    Import {
        key: "parent_library",
        file: "",
        known: "diffusers peft sentence_transformers timm torchvision transformers",
        is_dotted: false,
        what: "PEFT imports it.",
    },
    Import {
        key: "megatron_core",
        file: "adapter_config.json",
        known: "megatron.core",
        is_dotted: false,
        what: "PEFT imports it.",
    },
    Import { key: "activation_function", ..ACTIVATION },
    Import { key: "activation_fn", ..ACTIVATION },
    Import { key: "sbert_ce_default_activation_function", ..ACTIVATION },
    Import { key: "tokenizer_class", known: "sentence_transformers transformers", ..ACTIVATION },
];

const ACTIVATION: Import = Import {
    key: "",
    file: "",
    known: "torch.nn",
    is_dotted: true,
    what: "sentence-transformers imports it and creates an object of it.",
};

/// Libraries and pipelines of diffusers that a pipeline's components come from.
const LIBRARIES: &str = "
    diffusers onnxruntime optimum peft transformers
    alt_diffusion animatediff audioldm audioldm2 aura_flow blip_diffusion cogvideo cogview3plus
    controlnet controlnet_xs cosmos deepfloyd_if flux hunyuandit hunyuan_video i2vgen_xl kandinsky
    kandinsky2_2 kandinsky3 kolors latent_consistency_models latent_diffusion latte ledits_pp ltx
    ltx2 lumina lumina2 mochi musicldm paint_by_example pag pia pixart_alpha sana semantic_stable_diffusion
    shap_e stable_audio stable_cascade stable_diffusion stable_diffusion_3 stable_diffusion_safe
    stable_diffusion_xl stable_video_diffusion t2i_adapter text_to_video_synthesis unclip
    unidiffuser versatile_diffusion visualcloze vq_diffusion wan wuerstchen
";

/// Resolvers of OmegaConf, Hydra and NeMo that return numbers, texts and parts of the configuration.
const RESOLVERS: &str = "
    add div divide hydra int multiply now oc.deprecated oc.dict.keys oc.dict.values oc.env oc.select
    sub subtract sum
";

struct Container {
    topic: Topic,
    key: Topic,
    is_map: bool,
    is_first: bool,
}

/// Receives a configuration piece by piece, and collects the findings.
pub(super) struct Rules<'n> {
    /// The name of the file without its folder, in lower case.
    base: &'n str,
    is_yaml: bool,
    open: Vec<Container>,
    pub(super) found: Vec<Finding>,
    /// Whether objects of Keras may be in it.
    pub(super) has_classes: bool,
}

impl<'n> Rules<'n> {
    /// Returns rules for the file with this path, in lower case.
    pub(super) fn of(name: &'n str, is_yaml: bool) -> Self {
        let base = name.rsplit('/').next().unwrap_or(name);
        Self { base, is_yaml, open: Vec::new(), found: Vec::new(), has_classes: false }
    }

    /// Returns whether there are so many findings that the rest does not matter.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= MAX_FINDINGS
    }

    pub(super) fn key(&mut self, key: &str) {
        let topic = self.topic(key);
        self.has_classes |= key == "class_name";
        if let Some(container) = self.open.last_mut() {
            container.key = topic;
        }
    }

    fn topic(&self, key: &str) -> Topic {
        let is_zarr = matches!(self.base, ".zarray" | ".zmetadata" | "zarr.json");
        match key {
            "auto_map" | "custom_pipelines" => Topic::Code,
            "trust_remote_code" => Topic::Trust,
            "_class_name" => Topic::Pipeline,
            "_target_" => Topic::Target,
            "target" if self.is_yaml => Topic::PlainTarget,
            "weight_map" => Topic::WeightMap,
            "_attn_implementation" | "attn_implementation" => Topic::Kernel,
            "id" | "name" if is_zarr => Topic::Codec,
            _ if key.ends_with("template") => Topic::Template,
            _ if self.base.ends_with("model_index.json") && self.open.len() == 1 => {
                Topic::Components
            }
            _ => {
                let is_key = |import: &&Import| {
                    import.key == key && (import.file.is_empty() || import.file == self.base)
                };
                IMPORTS.iter().find(is_key).map_or(Topic::Other, Topic::Import)
            }
        }
    }

    /// Returns the topic of the next value, and whether it is the first in its container.
    fn next(&mut self) -> (Topic, bool) {
        match self.open.last_mut() {
            None => (Topic::Other, false),
            Some(container) => {
                let is_first = std::mem::replace(&mut container.is_first, false);
                // The classes, files and templates of a dict have keys of their own.
                let inherited =
                    matches!(container.topic, Topic::Code | Topic::WeightMap | Topic::Template);
                match container.is_map && !(inherited && container.key == Topic::Other) {
                    true => (container.key, is_first),
                    false => (container.topic, is_first),
                }
            }
        }
    }

    pub(super) fn begin(&mut self, is_map: bool) {
        let (topic, _) = self.next();
        match topic {
            Topic::Pipeline if !is_map => self.unknown(
                "The pipeline comes with Python code".to_owned(),
                "diffusers loads the pipeline from a Python file of the repository.",
            ),
            Topic::Target | Topic::Import(Import { is_dotted: false, .. }) => {
                self.unknown("The configuration calls what is not a name".to_owned(), HYDRA);
            }
            _ => {}
        }
        // Lists of columns and layers may have this name.
        let topic = if topic == Topic::PlainTarget { Topic::Other } else { topic };
        self.open.push(Container { topic, key: Topic::Other, is_map, is_first: true });
    }

    pub(super) fn end(&mut self) {
        self.open.pop();
    }

    /// Judges a string.
    pub(super) fn text(&mut self, text: &str) {
        self.scalar(text, true);
    }

    /// Judges a value of JSON that is not a string.
    pub(super) fn other(&mut self, text: &str) {
        self.scalar(text, false);
    }

    /// Judges a value of YAML without quotes, which may be a string.
    pub(super) fn plain(&mut self, text: &str) {
        let is_null = matches!(text, "" | "~" | "null" | "Null" | "NULL");
        self.scalar(text, !is_null);
    }

    fn scalar(&mut self, text: &str, is_text: bool) {
        let (topic, is_first) = self.next();
        let is_interpolated = self.is_yaml && text.contains("${");
        if is_interpolated && !is_reference(text) {
            let start: String = text.chars().take(100).collect();
            let title = format!("The configuration has the interpolation {start:?}");
            self.unknown(title, "OmegaConf may create values from it that are called.");
        }
        match topic {
            Topic::Trust if matches!(text, "true" | "True" | "TRUE" | "yes" | "on") => self
                .unknown(
                    "The configuration has `trust_remote_code` set".to_owned(),
                    "With this option, libraries run Python files of the repository.",
                ),
            _ if !is_text => {}
            Topic::Code if !text.is_empty() => self.code(),
            Topic::Components if is_first && self.open.len() == 2 && !is_library(text) => {
                self.import(text, "diffusers imports it.");
            }
            Topic::Target if matches!(text, "" | "???") => {}
            Topic::PlainTarget if !is_dotted_name(text) && !text.contains("${") => {}
            Topic::Target | Topic::PlainTarget if !is_known_target(text) => {
                let start: String = text.chars().take(100).collect();
                self.unknown(format!("The configuration calls `{start}`"), HYDRA);
            }
            Topic::Import(import) if !import.permits(text) => self.import(text, import.what),
            Topic::Kernel if text.contains('/') => {
                self.import(text, "transformers fetches this kernel and runs its code.");
            }
            Topic::WeightMap if is_outside(text) => {
                let start: String = text.chars().take(200).collect();
                let title = format!("The index names the file {start:?}, outside of its folder");
                self.unknown(
                    title,
                    "A program that loads the model may read this file as weights.",
                );
            }
            Topic::Template => self.found.extend(template::finding("chat_template", text)),
            Topic::Codec if text.rsplit(['.', '/']).next() == Some("pickle") => self.unknown(
                "The array has the codec `pickle`".to_owned(),
                "zarr unpickles its chunks.",
            ),
            _ => {}
        }
    }

    /// Judges a value that is an alias of a container or of a long text.
    pub(super) fn alias(&mut self) {
        if self.next().0 != Topic::Other {
            let what = "an alias where a name or a template should be";
            self.unknown(format!("The configuration has {what}"), HYDRA);
        }
    }

    /// Reports a tag that is not one of YAML itself.
    pub(super) fn tag(&mut self, tag: &str) {
        let start: String = tag.chars().take(100).collect();
        let detail =
            "YAML loaders other than the safe one create Python objects that such tags name.";
        self.unknown(format!("The configuration has the tag {start:?}"), detail);
    }

    fn code(&mut self) {
        let detail = "transformers loads these classes from Python files of the repository if \
                      `trust_remote_code` is set.";
        self.unknown("The model comes with Python code".to_owned(), detail);
    }

    fn import(&mut self, name: &str, detail: &str) {
        let start: String = name.chars().take(100).collect();
        self.unknown(format!("The configuration names `{start}`"), detail);
    }

    fn unknown(&mut self, title: String, detail: &str) {
        let finding = Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE);
        if self.found.last().is_none_or(|last| last.title != finding.title) {
            self.found.push(finding);
        }
    }
}

const HYDRA: &str = "Hydra imports what `_target_` names and calls it when the model is built.";

/// Returns whether a text is a path of names, such as `torch.nn.Linear`.
fn is_dotted_name(text: &str) -> bool {
    let is_name = |step: &str| {
        step.starts_with(|first: char| first.is_alphabetic() || first == '_')
            && step.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    text.contains('.') && text.split('.').all(is_name)
}

/// Returns whether the components of a pipeline may come from a library.
fn is_library(name: &str) -> bool {
    has_word(LIBRARIES, name.split('.').next().unwrap_or(name))
}

/// Returns whether a name is one of these packages or within one.
fn is_within(packages: &str, name: &str) -> bool {
    packages.split_ascii_whitespace().any(|package| {
        let rest = name.strip_prefix(package);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Returns whether a target is a class of NeMo or a layer or optimizer of torch.
fn is_known_target(target: &str) -> bool {
    let Some((module, class)) = target.rsplit_once('.') else { return false };
    is_dotted_name(target)
        && class.starts_with(|first: char| first.is_ascii_uppercase())
        && is_within("nemo torch.nn torch.optim", module)
        && !statelens_pickle::is_dangerous(module, class)
}

/// Returns whether all interpolations in a text are references, or have a known resolver.
fn is_reference(text: &str) -> bool {
    let is_known = |inner: &str| match inner.find([':', '}', '{', '$', '"', '\'']) {
        Some(end) if inner[end..].starts_with(':') => {
            let name = inner[..end].trim();
            // Shells write `${NAME:-default}`.
            let is_variable = !name.bytes().any(|byte| byte.is_ascii_lowercase());
            !inner.contains('{') && (is_variable || has_word(RESOLVERS, name))
        }
        Some(end) => inner[end..].starts_with(['}', '$']),
        None => false,
    };
    text.split("${").skip(1).all(is_known)
}
