//! Models in several parts: folders at Hugging Face, sections of one config at Cerebras.

use statelens_checkpoint::{Error, Result};

use super::{Done, StepContext};
use crate::config::mup;
use crate::config::section::{fill, model_section, need, set_model_section};
use crate::config::table::{ModelParts, PartsLayout};
use crate::side::Side;
use crate::value::{List, Map, Value, unfit};

/// Converts the configs of all parts and arranges them in the layout of the target.
pub(super) fn convert(
    context: &mut StepContext<'_>,
    name: &str,
    parts: &ModelParts,
    root: Map,
) -> Result<Done> {
    match context.step.from {
        Side::Left => to_one(context, name, parts, root),
        Side::Right => to_several(context, name, parts, root),
    }
}

fn to_one(
    context: &mut StepContext<'_>,
    name: &str,
    parts: &ModelParts,
    root: Map,
) -> Result<Done> {
    let mut seen = Map::new();
    let mut model = Map::new();
    for (part, table) in &parts.parts {
        let mut config = part_of(&root, part)?;
        if parts.layout.has_projector() {
            let vision = config.get("vision_config").and_then(Value::as_map).cloned();
            let kind = if part == "image_model" { "clip_vision_model" } else { "llama" };
            config.set("model_type", kind);
            if let (Some(vision), "image_model") = (vision, part.as_str()) {
                config = vision;
            }
        }
        let done = one(context, part, table, config)?;
        seen.set(part.as_str(), done.seen);
        let made = done.made.as_map().map(model_section).transpose()?.unwrap_or_default();
        model.set(part.as_str(), made);
    }
    fill(&mut model, &parts.after);
    if context.step.target.version() >= Some((2, 4)) {
        model.set_default("name", context.label);
    }
    let mut written = model.clone();
    match &parts.layout {
        PartsLayout::Pair | PartsLayout::Dpr => {}
        PartsLayout::Llava => {
            join(&mut model)?;
            written = model.clone();
        }
        PartsLayout::Simple { encoder } => {
            join(&mut model)?;
            nest(&mut model, encoder)?;
            written = model.clone();
            // The tensor rules read it there; the written config has it in the list only.
            written.remove("image_model");
        }
    }
    let whole = |model: Map| Value::Map(Map::from([("model", Value::Map(model))]));
    Ok(Done {
        config: whole(written),
        seen: seen.into(),
        made: whole(model),
        table: name.to_owned(),
    })
}

fn to_several(
    context: &mut StepContext<'_>,
    name: &str,
    parts: &ModelParts,
    mut root: Map,
) -> Result<Done> {
    let mut model = model_section(&root)?;
    if mup::to_standard(&model, mup::Policy::Refused)?.is_some() {
        return Err(Error::refused("the config uses muP"));
    }
    if let PartsLayout::Simple { encoder } = &parts.layout {
        unnest(&mut model, encoder)?;
    }
    if parts.layout.has_projector() {
        part(&mut model)?;
    }
    set_model_section(&mut root, model.clone());
    let mut configs = Map::new();
    let mut sections = Map::new();
    for (part, table) in &parts.parts {
        let inner = Map::from([("model", Value::Map(part_of(&model, part)?))]);
        let done = one(context, part, table, inner)?;
        configs.set(part.as_str(), done.config);
        let seen = done.seen.as_map().map(model_section).transpose()?.unwrap_or_default();
        sections.set(part.as_str(), seen);
    }
    if parts.layout == PartsLayout::Dpr {
        for (part, whose, architecture) in [
            ("q_encoder", "question_encoder", "DPRQuestionEncoder"),
            ("ctx_encoder", "ctx_encoder", "DPRContextEncoder"),
        ] {
            let Some(config) = configs.get_mut(part).and_then(Value::as_map_mut) else { continue };
            config.set("_name_or_path", format!("facebook/dpr-{whose}-single-nq-base"));
            config.set("architectures", [architecture].into_iter().collect::<List>());
            config.set("model_type", "dpr");
        }
    }
    if parts.layout.has_projector() {
        let preprocessor = preprocessor(&parts.preprocessor, &model)?;
        context
            .converted
            .files
            .push(("image_model/preprocessor_config.json".to_owned(), preprocessor.into()));
    }
    context.converted.parts = parts.parts.iter().map(|(name, _)| name.clone()).collect();
    for (part, _) in &parts.parts {
        if let Some(section) = sections.get(part) {
            model.set(part.as_str(), section.clone());
        }
    }
    set_model_section(&mut root, model);
    Ok(Done {
        made: configs.clone().into(),
        config: configs.into(),
        seen: root.into(),
        table: name.to_owned(),
    })
}

