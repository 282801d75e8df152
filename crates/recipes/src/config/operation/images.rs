//! The connection between a vision model and a text model (LLaVA).

use statelens_checkpoint::{Error, Result};

use super::Site;
use crate::config::expression::need;
use crate::config::side::Side;
use crate::config::value::{List, Map, Value};

/// An operation on the projector and its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum ImageOperation {
    /// `projector`: `mlp2x_gelu` is a feed-forward network of two layers.
    Projector,
    /// `feature_layer`: the left counts the embeddings as a layer.
    FeatureLayer,
    /// `frozen`: a flag on the left is a list of modules on the right.
    Frozen,
}

impl ImageOperation {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "projector" => Self::Projector,
            "feature_layer" => Self::FeatureLayer,
            "frozen" => Self::Frozen,
            _ => return None,
        })
    }

    pub(super) fn apply(self, site: &mut Site<'_>) -> Result<()> {
        match self {
            Self::Projector if site.from == Side::Left => {
                layers(site.value)?;
                // Completed when the parts are joined, because the sizes are not known yet.
                let section: Map =
                    [("image_model", Map::new().into()), ("hf_type", site.value.clone())]
                        .into_iter()
                        .collect();
                site.set(section);
                Ok(())
            }
            Self::Projector => network_to_name(site),
            Self::FeatureLayer => feature_layer(site),
            Self::Frozen if site.from == Side::Left => {
                let text = site.value.is_true().then_some("^text_model");
                let frozen: List = std::iter::once("^image_model").chain(text).collect();
                site.set(frozen);
                Ok(())
            }
            Self::Frozen => {
                let listed = match site.value {
                    Value::List(list) => {
                        list.iter().any(|item| item.as_str() == Some("text_model"))
                    }
                    Value::Text(text) => text.contains("text_model"),
                    _ => false,
                };
                site.set(listed);
                Ok(())
            }
        }
    }
}

/// Returns the number of layers in `mlp{n}x_gelu`.
pub(in crate::config) fn layers(name: &Value) -> Result<usize> {
    const MAX_LAYERS: usize = 1000;
    let digits = name
        .as_str()
        .and_then(|text| text.strip_prefix("mlp"))
        .and_then(|rest| rest.split_once("x_gelu"));
    let layers = digits.and_then(|(digits, _)| digits.parse().ok());
    layers.filter(|layers| (1..=MAX_LAYERS).contains(layers)).ok_or_else(|| {
        Error::refused(format!("mm_projector_type is {}", name.quoted()))
            .expected("mlp2x_gelu, or another number of layers")
    })
}

fn network_to_name(site: &mut Site<'_>) -> Result<()> {
    let bad = |what: &str| Error::refused(format!("{}.image_model {what}", site.key));
    let network =
        need(site.section()?, "image_model")?.as_map().filter(|network| !network.is_empty());
    let network = network.ok_or_else(|| bad("is empty"))?;
    let name = need(network, "name")?;
    if name.as_str() != Some("FeedForwardNetwork") {
        return Err(bad(&format!("is a {}", name.quoted())).expected("a FeedForwardNetwork"));
    }
    let activations = need(network, "layers_activation")?;
    let found = activations.as_list().filter(|list| !list.is_empty());
    let count = found.map_or(0, |list| list.len());
    let gelu = found.is_some_and(|list| {
        let (last, others) = list.split_last().unwrap_or((&Value::Null, &[]));
        last.is_null() && others.iter().all(|activation| activation.as_str() == Some("gelu"))
    });
    if !gelu {
        return Err(bad(&format!("has the activations {}", activations.quoted()))
            .expected("gelu after each layer but the last"));
    }
    site.set(format!("mlp{count}x_gelu"));
    Ok(())
}

fn feature_layer(site: &mut Site<'_>) -> Result<()> {
    let bad = |expected: &str| {
        Error::refused(format!("{} is {}", site.key, site.value.quoted()))
            .expected(expected.to_owned())
    };
    let layer = site.value.as_int().ok_or_else(|| bad("a number"))?;
    let other = match (layer, site.from) {
        (i64::MIN..0, _) => layer,
        (0, Side::Left) => return Err(bad("a layer: 0 is the embeddings")),
        (_, Side::Left) => layer - 1,
        (_, Side::Right) => layer.checked_add(1).ok_or_else(|| bad("the number of a layer"))?,
    };
    site.set(other);
    Ok(())
}
