//! Converts configs of transformers 5 to the form of earlier releases, which the tables expect.

use crate::value::Value;

/// Converts `rope_parameters` to `rope_theta` and, if positions are scaled, `rope_scaling`.
pub(super) fn as_before_5(config: &Value) -> Value {
    let mut config = config.clone();
    let Some(map) = config.as_map_mut() else { return config };
    let Some(Value::Map(mut rope)) = map.get("rope_parameters").cloned() else { return config };
    // Some models have one per kind of layer, which no table supports.
    let kind = rope.get("rope_type").and_then(Value::as_str).map(str::to_owned);
    let Some(kind) = kind else { return config };
    map.remove("rope_parameters");
    if let Some(theta) = rope.remove("rope_theta")
        && !map.contains("rope_theta")
    {
        map.set("rope_theta", theta);
    }
    if kind != "default" && !map.contains("rope_scaling") {
        if kind != "llama3" && !rope.contains("type") {
            rope.set("type", kind.as_str());
        }
        map.set("rope_scaling", rope);
    }
    config
}
