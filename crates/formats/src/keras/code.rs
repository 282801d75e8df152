//! Detects code in the configuration of a Keras model: layers that contain functions, and names
//! that are imported when the model is built (`keras/src/saving/serialization_lib.py`).

use statelens_checkpoint::json::{Document, Id, JsonNode, utf8};
use statelens_checkpoint::{Finding, Grade, has_word};

use crate::paths::is_outside;

const MAX_FINDINGS: usize = 50;

/// Returns findings about code that runs when the model is built from this configuration. A text
/// that can't be parsed is a finding, since Keras may be able to parse it.
pub(crate) fn findings(text: &[u8]) -> Vec<Finding> {
    // A fixed-length string in HDF5 is padded with NULs.
    let text = utf8(text);
    let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match Document::parse(&text[..end]) {
        Ok(document) => objects(&document),
        Err(error) => vec![
            Finding::new(Grade::UnknownCode, "The model's configuration can't be read")
                .detail(error.to_string())
                .advice(ADVICE),
        ],
    }
}

/// Returns the findings about all objects of a configuration.
fn objects(document: &Document) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut open = vec![document.root()];
    while let Some(id) = open.pop() {
        match document.node(id) {
            JsonNode::Array(items) => open.extend(items),
            JsonNode::Object(entries) => {
                found.extend(object(document, id));
                open.extend(entries.iter().map(|(_, id)| *id));
            }
            // Nested configurations.
            _ => {}
        }
        if found.len() >= MAX_FINDINGS {
            break;
        }
    }
    found
}

/// Returns a finding about code that runs when an object of the configuration is created.
fn object(document: &Document, id: Id) -> Option<Finding> {
    let text = |id: Id, name: &str| {
        let text = document.field(id, name).and_then(JsonNode::text);
        text.map(|text| text.to_lossy().into_owned())
    };
    let class = text(id, "class_name")?;
    let module = text(id, "module").unwrap_or_default();
    let registered = text(id, "registered_name").unwrap_or_default();
    let config = document.get(id, "config");
    if class == "__lambda__" || class == "Lambda" && is_keras(&module) {
        return Some(lambda(document, &class, config));
    }
    // Without a module, Keras looks for the name among its own classes.
    if let Some((_, grade, what)) = RUNS.iter().find(|(name, ..)| *name == class)
        && is_keras(&module)
    {
        let title = format!("The model has the layer `{class}`, which {what}");
        return Some(Finding::new(*grade, title).detail(LAYER).advice(ADVICE));
    }
    if !(module.is_empty() || is_keras(&module) || module == "builtins" && class == "function") {
        let detail = "Building the model from its configuration imports this name and calls it; it \
                      does not belong to Keras.";
        let title = format!("The model's configuration names `{module}.{class}`");
        return Some(Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE));
    }
    if class == "function" {
        let name = config.and_then(|id| document.node(id).text());
        let name = name.map(|text| text.to_lossy().into_owned()).unwrap_or_default();
        // Before 3.10, Keras takes a function that is not its own from this module.
        if module == "builtins" && has_word(PYTHON, &name) {
            let title = format!("The model's configuration names Python's function `{name}`");
            let detail = "It would be called when the model is built or used.";
            return Some(Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE));
        }
        return (is_keras(&module) && !module.is_empty() && !has_functions(&module)).then(|| {
            let title = format!("The model's configuration names the function `{module}.{name}`");
            let detail = "It is not one of the usual activations and losses, and would be called \
                          when the model is built or used.";
            Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE)
        });
    }
    if class == "TFOpLambda" || class == "SlicingOpLambda" {
        let name = config.and_then(|config| text(config, "function")).unwrap_or_default();
        return (!is_operation(&name)).then(|| {
            let title = format!("The model calls TensorFlow's function `{name}`");
            let detail =
                "Keras looks it up in TensorFlow, whose functions can read and write files.";
            Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE)
        });
    }
    let vocabulary = config.and_then(|config| text(config, "vocabulary"));
    if let Some(path) = vocabulary.filter(|path| has_word(LOOKUPS, &class) && is_outside(path)) {
        let title = format!("The layer `{class}` reads the file {path:?}");
        let detail = "Building the model from its configuration reads this file or address, and \
                      its lines become the vocabulary.";
        return Some(Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE));
    }
    if !module.is_empty() && !is_harmless(&module, &class) {
        let title = format!("The model's configuration names the class `{module}.{class}`");
        let detail = "It is in a package of Keras, but it is not known to be harmless.";
        return Some(Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE));
    }
    // Keras uses a registered name only without a module.
    let own = [registered, class].into_iter().find(|name| {
        name.split_once('>').is_some_and(|(package, _)| !package.starts_with("keras"))
    });
    let name = own.filter(|_| module.is_empty())?;
    Some(Finding::new(Grade::Warning, format!("The model needs the custom class `{name}`")).detail(
        "Keras finds it among the classes that the loading program has registered; it is not \
             in this file.",
    ))
}

