//! Rows in the shape of real checkpoints, for tests.

use crate::open::message::OpenedCheckpoint;
use crate::rows::{LeafKind, Row};
use crate::state::work::OpenWork;

pub(crate) fn tensor(key: &str, dtype: &str, shape: &[u64]) -> Row {
    let params: u64 = shape.iter().product();
    let width = if dtype.contains("16") { 2 } else { 4 };
    Row {
        key: key.into(),
        kind: LeafKind::Tensor,
        dtype: dtype.into(),
        shape: shape.to_vec(),
        params,
        bytes: params * width,
        value: String::new(),
        link: None,
    }
}

pub(crate) fn value(key: &str, text: &str) -> Row {
    Row {
        key: key.into(),
        kind: LeafKind::Float,
        dtype: String::new(),
        shape: Vec::new(),
        params: 0,
        bytes: 0,
        value: text.into(),
        link: None,
    }
}

/// A training state of a small GPT.
pub(crate) fn gpt(layers: u64) -> Vec<Row> {
    let mut rows = vec![tensor("model.model.wte.weight", "bfloat16", &[1000, 64])];
    for layer in 0..layers {
        for (name, shape) in
            [("ln.weight", &[64][..]), ("fc.weight", &[256, 64]), ("fc.bias", &[256])]
        {
            rows.push(tensor(&format!("model.model.blocks.{layer}.{name}"), "bfloat16", shape));
        }
    }
    rows.push(tensor("model.model.lm_head.weight", "bfloat16", &[1000, 64]));
    for at in 0..layers * 3 + 2 {
        let shape = rows[at as usize].shape.clone();
        rows.push(tensor(&format!("optimizer.state.{at}.step"), "float32", &[]));
        rows.push(tensor(&format!("optimizer.state.{at}.exp_avg"), "float32", &shape));
    }
    rows.push(value("optimizer.param_groups.0.lr", "0.001"));
    for at in 0..layers * 3 + 2 {
        let mut row = value(&format!("optimizer.param_groups.0.params.{at}"), &at.to_string());
        row.kind = LeafKind::Int;
        rows.push(row);
    }
    rows.push(value("global_step", "5000"));
    rows
}

/// The layers of a model with their names sorted as text: 0, 1, 10, 11, …, 2, ….
pub(crate) fn lexicographic(layers: u64) -> Vec<Row> {
    let mut rows = vec![tensor("model.embed.weight", "bfloat16", &[100, 64])];
    for layer in 0..layers {
        for (name, shape) in [("attn.q", &[64, 64][..]), ("mlp.up", &[256, 64]), ("norm", &[64])] {
            rows.push(tensor(&format!("model.layers.{layer}.{name}.weight"), "bfloat16", shape));
        }
    }
    rows.sort_by(|one, other| one.key.cmp(&other.key));
    rows
}

/// The numbers of all rows.
pub(crate) fn all(rows: &[Row]) -> Vec<u32> {
    (0..rows.len() as u32).collect()
}

/// An open checkpoint with these rows.
pub(crate) fn work(rows: Vec<Row>) -> OpenWork {
    let opened = OpenedCheckpoint { name: "x.mdl".into(), ..OpenedCheckpoint::default() };
    OpenWork::new(opened, rows)
}
