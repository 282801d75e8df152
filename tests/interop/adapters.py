"""Compares `fold-lora` with `merge_and_unload` of PEFT.

Both fold an adapter saved by PEFT into its model. The tensors and the logits of the results must be equal.
With --fixtures FOLDER, it only saves the cases there: the model, the adapter, and PEFT's result.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import peft
import safetensors.torch
import torch
import transformers as hf

import verdicts

LLAMA = dict(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=16,
)
GPT2 = dict(vocab_size=96, n_embd=64, n_layer=2, n_head=2, n_positions=16)


def llama(**options):
    return hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, **options))


def gpt2():
    return hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2))


# A function that creates the model, the dtype, and the options of `LoraConfig`.
CASES = {
    "llama": (
        llama,
        torch.float32,
        dict(
            r=8,
            lora_alpha=3,
            target_modules=["q_proj", "v_proj", "down_proj", "embed_tokens"],
            modules_to_save=["lm_head"],
            rank_pattern={"layers.1.self_attn.q_proj": 12},
            alpha_pattern={"down_proj": 5},
        ),
    ),
    "llama_bf16": (
        llama,
        torch.bfloat16,
        dict(r=8, lora_alpha=16, use_rslora=True, target_modules="all-linear"),
    ),
    "llama_tied": (
        lambda: llama(tie_word_embeddings=True),
        torch.float16,
        dict(r=8, lora_alpha=4, target_modules=["o_proj", "embed_tokens"]),
    ),
    "gpt2": (
        gpt2,
        torch.float32,
        dict(r=8, lora_alpha=4, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"], bias="all"),
    ),
}


def randomise(model):
    """Adds noise to all parameters, because the loss of zero biases would not be visible."""
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.1)
    return model.eval()


def make(folder, model, dtype, lora):
    """Saves a model, an adapter of it, and the folded model with the real libraries."""
    torch.manual_seed(16)
    randomise(model()).to(dtype).save_pretrained(folder / "model")
    base = hf.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype)
    trained = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **lora))
    # PEFT initialises half of each adapter with zeros.
    with torch.no_grad():
        for name, tensor in trained.named_parameters():
            if tensor.requires_grad:
                tensor.add_(torch.randn_like(tensor) * 0.1)
    trained.save_pretrained(folder / "adapter")
    base = hf.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype)
    merged = peft.PeftModel.from_pretrained(base, folder / "adapter").merge_and_unload()
    merged.save_pretrained(folder / "merged")


def fold(statelens, folder):
    command = [statelens, "fold-lora", folder / "model", "--adapter", folder / "adapter", "-o", folder / "out"]
    process = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert process.returncode == 0, process.stderr.strip()
    return folder / "out/model_folded"


def check(statelens, work, name):
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    make(folder, *CASES[name])
    out = fold(statelens, folder)
    ours = safetensors.torch.load_file(out / "model.safetensors")
    theirs = safetensors.torch.load_file(folder / "merged/model.safetensors")
    assert set(ours) == set(theirs), sorted(set(ours) ^ set(theirs))
    changed = 0
    before = safetensors.torch.load_file(folder / "model/model.safetensors")
    for key in ours:
        assert ours[key].dtype == theirs[key].dtype, key
        assert torch.equal(ours[key], theirs[key]), f"{key}: {(ours[key] - theirs[key]).abs().max()}"
        changed += not torch.equal(ours[key], before[key])
    assert changed, "the adapter changed no tensor"
    tokens = torch.arange(12).reshape(1, 12) % 24
    logits = [
        hf.AutoModelForCausalLM.from_pretrained(path, dtype="auto").eval()(input_ids=tokens).logits
        for path in (out, folder / "merged")
    ]
    assert torch.equal(*logits), "the logits differ"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--statelens", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--fixtures", type=Path)
    options = parser.parse_args()
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    if options.fixtures:
        for name, case in CASES.items():
            make(options.fixtures / name, *case)
        return 0

    def compare(name):
        check(options.statelens, options.work, name)

    return verdicts.run("adapters", "folded adapters", CASES, compare)


if __name__ == "__main__":
    sys.exit(main())
