"""Loads a model with `from_pretrained` after its DeepSpeed ZeRO-3 checkpoint was converted.

    python torch_ranks.py --statelens BINARY --work FOLDER

The checkpoint of three ranks is written as `deepspeed.runtime.zero.stage3` writes it, from a small Llama. Its logits must be
those of the original, bit for bit, with and without tied embeddings.

The exit status is 1 if anything differs.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

WORLD = 3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    failures = [failure for tied in (False, True) for failure in compare(options, tied)]
    for failure in failures:
        print("FAILED", failure)
    print("from_pretrained after ZeRO-3: 2 models")
    sys.exit(bool(failures))


def compare(options, tied):
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=24,
        intermediate_size=52,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
    )
    model = AutoModelForCausalLM.from_config(config).float().eval()
    source, target = options.work / f"tied-{tied}", options.work / f"model-{tied}"
    write(model, source, tied)
    target.mkdir(parents=True)
    command = [options.statelens, "convert", source, target / "model.safetensors"]
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    if ran.returncode:
        return [f"convert: {ran.stderr}"]
    config.save_pretrained(target)
    loaded, info = AutoModelForCausalLM.from_pretrained(target, output_loading_info=True, dtype=torch.float32)
    failures = [f"{name}: {info[name]}" for name in ("missing_keys", "unexpected_keys") if info[name]]
    tokens = torch.arange(1, 40).reshape(3, 13)
    with torch.no_grad():
        if not torch.equal(model(tokens).logits, loaded.eval()(tokens).logits):
            failures.append(f"logits differ (tied: {tied})")
    return failures


def write(model, folder, tied):
    """Writes the files of all ranks: each has a part of every parameter, in one flat tensor."""
    step = folder / "global_step5"
    step.mkdir(parents=True)
    (folder / "latest").write_text("global_step5")
    parameters = dict(model.named_parameters())
    shapes = {name: parameter.shape for name, parameter in parameters.items()}
    shared = {"lm_head.weight": "model.embed_tokens.weight"} if tied else {}
    for rank in range(WORLD):
        parts = []
        for parameter in parameters.values():
            flat = parameter.detach().flatten()
            each = -(-flat.numel() // WORLD)
            part = torch.zeros(each)
            held = flat[rank * each : (rank + 1) * each]
            part[: held.numel()] = held
            parts.append(part)
        states = {
            # With stage 3, the module has placeholders.
            "module": {name: torch.zeros(0, dtype=torch.bfloat16) for name in model.state_dict()},
            "buffer_names": [],
            "param_shapes": [shapes],
            "frozen_param_shapes": None,
            "frozen_param_fragments": None,
            "shared_params": shared,
            "ds_version": "0.18.0",
        }
        torch.save(states, step / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        optimizer = {
            "zero_stage": 3,
            "partition_count": WORLD,
            "fp32_flat_groups": [torch.cat(parts)],
            "optimizer_state_dict": {"state": {}, "param_groups": []},
        }
        states = {"optimizer_state_dict": optimizer, "ds_version": "0.18.0"}
        torch.save(states, step / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


if __name__ == "__main__":
    main()
