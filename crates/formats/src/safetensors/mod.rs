//! safetensors: a JSON header with the offsets of the tensors, then the tensor data.
//!
//! The specification is at <https://huggingface.co/docs/safetensors/index#format>. Where it is
//! silent, we accept the same files as the reference library (release 0.8),
//! <https://github.com/huggingface/safetensors>.
//!
//! | | read | written |
//! |---|---|---|
//! | all dtypes of release 0.8 | yes | yes |
//! | `__metadata__` | yes | kept, when the source is a safetensors file |
//! | tied weights that `save_model` recorded there | as links | as `save_model` does |
//! | plain values | those that Statelens wrote | into `__metadata__` |
//! | shards and their index | yes, see [`crate::sets`] | by size or by name |
//!
//! Two values of `F4` are one element, as in torch: `F4` of shape `[2, 8]` is `float4_e2m1fn_x2` of
//! shape `[2, 4]`. Four values of `F6_E2M3` or `F6_E3M2` are a block of three bytes, which is shown
//! but not decoded.
//!
//! # Plain values
//!
//! The format holds only tensors. Other values of a state dict (a learning rate, a step, a name)
//! are stored in the entry `statelens` of `__metadata__`, as JSON in the dialect of Python's `json`
//! module:
//!
//! ```json
//! {"version": 1, "values": {"optimizer.param_groups.0.lr": 0.001, "epoch": 3, "note": null}}
//! ```
//!
//! The names are flattened keys, as for the tensors. Numbers with a point or an exponent are
//! floats, others integers of any size; `NaN` and `Infinity` are allowed. Values that JSON lacks
//! are objects with one entry: `{"bytes": "00ff"}`, `{"bytearray": …}`, `{"complex": [re, im]}`,
//! `{"dtype": "float32"}`, `{"device": "cuda:0"}`, and `{"empty": "dict"}`, `"list"`, `"tuple"` or
//! `"set"`.

pub(crate) mod detect;
mod header;
pub(crate) mod pieces;
pub(crate) mod read;
mod scalars;
#[cfg(test)]
mod tests;
pub mod write;

use std::sync::LazyLock;

use statelens_checkpoint::{Block, DType, FormatTraits};

use crate::{Format, PythonLeaf, RunNames, Snippet, Writing};

/// The dtypes, in the order of the reference library.
static DTYPES: LazyLock<Vec<HeaderDType>> = LazyLock::new(|| {
    let plain = |name, dtype: DType| {
        let bits = dtype.itemsize() * 8;
        HeaderDType { name, dtype, bits, packed: 1, whole: 1 }
    };
    let six = |name, block| HeaderDType {
        name,
        dtype: DType::Blocks(block),
        bits: 6,
        packed: 1,
        whole: 4,
    };
    vec![
        plain("BOOL", DType::Bool),
        HeaderDType { name: "F4", dtype: DType::F4E2M1FNX2, bits: 4, packed: 2, whole: 2 },
        six("F6_E2M3", &E2M3),
        six("F6_E3M2", &E3M2),
        plain("U8", DType::U8),
        plain("I8", DType::I8),
        plain("F8_E5M2", DType::F8E5M2),
        plain("F8_E4M3", DType::F8E4M3FN),
        plain("F8_E8M0", DType::F8E8M0FNU),
        plain("F8_E4M3FNUZ", DType::F8E4M3FNUZ),
        plain("F8_E5M2FNUZ", DType::F8E5M2FNUZ),
        plain("I16", DType::I16),
        plain("U16", DType::U16),
        plain("F16", DType::F16),
        plain("BF16", DType::BF16),
        plain("I32", DType::I32),
        plain("U32", DType::U32),
        plain("F32", DType::F32),
        plain("C64", DType::C64),
        plain("F64", DType::F64),
        plain("I64", DType::I64),
        plain("U64", DType::U64),
    ]
});

/// A dtype of the format.
#[derive(Debug)]
struct HeaderDType {
    /// The name in the header.
    name: &'static str,
    /// The corresponding dtype.
    dtype: DType,
    /// Size in bits of an element in the format.
    bits: u64,
    /// Number of the format's elements in one element of `dtype`.
    packed: u64,
    /// The smallest number of the format's elements that takes whole bytes.
    whole: u64,
}

impl HeaderDType {
    /// Returns the dtype with this name.
    fn named(name: &str) -> Option<&'static Self> {
        DTYPES.iter().find(|known| known.name == name)
    }
}

/// Types of less than a byte that only safetensors and block formats have.
static E2M3: Block = six("F6_E2M3");
static E3M2: Block = six("F6_E3M2");

/// Returns a block of four 6-bit floats in three bytes.
const fn six(name: &'static str) -> Block {
    Block { name, elements: 4, bytes: 3, words: &[] }
}

/// The maximum length of the header in bytes, as in the reference library.
const MAX_HEADER: u64 = 100_000_000;

/// The key of the header entry that is not a tensor.
const METADATA: &str = "__metadata__";

const NAME: &str = "safetensors";

pub(crate) static FORMAT: Format = Format {
    reads: "one file, or shards with or without their index; all dtypes of release 0.8",
    writes: Some(Writing {
        about: "A header of names, then the tensors. Read by Hugging Face libraries; plain values \
                go into its metadata.",
        what: "one file, or shards with an index",
        shards: true,
        has: write::has,
        ..Writing::named("safetensors", NAME, &[NAME], |source, target, name| {
            write::plan(source, &write::WriteOptions { shards: target.shards.clone() }, name)
        })
    }),
    traits: FormatTraits {
        user_attributes: &[NAME],
        file_metadata: Some(METADATA),
        ..FormatTraits::DEFAULT
    },
    shard_extensions: &[NAME],
    weights_extensions: &[NAME],
    run_names: RunNames::Steps(&[NAME]),
    score: detect::score,
    open: read::read,
    snippets: Some(snippets),
    left_out: Some(write::metadata_left_out),
    ..Format::named(&["safetensors"], NAME)
};

fn snippets(leaf: &PythonLeaf<'_>) -> Vec<Snippet> {
    if leaf.tensor.is_none() {
        return Vec::new();
    }
    let (path, name) = (&leaf.path, leaf.first_name());
    let read = match leaf.numpy_index().is_empty() {
        true => format!("tensor = file.get_tensor({name})"),
        false => format!("tensor = file.get_slice({name}){}", leaf.torch_index()),
    };
    let code = format!(
        "from safetensors import safe_open\n\nwith safe_open({path}, framework=\"pt\") as file:\n    \
         {read}\n"
    );
    vec![Snippet { library: NAME, code }]
}
