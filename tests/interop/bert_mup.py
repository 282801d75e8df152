"""Checks that a BERT with muP has the same logits after its conversion to Hugging Face.

The muP model is BERT of transformers with the scales of the Cerebras Model Zoo (release 2.4, `BertModel.forward`
in `models/nlp/bert/bert_model.py` and `BertPretrainModel.forward` in `bert_pretrain_models.py`):

- The output of the embeddings' norm is multiplied by `embeddings_scale`.
- The attention logits are multiplied by `attention_logits_alpha`, and divided by the size of a head instead of its
  square root.
- The output logits are multiplied by `output_logits_alpha * mup_base_hidden_size / hidden_size`.
"""

import argparse
import itertools
import math
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import transformers as hf
import yaml

import verdicts

HIDDEN, HEADS, BASE = 8, 2, 4
# Sets of scales: each one alone, and all together.
SCALES = {
    "embeddings": dict(embeddings_scale=10.0),
    "attention": dict(attention_logits_alpha=0.7),
    "logits": dict(output_logits_alpha=3.0),
    "root of the width": dict(output_logits_alpha=3.0, scale_output_logits_by_d=False),
    "all": dict(embeddings_scale=10.0, attention_logits_alpha=0.7, output_logits_alpha=3.0),
}

# Parts of keys in transformers, and in the Model Zoo.
NAMES = [
    ("bert.embeddings.LayerNorm.", "bert_encoder.embed_ln_f."),
    ("bert.embeddings.word_embeddings.", "bert_encoder.embedding_layer.word_embeddings."),
    ("bert.embeddings.position_embeddings.", "bert_encoder.embedding_layer.position_embeddings.embed."),
    ("bert.embeddings.token_type_embeddings.", "bert_encoder.embedding_layer.segment_embeddings."),
    ("bert.encoder.layer.", "bert_encoder.transformer_encoder.layers."),
    (".attention.self.query.", ".self_attn.proj_q_dense_layer."),
    (".attention.self.key.", ".self_attn.proj_k_dense_layer."),
    (".attention.self.value.", ".self_attn.proj_v_dense_layer."),
    (".attention.output.dense.", ".self_attn.proj_output_dense_layer."),
    (".attention.output.LayerNorm.", ".norm1."),
    (".intermediate.dense.", ".ffn.ffn.0.linear_layer."),
    (".output.dense.", ".ffn.ffn.1.linear_layer."),
    (".output.LayerNorm.", ".norm2."),
    ("bert.pooler.dense.", "bert_encoder.pooler.pooler.ffn.0.linear_layer."),
    ("cls.predictions.transform.dense.", "bert_mlm_head.mlm_transform.ffn.ffn.0.linear_layer."),
    ("cls.predictions.transform.LayerNorm.", "bert_mlm_head.mlm_transform.ln."),
    ("cls.predictions.decoder.", "bert_mlm_head.classifier.ffn.0.linear_layer."),
    ("cls.seq_relationship.", "bert_cls_head.classifier.ffn.0.linear_layer."),
]


def zoo_name(key):
    for old, new in NAMES:
        key = key.replace(old, new)
    return "model." + key


