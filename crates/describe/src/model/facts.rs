//! Collects the facts with their sources: the config first, then names and shapes. If both have a
//! value and they differ, the fact mentions both.

use statelens_checkpoint::{counted, grouped};

use super::config::Config;
use super::heads::{self, SizeAndSource};
use super::parts::{self, PartSum};
use super::roles::{ModelComponent, Role};
use super::stacks::Stack;
use super::weights::Weights;
use super::{Fact, FactSource, FactValue, experts, family};

/// Returns all facts.
pub(super) fn all(
    weights: &Weights,
    stacks: &[Stack],
    parts: &[PartSum],
    config: Option<&Config>,
) -> Vec<Fact> {
    let inputs = FactInputs { weights, stacks, config };
    let mut facts = vec![inputs.family(), inputs.layers()];
    let hidden = heads::hidden(weights, stacks);
    let wide =
        hidden.as_ref().and_then(|(hidden, _)| heads::intermediate(weights, stacks, *hidden));
    let shape = "can't be inferred: no norm or embedding";
    facts.push(of_number("hidden_size", "hidden size", inputs.read(&HIDDEN), hidden, shape));
    facts.push(of_number(
        "intermediate_size",
        "feed-forward size",
        inputs.read(&INTERMEDIATE),
        wide,
        "no feed-forward matrix recognised",
    ));
    facts.extend(inputs.heads());
    facts.push(inputs.vocabulary());
    facts.push(inputs.positions());
    facts.push(inputs.tied());
    facts.extend(inputs.experts());
    facts.push(params(parts));
    if facts.iter().any(|fact| fact.name == "experts") {
        facts.push(active(parts));
    }
    facts
}

const HIDDEN: [&str; 7] =
    ["hidden_size", "n_embd", "d_model", "dim", "n_embed", "embedding_length", "hidden_dim"];
const INTERMEDIATE: [&str; 9] = [
    "intermediate_size",
    "n_inner",
    "d_ff",
    "ffn_dim",
    "ffn_hidden_size",
    "encoder_ffn_dim",
    "filter_size",
    "feed_forward_length",
    "ffn_hidden_dim",
];
const LAYERS: [&str; 8] = [
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "encoder_num_hidden_layers",
    "block_count",
    "depth",
];
const HEADS: [&str; 8] = [
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "encoder_attention_heads",
    "encoder_num_heads",
    "attention.head_count",
    "nhead",
];
const KEY_HEADS: [&str; 6] = [
    "num_key_value_heads",
    "n_kv_heads",
    "num_kv_heads",
    "n_head_kv",
    "attention.head_count_kv",
    "extra_attention_params.num_kv_groups",
];

/// Fields with the number of key heads in configs that may not use it.
const OTHER_KEY_HEADS: [&str; 2] = ["attn_config.kv_n_heads", "multi_query_group_num"];

/// Flags that decide whether all heads share one key, whatever the number of key heads says.
const SHARED: [&str; 3] = ["multi_query", "multi_query_attention", "new_decoder_architecture"];

/// Fields with the number of layers of a stack, by the end of its path.
const STACKS: [(&str, &[&str]); 6] = [
    ("encoder.block", &["num_layers"]),
    ("decoder.block", &["num_decoder_layers", "num_layers"]),
    ("text_model.encoder.layers", &["text_config.num_hidden_layers"]),
    ("vision_model.encoder.layers", &["vision_config.num_hidden_layers"]),
    ("encoder.layers", &["encoder_layers"]),
    ("decoder.layers", &["decoder_layers"]),
];

struct FactInputs<'a> {
    weights: &'a Weights<'a>,
    stacks: &'a [Stack],
    config: Option<&'a Config>,
}

