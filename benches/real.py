"""What `cargo xtask bench` asks of the real library; run by the interpreter of the Cerebras environment.

    python real.py inputs FOLDER NAME ROWS    FOLDER/NAME.mdl by cstorch.save and FOLDER/NAME.pt by torch.save,
                                              of the same state dict: 37 float32 and 37 bfloat16 tensors of
                                              ROWS x 1000 random numbers, and some scalars
    python real.py list FILE                  the keys of a .mdl
    python real.py to-torch IN OUT            .mdl to .pt
    python real.py to-cerebras IN OUT         .pt to .mdl

Each is what a short script of a user would do, start of the interpreter and imports included.
"""

import sys
import warnings

warnings.simplefilter("ignore")


def inputs(folder, name, rows):
    import cerebras.pytorch as cstorch
    import torch

    generator = torch.Generator().manual_seed(1)
    state = {"model": {}, "optimizer": {}, "global_step": 1000}
    for layer in range(37):
        weight = torch.randn(int(rows), 1000, generator=generator)
        state["model"][f"layers.{layer}.weight"] = weight
        state["model"][f"layers.{layer}.half"] = weight.to(torch.bfloat16)
        state["optimizer"][f"layers.{layer}.step"] = torch.tensor(float(layer))
    torch.save(state, f"{folder}/{name}.pt")
    cstorch.save(state, f"{folder}/{name}.mdl")


def list_keys(path):
    import cerebras.pytorch as cstorch
    from torch.utils._pytree import tree_flatten

    print(len(tree_flatten(cstorch.load(path))[0]))


def to_torch(source, target):
    import cerebras.pytorch as cstorch
    import torch

    torch.save(cstorch.load(source, map_location="cpu"), target)


def to_cerebras(source, target):
    import cerebras.pytorch as cstorch
    import torch

    cstorch.save(torch.load(source, map_location="cpu", weights_only=True), target)


WHAT = {"inputs": inputs, "list": list_keys, "to-torch": to_torch, "to-cerebras": to_cerebras}

if __name__ == "__main__":
    WHAT[sys.argv[1]](*sys.argv[2:])
