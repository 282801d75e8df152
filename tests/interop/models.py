"""Converts models of transformers to Cerebras's release 2.9 and back.

The result must load without missing or unexpected keys and have the same logits. Another case compares a cast during the
conversion with torch's casts, bit for bit. The models are small, with random weights.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import transformers as hf

import verdicts

COMMON = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
)
GROUPED = dict(COMMON, num_key_value_heads=2)

# By family: a function that creates the model, and a part of the keys without weights that the original converter adds.
MODELS = {
    "llama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED)), ""),
    "qwen2": (lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**GROUPED)), ""),
    "mistral": (lambda: hf.MistralForCausalLM(hf.MistralConfig(**GROUPED)), ""),
    "mixtral": (lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**GROUPED, num_local_experts=4)), ""),
    "gpt-neox": (lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**COMMON)), ".attention."),
    "gpt2": (
        lambda: hf.GPT2LMHeadModel(
            hf.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64)
        ),
        ".attn.masked_bias",
    ),
    "bloom": (
        lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=97, hidden_size=32, n_layer=2, n_head=4)),
        "",
    ),
    "bert": (lambda: hf.BertForPreTraining(hf.BertConfig(**COMMON)), ""),
    "t5": (
        lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(
                vocab_size=97, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=2, num_heads=4
            )
        ),
        "",
    ),
}


def compute_logits(model, tokens):
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            return model(input_ids=tokens, decoder_input_ids=tokens).logits
        output = model(input_ids=tokens)
    return output.prediction_logits if hasattr(output, "prediction_logits") else output.logits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--statelens", required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()

    def convert(source, config, family, source_format, to, out, *arguments):
        command = [options.statelens, "convert-model", source, "--config", config, "--model", family]
        command += ["--src-fmt", source_format, "--tgt-fmt", to, "--output-dir", out, *arguments]
        process = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if process.returncode:
            raise AssertionError(f"{source_format} to {to}: {process.stderr.strip()}")

    def check(family):
        make, added = MODELS[family]
        work = options.work / family
        shutil.rmtree(work, ignore_errors=True)
        torch.manual_seed(0)
        model = make().eval()
        # Noise, because the loss of biases of zero and scales of one would not be visible.
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.add_(torch.randn_like(tensor) * 0.02)
        tokens = torch.randint(0, 97, (2, 12))
        before = compute_logits(model, tokens)
        model.save_pretrained(work / "hf")
        convert(work / "hf/model.safetensors", work / "hf/config.json", family, "hf", "cs-2.9", work / "cs")
        (state,), (config,) = (work / "cs").glob("*.mdl"), (work / "cs").glob("*.yaml")
        convert(state, config, family, "cs-2.9", "hf", work / "back")
        (back,) = (work / "back").glob("*_to_hf")
        reloaded, info = type(model).from_pretrained(back, output_loading_info=True)
        tied = set(getattr(reloaded, "all_tied_weights_keys", None) or [])
        missing = set(info["missing_keys"]) - tied
        unexpected = {key for key in info["unexpected_keys"] if not added or added not in key}
        assert not missing, f"missing: {sorted(missing)}"
        assert not unexpected, f"unexpected: {sorted(unexpected)}"
        assert not info["mismatched_keys"], info["mismatched_keys"]
        after = compute_logits(reloaded.eval(), tokens)
        assert torch.equal(before, after), f"logits differ by up to {(before - after).abs().max().item()}"

    def cast(_):
        work = options.work / "cast"
        shutil.rmtree(work, ignore_errors=True)
        torch.manual_seed(0)
        model = MODELS["llama"][0]()
        with torch.no_grad():
            # Numbers of all magnitudes: in float16, some overflow, and some become subnormal or zero.
            for tensor in model.parameters():
                tensor.copy_(torch.randn_like(tensor) * 10 ** torch.empty_like(tensor).uniform_(-9, 6))
        model.save_pretrained(work / "hf")
        source, config = work / "hf/model.safetensors", work / "hf/config.json"
        convert(source, config, "llama", "hf", "cs-2.9", work / "plain")
        dtypes = {"*norm*": torch.bfloat16, "*": torch.float16}
        casts = [f"--cast={pattern}={str(dtype)}" for pattern, dtype in dtypes.items()]
        convert(source, config, "llama", "hf", "cs-2.9", work / "cast", *casts, "--lossy")
        states = []
        for kind in ("plain", "cast"):
            (state,) = (work / kind).glob("*.mdl")
            flat = work / f"{kind}.pt"
            subprocess.run([options.statelens, "convert", state, flat], check=True, capture_output=True)
            states.append(torch.load(flat)["model"])
        plain, ours = states
        assert plain.keys() == ours.keys()
        for key, tensor in plain.items():
            expected = tensor.to(dtypes["*norm*" if "norm" in key else "*"])
            assert ours[key].dtype == expected.dtype, f"{key}: {ours[key].dtype}"
            assert torch.equal(ours[key].view(torch.int16), expected.view(torch.int16)), key

    failed = verdicts.run("models", "families converted there and back", MODELS, check)
    return verdicts.run("models", "cast compared with torch", ["llama"], cast) or failed


if __name__ == "__main__":
    sys.exit(main())