impl FactInputs<'_> {
    /// Returns a fact for a number from the config or inferred from shapes.
    fn number(
        &self,
        name: &'static str,
        label: &'static str,
        keys: &[&str],
        inferred: Option<SizeAndSource>,
        unknown: &str,
    ) -> Fact {
        let read =
            self.config.and_then(|config| config.number(keys)).filter(|(number, _)| *number > 0);
        of_number(name, label, read, inferred, unknown)
    }

    /// Returns a number of the config for the main stack.
    fn read(&self, keys: &[&str]) -> Option<(u64, FactSource)> {
        let path = self.stacks.first().filter(|stack| stack.layers);
        let path = path.map_or("", |stack| stack.prefix.as_str());
        let own = keys.iter().map(|key| match path.ends_with("decoder.layers") {
            true => key.replace("encoder_", "decoder_"),
            false => (*key).to_owned(),
        });
        let own: Vec<String> = own.collect();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        self.config?.number_of(path, &own).filter(|(number, _)| *number > 0)
    }

    /// Returns the number of layers of a stack that the config has for stacks with its name.
    fn read_layers(&self, stack: &Stack) -> Option<(u64, FactSource)> {
        let (_, keys) = STACKS.iter().find(|(end, _)| stack.prefix.ends_with(end))?;
        self.config?.number(keys)
    }

    fn family(&self) -> Fact {
        let named = family::by_names(self.weights);
        let read = self.config.and_then(|config| {
            config.text(&["model_type", "general.architecture", "model_name", "architecture"])
        });
        let structure = named.map_or("", |named| named.structure);
        let with = |title: &str| match structure {
            "" => title.to_owned(),
            _ => format!("{title}, {structure}"),
        };
        match (read, named) {
            (Some((kind, source)), _) => {
                fact("family", "family", FactValue::Text(with(kind)), source)
            }
            (None, Some(named)) => {
                let by = format!("names: {}", named.by.join(", "));
                let title = FactValue::Text(with(named.title));
                fact("family", "family", title, FactSource::Inferred(by))
            }
            (None, None) => {
                unknown("family", "family", "the names are not those of a known family")
            }
        }
    }

    fn layers(&self) -> Fact {
        // Models may have several stacks: encoder and decoder, or images and text.
        let layers: Vec<&Stack> = self.stacks.iter().filter(|stack| stack.layers).collect();
        let count = |stack: &Stack| stack.numbers.len() as u64;
        let inferred = layers.first().map(|stack| (count(stack), basis(stack)));
        let read = layers.first().and_then(|stack| self.read_layers(stack));
        let missing = "no modules are numbered as layers";
        let read = read.or_else(|| self.read(&LAYERS));
        let mut fact = of_number("layers", "layers", read, inferred, missing);
        for stack in layers.iter().skip(1).filter(|_| !fact.contradicts) {
            if let Some((number, FactSource::Config(place))) = self.read_layers(stack)
                && number != count(stack)
            {
                let (file, basis) = (count(stack), basis(stack));
                fact.doubt = format!("{number} in {place}, and the file says {file}: {basis}");
                fact.contradicts = true;
                break;
            }
        }
        if layers.len() > 1 {
            let others = layers[1..].iter().take(3);
            let others: Vec<String> =
                others.map(|stack| format!("{} in {}", count(stack), stack.prefix)).collect();
            let (FactSource::Config(basis)
            | FactSource::File(basis)
            | FactSource::Inferred(basis)
            | FactSource::Unknown(basis)) = &mut fact.source;
            *basis = format!("{basis}; also {}", others.join(", "));
        }
        fact
    }

    fn heads(&self) -> Vec<Fact> {
        let mut inferred = heads::heads(self.weights, self.stacks);
        let missing = "not stored in the file; add config.json";
        let mut facts = Vec::new();
        let mut queries = of_number("heads", "heads", self.read(&HEADS), inferred.queries, missing);
        let read = self.read(&KEY_HEADS);
        let by_share =
            number_of(&queries).zip(inferred.shared.clone()).and_then(|(heads, (share, basis))| {
                let whole = share > 0 && heads.is_multiple_of(share);
                whole.then(|| (heads / share, format!("{basis}, {share} heads share one")))
            });
        let mut keys =
            of_number("kv_heads", "key and value heads", read, inferred.keys.or(by_share), missing);
        let size = self.read(&["head_dim", "d_kv", "attention.key_length"]);
        if let (Some(heads), Some((rows, basis))) = (number_of(&queries), inferred.rows) {
            if !rows.is_multiple_of(heads) && !queries.contradicts {
                queries.doubt = format!("the file has {} rows: {basis}", grouped(rows));
                queries.contradicts = true;
            } else if size.is_some() && inferred.size.is_none() {
                inferred.size = Some((rows / heads, format!("{basis}, for {heads} heads")));
            }
        }
        if let (Some(heads), Some(((rows, basis), hidden))) = (number_of(&queries), inferred.fused)
        {
            let stated = number_of(&keys).or_else(|| Some(self.read(&OTHER_KEY_HEADS)?.0));
            let size = size.as_ref().map(|(size, _)| *size).or_else(|| hidden.checked_div(heads));
            let fits = |keys: u64| {
                let all = keys.saturating_mul(2).saturating_add(heads);
                size.is_none_or(|size| all.saturating_mul(size) == rows)
            };
            let is_shared = |config: &Config| config.flag(&SHARED).is_some();
            let unclear = stated.is_none() || self.config.is_some_and(is_shared);
            if !stated.is_some_and(fits) && !(unclear && (fits(1) || fits(heads))) {
                let fact = if keys.is_known() { &mut keys } else { &mut queries };
                let rows = grouped(rows);
                fact.doubt =
                    format!("the file has {rows} rows of queries, keys and values: {basis}");
                fact.contradicts = true;
            }
        }
        let known = [&queries, &keys].into_iter().any(Fact::is_known);
        let has_attention =
            self.weights.all.iter().any(|weight| weight.component == ModelComponent::Attention);
        if !known && !has_attention {
            return facts;
        }
        facts.extend([queries, keys]);
        if let Some((share, basis)) = inferred.shared.filter(|_| !known) {
            let value = FactValue::Number(share);
            facts.push(fact(
                "heads_per_kv_head",
                "query heads per KV head",
                value,
                FactSource::Inferred(basis),
            ));
        }
        if size.is_some() || inferred.size.is_some() {
            facts.push(of_number("head_size", "head size", size, inferred.size, missing));
        }
        facts
    }

    fn vocabulary(&self) -> Fact {
        let rows = |role| self.weights.of(role).find(|weight| weight.shape.len() == 2);
        let inferred = rows(Role::Tokens).and_then(|weight| {
            Some((*weight.shape.first()?, format!("the rows of {}", weight.key)))
        });
        let keys = ["vocab_size", "n_vocab", "padded_vocab_size", "encoder_vocab_size"];
        let mut fact = self.number(
            "vocabulary",
            "vocabulary",
            &keys,
            inferred.clone(),
            "no token embedding was recognised",
        );
        // Padding is not a contradiction.
        if let (Some(read), Some((rows, _))) = (number_of(&fact), inferred)
            && rows > read
        {
            fact.doubt =
                format!("the embedding has {} rows, {} more", grouped(rows), grouped(rows - read));
            fact.contradicts = rows - read > MAX_PADDING;
        }
        fact
    }

    fn positions(&self) -> Fact {
        let rows = self.weights.of(Role::Positions).find(|weight| weight.shape.len() >= 2);
        let inferred = rows.and_then(|weight| {
            let rows = weight.shape.get(weight.shape.len().checked_sub(2)?)?;
            Some((*rows, format!("the rows of {}", weight.key)))
        });
        let keys = [
            "max_position_embeddings",
            "n_positions",
            "max_seq_len",
            "seq_length",
            "max_sequence_length",
            "n_ctx",
            "context_length",
        ];
        let mut fact = self.number(
            "max_positions",
            "positions",
            &keys,
            inferred.clone(),
            "no learned position embeddings",
        );
        // OPT and RoBERTa have two additional rows at the start.
        if let Some((rows, basis)) = inferred.filter(|_| fact.contradicts) {
            fact.doubt = format!("the embedding has {}: {basis}", grouped(rows));
            fact.in_file = None;
        }
        fact
    }

    fn tied(&self) -> Fact {
        let (name, label) = ("tied_embeddings", "tied embeddings");
        let read = self
            .config
            .and_then(|config| config.flag(&["tie_word_embeddings", "share_embedding_weights"]));
        let tokens = self.weights.of(Role::Tokens).next();
        let heads = || self.weights.of(Role::Head).filter(|weight| weight.shape.len() == 2);
        let same =
            |key: &str| tokens.is_some_and(|tokens| tokens.key == key || tokens.tied == Some(key));
        let linked = heads().find(|head| {
            let tied = tokens.and_then(|tokens| tokens.tied) == Some(head.key);
            tied || head.tied.is_some_and(same)
        });
        if let Some(head) = linked {
            let place = format!("{} is the embedding", head.key);
            return fact(name, label, FactValue::Flag(true), FactSource::File(place));
        }
        let apart = tokens.and_then(|tokens| heads().find(|head| head.shape == tokens.shape));
        let mut found = match (read, apart) {
            (Some((flag, source)), _) => fact(name, label, FactValue::Flag(flag), source),
            (None, Some(head)) => {
                let basis = format!("{} is stored on its own", head.key);
                fact(name, label, FactValue::Flag(false), FactSource::Inferred(basis))
            }
            (None, None) => unknown(name, label, "no output head in the file; add config.json"),
        };
        if found.value == FactValue::Flag(true)
            && let Some(head) = apart
        {
            found.doubt = format!("{} is stored on its own", head.key);
        }
        found
    }

    fn experts(&self) -> Vec<Fact> {
        let inferred = experts::count(self.weights, self.stacks);
        let keys = [
            "num_local_experts",
            "n_routed_experts",
            "num_experts",
            "moe_num_experts",
            "moe.num_experts",
            "ffn_config.moe_num_experts",
            "expert_count",
        ];
        let fact = self.number("experts", "experts", &keys, inferred, "");
        if !fact.is_known() {
            return Vec::new();
        }
        let some = experts::per_token(self.config);
        let missing = "not stored in the file; add config.json";
        let mut each = of_number("experts_per_token", "experts per token", some, None, missing);
        if let (Some(all), Some(some)) = (number_of(&fact), number_of(&each))
            && some > all
        {
            each.doubt = format!("there are {} experts", grouped(all));
            each.contradicts = true;
        }
        vec![fact, each]
    }
}

