//! PyTorch's own files: a pickle of the state dict, and the data of its storages.
//!
//! Since release 1.6, `torch.save` writes a zip file with `NAME/data.pkl` (the pickle),
//! `NAME/data/KEY` (one for each storage, uncompressed), `NAME/version`, and `NAME/byteorder` since
//! 2.1. The only specification is the source: `torch/serialization.py` and
//! `caffe2/serialize/inline_container.cc` in <https://github.com/pytorch/pytorch>.
//!
//! | | read | written |
//! |---|---|---|
//! | zip file, all versions, zip64, deflated members | yes | stored, zip64 where needed |
//! | strided views, shared storages, parameters, conj and neg bits | yes | made dense |
//! | sparse, quantised, meta tensors, subclasses | if they have data | see `write` |
//! | TorchScript, lite interpreter | tensors, attributes, constants; code is not shown | no |
//! | `torch.export` (`.pt2`) | the weights and constants; the program is not shown | no |
//! | the stream of releases before 1.6 | yes | no |
//! | tar files of releases before 0.2 | yes | no |

pub(crate) mod detect;
pub(crate) mod read;
#[cfg(test)]
pub(crate) mod tests;
mod weights_only;
pub mod write;

use statelens_checkpoint::{DType, FormatTraits, PythonTypes, Tensor};

use crate::{Format, PythonLeaf, RunNames, Snippet, Writing};

pub(crate) static FORMAT: Format = Format {
    extensions: &["pt", "pth", "bin", "ckpt"],
    reads: "zip files of all versions, the stream of before 1.6, tar files of 0.1, TorchScript, `.pt2`",
    writes: Some(Writing {
        label: "PyTorch .pt",
        about: "A zip of a pickle and raw tensors. Loads with torch.load(weights_only=True): nothing in it can run.",
        what: "zip that `torch.load(weights_only=True)` accepts; one file, or shards with an index",
        shards: true,
        stores_texts_once: true,
        has: |_| false,
        ..Writing::named("torch", "PyTorch zip", &["pt", "pth", "bin"], |source, target, name| {
            write::plan(source, &write::WriteOptions { shards: target.shards.clone() }, name)
        })
    }),
    traits: FormatTraits {
        python_types: PythonTypes::All,
        exact_read_back: true,
        ..FormatTraits::DEFAULT
    },
    shard_extensions: &["bin", "pt", "pth", "ckpt"],
    weights_extensions: &["pt", "pth", "ckpt"],
    run_names: RunNames::Steps(&["pt", "pth", "bin", "ckpt", "tar"]),
    score: detect::score,
    open: read::read,
    snippets: Some(snippets),
    searched: true,
    checks: Some(|checkpoint, files, limits| match checkpoint.format.id {
        "torch-tar" => read::tar::checks(files, limits).map(Some),
        _ => Ok(None),
    }),
    left_out: Some(write::quoted_keys),
    ..Format::named(&["torch-zip", "torch-legacy", "torch-tar", "torch-export"], "PyTorch")
};

fn snippets(leaf: &PythonLeaf<'_>) -> Vec<Snippet> {
    let format = &leaf.checkpoint.format;
    let is_zip = format.id == "torch-zip";
    let is_known = is_zip && format.name != "TorchScript" || format.id == "torch-legacy";
    if !is_known || !weights_only::loads(leaf.checkpoint) {
        return Vec::new();
    }
    // The stream names a class for each dtype, which torch has for the older ones only.
    let is_new = |tensor: &Tensor| {
        matches!(
            tensor.stored,
            DType::U16 | DType::U32 | DType::U64 | DType::C32 | DType::F8E4M3FN | DType::F8E5M2
        )
    };
    let tensors = leaf.checkpoint.tensors();
    if !is_zip && tensors.iter().any(is_new) {
        return Vec::new();
    }
    let Some(keys) = leaf.subscripts() else { return Vec::new() };
    // A mapped record must not be compressed.
    let is_packed = |tensor: &Tensor| leaf.storage_is_packed(tensor);
    let maps = is_zip && leaf.tensor.is_some() && !tensors.iter().any(is_packed);
    let map = if maps { ", mmap=True" } else { "" };
    let (path, what, index) = (&leaf.path, leaf.variable(), leaf.torch_index());
    let code = format!(
        "import torch\n\nstate = torch.load({path}, map_location=\"cpu\", \
         weights_only=True{map})\n{what} = state{keys}{index}\n"
    );
    vec![Snippet { library: "torch", code }]
}
