//! Operations that convert a value where copying is not enough.

mod attention;
mod images;
mod positions;
mod words;

use statelens_checkpoint::{Error, Result};

use super::expression::{Operator, compute, need, number};
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
    /// `t5_activation`: `gated-silu` is `swiglu`; also sets the decoder's.
    T5Activation,
    /// `negated`: true becomes false.
    Negated,
    /// `constants A B`: sets A on the right or B on the left, whatever the value is.
    Constants(Value, Value),
    /// `square`: a number becomes a list of two equal numbers.
    Square,
    /// `four_times KEY`: also sets KEY on the right to four times the value.
    FourTimes(String),
    /// `bias_flags KEY…`: one flag on the left sets all of these.
    BiasFlags(Vec<String>),
    /// `mup_output`: the right side's scale of the logits includes the width scale.
    MupOutput,
    /// `experts`: three keys become a section.
    Experts,
    /// `segments`: 0 on the right is 1 on the left.
    Segments,
    /// `token_dropout`: requires a mask token.
    TokenDropout,
    /// `pooler`: a dimension becomes a flag.
    Pooler,
    /// `softmax_temperature`: a flag becomes the square root of the hidden size.
    SoftmaxTemperature,
    Attention(attention::AttentionOperation),
    Positions(positions::PositionOperation),
    Images(images::ImageOperation),
}

/// The value that an operation converts, and its configs.
pub(super) struct Site<'a> {
    /// The source side.
    pub(super) from: Side,
    pub(super) key: &'a str,
    /// The key on the other side.
    pub(super) other: &'a str,
    pub(super) value: &'a Value,
    pub(super) old: &'a Map,
    pub(super) new: &'a mut Map,
}

impl ConfigOperation {
    /// Parses an operation with its arguments.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let unknown = || Error::damaged(format!("\"{text}\" is not an operation"));
        let words = || rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        Ok(match name {
            "words" => Self::Words(Words::parse(rest)?),
            "gelu_variants" => {
                Self::GeluVariants(Words::parse(rest.strip_prefix("words ").ok_or_else(unknown)?)?)
            }
            "t5_activation" => Self::T5Activation,
            "negated" => Self::Negated,
            "constants" => {
                let (right, left) = rest.split_once(' ').ok_or_else(unknown)?;
                Self::Constants(super::yaml::parse(right)?, super::yaml::parse(left)?)
            }
            "square" => Self::Square,
            "four_times" if !rest.is_empty() => Self::FourTimes(rest.to_owned()),
            "bias_flags" if !rest.is_empty() => Self::BiasFlags(words()),
            "mup_output" => Self::MupOutput,
            "experts" => Self::Experts,
            "segments" => Self::Segments,
            "token_dropout" => Self::TokenDropout,
            "pooler" => Self::Pooler,
            "softmax_temperature" => Self::SoftmaxTemperature,
            _ => {
                if let Some(operation) = attention::AttentionOperation::named(name) {
                    Self::Attention(operation)
                } else if let Some(operation) = positions::PositionOperation::named(name, words()) {
                    Self::Positions(operation)
                } else if let Some(operation) = images::ImageOperation::named(name) {
                    Self::Images(operation)
                } else {
                    return Err(unknown());
                }
            }
        })
    }

    /// Converts the value and writes the result.
    pub(super) fn apply(&self, site: &mut Site<'_>) -> Result<()> {
        let forward = site.from == Side::Left;
        match self {
            Self::Words(words) => {
                let word = words.translate(site.key, site.from, site.value)?;
                site.set(word);
            }
            Self::GeluVariants(words) => {
                let gelu = Value::from("gelu");
                let variant =
                    forward && site.value.as_str().is_some_and(|text| text.starts_with("gelu_"));
                let value = if variant { &gelu } else { site.value };
                let word = words.translate(site.key, site.from, value)?;
                site.set(word);
            }
            Self::T5Activation => words::t5_activation(site)?,
            Self::Negated => site.set(!site.value.is_true()),
            Self::Constants(right, left) => {
                site.set(if forward { right.clone() } else { left.clone() });
            }
            Self::Square => square(site)?,
            Self::FourTimes(key) => {
                let four = compute(site.value, Operator::Times, &Value::Int(4))?;
                if forward {
                    site.set(site.value.clone());
                    site.new.set(key.as_str(), four);
                } else if need(site.old, key)?.equals(&four) {
                    site.set(site.value.clone());
                } else {
                    return Err(Error::refused(format!(
                        "{key} is {}",
                        need(site.old, key)?.quoted()
                    ))
                    .expected(format!("4 * {}, as the other side has it", site.key)));
                }
            }
            Self::BiasFlags(flags) => bias_flags(site, flags)?,
            Self::MupOutput => {
                if forward {
                    let scale = need(site.old, "mup_width_scale")?;
                    site.set(compute(site.value, Operator::Times, scale)?);
                } else {
                    let scale = need(site.old, "decoder_kernel")?.clone();
                    site.set(compute(site.value, Operator::Over, &scale)?);
                    site.new.set("mup_width_scale", scale);
                }
            }
            Self::Experts => experts(site)?,
            Self::Segments => {
                let none = !forward && site.value.equals(&Value::Int(0));
                site.set(if none { Value::Int(1) } else { site.value.clone() });
            }
            Self::TokenDropout => {
                let mask = site.old.get("mask_token_id").is_some_and(|mask| !mask.is_null());
                if site.value.is_true() && !mask {
                    return Err(Error::refused(
                        "token_dropout is on and the config has no mask_token_id",
                    )
                    .advice("Add mask_token_id, or switch token_dropout off."));
                }
                site.set(site.value.clone());
            }
            Self::Pooler => pooler(site)?,
            Self::SoftmaxTemperature => softmax_temperature(site)?,
            Self::Attention(operation) => operation.apply(site)?,
            Self::Positions(operation) => operation.apply(site)?,
            Self::Images(operation) => operation.apply(site)?,
        }
        Ok(())
    }
}

