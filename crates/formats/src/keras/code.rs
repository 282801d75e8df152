//! Code in the configuration of a Keras model: layers that carry functions, and names that are
//! imported to build the model (`keras/src/saving/serialization_lib.py`).

use statelens_checkpoint::{Finding, Grade};

use crate::json::{Document, Id, JsonNode};

/// At most so many are told one by one.
const MOST: usize = 50;

/// What building the model from this configuration would run. Nothing if the text is no JSON.
pub(crate) fn findings(text: &[u8]) -> Vec<Finding> {
    // A fixed string of HDF5 is filled up with NULs.
    let text = text.trim_ascii_end();
    let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let Ok(document) = Document::parse(&text[..end]) else { return Vec::new() };
    let mut found = Vec::new();
    let mut open = vec![document.root()];
    while let Some(id) = open.pop() {
        match document.node(id) {
            JsonNode::Array(items) => open.extend(items),
            JsonNode::Object(entries) => {
                found.extend(object(&document, id));
                open.extend(entries.iter().map(|(_, id)| *id));
            }
            // A configuration in a configuration.
            _ => {}
        }
        if found.len() >= MOST {
            break;
        }
    }
    found
}

/// What one object of the configuration would run when it is made.
fn object(document: &Document, id: Id) -> Option<Finding> {
    let text = |name: &str| {
        let text = document.field(id, name).and_then(JsonNode::text);
        text.map(|text| text.to_lossy().into_owned())
    };
    let class = text("class_name")?;
    let module = text("module").unwrap_or_default();
    let registered = text("registered_name").unwrap_or_default();
    let config = document.get(id, "config");
    if class == "__lambda__" || class == "Lambda" && is_keras(&module) {
        return Some(lambda(document, &class, config));
    }
    if !(module.is_empty() || is_keras(&module) || module == "builtins" && class == "function") {
        let detail = "Building the model from its configuration imports this name and calls it; it \
                      does not belong to Keras.";
        let title = format!("The model's configuration names `{module}.{class}`");
        return Some(Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE));
    }
    let name = config
        .and_then(|config| document.node(config).text().map(|text| text.to_lossy().into_owned()));
    if class == "function"
        && is_keras(&module)
        && let Some(name) = name
        && !FUNCTIONS.iter().any(|part| module.split('.').any(|folder| folder == *part))
    {
        let title = format!("The model's configuration names the function `{module}.{name}`");
        let detail = "It is not among the activations, losses and the like that models are made of, and \
                      would be called when the model is built or used.";
        return Some(Finding::new(Grade::UnknownCode, title).detail(detail).advice(ADVICE));
    }
    let own = [&registered, &class]
        .into_iter()
        .any(|name| name.split_once('>').is_some_and(|(package, _)| !package.starts_with("keras")));
    own.then(|| {
        let name = if registered.contains('>') { registered } else { class };
        Finding::new(Grade::Warning, format!("The model needs the class `{name}` of its own program"))
            .detail("Keras takes it from what the program that loads the model has registered; it is not in this file.")
    })
}

/// Code of Python's own, marshalled, or a function by its name.
fn lambda(document: &Document, class: &str, config: Option<Id>) -> Finding {
    let function = match class {
        "__lambda__" => config,
        _ => config.and_then(|config| document.get(config, "function")),
    };
    // By its name it is what the program calls so.
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
            "It is compiled code, which building or calling the model would run with all that Python \
             may do. Keras asks for `safe_mode=False` before it does so in .keras files, and does not \
             ask in HDF5 files.",
        )
        .advice("Do not load this model with Keras. Its weights can be inspected and converted safely.")
}

const ADVICE: &str = "Do not load the model before you know what that is. Its weights can be looked \
                      at and converted safely.";

/// Modules of Keras with functions that models are made of.
const FUNCTIONS: [&str; 8] = [
    "activations",
    "constraints",
    "initializers",
    "losses",
    "metrics",
    "ops",
    "optimizers",
    "regularizers",
];

fn is_keras(module: &str) -> bool {
    const OWN: [&str; 8] = [
        "keras",
        "keras_core",
        "keras_cv",
        "keras_hub",
        "keras_nlp",
        "tensorflow.keras",
        "tensorflow.python.keras",
        "tf_keras",
    ];
    let within = |own: &str| {
        let rest = module.strip_prefix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    module.is_empty() || OWN.iter().any(|own| within(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grades(text: &str) -> Vec<Grade> {
        findings(text.as_bytes()).into_iter().map(|finding| finding.grade).collect()
    }

    #[test]
    fn code_and_foreign_names_are_told_and_layers_of_keras_are_not() {
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
            ("not JSON", None),
        ] {
            assert_eq!(grades(text), Vec::from_iter(expected), "{text}");
        }
        assert_eq!(grades("{\"class_name\":\"__lambda__\"}\0\0\0"), [Grade::Danger]);
    }
}