/// Returns the finding for a Lambda: marshalled Python code, or a function by name.
fn lambda(document: &Document, class: &str, config: Option<Id>) -> Finding {
    let function = match class {
        "__lambda__" => config,
        _ => config.and_then(|config| document.get(config, "function")),
    };
    // By name, it is whatever function of the program has that name.
    if function.is_some_and(|id| document.node(id).text().is_some()) {
        return Finding::new(
            Grade::UnknownCode,
            "A Lambda layer of the model calls a function by its name",
        )
        .detail("What it does depends on the program that loads the model.")
        .advice(ADVICE);
    }
    Finding::new(Grade::Danger, "The model holds Python code in a Lambda layer")
        .detail(
            "It is compiled Python code. Building or calling the model would run it without \
             restrictions. Keras requires `safe_mode=False` for this in .keras files, but not in \
             HDF5 files.",
        )
        .advice(
            "Do not load this model with Keras. Its weights can be inspected and converted safely.",
        )
}

const ADVICE: &str = "Do not load the model unless you know what that is. Its weights can be \
                      inspected and converted safely.";

const LAYER: &str = "Building the model from its configuration creates this layer, whatever the \
                     weights are. Newer releases of Keras require `safe_mode=False` for this.";

/// Layers that run code contained in or referenced by their configuration.
const RUNS: [(&str, Grade, &str); 7] = [
    ("TorchModuleWrapper", Grade::Danger, "unpickles a module of torch"),
    ("TFSMLayer", Grade::Danger, "loads and runs a SavedModel of TensorFlow"),
    ("FlaxLayer", Grade::UnknownCode, "calls functions of its configuration"),
    ("JaxLayer", Grade::UnknownCode, "calls functions of its configuration"),
    ("ClassMethod", Grade::UnknownCode, "calls a method that it names"),
    ("InstanceMethod", Grade::UnknownCode, "calls a method that it names"),
    ("InstanceProperty", Grade::UnknownCode, "reads a property that it names"),
];

/// Functions of Python that run code, or reach files and other objects.
const PYTHON: &str = "
    __import__ breakpoint compile delattr eval exec getattr globals help input locals open setattr
    vars
";

/// Layers whose vocabulary may be the name of a file.
const LOOKUPS: &str = "IntegerLookup StringLookup TextVectorization";

/// Modules of Keras with the functions used in models.
const FUNCTIONS: &str = "
    activations constraints initializers losses metrics ops optimizers regularizers
";

/// Modules of Keras whose classes are operations on tensors.
const OPERATIONS: [&str; 6] = ["core", "image", "linalg", "math", "nn", "numpy"];

/// Returns the components of a module path below the Keras package, without `src`.
fn within(module: &str) -> impl Iterator<Item = &str> {
    let module = OWN
        .split_ascii_whitespace()
        .filter_map(|own| module.strip_prefix(own))
        .min_by_key(|rest| rest.len());
    let steps = module.unwrap_or_default().split('.').filter(|step| !step.is_empty());
    steps.skip_while(|step| *step == "src")
}

fn has_functions(module: &str) -> bool {
    within(module).next().is_some_and(|first| has_word(FUNCTIONS, first))
}

/// Returns whether a TensorFlow function only computes with tensors.
fn is_operation(name: &str) -> bool {
    const PARTS: [&str; 5] = ["__operators__", "image", "linalg", "math", "nn"];
    const NAMES: &str = "
        broadcast_to cast clip_by_value concat expand_dims gather identity matmul ones_like one_hot
        range repeat reshape shape split squeeze stack tile transpose zeros_like
    ";
    let name = name.strip_prefix("compat.v1.").unwrap_or(name);
    match name.split_once('.') {
        Some((part, rest)) => PARTS.contains(&part) && !rest.contains("load"),
        None => has_word(NAMES, name),
    }
}

/// Returns whether a class of Keras is harmless. Based on `keras/api` of 3.12 and 2.15.
fn is_harmless(module: &str, class: &str) -> bool {
    let steps: Vec<&str> = within(module).collect();
    if let ["ops", part] = steps[..]
        && OPERATIONS.contains(&part)
    {
        return class.starts_with(|first: char| first.is_ascii_uppercase());
    }
    has_word(CLASSES, class)
}

const CLASSES: &str = include_str!("classes.txt");

