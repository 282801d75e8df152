//! Operations that convert a value where copying is not enough.

mod attention;
mod images;
mod positions;
mod words;

use statelens_checkpoint::{Error, Result};

use super::expression::{Operator, compute, need, number, unfit};
use super::side::Side;
use super::value::{List, Map, Value};
pub(super) use images::layers as projector_layers;
use words::Words;

/// The operation of a rule, which follows `by`.
#[derive(Debug, Clone)]
pub(super) enum ConfigOperation {
    /// `words A B, C D[, others kept]`: A on the left is B on the right.
    Words(Words),
    /// `gelu_variants words …`: like `words`, and every `gelu_…` on the left counts as `gelu`.
    GeluVariants(Words),
    /// `constants A B`: sets A on the right or B on the left, whatever the value is.
    Constants(Value, Value),
    /// `four_times KEY`: also sets KEY on the right to four times the value.
    FourTimes(String),
    /// `bias_flags KEY…`: one flag on the left sets all of these.
    BiasFlags(Vec<String>),
    /// `rope_scaling TYPE…`: a section on the left is three keys on the right.
    RopeScaling(Vec<String>),
    /// `without_padding [learned]`: the left counts the padding's positions, too; with `learned`,
    /// only if positions are learned.
    WithoutPadding { learned: bool },
    /// One of [`PLAIN`].
    Plain(Act),
}

type Act = fn(&mut Site<'_>) -> Result<()>;

/// Operations without arguments.
const PLAIN: [(&str, Act); 22] = [
    ("t5_activation", words::t5_activation),
    ("negated", negated),
    ("square", square),
    ("mup_output", mup_output),
    ("experts", experts),
    ("segments", segments),
    ("token_dropout", token_dropout),
    ("pooler", pooler),
    ("softmax_temperature", softmax_temperature),
    ("kv_heads", attention::kv_heads),
    ("kv_groups", attention::kv_groups),
    ("falcon_kv_groups", attention::falcon_kv_groups),
    ("falcon_multi_query", attention::falcon_multi_query),
    ("falcon_architecture", attention::falcon_architecture),
    ("multi_query_attention", attention::multi_query),
    ("per_head", attention::per_head),
    ("alibi_scaling", positions::alibi_scaling),
    ("rotary_share", positions::rotary_share),
    ("esm_positions", positions::esm),
    ("projector", images::projector),
    ("feature_layer", images::feature_layer),
    ("frozen", images::frozen),
];

/// The value that an operation converts, and its configs.
pub(super) struct Site<'a> {
    pub(super) from: Side,
    pub(super) key: &'a str,
    pub(super) other: &'a str,
    pub(super) value: &'a Value,
    pub(super) old: &'a Map,
    pub(super) new: &'a mut Map,
}

impl ConfigOperation {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let unknown = || Error::damaged(format!("\"{text}\" is not an operation"));
        let words = || rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        Ok(match name {
            "words" => Self::Words(Words::parse(rest)?),
            "gelu_variants" => {
                Self::GeluVariants(Words::parse(rest.strip_prefix("words ").ok_or_else(unknown)?)?)
            }
            "constants" => {
                let (right, left) = rest.split_once(' ').ok_or_else(unknown)?;
                Self::Constants(super::yaml::parse(right)?, super::yaml::parse(left)?)
            }
            "four_times" if !rest.is_empty() => Self::FourTimes(rest.to_owned()),
            "bias_flags" if !rest.is_empty() => Self::BiasFlags(words()),
            "rope_scaling" => Self::RopeScaling(words()),
            "without_padding" => Self::WithoutPadding { learned: !words().is_empty() },
            _ => {
                let plain = PLAIN.iter().find(|(known, _)| *known == name);
                Self::Plain(plain.ok_or_else(unknown)?.1)
            }
        })
    }

    pub(super) fn apply(&self, site: &mut Site<'_>) -> Result<()> {
        let forward = site.from == Side::Left;
        match self {
            Self::Words(words) => {
                let word = words.translate(site.key, site.from, site.value)?;
                site.set(word);
                Ok(())
            }
            Self::GeluVariants(words) => {
                let gelu = Value::from("gelu");
                let variant =
                    forward && site.value.as_str().is_some_and(|text| text.starts_with("gelu_"));
                let value = if variant { &gelu } else { site.value };
                let word = words.translate(site.key, site.from, value)?;
                site.set(word);
                Ok(())
            }
            Self::Constants(right, left) => {
                site.set(if forward { right.clone() } else { left.clone() });
                Ok(())
            }
            Self::FourTimes(key) => four_times(site, key),
            Self::BiasFlags(flags) => bias_flags(site, flags),
            Self::RopeScaling(types) => positions::rope_scaling(site, types),
            Self::WithoutPadding { learned } => positions::without_padding(site, *learned),
            Self::Plain(act) => act(site),
        }
    }
}

