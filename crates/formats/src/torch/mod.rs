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
pub mod write;

use statelens_checkpoint::{FormatTraits, PythonTypes};

use crate::{Format, PythonLeaf, Snippet, Writing};

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
    if format.name == "TorchScript" || !is_zip && format.id != "torch-legacy" {
        return Vec::new();
    }
    let Some(keys) = leaf.subscripts() else { return Vec::new() };
    let map = if is_zip && leaf.tensor.is_some() { ", mmap=True" } else { "" };
    let (path, what, index) = (&leaf.path, leaf.variable(), leaf.torch_index());
    let code = format!(
        "import torch\n\nstate = torch.load({path}, map_location=\"cpu\", \
         weights_only=True{map})\n{what} = state{keys}{index}\n"
    );
    vec![Snippet { library: "torch", code }]
}