fn one(context: &mut StepContext<'_>, part: &str, table: &str, config: Map) -> Result<Done> {
    let mut inner = StepContext {
        families: context.families,
        step: context.step,
        label: context.label,
        converted: &mut *context.converted,
        prefix: format!("{part}."),
    };
    inner.table(table, config).map_err(|error| error.context(part))
}

fn part_of(root: &Map, part: &str) -> Result<Map> {
    root.get(part).and_then(Value::as_map).cloned().ok_or_else(|| {
        Error::refused(format!("the config has no part {part}"))
            .expected("a section, or a folder with a config.json")
    })
}

impl PartsLayout {
    fn has_projector(&self) -> bool {
        matches!(self, Self::Llava | Self::Simple { .. })
    }
}

/// The keys that Hugging Face keeps in the text model's config and Cerebras next to that section.
const MOVED_KEYS: [&str; 3] =
    ["freeze", "image_feature_select_layer_idx", "image_feature_select_mode"];

fn section<'a>(model: &'a mut Map, key: &str) -> Result<&'a mut Map> {
    let found = model.get_mut(key).and_then(Value::as_map_mut);
    found.ok_or_else(|| Error::refused(format!("the config has no section {key}")))
}

/// Moves these keys out of the text model's section and creates the projector.
fn join(model: &mut Map) -> Result<()> {
    let image = section(model, "image_model")?;
    image.set("name", "ViTModel");
    image.remove("fp16_type");
    let image_size = need(image, "hidden_size")?.clone();
    let text = section(model, "text_model")?;
    text.set("name", "LlamaModel");
    let mut moved = Vec::new();
    for key in MOVED_KEYS {
        let value = text
            .remove(key)
            .ok_or_else(|| Error::refused(format!("text_model: there is no {key}")))?;
        moved.push((key, value));
    }
    let hidden = text.remove("mm_hidden_size").unwrap_or(Value::Null);
    if !hidden.equals(&image_size) {
        let expected = format!("{}, as hidden_size of the image model", image_size.quoted());
        return Err(unfit("text_model: mm_hidden_size", &hidden, expected));
    }
    let layers = projector_layers(&text.remove("projector").unwrap_or(Value::Null))?;
    let width = need(text, "hidden_size")?.clone();
    width.can_repeat(layers)?;
    let units: List = std::iter::repeat_n(width, layers).collect();
    let activations: List =
        std::iter::repeat_n(Value::from("gelu"), layers - 1).chain([Value::Null]).collect();
    let network = Map::from([
        ("name", Value::from("FeedForwardNetwork")),
        ("input_unit", hidden),
        ("layers_units", units.into()),
        ("layers_activation", activations.into()),
        ("use_bias", true.into()),
    ]);
    let projector = Map::from([("image_model", network.into())]);
    model.set("projector", projector);
    for (key, value) in moved {
        model.set(key, value);
    }
    Ok(())
}

