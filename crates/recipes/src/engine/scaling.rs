//! Folds muP scaling into the weights, for a model with the standard parametrisation.

use statelens_checkpoint::{Arithmetic, Error, Result};

use crate::config::Value;
use crate::language::TensorScaling;

/// The factors for the tensors of a muP model, which are applied before renaming.
#[derive(Debug)]
pub(super) struct Factors<'a> {
    scaling: TensorScaling,
    config: &'a Value,
    style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Releases from 2.3: `mup_base_hidden_size` and so on.
    Base,
    /// Earlier releases: `scale_qk_dot_by_d`, `embeddings_scale` and `output_logits_scale`.
    Scales,
}

/// Returns whether the config is that of a muP model.
pub fn is_mup(config: &Value) -> bool {
    style(config).is_some()
}

fn style(config: &Value) -> Option<Style> {
    let map = config.as_map()?;
    let base = |(key, value): (&crate::config::MapKey, &Value)| {
        key.as_str().is_some_and(|key| key.starts_with("mup_base_")) && !value.is_null()
    };
    if map.iter().any(base) {
        return Some(Style::Base);
    }
    let truthy = |key: &str| map.get(key).is_some_and(Value::is_true);
    let all = ["scale_qk_dot_by_d", "embeddings_scale", "output_logits_scale"];
    all.iter().all(|key| truthy(key)).then_some(Style::Scales)
}

impl<'a> Factors<'a> {
    /// Returns the factors of a muP model; `None` for any other.
    pub(super) fn of(scaling: TensorScaling, config: &'a Value) -> Option<Self> {
        let style = style(config)?;
        if scaling == TensorScaling::T5 && style == Style::Scales {
            return None;
        }
        Some(Self { scaling, config, style })
    }

    /// Returns the computation for a tensor of the source.
    pub(super) fn steps(&self, key: &str) -> Result<Vec<Arithmetic>> {
        match self.scaling {
            TensorScaling::Decoder => self.decoder(key),
            TensorScaling::T5 => self.t5(key),
            TensorScaling::Kept => Ok(Vec::new()),
        }
    }

