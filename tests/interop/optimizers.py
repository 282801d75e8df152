"""Converts models with the state of their optimizers.

Each moment must be converted as its parameter, and training must continue to equal weights. The cases are small models of
transformers after a few steps of AdamW.
"""

import argparse
import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import transformers as hf

import verdicts

SIZES = dict(vocab_size=97, num_hidden_layers=2, max_position_embeddings=64)
LLAMA = dict(SIZES, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2)
GPT2 = dict(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64)
NO_DROPOUT = dict(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)

# By family: a function that creates the model, and whether its optimizer stores the names of parameters.
MODELS = {
    "llama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)), False),
    # Tied embeddings, transposed matrices, fused queries, keys and values.
    "gpt2": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2, **NO_DROPOUT)), True),
}
MOMENTS = ("exp_avg", "exp_avg_sq")


def train(model, optimizer, steps):
    for step in range(steps):
        tokens = torch.randint(0, 97, (2, 12), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()


def optimizer_of(model, named):
    return torch.optim.AdamW(model.named_parameters() if named else model.parameters(), lr=1e-2)


def save(model, folder, named):
    """Saves a model. If the optimizer numbers its parameters, the format must keep their order, unlike safetensors."""
    model.save_pretrained(folder)
    if not named:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")


class Command:
    def __init__(self, statelens):
        self.statelens = statelens

    def __call__(self, *arguments):
        process = subprocess.run(list(map(str, [self.statelens, *arguments])), capture_output=True, text=True)
        assert process.returncode == 0, f"{arguments}: {process.stderr.strip()}"
        return process.stdout

    def hashes(self, path):
        entries = json.loads(self("manifest", "--json", path))["entries"]
        return {entry["key"]: entry.get("sha256") for entry in entries}


def to_cerebras(run, model, folder):
    """Converts a folder to Cerebras's release 2.9, and returns the checkpoint and the config."""
    run("convert-model", folder, "--model", model, "--to", "cs-2.9", "-o", folder / "cs", "--with-optimizer")
    (state,), (config,) = (folder / "cs").glob("*.mdl"), (folder / "cs").glob("*.yaml")
    return state, config


def check(run, name, make, named, work):
    torch.manual_seed(0)
    model = make().train()
    optimizer = optimizer_of(model, named)
    train(model, optimizer, 3)
    folder = work / name
    save(model, folder, named)
    state = optimizer.state_dict()
    torch.save(state, folder / "optimizer.pt")
    mdl, config = to_cerebras(run, name, folder)

    # The converted moments must equal the converted weights of a model whose weights are the moments.
    converted = run.hashes(mdl)
    for moment in MOMENTS:
        other = copy.deepcopy(model)
        with torch.no_grad():
            for number, parameter in enumerate(other.parameters()):
                parameter.copy_(state["state"][number][moment])
        moments = work / f"{name}-{moment}"
        save(other, moments, named)
        run("convert-model", moments, "--model", name, "--to", "cs-2.9", "-o", moments / "cs")
        (weights,) = (moments / "cs").glob("*.mdl")
        expected = {value for key, value in run.hashes(weights).items() if key.startswith("model.")}
        actual = {
            value
            for key, value in converted.items()
            if key.startswith("optimizer.state.") and key.endswith("." + moment)
        }
        assert actual == expected, f"{moment}: {len(actual)} and {len(expected)} tensors"

    # The conversion back must restore the states and their names, and training must continue equally.
    run(
        "convert-model", mdl, "--config", config, "--model", name, "--src-fmt", "cs-2.9", "--to", "hf",
        "-o", folder / "back", "--with-optimizer", "--export-safetensors",
    )
    (back,) = (folder / "back").glob("*_to_hf")
    reloaded = type(model).from_pretrained(back).train()
    restored = torch.load(back / "optimizer.pt", weights_only=True)
    (group,) = restored["param_groups"]
    numbers = dict(zip(group.pop("param_names"), group["params"]))
    names = [key for key, _ in reloaded.named_parameters()]
    assert sorted(names) == sorted(numbers), sorted(set(names) ^ set(numbers))
    state = {"state": {at: restored["state"][numbers[key]] for at, key in enumerate(names)}}
    group["params"] = list(range(len(names)))
    state["param_groups"] = [group]
    resumed = optimizer_of(reloaded, False)
    resumed.load_state_dict(state)
    train(reloaded, resumed, 2)
    train(model, optimizer, 2)
    for (key, expected), (_, actual) in zip(model.named_parameters(), reloaded.named_parameters()):
        assert torch.equal(expected, actual), f"{key} differs by up to {(expected - actual).abs().max().item()}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--statelens", required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    shutil.rmtree(options.work, ignore_errors=True)
    run = Command(options.statelens)
    return verdicts.run("optimizers", "optimizers converted there and back", MODELS, lambda name: check(run, name, *MODELS[name], options.work))


if __name__ == "__main__":
    sys.exit(main())
