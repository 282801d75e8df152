//! Writing a PyTorch zip file that `torch.load(weights_only=True)` loads.
//!
//! Laid out as `torch.save` of release 2 does, with two liberties that its loader grants: a
//! record holds what its tensors need, not what else lay in their storage; and
//! `.format_version` is left out, for it would promise the very offsets that torch computes.

mod losses;
mod pickler;
mod state;
mod storages;

use std::sync::Arc;

use state::State;
use statelens_checkpoint::{Checkpoint, Plan, PlannedFile, Result};

use crate::archive::write::{Body, Record, layout};

/// How to write a PyTorch zip file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {}

/// The folder of all records; torch takes any name.
const ROOT: &str = "archive";

/// Plans the file. See [`crate::plan`] for errors and losses.
pub fn plan(source: Arc<Checkpoint>, _options: &Options, name: &str) -> Result<Plan> {
    let mut state = State::new(&source)?;
    let mut builder = source.edit();
    let storages = storages::place(&source, state.tensors(), &mut builder)?;
    let pickle = state.pickle(&storages)?;
    let losses = state.losses();

    let named = |name: &str, body| Record { name: format!("{ROOT}/{name}"), body };
    let mut records = vec![
        named("data.pkl", Body::Made(pickle)),
        named("byteorder", Body::Made(b"little".to_vec())),
    ];
    for (index, (tensor, len)) in storages.records.iter().enumerate() {
        records.push(named(&format!("data/{index}"), Body::Tensor(*tensor, *len)));
    }
    records.push(named("version", Body::Made(b"3\n".to_vec())));
    Ok(Plan {
        source: Arc::new(builder.rebuild(&source)?),
        files: vec![PlannedFile {
            name: name.to_owned(),
            segments: layout(records)?,
            head_last: false,
        }],
        losses,
    })
}
