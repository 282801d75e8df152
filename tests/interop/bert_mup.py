"""BERT with muP, converted to Hugging Face, gives the logits of the muP model.

The muP model is transformers' BERT with what the Cerebras Model Zoo adds (release 2.4,
`models/nlp/bert/bert_model.py` and `bert_pretrain_models.py`): hidden states are multiplied by
`embeddings_scale` behind the norm of the embeddings, the products of queries and keys by
`attention_logits_alpha` and divided by the size of a head rather than by its root, and both logits by
`output_logits_alpha * mup_base_hidden_size / hidden_size`.

    python tests/interop/bert_mup.py target/debug/statelens
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
import yaml

HIDDEN, HEADS, BASE = 8, 2, 4
SCALE, ALPHA, OUTPUT = 10.0, 0.7, 3.0


def names(key):
    """The key of the Cerebras model for one of transformers."""
    for old, new in [
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
    ]:
        key = key.replace(old, new)
    return "model." + key


def mup_logits(model, ids, segments):
    """What the muP model with these weights gives: its scales are applied to hidden states."""
    hooks = [
        model.bert.embeddings.LayerNorm.register_forward_hook(lambda _m, _i, out: out * SCALE),
    ]
    for layer in model.bert.encoder.layer:
        # Scores are divided by the root of the head's size by transformers, and once more here.
        by = ALPHA / math.sqrt(HIDDEN // HEADS)
        hooks.append(layer.attention.self.key.register_forward_hook(lambda _m, _i, out: out * by))
    found = model(input_ids=ids, token_type_ids=segments)
    for hook in hooks:
        hook.remove()
    by = OUTPUT * BASE / HIDDEN
    return found.prediction_logits * by, found.seq_relationship_logits * by


def main():
    statelens = sys.argv[1]
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=16,
        max_position_embeddings=7, tie_word_embeddings=False, attn_implementation="eager",
    )
    model = transformers.BertForPreTraining(config).eval()
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) * 0.5
    ids, segments = torch.randint(0, 11, (2, 7)), torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
    with torch.no_grad():
        expected = mup_logits(model, ids, segments)
    state = {}
    for key, value in model.state_dict().items():
        if "position_ids" not in key and key != "cls.predictions.bias":
            state[names(key)] = value
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        torch.save({"model": state}, folder / "mup.pt")
        subprocess.run([statelens, "convert", folder / "mup.pt", folder / "mup.mdl"], check=True, capture_output=True)
        params = {"model": {
            "vocab_size": 11, "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_heads": HEADS, "filter_size": 16,
            "max_position_embeddings": 7, "position_embedding_type": "learned", "nonlinearity": "gelu",
            "mlm_nonlinearity": "gelu", "pooler_nonlinearity": "tanh", "layer_norm_epsilon": 1e-12,
            "share_embedding_weights": False, "disable_nsp": False, "embeddings_scale": SCALE,
            "mup_base_hidden_size": BASE, "mup_base_filter_size": 8, "attention_logits_alpha": ALPHA,
            "output_logits_alpha": OUTPUT, "scale_qk_dot_by_d": True, "scale_output_logits_by_d": True,
        }}
        (folder / "params.yaml").write_text(yaml.dump(params))
        run = subprocess.run(
            [statelens, "model", "convert", folder / "mup.mdl", "--model", "bert", "--src-fmt", "cs-2.3", "--tgt-fmt", "hf",
             "--config", folder / "params.yaml", "--output-dir", folder / "hf"],
            capture_output=True, text=True,
        )
        if run.returncode:
            sys.exit(run.stdout + run.stderr)
        found = next((folder / "hf").rglob("config.json")).parent
        again = transformers.BertForPreTraining.from_pretrained(found, attn_implementation="eager").eval()
        print(json.loads((found / "config.json").read_text()).get("tie_word_embeddings"))
        with torch.no_grad():
            got = again(input_ids=ids, token_type_ids=segments)
    for name, one, two in [("words", expected[0], got.prediction_logits), ("sentences", expected[1], got.seq_relationship_logits)]:
        error = (one - two).abs().max().item()
        print(f"{name}: largest difference {error:.2e} of {one.abs().max().item():.2f}")
        assert error < 1e-3 * one.abs().max().item(), name


main()
