//! Named functions for single families that rules and assignments can't express.

use statelens_checkpoint::{Error, Result};

use super::expression::{need, number, unfit};
use super::value::{Map, Value};

pub(super) struct ConfigWork<'a> {
    /// The whole source config, which has other sections besides the model's.
    pub(super) root: &'a Map,
    /// The model's section of the source, with defaults.
    pub(super) old: &'a mut Map,
    /// The model's section of the target.
    pub(super) new: &'a mut Map,
    /// Other sections of the target.
    pub(super) sections: &'a mut Map,
    /// Messages for the user.
    pub(super) notes: &'a mut Vec<String>,
}

type Act = fn(&mut ConfigWork<'_>) -> Result<()>;

#[derive(Debug, Clone, Copy)]
pub(super) struct Hook(Act);

impl Hook {
    pub(super) fn named(name: &str) -> Option<Self> {
        const HOOKS: [(&str, Act); 17] = [
            ("bert_pooler", bert_pooler),
            ("bert_before_1_8", bert_before_1_8),
            ("roberta_segments", roberta_segments),
            ("label_count", label_count),
            ("problem_type", problem_type),
            ("encoder_stride", encoder_stride),
            ("gemma2_scales", gemma2_scales),
            ("gemma2_to_cs", gemma2_to_cs),
            ("gemma2_to_hf", gemma2_to_hf),
            ("t5_vocabulary", t5_vocabulary),
            ("falcon_7b", falcon_7b),
            ("falcon_to_cs", falcon_to_cs),
            ("falcon_to_hf", falcon_to_hf),
            ("decoder_kernel", decoder_kernel),
            ("width_scale", width_scale),
            ("flatten", flatten),
            ("nest", nest),
        ];
        HOOKS.iter().find(|(known, _)| *known == name).map(|(_, hook)| Self(*hook))
    }

    pub(super) fn run(self, work: &mut ConfigWork<'_>) -> Result<()> {
        (self.0)(work)
    }
}

fn is_text(value: Option<&Value>, text: &str) -> bool {
    value.and_then(Value::as_str) == Some(text)
}

/// Checks that the pooler is tanh, as Hugging Face's is. Without a key of its own, the pooler has
/// the encoder's nonlinearity.
fn bert_pooler(work: &mut ConfigWork<'_>) -> Result<()> {
    let encoder = work.old.get("encoder_nonlinearity");
    if work.old.contains("pooler_nonlinearity") || is_text(encoder, "tanh") {
        return Ok(());
    }
    let encoder = need(work.old, "encoder_nonlinearity")?.quoted();
    Err(Error::refused(format!(
        "pooler_nonlinearity is not set, so the pooler has the encoder's, {encoder}"
    ))
    .expected("tanh, the only one that Hugging Face's pooler has"))
}

/// Checks nonlinearities for releases before 1.8, where the pooler had the encoder's and the masked
/// language model had gelu.
fn bert_before_1_8(work: &mut ConfigWork<'_>) -> Result<()> {
    let config = &*work.old;
    if let Some(pooler) = config.get("pooler_nonlinearity") {
        let encoder = need(config, "encoder_nonlinearity")?;
        if !pooler.equals(encoder) {
            let expected =
                format!("{}, as encoder_nonlinearity: before 1.8 they were one", encoder.quoted());
            return Err(unfit("pooler_nonlinearity", pooler, expected));
        }
    }
    let key = if config.contains("mlm_nonlinearity") {
        "mlm_nonlinearity"
    } else {
        "encoder_nonlinearity"
    };
    let mlm = need(config, key)?;
    if mlm.as_str() != Some("gelu") {
        let expected = "gelu, the only one that the masked language model had before 1.8";
        return Err(unfit(key, mlm, expected));
    }
    Ok(())
}

fn roberta_segments(work: &mut ConfigWork<'_>) -> Result<()> {
    if !work.old.contains("num_segments") {
        let none = need(work.old, "disable_nsp")?.is_true();
        work.old.set("num_segments", if none { 0 } else { 2 });
    }
    Ok(())
}

fn label_count(work: &mut ConfigWork<'_>) -> Result<()> {
    if !work.old.contains("num_labels") {
        let labels = work.old.get("id2label").and_then(Value::as_map).map_or(2, Map::len);
        work.old.set("num_labels", i64::try_from(labels).unwrap_or(i64::MAX));
    }
    Ok(())
}

fn problem_type(work: &mut ConfigWork<'_>) -> Result<()> {
    if work.old.get("problem_type").is_some_and(|kind| !kind.is_null()) {
        return Ok(());
    }
    if need(work.old, "num_labels")?.equals(&Value::Int(1)) {
        work.old.set("problem_type", "regression");
        return Ok(());
    }
    Err(Error::refused("the config doesn't name the problem that the classifier solves")
        .advice("Add problem_type: single_label_classification or multi_label_classification."))
}

fn encoder_stride(work: &mut ConfigWork<'_>) -> Result<()> {
    let Some(stride) = work.old.get("encoder_stride") else { return Ok(()) };
    let patch = need(work.old, "patch_size")?;
    if stride.equals(patch) {
        return Ok(());
    }
    Err(unfit("encoder_stride", stride, format!("{}, as patch_size", patch.quoted())))
}

fn gemma2_scales(work: &mut ConfigWork<'_>) -> Result<()> {
    let config = &mut *work.old;
    let scale = number(config, "embeddings_scale")?;
    let root = number(config, "hidden_size")?.sqrt();
    // The same test as torch's `assert_close` with these tolerances.
    if (scale - root).abs() > 1e-6 + 2.0e-7 * root.abs() {
        let expected = format!("the square root of hidden_size, {}", Value::Float(root).quoted());
        return Err(unfit("embeddings_scale", &Value::Float(scale), expected));
    }
    if config.get("attention_inner_dim").is_none_or(Value::is_null) {
        let hidden = need(config, "hidden_size")?.clone();
        config.set("attention_inner_dim", hidden);
    }
    if config.get("rotary_dim").is_none_or(Value::is_null) {
        return Err(Error::refused("rotary_dim is not in the config")
            .advice("Add it: the other side needs its value."));
    }
    if need(config, "attention_dropout_rate")?.is_null() {
        let rate = need(config, "dropout_rate")?.clone();
        config.set("attention_dropout_rate", rate);
    }
    Ok(())
}

fn gemma2_to_cs(work: &mut ConfigWork<'_>) -> Result<()> {
    let head = need(work.old, "head_dim")?.clone();
    work.new.set("rotary_dim", head);
    let root = finite("embeddings_scale", number(work.new, "hidden_size")?.sqrt())?;
    work.new.set("embeddings_scale", root);
    let head = number(work.new, "attention_inner_dim")? / number(work.new, "num_heads")?;
    let scalar = number(work.old, "query_pre_attn_scalar")?;
    if head != scalar {
        let alpha = finite("attention_logits_alpha", (head / scalar).sqrt())?;
        work.new.set("attention_logits_alpha", alpha);
    }
    Ok(())
}

fn gemma2_to_hf(work: &mut ConfigWork<'_>) -> Result<()> {
    let head = number(work.old, "attention_inner_dim")? / number(work.old, "num_heads")?;
    let alpha = number(work.old, "attention_logits_alpha")?;
    let scalar = finite("query_pre_attn_scalar", head / (alpha * alpha))?;
    work.new.set("query_pre_attn_scalar", scalar);
    Ok(())
}

/// Fails if a computed value is not finite, as after a division by 0.
fn finite(key: &str, value: f64) -> Result<f64> {
    match value.is_finite() {
        true => Ok(value),
        false => Err(Error::refused(format!("{key} would be {}", Value::Float(value).quoted()))
            .advice("Check the sizes in the config: one that is 0 or negative leads to this.")),
    }
}

fn t5_vocabulary(work: &mut ConfigWork<'_>) -> Result<()> {
    for (key, other) in
        [("tgt_vocab_size", "src_vocab_size"), ("relu_dropout_rate", "dropout_rate")]
    {
        let Some(value) = work.old.get(key).filter(|value| !value.is_null()) else { continue };
        let expected = need(work.old, other)?;
        if !value.equals(expected) {
            let both = format!("{}, as {other}: Hugging Face has one for both", expected.quoted());
            return Err(unfit(key, value, both));
        }
    }
    Ok(())
}

fn falcon_7b(work: &mut ConfigWork<'_>) -> Result<()> {
    let one = need(work.old, "multi_query")?;
    if one.equals(&Value::Bool(true)) {
        return Ok(());
    }
    Err(unfit("multi_query", one, "true: in this layout of Falcon keys and values have one head"))
}

fn falcon_to_cs(work: &mut ConfigWork<'_>) -> Result<()> {
    let flag = |key: &str| need(work.old, key).map(Value::is_true);
    let two = need(work.old, "num_ln_in_parallel_attn")?.equals(&Value::Int(2));
    let untied = (flag("new_decoder_architecture")? && two) || !flag("parallel_attn")?;
    work.new.set("use_untied_layer_norm", untied);
    Ok(())
}

fn falcon_to_hf(work: &mut ConfigWork<'_>) -> Result<()> {
    let dropout = need(work.old, "embedding_dropout_rate")?;
    if !dropout.equals(&Value::Float(0.0)) {
        let expected = "0: Falcon has no dropout of embeddings";
        return Err(unfit("embedding_dropout_rate", dropout, expected));
    }
    let head = (number(work.old, "hidden_size")? / number(work.old, "num_heads")?).floor();
    let head = finite("the size of a head", head)?;
    let rotary = need(work.old, "rotary_dim")?;
    if !rotary.equals(&Value::Float(head)) {
        return Err(unfit("rotary_dim", rotary, format!("hidden_size // num_heads ({head})")));
    }
    let new = &mut *work.new;
    new.set("parallel_attn", true);
    let untied = need(work.old, "use_untied_layer_norm")?.is_true();
    let groups = need(new, "num_kv_heads")?.clone();
    let one = groups.equals(&Value::Int(1));
    if !untied && !one && !groups.equals(need(new, "num_attention_heads")?) {
        return Err(Error::refused(format!(
            "use_untied_layer_norm is false, and there are {} groups of keys and values",
            groups.quoted()
        ))
        .expected(
            "1 group, or as many as heads: Hugging Face's Falcon has no other with one norm",
        ));
    }
    new.set("new_decoder_architecture", untied);
    new.set("multi_query", one);
    if !new.contains("num_ln_in_parallel_attn") {
        new.set("num_ln_in_parallel_attn", if untied { Value::Int(2) } else { Value::Null });
    }
    Ok(())
}

/// Copies BTLM's width scale, which is in another section of Cerebras's config.
fn decoder_kernel(work: &mut ConfigWork<'_>) -> Result<()> {
    let section = |map: &Map, key: &str| map.get(key).and_then(Value::as_map).cloned();
    let rates =
        section(work.root, "optimizer").and_then(|map| section(&map, "adjust_learning_rate"));
    match rates.and_then(|rates| rates.get("decoder_kernel").cloned()) {
        Some(kernel) => work.old.set("decoder_kernel", kernel),
        None => work.notes.push(
            "optimizer.adjust_learning_rate.decoder_kernel is not in the config: its muP width scale is taken as 1"
                .to_owned(),
        ),
    }
    Ok(())
}

fn width_scale(work: &mut ConfigWork<'_>) -> Result<()> {
    let scale = need(work.old, "mup_width_scale")?.clone();
    let rates = Map::from([("decoder_kernel", scale)]);
    let optimizer = Map::from([("adjust_learning_rate", rates.into())]);
    work.sections.set("optimizer", optimizer);
    Ok(())
}

/// Flattens nested keys to `outer.inner`.
fn flatten(work: &mut ConfigWork<'_>) -> Result<()> {
    let mut flat = Map::new();
    let mut todo: Vec<(String, Value)> = Vec::new();
    let push = |todo: &mut Vec<(String, Value)>, prefix: &str, map: Map| {
        let entries: Vec<_> = map.into_iter().collect();
        for (key, value) in entries.into_iter().rev() {
            if let Some(key) = key.as_str() {
                let key =
                    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
                todo.push((key, value));
            }
        }
    };
    push(&mut todo, "", std::mem::take(work.old));
    while let Some((key, value)) = todo.pop() {
        match value {
            Value::Map(map) => push(&mut todo, &key, map),
            value => flat.set(key, value),
        }
    }
    *work.old = flat;
    Ok(())
}

/// Turns keys such as `outer.inner` into sections, and sets the backbone's sliding window in every
/// second layer.
fn nest(work: &mut ConfigWork<'_>) -> Result<()> {
    let mut nested = Map::new();
    for (key, value) in std::mem::take(work.new) {
        let Some(key) = key.as_str() else { continue };
        put(&mut nested, key, value)?;
    }
    *work.new = nested;
    if !work.old.get("sliding_window_every_other_decoder_layer").is_some_and(Value::is_true) {
        return Ok(());
    }
    let decoder = work.new.get_mut("transformer_decoder").and_then(Value::as_map_mut);
    let Some(decoder) = decoder else { return Ok(()) };
    const MAX_LAYERS: i64 = 10_000;
    let count = need(decoder, "num_hidden_layers")?
        .as_int()
        .filter(|count| (0..=MAX_LAYERS).contains(count));
    let count =
        count.ok_or_else(|| Error::refused("num_hidden_layers is not a number of layers"))?;
    let window = need(decoder, "layers")?.clone();
    window.can_repeat(usize::try_from(count).unwrap_or(usize::MAX))?;
    let mut none = window.clone();
    let attention =
        none.as_map_mut().and_then(|layer| layer.get_mut("self_attn")).and_then(Value::as_map_mut);
    if let Some(attention) = attention {
        attention.set("attention_sliding_window_length", Value::Null);
    }
    // Each kind is a single object with several occurrences, which YAML writes as aliases.
    let mut kinds = [none, window];
    for (mark, kind) in kinds.iter_mut().enumerate() {
        kind.share(u32::MAX - 16 - mark as u32);
    }
    let layers: super::value::List =
        (0..count).map(|layer| kinds[(layer % 2) as usize].clone()).collect();
    decoder.set("layers", layers);
    Ok(())
}

fn put(map: &mut Map, key: &str, value: Value) -> Result<()> {
    let mut map = map;
    let mut rest = key;
    while let Some((section, inner)) = rest.split_once('.') {
        map.set_default(section, Map::new());
        let next = map.get_mut(section).and_then(Value::as_map_mut);
        map = next.ok_or_else(|| Error::refused(format!("{section} is a value and a section")))?;
        rest = inner;
    }
    map.set(rest, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_sizes_that_lead_to_numbers_that_are_not_finite() {
        type Hook = fn(&mut ConfigWork<'_>) -> Result<()>;
        let with = |hook: Hook, key: &str, value: f64| {
            let mut old = Map::new();
            for (key, value) in [
                ("attention_inner_dim", 8.0),
                ("num_heads", 2.0),
                ("attention_logits_alpha", 2.0),
                ("head_dim", 4.0),
                ("query_pre_attn_scalar", 1.0),
                ("hidden_size", 16.0),
            ] {
                old.set(key, value);
            }
            old.set(key, value);
            let mut new = old.clone();
            let (root, mut sections, mut notes) = (Map::new(), Map::new(), Vec::new());
            let work = &mut ConfigWork {
                root: &root,
                old: &mut old,
                new: &mut new,
                sections: &mut sections,
                notes: &mut notes,
            };
            hook(work)
        };
        for (hook, key, value) in [
            (gemma2_to_hf as Hook, "num_heads", 0.0),
            (gemma2_to_hf, "attention_logits_alpha", 0.0),
            (gemma2_to_hf, "attention_logits_alpha", 1e-200),
            (gemma2_to_cs, "num_heads", 0.0),
            (gemma2_to_cs, "query_pre_attn_scalar", 0.0),
            (gemma2_to_cs, "query_pre_attn_scalar", -1.0),
            (gemma2_to_cs, "hidden_size", -1.0),
        ] {
            assert!(with(hook, key, value).is_err(), "{key} {value}");
        }
        assert!(with(gemma2_to_hf, "num_heads", 2.0).is_ok());
        assert!(with(gemma2_to_cs, "num_heads", 2.0).is_ok());
    }
}