/// The packages of Keras.
const OWN: &str = "
    keras keras_core keras_cv keras_hub keras_nlp tensorflow.keras tensorflow.python.keras tf_keras
";

fn is_keras(module: &str) -> bool {
    let within = |own: &str| {
        let rest = module.strip_prefix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    module.is_empty() || OWN.split_ascii_whitespace().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grades(text: &str) -> Vec<Grade> {
        findings(text.as_bytes()).into_iter().map(|finding| finding.grade).collect()
    }

    #[test]
    fn finds_code_and_foreign_classes_but_not_keras_layers() {
        for (text, expected) in [
            (
                r#"{"module":"keras.layers","class_name":"Dense","config":{"activation":"relu"}}"#,
                None,
            ),
            (
                r#"{"module":"builtins","class_name":"function","config":"relu","registered_name":"function"}"#,
                None,
            ),
            (
                r#"{"module":"keras.src.activations.activations","class_name":"function","config":"relu"}"#,
                None,
            ),
            (r#"{"class_name":"Dense","config":{}}"#, None),
            (
                r#"{"module":"keras.utils","class_name":"function","config":"get_file"}"#,
                Some(Grade::UnknownCode),
            ),
            (r#"{"module":"builtins","class_name":"exec","config":{}}"#, Some(Grade::UnknownCode)),
            (
                r#"{"module":"kerasx.layers","class_name":"Dense","config":{}}"#,
                Some(Grade::UnknownCode),
            ),
            (
                r#"[{"a":{"class_name":"__lambda__","config":{"code":"4wEA"}}}]"#,
                Some(Grade::Danger),
            ),
            // HDF5 of Keras 2, with a list.
            (
                r#"{"class_name":"Lambda","config":{"function":["4wEA",null,null],"function_type":"lambda"}}"#,
                Some(Grade::Danger),
            ),
            (
                r#"{"class_name":"Lambda","config":{"function":"mine","function_type":"function"}}"#,
                Some(Grade::UnknownCode),
            ),
            (
                r#"{"class_name":"Mine","registered_name":"Custom>Mine","config":{}}"#,
                Some(Grade::Warning),
            ),
            (
                r#"{"module":"keras.utils","class_name":"get_file","registered_name":"Custom>get_file","config":{}}"#,
                Some(Grade::UnknownCode),
            ),
            ("not JSON", Some(Grade::UnknownCode)),
            (
                r#"{"module":"keras.layers","class_name":"TorchModuleWrapper","config":{}}"#,
                Some(Grade::Danger),
            ),
            (r#"{"class_name":"TFSMLayer","config":{"filepath":"x"}}"#, Some(Grade::Danger)),
            (
                r#"{"module":"keras.src.utils.torch_utils","class_name":"Anything","config":{}}"#,
                Some(Grade::UnknownCode),
            ),
            (
                r#"{"module":"keras.src.utils.losses","class_name":"function","config":"get_file"}"#,
                Some(Grade::UnknownCode),
            ),
            (r#"{"module":"keras.src.ops.numpy","class_name":"Reshape","config":{}}"#, None),
            (r#"{"class_name":"TFOpLambda","config":{"function":"math.add"}}"#, None),
            (
                r#"{"class_name":"TFOpLambda","config":{"function":"io.write_file"}}"#,
                Some(Grade::UnknownCode),
            ),
            (
                r#"{"class_name":"SlicingOpLambda","config":{"function":"io.read_file"}}"#,
                Some(Grade::UnknownCode),
            ),
            (
                r#"{"class_name":"SlicingOpLambda","config":{"function":"__operators__.getitem"}}"#,
                None,
            ),
            (
                r#"{"module":"builtins","class_name":"function","config":"eval"}"#,
                Some(Grade::UnknownCode),
            ),
            (
                r#"{"module":"keras.layers","class_name":"StringLookup","config":{"vocabulary":"/etc/passwd"}}"#,
                Some(Grade::UnknownCode),
            ),
            (
                r#"{"module":"keras.layers","class_name":"StringLookup","config":{"vocabulary":["a"]}}"#,
                None,
            ),
            (
                r#"{"module":"keras.layers","class_name":"TextVectorization","config":{"vocabulary":"vocab.txt"}}"#,
                None,
            ),
            (
                r#"{"module":"keras","class_name":"__typespec__","config":{}}"#,
                Some(Grade::UnknownCode),
            ),
        ] {
            assert_eq!(grades(text), Vec::from_iter(expected), "{text}");
        }
        assert_eq!(grades("{\"class_name\":\"__lambda__\"}\0\0\0"), [Grade::Danger]);
    }
}
