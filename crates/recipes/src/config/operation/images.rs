//! The connection between a vision model and a text model (LLaVA).

use statelens_checkpoint::{Error, Result};

use super::Site;
use crate::config::expression::{need, unfit};
use crate::config::side::Side;
use crate::config::value::{List, Map, Value};

/// `mlp2x_gelu` is a feed-forward network of two layers.
pub(super) fn projector(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Right {
        return network_to_name(site);
    }
    layers(site.value)?;
    // Completed when the parts are joined, because the sizes are not known yet.
    site.set(Map::from([("image_model", Map::new().into()), ("hf_type", site.value.clone())]));
    Ok(())
}

/// A flag on the left is a list of modules on the right.
pub(super) fn frozen(site: &mut Site<'_>) -> Result<()> {
    if site.from == Side::Left {
        let text = site.value.is_true().then_some("^text_model");
        site.set(std::iter::once("^image_model").chain(text).collect::<List>());
        return Ok(());
    }
    site.set(match site.value {
        Value::List(list) => list.iter().any(|item| item.as_str() == Some("text_model")),
        Value::Text(text) => text.contains("text_model"),
        _ => false,
    });
    Ok(())
}

/// Returns the number of layers in `mlp{n}x_gelu`.
pub(in crate::config) fn layers(name: &Value) -> Result<usize> {
    const MAX_LAYERS: usize = 1000;
    let digits = name
        .as_str()
        .and_then(|text| text.strip_prefix("mlp"))
        .and_then(|rest| rest.split_once("x_gelu"));
    let layers = digits.and_then(|(digits, _)| digits.parse().ok());
    layers
        .filter(|layers| (1..=MAX_LAYERS).contains(layers))
        .ok_or_else(|| unfit("mm_projector_type", name, "mlp2x_gelu, or another number of layers"))
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

/// The left counts the embeddings as a layer.
pub(super) fn feature_layer(site: &mut Site<'_>) -> Result<()> {
    let layer = site.value.as_int().ok_or_else(|| site.unfit("a number"))?;
    let next = || layer.checked_add(1).ok_or_else(|| site.unfit("the number of a layer"));
    let other = match (layer, site.from) {
        (i64::MIN..0, _) => layer,
        (0, Side::Left) => return Err(site.unfit("a layer: 0 is the embeddings")),
        (_, Side::Left) => layer - 1,
        (_, Side::Right) => next()?,
    };
    site.set(other);
    Ok(())
}
