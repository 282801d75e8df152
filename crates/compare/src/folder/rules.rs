//! The rules, with their ids, levels, reasons and remedies.

use std::fmt::Write as _;

use super::Level;

/// A rule. Its id never changes.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// The id, such as `shard-missing`.
    pub id: &'static str,
    /// The level, unless another is set.
    pub level: Level,
    /// What it finds, in a few words.
    pub title: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// What to do about it.
    pub fix: &'static str,
}

/// Declares the rules, and the list of them.
macro_rules! rules {
    ($($name:ident $id:literal $level:ident $title:literal $why:literal $fix:literal;)*) => {
        $(pub(super) static $name: Rule =
            Rule { id: $id, level: Level::$level, title: $title, why: $why, fix: $fix };)*

        /// All rules, by subject.
        pub static RULES: &[&Rule] = &[$(&$name),*];
    };
}

rules! {
    NO_WEIGHTS "no-weights" Error
        "The folder has no checkpoint"
        "There is nothing to load."
        "Name the folder that the weights are in, or download them.";
    FILE_EMPTY "file-empty" Error
        "A file is empty"
        "A download or a copy did not finish."
        "Fetch the file again.";
    FILE_POINTER "file-pointer" Error
        "A file is a Git LFS pointer"
        "The repository was cloned without Git LFS: the file names the weights, but does not contain them."
        "Run `git lfs pull` in the clone, or download the file from the repository's page.";
    FILE_WEB_PAGE "file-web-page" Error
        "A file is a web page or a server's error message"
        "A download without permission to read, or from the wrong address, saves the page that the server sent."
        "Open the file in a text editor to see what the server said. Log in if it asks for it, and download the file again.";
    FILE_CUT "file-cut" Error
        "A file ends before its last tensor does"
        "A download or a copy did not finish. Loaders refuse the file."
        "Fetch the file again, and compare its size with the original.";
    FILE_TOO_LONG "file-too-long" Error
        "A file has bytes after its last tensor"
        "safetensors refuses such a file. Something was appended, or the file was written over a longer one."
        "Fetch the file again, or convert it: `statelens convert` writes a file without those bytes.";
    FILE_HOLES "file-offsets" Error
        "The tensors of a file overlap, leave holes, or have sizes that do not match their shapes"
        "safetensors refuses such a file."
        "Write the file again with the library that made it.";
    FILE_DAMAGED "file-damaged" Error
        "A file can't be read"
        "Loaders refuse the file, or parts of it are missing."
        "Fetch the file again. `statelens verify` shows where it is damaged.";
    FILE_CODE "file-code" Error
        "Loading a file would run dangerous code"
        "A pickle is a program, and this one does harm."
        "Do not load it. `statelens scan` shows what it would run.";
    HEADER_ALIGNMENT "header-alignment" Warning
        "The data of a safetensors file do not begin at a multiple of 8 bytes"
        "The file loads, but readers that map it into memory have to copy."
        "Write the file again with a current version of safetensors.";
    DOWNLOAD_UNFINISHED "download-unfinished" Warning
        "The rest of an interrupted download"
        "It takes space, and nothing uses it."
        "Finish the download, or delete the file.";

    FILE_COPY "file-copy" Warning
        "A second copy of a file"
        "It takes space, and tools that read every file of the folder read its tensors twice."
        "Delete it.";

    INDEX_BROKEN "index-broken" Error
        "The index can't be read"
        "Loaders of the Hugging Face libraries find the shards by the index."
        "Fetch the index again, or write it from the shards: `statelens check FOLDER --fix-index`.";
    INDEX_OUTSIDE "index-outside" Error
        "The index names a file outside of the folder"
        "A copy of the folder is not complete, and a loader may be led to other files."
        "Put the file into the folder, and write the index again: `statelens check FOLDER --fix-index`.";
    INDEX_MISSING "index-missing" Error
        "There are numbered shards and no index"
        "The Hugging Face libraries load shards by their index only."
        "Fetch the index, or write it from the shards: `statelens check FOLDER --fix-index`.";
    INDEX_STALE "index-stale" Warning
        "An index of a set that is not there"
        "It was left when the weights were replaced by others. Some loaders look for this index first."
        "Delete the index.";
    INDEX_TOTAL_SIZE "index-total-size" Warning
        "`total_size` in the index is not the size of the tensors"
        "Libraries plan memory with it. The index may be of another version of the model."
        "Write the index again: `statelens check FOLDER --fix-index`.";
    SHARD_MISSING "shard-missing" Error
        "A shard is missing"
        "Its tensors are missing, and most loaders refuse the set."
        "Fetch the shard, and put it next to the others.";
    SHARD_NOT_IN_INDEX "shard-not-in-index" Error
        "The index does not name a shard that is numbered like the others"
        "Loaders that follow the index do not load its tensors."
        "Fetch the index again, or write it from the shards: `statelens check FOLDER --fix-index`.";
    TENSOR_NOT_IN_INDEX "tensor-not-in-index" Error
        "A shard has a tensor that the index does not list"
        "Loaders that follow the index never see it; llama.cpp refuses the set."
        "Fetch the index again, or write it from the shards: `statelens check FOLDER --fix-index`.";
    TENSOR_MISSING "tensor-missing" Error
        "The index lists a tensor that no shard has"
        "It gets random values, or loading fails."
        "The shards and the index are of different versions, or a shard was written without it: fetch both again.";
    TENSOR_IN_WRONG_SHARD "tensor-in-wrong-shard" Error
        "A tensor is not in the shard that the index names"
        "A loader that opens the shard that the index names does not find it."
        "Write the index again: `statelens check FOLDER --fix-index`.";
    TENSOR_TWICE "tensor-twice" Warning
        "Two shards have the same tensor"
        "There is one copy too many; only the values show whether they differ."
        "Remove one of them: `statelens convert` writes each tensor once.";
    TENSOR_TWICE_DIFFERS "tensor-twice-differs" Error
        "Two shards have a tensor with different dtypes or shapes"
        "What is loaded depends on the order of reading."
        "The shards are of different models or versions: fetch the set again.";
    SINGLE_AND_SHARDS "single-and-shards" Warning
        "The same tensors are in one file and in shards"
        "They take twice the space, and loaders disagree on which they load."
        "Delete the single file, or the shards and their index.";
    SINGLE_AND_SHARDS_DIFFER "single-and-shards-differ" Error
        "A single file and the shards next to it have different tensors"
        "Loaders disagree on which they load."
        "Delete the old ones.";
    METADATA_DIFFERS "metadata-differs" Warning
        "`__metadata__` of a shard differs from that of the others"
        "The shards were written by different tools."
        "Check where the shard is from. `statelens convert` writes a set with the same metadata in each shard.";

    GGUF_SPLIT "gguf-split" Error
        "The parts of a split GGUF model contradict each other"
        "llama.cpp refuses such a set."
        "Fetch the parts of one model again, under their original names, into a folder of their own.";

    GGUF_METADATA "gguf-metadata" Error
        "The metadata of a GGUF model do not match the sizes of its tensors"
        "llama.cpp builds the model from the metadata, and refuses tensors of other sizes or numbers."
        "Convert the model again, or fetch the file again.";
    GGUF_TOKENIZER "gguf-tokenizer" Error
        "The tokenizer of a GGUF model does not fit the embedding, or contradicts itself"
        "llama.cpp takes the vocabulary from the tokenizer, and refuses an embedding with a different number of rows."
        "Convert the model again with the tokenizer that was saved with the weights.";

    LAYER_MISSING "layer-missing" Error
        "A layer is missing"
        "It gets random values, or loading fails."
        "Look for it in a shard that is missing, or save the model again.";
    LAYER_INCOMPLETE "layer-incomplete" Error
        "A layer or an expert lacks a tensor that its peers have"
        "It gets random values, or loading fails."
        "Look for it in a shard that is missing, or save the model again.";
    LAYER_EXTRA "layer-extra" Warning
        "A layer has a bias that its peers lack"
        "Loaders ignore it, or expect it in the other layers, too."
        "Use the files of one model.";
    PART_MISSING "part-missing" Error
        "A language model lacks its embedding or its last norm"
        "They get random values, or loading fails."
        "Look for them in a shard that is missing, or save the model again.";
    EXPERT_MISSING "expert-missing" Error
        "A layer has fewer experts than the others"
        "Loading fails, or an expert gets random values."
        "Look for them in a shard that is missing, or save the model again.";
    SHAPE_DIFFERS "shape-differs" Error
        "The shape of a tensor differs from those in the other layers"
        "Loaders refuse it: it is part of another model."
        "Fetch the file again, or save the model again.";
    DTYPE_DIFFERS "dtype-differs" Warning
        "The dtype of a tensor differs from those in the other layers"
        "It loads, but its size differs, and it may be computed with another precision."
        "If that was not intended, cast it: `statelens convert IN OUT --cast KEY=DTYPE`.";

    CONFIG_BROKEN "config-broken" Error
        "config.json can't be read"
        "Loaders build the model from it."
        "Fetch it again, or correct the JSON.";
    CONFIG_LAYERS "config-layers" Error
        "The config and the file disagree on the number of layers"
        "Layers get random values, or are ignored."
        "Use the config that was saved with the weights.";
    CONFIG_HIDDEN_SIZE "config-hidden-size" Error
        "The config and the tensors disagree on the hidden size"
        "Loaders refuse the weights."
        "Use the config that was saved with the weights.";
    CONFIG_HEADS "config-heads" Error
        "The config and the projections disagree on the number of heads"
        "Loaders refuse the weights, or split them into other heads."
        "Use the config that was saved with the weights.";
    CONFIG_VOCABULARY "config-vocabulary" Error
        "The config and the embedding disagree on the size of the vocabulary"
        "Loaders refuse the embedding."
        "Use the config that was saved with the weights, or set `vocab_size` to the number of rows.";
    CONFIG_FEED_FORWARD "config-feed-forward" Error
        "The config and the tensors disagree on the size of the feed-forward layers"
        "Loaders refuse the weights."
        "Use the config that was saved with the weights.";
    CONFIG_EXPERTS "config-experts" Error
        "The config and the layers disagree on the number of experts"
        "Loaders refuse the weights."
        "Use the config that was saved with the weights.";
    CONFIG_SHAPE "config-shape" Error
        "A tensor does not have the size that the config states"
        "Loaders refuse the weights."
        "Use the config that was saved with the weights.";
    CONFIG_BIAS "config-bias" Warning
        "The config and the projections disagree on biases"
        "Loaders ignore the biases that are stored, or add new ones."
        "Use the config that was saved with the weights.";
    CONFIG_TOKEN_ID "config-token-id" Warning
        "The config names a token for padding that the embedding has no row for"
        "Libraries refuse to build the embedding, or padding fails."
        "Use the id of the tokenizer.";
    CONFIG_DTYPE "config-dtype" Warning
        "The config names a dtype that no tensor has"
        "Loaders that follow the config cast all weights, which takes time and memory."
        "Set it to the dtype of the tensors, or cast the weights with `statelens convert --cast`.";
    CONFIG_TIED_HEAD "config-tied-head" Warning
        "The config ties the output head to the embedding, and a head is stored"
        "Loaders disagree on which one counts. Only the values show whether they differ."
        "Remove the head, or set `tie_word_embeddings` to false if it was trained.";
    CONFIG_HEAD_MISSING "config-head-missing" Error
        "The config has a separate output head, and none is stored"
        "The head gets random values."
        "Set `tie_word_embeddings` to true if the model was trained so, or add the head.";
    CONFIG_NEXT_TOKEN "config-next-token" Warning
        "The config has layers for multi-token prediction, and none are stored"
        "The model loads; speculative decoding with these layers does not work."
        "Fetch the file with them, or set the number to 0.";
    CONFIG_PART_MISSING "config-part-missing" Error
        "The config describes a part of the model, and none of its tensors are stored"
        "The part gets random values."
        "Fetch the file with the part, or use the config of the language model alone.";
    CONFIG_QUANTIZATION "config-quantization" Error
        "The config and the tensors disagree on quantisation"
        "Loaders use quantised numbers as weights, or look for tensors that are not there."
        "Use the config that was saved with the weights.";
    SCALE_MISSING "scale-missing" Error
        "A quantised weight has no scale"
        "Loaders use its raw numbers as weights, or refuse it."
        "Look for it in a shard that is missing, or quantise the model again.";
    SCALE_SHAPE "scale-shape" Error
        "A scale does not fit the blocks of its weight"
        "Values are scaled by the wrong numbers, or loading fails."
        "Use the config that was saved with the weights, or quantise the model again.";

    TOKENIZER_LARGER "tokenizer-larger" Error
        "The tokenizer gives ids that the embedding has no rows for"
        "The model fails with an index error as soon as such a token is used."
        "Resize the embedding to the tokenizer, or use the tokenizer that was saved with the weights.";

    TOKENIZER_BROKEN "tokenizer-broken" Error
        "tokenizer.json can't be read"
        "The model loads without a tokenizer, or not at all."
        "Fetch it again.";

    ADAPTER_CONFIG "adapter-config" Error
        "The config of an adapter is missing, or does not name the modules of the adapter"
        "PEFT builds the adapter from it. Loading fails, or leaves matrices out."
        "Use the adapter_config.json that was saved with the adapter.";
    ADAPTER_BASE "adapter-base" Error
        "An adapter does not fit the model next to it"
        "It was trained for another model. Loading fails."
        "Use the base model that `base_model_name_or_path` in adapter_config.json names.";
    ADAPTER_INCOMPLETE "adapter-incomplete" Error
        "An adapter lacks one of the two matrices of a module"
        "The module gets random values, or loading fails."
        "Save the adapter again.";
    ADAPTER_RANK "adapter-rank" Error
        "The rank of an adapter is not that of its config"
        "Loading fails."
        "Use the adapter_config.json that was saved with the adapter.";
}

/// Returns the rule with this id.
pub fn rule(id: &str) -> Option<&'static Rule> {
    RULES.iter().copied().find(|rule| rule.id == id)
}

/// Returns a section for each rule in Markdown, for `docs/rules.md`.
pub fn rules_markdown() -> String {
    let mut text = String::new();
    for rule in RULES {
        let Rule { id, level, title, why, fix } = rule;
        // Writing to a string can't fail.
        let _ = write!(text, "### {id}\n\n{title}. *{}*\n\n{why} {fix}\n\n", level.word());
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_in_one_style() {
        let ids: HashSet<&str> = RULES.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), RULES.len());
        for rule in RULES {
            assert!(
                rule.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
                "{}",
                rule.id
            );
            assert!(!rule.title.ends_with('.'), "{}", rule.id);
            assert!(rule.why.ends_with('.') && rule.fix.ends_with('.'), "{}", rule.id);
        }
    }
}
