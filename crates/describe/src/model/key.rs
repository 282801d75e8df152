//! A parsed key: the path of modules, the name within the last module, and the first number, which
//! is usually that of a layer.

use std::borrow::Cow;

/// A parsed key, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed<'a> {
    /// The modules, the outermost first.
    pub(super) modules: Vec<Cow<'a, str>>,
    /// The name within the last module: `weight`, `bias`; empty if the key ends in a module's name.
    pub(super) leaf: Cow<'a, str>,
    /// The index of the first module that is a number, and the number.
    pub(super) index: Option<(usize, u64)>,
}

/// The names of tensors within a module.
const LEAVES: [&str; 32] = [
    "weight",
    "bias",
    "kernel",
    "embedding",
    "embeddings",
    "gamma",
    "beta",
    "scale",
    "w",
    "b",
    "running_mean",
    "running_var",
    "num_batches_tracked",
    "moving_mean",
    "moving_variance",
    "mean",
    "var",
    "inv_freq",
    "position_ids",
    "masked_bias",
    "qweight",
    "qzeros",
    "scales",
    "biases",
    "g_idx",
    "scb",
    "weight_packed",
    "weight_scale",
    "weight_scale_inv",
    "weight_shape",
    "weight_zero_point",
    "_weight_qdata",
];

impl<'a> Parsed<'a> {
    pub(super) fn new(key: &'a str) -> Self {
        let key = key.strip_suffix(":0").unwrap_or(key);
        let parts = key.split(['.', '/']).filter(|part| !part.is_empty());
        // Most keys have fewer parts.
        let mut modules = Vec::with_capacity(8);
        modules.extend(parts.map(lower));
        let mut leaf = Cow::default();
        if modules.len() > 1 && modules.last().is_some_and(|last| LEAVES.contains(&&**last)) {
            leaf = modules.pop().unwrap_or_default();
        }
        let index = modules.iter().enumerate().find_map(|(at, part)| Some((at, number(part)?)));
        Self { modules, leaf, index }
    }

    /// Returns the last module name that is not generic.
    pub(super) fn name(&self) -> &str {
        let vague =
            |part: &str| matches!(part, "dense" | "linear" | "linear_layer" | "base_layer" | "fn");
        let mut parts = self.modules.iter().rev().map(|part| &**part);
        parts.find(|part| !vague(part) && !is_digits(part)).unwrap_or_default()
    }

    /// Returns the path before the number of the layer, and the number.
    pub(super) fn stack(&self) -> Option<(String, u64)> {
        let (at, number) = self.index?;
        let mut prefix = self.modules[..at].join(".");
        if let Some((base, _)) = self.modules[at].rsplit_once('_') {
            prefix = if prefix.is_empty() { base.to_owned() } else { format!("{prefix}.{base}") };
        }
        Some((prefix, number))
    }

    /// Returns the modules after the number of the layer.
    pub(super) fn within(&self) -> &[Cow<'a, str>] {
        self.index.map_or(&[], |(at, _)| &self.modules[at + 1..])
    }

    /// Returns the modules before the number of the layer; all modules if there is no number.
    pub(super) fn before(&self) -> &[Cow<'a, str>] {
        self.index.map_or(&self.modules, |(at, _)| &self.modules[..at])
    }
}

/// Returns the text in lower case; borrows it if it already is.
pub(super) fn lower(text: &str) -> Cow<'_, str> {
    if is_lower(text) { text.into() } else { text.to_lowercase().into() }
}

/// Returns whether a text is ASCII without capital letters.
pub(super) fn is_lower(text: &str) -> bool {
    // Checks all bytes, which is faster than to stop at the first that fails.
    let other = |byte: u8| byte.is_ascii_uppercase() | !byte.is_ascii();
    !text.bytes().fold(false, |found, byte| found | other(byte))
}

pub(super) fn is_digits(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the number of a module: `12`, `layer_12`, `encoderblock_12`.
fn number(part: &str) -> Option<u64> {
    if is_digits(part) {
        return part.parse().ok();
    }
    numbered(part)?.1.parse().ok()
}

/// Returns the module name without its number: `layer` for `layer_12`.
pub(super) fn base(part: &str) -> &str {
    numbered(part).map_or(part, |(base, _)| base)
}

fn numbered(part: &str) -> Option<(&str, &str)> {
    let (base, digits) = part.rsplit_once('_')?;
    let words = ["layer", "layers", "block", "blocks"];
    let layer = base == "h" || words.iter().any(|word| base.ends_with(word));
    (layer && is_digits(digits)).then_some((base, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_layer_numbers_of_many_schemes() {
        let stack = |key: &str| Parsed::new(key).stack();
        let is = |prefix: &str, number| Some((prefix.to_owned(), number));
        assert_eq!(stack("model.layers.12.mlp.up_proj.weight"), is("model.layers", 12));
        assert_eq!(stack("blk.3.attn_q.weight"), is("blk", 3));
        assert_eq!(
            stack("params/encoder/encoderblock_11/norm/scale"),
            is("params.encoder.encoderblock", 11)
        );
        assert_eq!(
            stack("bert/encoder/layer_0/output/dense/kernel:0"),
            is("bert.encoder.layer", 0)
        );
        assert_eq!(stack("dense_1/kernel:0"), None);
        assert_eq!(stack("layer1.0.conv1.weight"), is("layer1", 0));
        assert_eq!(Parsed::new("encoder.layer.0.output.dense.weight").name(), "output");
        assert_eq!(Parsed::new("99999999999999999999.weight").stack(), None);
    }
}