impl Site<'_> {
    /// Sets the key on the other side.
    fn set(&mut self, value: impl Into<Value>) {
        self.new.set(self.other, value);
    }

    /// Sets the key on the other side to the value, unchanged.
    fn copy(&mut self) {
        self.set(self.value.clone());
    }

    /// Returns the error for a value that can't be converted.
    fn unfit(&self, expected: impl Into<String>) -> Error {
        unfit(self.key, self.value, expected)
    }

    /// Returns the value as a dict.
    fn section(&self) -> Result<&Map> {
        self.value.as_map().ok_or_else(|| self.unfit("a section of keys"))
    }
}

/// True becomes false.
fn negated(site: &mut Site<'_>) -> Result<()> {
    site.set(!site.value.is_true());
    Ok(())
}

fn four_times(site: &mut Site<'_>, key: &str) -> Result<()> {
    let four = compute(site.value, Operator::Times, &Value::Int(4))?;
    if site.from == Side::Left {
        site.copy();
        site.new.set(key, four);
        return Ok(());
    }
    let value = need(site.old, key)?;
    if !value.equals(&four) {
        let expected = format!("4 * {}, as the other side has it", site.key);
        return Err(unfit(key, value, expected));
    }
    site.copy();
    Ok(())
}

/// The right side's scale of the logits includes the width scale.
fn mup_output(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Left {
        let scale = need(site.old, "mup_width_scale")?;
        site.set(compute(site.value, Operator::Times, scale)?);
    } else {
        let scale = need(site.old, "decoder_kernel")?.clone();
        site.set(compute(site.value, Operator::Over, &scale)?);
        site.new.set("mup_width_scale", scale);
    }
    Ok(())
}

/// 0 on the right is 1 on the left.
fn segments(site: &mut Site<'_>) -> Result<()> {
    let none = site.from == Side::Right && site.value.equals(&Value::Int(0));
    site.set(if none { Value::Int(1) } else { site.value.clone() });
    Ok(())
}

/// Requires a mask token.
fn token_dropout(site: &mut Site<'_>) -> Result<()> {
    let mask = site.old.get("mask_token_id").is_some_and(|mask| !mask.is_null());
    if site.value.is_true() && !mask {
        return Err(Error::refused("token_dropout is on and the config has no mask_token_id")
            .advice("Add mask_token_id, or switch token_dropout off."));
    }
    site.copy();
    Ok(())
}

/// A number becomes a list of two equal numbers.
fn square(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Left {
        let sizes: List = [site.value.clone(), site.value.clone()].into_iter().collect();
        site.set(sizes);
        return Ok(());
    }
    match site.value.as_list().map(|sizes| sizes.as_slice()) {
        Some([width, height]) if width.equals(height) => {
            site.set(width.clone());
            Ok(())
        }
        _ => Err(site.unfit("two numbers, width and height, that are equal")),
    }
}

fn bias_flags(site: &mut Site<'_>, flags: &[String]) -> Result<()> {
    if site.from == Side::Left {
        for flag in flags {
            site.new.set(flag.as_str(), site.value.clone());
        }
        return Ok(());
    }
    for flag in flags {
        if !need(site.old, flag)?.equals(site.value) {
            return Err(Error::refused(format!("{flag} and {} are not the same", site.key))
                .expected("equal flags, for Hugging Face has one for all of them"));
        }
    }
    site.copy();
    Ok(())
}

/// Three keys become a section.
fn experts(site: &mut Site<'_>) -> Result<()> {
    const KEYS: [(&str, &str); 3] = [
        ("num_local_experts", "num_experts"),
        ("num_experts_per_tok", "top_k"),
        ("router_aux_loss_coef", "load_balancing_loss_coef"),
    ];
    if site.from == Side::Left {
        let mut section = site.new.get("moe").and_then(Value::as_map).cloned().unwrap_or_default();
        for (left, right) in KEYS {
            section.set(right, need(site.old, left)?.clone());
        }
        site.new.set("moe", section);
        return Ok(());
    }
    let section = site.section()?.clone();
    for (left, right) in KEYS {
        site.new.set(left, need(&section, right)?.clone());
    }
    Ok(())
}

/// A dimension becomes a flag.
fn pooler(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Right {
        let hidden = need(site.old, "hidden_size")?.clone();
        site.set(if site.value.is_true() { hidden } else { Value::Int(0) });
        return Ok(());
    }
    if site.value.is_true() && !site.value.equals(need(site.new, "hidden_size")?) {
        return Err(site.unfit("0, or hidden_size, the only size of a pooler that Cerebras has"));
    }
    site.set(site.value.is_true());
    Ok(())
}

/// A flag becomes the square root of the hidden size.
fn softmax_temperature(site: &mut Site<'_>) -> Result<()> {
    let encoder = need(site.old, "q_encoder")?;
    let section = encoder.as_map();
    let encoder = section.ok_or_else(|| unfit("q_encoder", encoder, "a section of keys"))?;
    let root = number(encoder, "hidden_size")?.sqrt();
    if site.from == Side::Left {
        site.set(if *site.value == Value::Bool(true) { root } else { 1.0 });
        return Ok(());
    }
    let temperature = number(site.old, site.key)?;
    // The same test as `math.isclose(…, abs_tol=1.0)`: other temperatures are lost.
    let near =
        (temperature - root).abs() <= f64::max(1.0, 1e-9 * f64::max(temperature.abs(), root));
    site.set(near);
    Ok(())
}
