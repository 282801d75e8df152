//! Writes a PyTorch zip file that `torch.load(weights_only=True)` loads.
//!
//! The layout is that of `torch.save` of release 2, with two differences that its loader accepts: a
//! record holds only what its tensors need, not the rest of their storage; and `.format_version` is
//! omitted, since it would promise exactly the offsets that torch computes.

mod losses;
mod pickler;
mod shards;
mod stand_in;
mod state;
mod storages;

use std::sync::Arc;

use state::PickledState;
use statelens_checkpoint::{
    Builder, Checkpoint, DictClass, KeyPart, Leaf, Loss, Plan, PlannedFile, Result, Value,
};

use crate::archive::write::{Body, NewRecord, layout};
use crate::shards::Shards;
use crate::{attributes, source_damage};

/// How to write a PyTorch zip file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// How to split the checkpoint into files with an index, as with `pytorch_model.bin`.
    pub shards: Shards,
}

/// The folder of all records. Torch accepts any name.
const ROOT: &str = "archive";

/// Plans the file, or several files and their index. See [`crate::plan`] for errors and losses.
pub fn plan(source: Arc<Checkpoint>, options: &WriteOptions, name: &str) -> Result<Plan> {
    let mut builder = source.edit();
    let mut files = Vec::new();
    let mut losses = Vec::new();
    match shards::cut(&source, &options.shards, name)? {
        None => {
            files.push(file(&source, name, &mut builder, &mut losses)?);
        }
        Some(cut) => {
            losses.extend(cut.losses);
            for (name, part) in &cut.parts {
                files.push(file(part, name, &mut builder, &mut losses)?);
            }
            files.extend(cut.index);
        }
    }
    // An ordered dict keeps its attributes.
    let is_ordered =
        |value: &Value| matches!(value, Value::Dict(dict) if dict.class == DictClass::Ordered);
    losses.extend(attributes::left_out(&source, |value| !is_ordered(value)));
    Ok(Plan { source: Arc::new(builder.rebuild(&source)?), files, losses })
}

/// Returns the loss of text keys that only their type distinguishes from other keys of their dict.
pub(crate) fn quoted_keys(source: &Checkpoint) -> Option<Loss> {
    let is_quoted =
        |leaf: &Leaf| leaf.key.parts.iter().any(|part| matches!(part, KeyPart::Quoted { .. }));
    let keys: Vec<String> =
        source.each_leaf().filter(is_quoted).map(|leaf| leaf.flat.to_string()).collect();
    (!keys.is_empty()).then(|| losses::QUOTED.of(keys))
}

/// Plans a single file that holds `source`, whose tensors are those of `builder`.
fn file(
    source: &Checkpoint,
    name: &str,
    builder: &mut Builder,
    losses: &mut Vec<Loss>,
) -> Result<PlannedFile> {
    let mut state = PickledState::new(source)?;
    let storages = storages::place(source, state.tensors(), builder)?;
    let pickle = state.pickle(&storages)?;
    for loss in state.losses() {
        match losses.iter_mut().find(|known| known.code == loss.code) {
            Some(known) => known.keys.extend(loss.keys),
            None => losses.push(loss),
        }
    }
    let named = |name: &str, body| NewRecord { name: format!("{ROOT}/{name}"), body };
    let mut records = vec![
        named("data.pkl", Body::Made(pickle)),
        named("byteorder", Body::Made(b"little".to_vec())),
    ];
    for (index, (tensor, len)) in storages.records.iter().enumerate() {
        records.push(named(&format!("data/{index}"), Body::Tensor(*tensor, *len)));
    }
    records.push(named("version", Body::Made(b"3\n".to_vec())));
    // A separate record, which only Statelens reads: a key in the state dict would disturb loaders.
    if let Some(mark) = source_damage::mark(source) {
        records.push(named(source_damage::MARK, Body::Made(mark.into_bytes())));
    }
    Ok(PlannedFile { name: name.to_owned(), segments: layout(records, "")?, head_last: false })
}