/// Returns the number of layers in `mlp{n}x_gelu`.
fn projector_layers(name: &Value) -> Result<usize> {
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

/// Moves these keys and the projector into the text model's section, for its table.
fn part(model: &mut Map) -> Result<()> {
    let mut moved = Vec::new();
    for key in ["projector"].into_iter().chain(MOVED_KEYS) {
        let value = model
            .remove(key)
            .ok_or_else(|| Error::refused(format!("the model's section has no {key}")))?;
        let value = if key == "projector" { projector_name(&value)? } else { value };
        moved.push((key, value));
    }
    let hidden = need(section(model, "image_model")?, "hidden_size")?.clone();
    let text = section(model, "text_model")?;
    for (key, value) in moved {
        text.set(key, value);
    }
    text.set("mm_hidden_size", hidden);
    Ok(())
}

/// Returns `mlp{n}x_gelu` for a projector that is a feed-forward network of `n` layers.
fn projector_name(projector: &Value) -> Result<Value> {
    let bad = |what: &str| Error::refused(format!("projector.image_model {what}"));
    let section = projector.as_map();
    let section = section.ok_or_else(|| unfit("projector", projector, "a section of keys"))?;
    let network = need(section, "image_model")?.as_map().filter(|network| !network.is_empty());
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
    Ok(format!("mlp{count}x_gelu").into())
}

/// Converts LLaVA's layout to that of multimodal_simple.
fn nest(model: &mut Map, encoder: &str) -> Result<()> {
    model.remove("image_start_idx");
    let layer = model.remove("image_feature_select_layer_idx").unwrap_or(Value::Null);
    let image = section(model, "image_model")?;
    image.set("image_layer_idx", layer);
    let image = Value::Map(image.clone());
    // In 2.3 this is a list of one.
    let image = if encoder == "image_encoder" {
        image
    } else {
        [image].into_iter().collect::<List>().into()
    };
    let models = Map::from([(encoder, image)]);
    let models: List = [Value::Map(models)].into_iter().collect();
    let mut list = Map::from([("image_models", models.into())]);
    if let Some(mode) = model.remove("image_feature_select_mode") {
        list.set("image_feature_select_mode", mode);
    }
    let projector = model.remove("projector");
    let network =
        projector.as_ref().and_then(Value::as_map).and_then(|section| section.get("image_model"));
    if let Some(network) = network {
        list.set("global_image_projection", network.clone());
    }
    model.set("image_model_list", list);
    Ok(())
}

/// Converts the layout of multimodal_simple to LLaVA's.
fn unnest(model: &mut Map, encoder: &str) -> Result<()> {
    let list = model.remove("image_model_list");
    let list = list.as_ref().and_then(Value::as_map);
    let list = list.ok_or_else(|| Error::refused("the model's section has no image_model_list"))?;
    let first = need(list, "image_models")?.as_list().and_then(|models| models.first());
    let image = match first.and_then(Value::as_map).and_then(|models| models.get(encoder)) {
        Some(Value::List(several)) => several.first(),
        other => other,
    };
    let image = image.and_then(Value::as_map).ok_or_else(|| {
        Error::refused(format!("image_model_list.image_models has no {encoder}"))
            .expected("one image model")
    })?;
    let network = need(list, "global_image_projection")?.clone();
    let projector = Map::from([("image_model", network)]);
    model.set("projector", projector);
    model.set("image_feature_select_layer_idx", need(image, "image_layer_idx")?.clone());
    model.set("image_feature_select_mode", need(list, "image_feature_select_mode")?.clone());
    model.set("image_model", image.clone());
    Ok(())
}

/// Returns the preprocessor's config, which resizes images to the size of the image model.
fn preprocessor(defaults: &Map, model: &Map) -> Result<Map> {
    let image = part_of(model, "image_model")?;
    let size = need(&image, "image_size")?;
    let sizes = size.as_list().map(|sizes| sizes.as_slice());
    let Some([height, width]) = sizes else {
        return Err(unfit("image_size", size, "two numbers"));
    };
    let mut config = defaults.clone();
    let crop = Map::from([("height", height.clone()), ("width", width.clone())]);
    config.set("crop_size", crop);
    config.set("size", height.clone());
    Ok(config)
}