fn fact(name: &'static str, label: &'static str, value: FactValue, source: FactSource) -> Fact {
    let (name, label) = (name.into(), label.into());
    Fact { name, label, value, source, doubt: String::new(), contradicts: false, in_file: None }
}

fn unknown(name: &'static str, label: &'static str, why: &str) -> Fact {
    fact(name, label, FactValue::Unknown, FactSource::Unknown(why.to_owned()))
}

pub(super) fn of_number(
    name: &'static str,
    label: &'static str,
    read: Option<(u64, FactSource)>,
    inferred: Option<SizeAndSource>,
    why: &str,
) -> Fact {
    match (read, inferred) {
        (Some((number, source)), inferred) => {
            let mut fact = fact(name, label, FactValue::Number(number), source);
            if let Some((other, basis)) = inferred.filter(|(other, _)| *other != number) {
                fact.doubt = format!("the file says {}: {basis}", grouped(other));
                fact.contradicts = true;
                fact.in_file = Some(other);
            }
            fact
        }
        (None, Some((number, basis))) => {
            fact(name, label, FactValue::Number(number), FactSource::Inferred(basis))
        }
        (None, None) => unknown(name, label, why),
    }
}

fn number_of(fact: &Fact) -> Option<u64> {
    match fact.value {
        FactValue::Number(number) => Some(number),
        _ => None,
    }
}