impl Site<'_> {
    /// Sets the key on the other side.
    fn set(&mut self, value: impl Into<Value>) {
        self.new.set(self.other, value);
    }

    /// Returns the value as a dict.
    fn section(&self) -> Result<&Map> {
        self.value.as_map().ok_or_else(|| {
            Error::refused(format!("{} is {}", self.key, self.value.quoted()))
                .expected("a section of keys")
        })
    }
}

fn square(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Left {
        let sizes: List = [site.value.clone(), site.value.clone()].into_iter().collect();
        site.set(sizes);
        return Ok(());
    }
    let value = site.value;
    let bad = || {
        Error::refused(format!("{} is {}", site.key, value.quoted()))
            .expected("two numbers, width and height, that are equal")
    };
    let sizes = value.as_list().ok_or_else(bad)?;
    match sizes.as_slice() {
        [width, height] if width.equals(height) => {
            let width = width.clone();
            site.set(width);
            Ok(())
        }
        _ => Err(bad()),
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
    site.set(site.value.clone());
    Ok(())
}

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

fn pooler(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Right {
        let hidden = need(site.old, "hidden_size")?.clone();
        site.set(if site.value.is_true() { hidden } else { Value::Int(0) });
        return Ok(());
    }
    if site.value.is_true() && !site.value.equals(need(site.new, "hidden_size")?) {
        return Err(Error::refused(format!("{} is {}", site.key, site.value.quoted()))
            .expected("0, or hidden_size, the only size of a pooler that Cerebras has"));
    }
    site.set(site.value.is_true());
    Ok(())
}

fn softmax_temperature(site: &mut Site<'_>) -> Result<()> {
    let encoder = need(site.old, "q_encoder")?;
    let encoder = encoder.as_map().ok_or_else(|| {
        Error::refused(format!("q_encoder is {}", encoder.quoted())).expected("a section of keys")
    })?;
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
