//! Examples that are made when they are opened: a run, and two revisions of a model.

use js_sys::{Array, Uint8Array};
use web_sys::File;

use crate::open::message::FileName;
use crate::page::drop::DroppedFile;
use crate::page::drop_target::open_files;
use crate::page::model::actor::Actor;
use crate::page::pair::begin_pair;

/// An example that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeExample {
    /// A run of six steps, the last of which was not written completely.
    Run,
    /// Two revisions of a model that differ in some layers.
    Revisions,
}

/// Names, descriptions and sizes of the examples.
pub(super) const MADE: [(MadeExample, &str, &str, &str); 2] = [
    (MadeExample::Run, "example-run", "A run of 6 steps, the last cut short", "0.6 MB"),
    (
        MadeExample::Revisions,
        "two revisions",
        "A model before and after more training, compared",
        "0.4 MB",
    ),
];

/// Steps of the run.
const STEPS: [u32; 6] = [500, 1000, 1500, 2000, 2500, 3000];
/// The layers of the models, and the width of their matrices.
const LAYERS: usize = 12;
const WIDTH: usize = 32;

/// Opens an example in the screen that suits it.
pub(super) fn open(actor: &Actor, example: MadeExample) {
    match example {
        MadeExample::Run => {
            let files = STEPS.iter().filter_map(|step| {
                let mut bytes = model(*step, 0..LAYERS);
                if Some(step) == STEPS.last() {
                    bytes.truncate(bytes.len() * 3 / 5);
                }
                file(&format!("example-run/checkpoint-{step}/model.safetensors"), &bytes)
            });
            open_files(actor, files.collect());
        }
        MadeExample::Revisions => {
            let before = file("before.safetensors", &model(500, 0..LAYERS));
            let after = file("after.safetensors", &model(1000, 5..9));
            if let (Some(before), Some(after)) = (before, after) {
                begin_pair(actor, (vec![before], None), (vec![after], None));
            }
        }
    }
}

fn file(path: &str, bytes: &[u8]) -> Option<DroppedFile> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let parts = Array::of1(&Uint8Array::from(bytes).into());
    let file = File::new_with_u8_array_sequence(&parts, name).ok()?;
    let name = FileName { path: path.to_owned(), size: bytes.len() as u64 };
    Some(DroppedFile { name, file, address: None })
}

/// Returns a small model as safetensors. The weights of the `trained` layers are those of a step, the
/// others those of step 500.
fn model(step: u32, trained: std::ops::Range<usize>) -> Vec<u8> {
    let mut tensors: Vec<(String, Vec<usize>, f32, f32)> =
        vec![("model.embed_tokens.weight".into(), vec![128, WIDTH], 0.02, 0.0)];
    for layer in 0..LAYERS {
        let step = if trained.contains(&layer) { step } else { STEPS[0] };
        let moved = (step as f32 / 500.0 - 1.0) * 0.004 * (1.0 + layer as f32 / 4.0);
        let spread = 0.02 * (1.0 + layer as f32 / 12.0);
        for (name, rows) in
            [("self_attn.q_proj", WIDTH), ("self_attn.k_proj", WIDTH), ("mlp.gate_proj", 2 * WIDTH)]
        {
            let key = format!("model.layers.{layer}.{name}.weight");
            tensors.push((key, vec![rows, WIDTH], spread, moved));
        }
    }
    tensors.push(("model.norm.weight".into(), vec![WIDTH], 0.01, 0.0));
    let (mut header, mut data) = (String::from("{"), Vec::new());
    // Two sequences, so that the weights of a step are those of the one before, moved a little.
    let (mut values, mut moves) = (1u32, 7u32);
    let normal = |seed: &mut u32| {
        let sum: f32 = (0..6)
            .map(|_| {
                *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (*seed >> 8) as f32 / (1 << 24) as f32
            })
            .sum();
        (sum - 3.0) * 1.41
    };
    for (key, shape, spread, moved) in &tensors {
        let start = data.len();
        let center = if shape.len() == 1 { 1.0 } else { 0.0 };
        for _ in 0..shape.iter().product::<usize>() {
            let value = center + spread * normal(&mut values) + moved * normal(&mut moves);
            data.extend_from_slice(&value.to_le_bytes());
        }
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        header += &format!(
            "{}\"{key}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{start},{}]}}",
            if start == 0 { "" } else { "," },
            shape.join(","),
            data.len()
        );
    }
    header.push('}');
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&data);
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::{FileSet, Limits, Memory, Unwatched};

    use super::*;

    #[test]
    fn made_models_open_and_differ_only_in_their_trained_layers() {
        let open = |bytes: Vec<u8>| {
            let mut files = FileSet::default();
            files.push("a.safetensors", Arc::new(Memory::from(bytes)));
            let files = files.opened_at(statelens_checkpoint::FileId(0));
            statelens_formats::open(files, &Limits::default(), &mut Unwatched).unwrap()
        };
        let (before, after) = (model(500, 0..LAYERS), model(1000, 5..9));
        assert_eq!(open(before.clone()).leaves().len(), 1 + 3 * LAYERS + 1);
        assert_eq!(before.len(), after.len());
        let differs = before.iter().zip(&after).filter(|(one, other)| one != other).count();
        let trained = 4 * 4 * WIDTH * WIDTH * 4;
        assert!(differs > trained / 2 && differs <= trained, "{differs} of {trained}");
        assert_eq!(model(500, 5..9), before, "the same bytes each time");
    }
}