/// Maximum number of rows of an embedding beyond the config's vocabulary: padding and added tokens.
const MAX_PADDING: u64 = 2_048;

/// Describes the modules that the number of layers was inferred from.
fn basis(stack: &Stack) -> String {
    let (first, last) = (stack.numbers.first().copied(), stack.numbers.last().copied());
    let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
    let count = stack.numbers.len() as u64;
    let prefix = if stack.prefix.is_empty() { "the first module" } else { &stack.prefix };
    let span = last.saturating_sub(first).saturating_add(1);
    match span == count {
        true => format!("{prefix}, {first} to {last}"),
        false => format!("{prefix}, {} of {first} to {last}", counted(count, "number")),
    }
}

fn params(parts: &[PartSum]) -> Fact {
    let params = parts::params(parts);
    let buffers = parts
        .iter()
        .filter(|sum| sum.component == ModelComponent::Buffers)
        .map(|sum| sum.params)
        .sum::<u64>();
    let basis = match buffers {
        0 => "the shapes, tied tensors once".to_owned(),
        more => {
            format!("the shapes, tied tensors once, without {} in buffers", counted(more, "number"))
        }
    };
    fact("parameters", "parameters", FactValue::Number(params), FactSource::Inferred(basis))
}

fn active(parts: &[PartSum]) -> Fact {
    let label = "active per token";
    match parts::active(parts) {
        Some(active) => {
            let basis = "all but the experts that a token is not routed to".to_owned();
            fact("active_parameters", label, FactValue::Number(active), FactSource::Inferred(basis))
        }
        None => unknown(
            "active_parameters",
            label,
            "the file does not say how many experts a token is routed to",
        ),
    }
}