    fn decoder(&self, key: &str) -> Result<Vec<Arithmetic>> {
        let key = key.strip_prefix("model.").unwrap_or(key);
        if key.contains(".proj_k_dense_layer") {
            let mut steps = Vec::new();
            if self.style == Style::Base {
                steps.push(Arithmetic::Multiply(self.number("attention_logits_alpha", 1.0)));
            }
            if self.truth("scale_qk_dot_by_d", true) {
                let hidden = self.needed("hidden_size")?;
                let head = (hidden / self.needed("num_heads")?).floor();
                steps.push(Arithmetic::Divide(head.sqrt()));
            }
            return Ok(steps);
        }
        let is_bert = key.starts_with("bert");
        if is_scaled_head(key) {
            if self.style == Style::Scales {
                return Ok(vec![Arithmetic::Multiply(self.needed("output_logits_scale")?)]);
            }
            let mut width = self.needed("hidden_size")? / self.needed("mup_base_hidden_size")?;
            if !self.truth("scale_output_logits_by_d", true) {
                width = width.sqrt();
            }
            let alpha = self.number("output_logits_alpha", 1.0);
            return Ok(vec![Arithmetic::Multiply(alpha / width)]);
        }
        // BERT's embeddings have a norm unless the config says otherwise; those of decoders have
        // one only if the config says so. The output of the norm is scaled (`embeddings_scale` in
        // `BertModelConfig` of the Cerebras Model Zoo).
        let scaled = match (self.truth("embedding_layer_norm", is_bert), is_bert) {
            (true, true) => key.contains("embed_ln_f"),
            (true, false) => key.contains("embedding_ln_f"),
            (false, _) => {
                let scaled =
                    |name: &&str| key.contains(&format!("embedding_layer.{name}_embeddings"));
                ["word", "position"].iter().any(scaled) || is_bert && scaled(&"segment")
            }
        };
        match self.config.as_map().and_then(|map| map.get("embeddings_scale")) {
            Some(scale) if scaled && !scale.is_null() => {
                let scale = scale.as_f64().ok_or_else(|| not_a_number("embeddings_scale"))?;
                Ok(vec![Arithmetic::Multiply(scale)])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn t5(&self, key: &str) -> Result<Vec<Arithmetic>> {
        let model = self.needed("d_model")?;
        let width = model / self.number("mup_base_d_model", model);
        let head = self.needed("d_kv")?.sqrt();
        let per_head = self.map("mup_base_d_kv").is_some_and(|base| !base.is_null());
        let (inward, outward) =
            if per_head { (1.0, 1.0) } else { (width.powf(-0.5), width.powf(0.5)) };
        let side = if key.contains("encoder") { "encoder" } else { "decoder" };
        Ok(if key.contains(".proj_q_dense_layer") {
            vec![Arithmetic::Multiply(inward), Arithmetic::Divide(head)]
        } else if key.contains(".proj_k_dense_layer") {
            let alpha = self.number(&format!("{side}_attention_logits_alpha"), 1.0);
            let mut steps = vec![Arithmetic::Multiply(alpha * inward)];
            if self.truth(&format!("scale_{side}_qk_dot_by_d"), true) {
                steps.push(Arithmetic::Divide(head));
            }
            steps
        } else if key.contains(".proj_v_dense_layer") {
            vec![Arithmetic::Multiply(inward)]
        } else if key.contains(".proj_output_dense_layer") {
            vec![Arithmetic::Multiply(outward)]
        } else if key.ends_with("lm_head.weight") {
            let by = match self.truth("scale_output_logits_by_d", false) {
                true => width,
                false => width.sqrt(),
            };
            let alpha = self.number("output_logits_alpha", 1.0);
            vec![Arithmetic::Multiply(alpha / by)]
        } else if key.contains("_embeddings.word_embeddings") {
            vec![Arithmetic::Multiply(self.number("embeddings_alpha", 1.0) * model.sqrt())]
        } else {
            Vec::new()
        })
    }

    fn map(&self, key: &str) -> Option<&Value> {
        self.config.as_map().and_then(|map| map.get(key))
    }

    fn number(&self, key: &str, default: f64) -> f64 {
        self.map(key).and_then(Value::as_f64).unwrap_or(default)
    }

    fn truth(&self, key: &str, default: bool) -> bool {
        self.map(key).filter(|value| !value.is_null()).map_or(default, Value::is_true)
    }

    fn needed(&self, key: &str) -> Result<f64> {
        let number = self.map(key).and_then(Value::as_f64).filter(|number| *number > 0.0);
        number.ok_or_else(|| not_a_number(key))
    }
}

/// Returns whether a tensor produces logits, which muP scales. BERT's heads are scaled with their
/// bias (`BertPretrainModel.forward` of the Cerebras Model Zoo).
fn is_scaled_head(key: &str) -> bool {
    let of_bert = key.contains("mlm_head") || key.contains("cls_head");
    key == "lm_head.weight" || of_bert && key.contains("classifier")
}

fn not_a_number(key: &str) -> Error {
    Error::refused(format!("the muP model's config has no {key} above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(config: &str, key: &str) -> Vec<Arithmetic> {
        let config = crate::config::parse(config, crate::config::Language::Json).unwrap();
        Factors::of(TensorScaling::Decoder, &config).unwrap().steps(key).unwrap()
    }

    #[test]
    fn scales_embedding_norm_and_heads_of_bert() {
        let config = r#"{"mup_base_hidden_size": 4, "hidden_size": 8, "num_heads": 2, "embeddings_scale": 10.0}"#;
        let by = |number: f64| vec![Arithmetic::Multiply(number)];
        for (key, expected) in [
            ("model.bert_encoder.embedding_layer.word_embeddings.weight", vec![]),
            ("model.bert_encoder.embedding_layer.position_embeddings.embed.weight", vec![]),
            ("model.bert_encoder.embedding_layer.segment_embeddings.weight", vec![]),
            ("model.bert_encoder.embed_ln_f.weight", by(10.0)),
            ("model.bert_encoder.embed_ln_f.bias", by(10.0)),
            ("model.bert_mlm_head.mlm_transform.ffn.ffn.0.linear_layer.weight", vec![]),
            ("model.bert_mlm_head.classifier.ffn.0.linear_layer.weight", by(0.5)),
            ("model.bert_mlm_head.classifier.ffn.0.linear_layer.bias", by(0.5)),
            ("model.bert_cls_head.classifier.ffn.0.linear_layer.weight", by(0.5)),
            ("model.bert_cls_head.classifier.ffn.0.linear_layer.bias", by(0.5)),
            ("model.bert_encoder.pooler.pooler.ffn.0.linear_layer.weight", vec![]),
        ] {
            assert_eq!(steps(config, key), expected, "{key}");
        }
    }

    #[test]
    fn scales_decoder_embeddings_without_a_norm() {
        let plain = r#"{"mup_base_hidden_size": 4, "hidden_size": 8, "num_heads": 2, "embeddings_scale": 10.0}"#;
        let by = |number: f64| vec![Arithmetic::Multiply(number)];
        assert_eq!(steps(plain, "model.embedding_layer.word_embeddings.weight"), by(10.0));
        assert_eq!(steps(plain, "model.lm_head.weight"), by(0.5));
        let normed = r#"{"mup_base_hidden_size": 4, "hidden_size": 8, "num_heads": 2, "embeddings_scale": 10.0, "embedding_layer_norm": true}"#;
        assert_eq!(steps(normed, "model.embedding_layer.word_embeddings.weight"), vec![]);
        assert_eq!(steps(normed, "model.embedding_ln_f.bias"), by(10.0));
    }
}
