"""Adapters that PEFT has saved, folded into their models by `fold-lora`: what is written is what
`merge_and_unload` of PEFT makes of the same two folders, tensor by tensor, and gives the same answers.
With --fixtures FOLDER the cases are saved there: the model, the adapter, and what PEFT makes of them."""

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


def llama(**more):
    return hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, **more))


def gpt2():
    return hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2))


# A model, its dtype, and how it is trained.
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


def shaken(model):
    """Half of an adapter is zero at first, and would hide that it is lost."""
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.1)
    return model.eval()


def make(folder, model, dtype, how):
    """The model, an adapter of it, and the folded model, as the libraries save them."""
    torch.manual_seed(16)
    shaken(model()).to(dtype).save_pretrained(folder / "model")
    base = hf.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype)
    trained = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **how))
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
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr.strip()
    return folder / "out/model_folded"


def check(statelens, work, name):
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    make(folder, *CASES[name])
    out = fold(statelens, folder)
    own = safetensors.torch.load_file(out / "model.safetensors")
    theirs = safetensors.torch.load_file(folder / "merged/model.safetensors")
    assert set(own) == set(theirs), sorted(set(own) ^ set(theirs))
    changed = 0
    before = safetensors.torch.load_file(folder / "model/model.safetensors")
    for key in own:
        assert own[key].dtype == theirs[key].dtype, key
        assert torch.equal(own[key], theirs[key]), f"{key}: {(own[key] - theirs[key]).abs().max()}"
        changed += not torch.equal(own[key], before[key])
    assert changed, "nothing was folded"
    tokens = torch.arange(12).reshape(1, 12) % 24
    answers = [
        hf.AutoModelForCausalLM.from_pretrained(path, dtype="auto").eval()(input_ids=tokens).logits
        for path in (out, folder / "merged")
    ]
    assert torch.equal(*answers), "other answers"


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

    return verdicts.run("adapters", "folded", CASES, compare)


if __name__ == "__main__":
    sys.exit(main())