def mup_logits(model, scales, ids, segments):
    """Returns the logits of the muP model, computed with hooks that scale hidden states."""
    embeddings = scales.get("embeddings_scale", 1.0)
    # transformers already divides by the square root of the head's size once.
    keys = scales.get("attention_logits_alpha", 1.0) / math.sqrt(HIDDEN // HEADS)
    width = HIDDEN / BASE if scales.get("scale_output_logits_by_d", True) else math.sqrt(HIDDEN / BASE)
    logits = scales.get("output_logits_alpha", 1.0) / width
    hooks = [model.bert.embeddings.LayerNorm.register_forward_hook(lambda _m, _i, out: out * embeddings)]
    for layer in model.bert.encoder.layer:
        key = layer.attention.self.key
        hooks.append(key.register_forward_hook(lambda _m, _i, out: out * keys))
    with torch.no_grad():
        output = model(input_ids=ids, token_type_ids=segments)
    for hook in hooks:
        hook.remove()
    return output.prediction_logits * logits, output.seq_relationship_logits * logits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--statelens", required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()

    def statelens(*command):
        process = subprocess.run([options.statelens, *map(str, command)], capture_output=True, text=True)
        assert process.returncode == 0, process.stderr.strip()

    def check(case):
        scales = SCALES[case]
        work = options.work / case.replace(" ", "-")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        torch.manual_seed(0)
        config = hf.BertConfig(
            vocab_size=11,
            hidden_size=HIDDEN,
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            intermediate_size=16,
            max_position_embeddings=7,
            tie_word_embeddings=False,
            attn_implementation="eager",
        )
        model = hf.BertForPreTraining(config).eval()
        for parameter in model.parameters():
            parameter.data = torch.randn_like(parameter) * 0.5
        ids, segments = torch.randint(0, 11, (2, 7)), torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
        expected = mup_logits(model, scales, ids, segments)
        # The Model Zoo stores the bias of the word predictions once.
        state = {
            zoo_name(key): value
            for key, value in model.state_dict().items()
            if "position_ids" not in key and key != "cls.predictions.bias"
        }
        torch.save({"model": state}, work / "mup.pt")
        statelens("convert", work / "mup.pt", work / "mup.mdl")
        params = dict(
            vocab_size=11,
            hidden_size=HIDDEN,
            num_hidden_layers=2,
            num_heads=HEADS,
            filter_size=16,
            max_position_embeddings=7,
            position_embedding_type="learned",
            nonlinearity="gelu",
            mlm_nonlinearity="gelu",
            pooler_nonlinearity="tanh",
            layer_norm_epsilon=1e-12,
            share_embedding_weights=False,
            disable_nsp=False,
            mup_base_hidden_size=BASE,
            mup_base_filter_size=8,
            scale_qk_dot_by_d=True,
            **scales,
        )
        (work / "params.yaml").write_text(yaml.dump({"model": params}))
        statelens(
            *("convert-model", work / "mup.mdl", "--config", work / "params.yaml", "--model", "bert"),
            *("--src-fmt", "cs-2.3", "--tgt-fmt", "hf", "--output-dir", work / "hf"),
        )
        (folder,) = (work / "hf").glob("*_to_hf")
        converted = hf.BertForPreTraining.from_pretrained(folder, attn_implementation="eager").eval()
        with torch.no_grad():
            actual = converted(input_ids=ids, token_type_ids=segments)
        pairs = zip(("words", "sentences"), expected, (actual.prediction_logits, actual.seq_relationship_logits))
        for name, theirs, ours in pairs:
            error, size = (theirs - ours).abs().max().item(), theirs.abs().max().item()
            assert error < 1e-5 * size, f"{name}: error {error:.2e}, largest logit {size:.2f}"

    def differ(_):
        """Checks that each set of scales gives different logits, so that the comparison above is meaningful."""
        torch.manual_seed(0)
        config = hf.BertConfig(
            vocab_size=11, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=HEADS,
            intermediate_size=16, max_position_embeddings=7, attn_implementation="eager",
        )
        model = hf.BertForPreTraining(config).eval()
        for parameter in model.parameters():
            parameter.data = torch.randn_like(parameter) * 0.5
        ids, segments = torch.randint(0, 11, (2, 7)), torch.zeros(2, 7, dtype=torch.long)
        all_logits = [mup_logits(model, scales, ids, segments)[0] for scales in SCALES.values()]
        for first, second in itertools.combinations(all_logits, 2):
            assert not torch.allclose(first, second, rtol=1e-2)

    failed = verdicts.run("bert_mup", "sets of muP scales", SCALES, check)
    return verdicts.run("bert_mup", "comparison between the sets of scales", ["scales"], differ) or failed


if __name__ == "__main__":
    sys.exit(main())
