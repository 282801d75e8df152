"""What `cargo xtask bench` asks of the real libraries; run by the interpreters of their environments.

    python real.py inputs FOLDER NAME ROWS    FOLDER/NAME.mdl by cstorch.save and FOLDER/NAME.pt by torch.save,
                                              of the same state dict: 37 float32 and 37 bfloat16 tensors of
                                              ROWS x 1000 random numbers, and some scalars
    python real.py list FILE                  the keys of a .mdl
    python real.py to-torch IN OUT            .mdl to .pt
    python real.py to-cerebras IN OUT         .pt to .mdl

and by that of current torch, respectively of TensorFlow:

    python real.py plain-inputs FOLDER NAME   FOLDER/NAME.pt and .safetensors: 500 MiB in 100 float32 tensors
    python real.py torch-to-safetensors IN OUT
    python real.py safetensors-to-torch IN OUT
    python real.py h5-to-safetensors IN OUT   every dataset of a .mdl, by h5py
    python real.py safetensors-to-tensorflow IN PREFIX

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


def plain_inputs(folder, name):
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(2)
    state = {f"layers.{layer}.weight": torch.randn(1280, 1024, generator=generator) for layer in range(100)}
    torch.save(state, f"{folder}/{name}.pt")
    save_file(state, f"{folder}/{name}.safetensors")


def torch_to_safetensors(source, target):
    import torch
    from safetensors.torch import save_file

    save_file(torch.load(source, map_location="cpu", weights_only=True), target)


def safetensors_to_torch(source, target):
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(source), target)


def h5_to_safetensors(source, target):
    import h5py
    from safetensors.numpy import save_file

    arrays = {}
    with h5py.File(source) as file:
        file.visititems(lambda name, item: arrays.update({name: item[()]} if isinstance(item, h5py.Dataset) else {}))
    save_file(arrays, target)


def safetensors_to_tensorflow(source, prefix):
    import tensorflow as tf
    from safetensors.numpy import load_file

    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    variables, values = [], {}
    for name, array in load_file(source).items():
        held = tf1.placeholder(array.dtype, array.shape)
        variables.append(tf1.get_variable(name, initializer=held, use_resource=True))
        values[held] = array
    with tf1.Session() as session:
        session.run([variable.initializer for variable in variables], values)
        tf1.train.Saver(variables).save(session, prefix, write_meta_graph=False, write_state=False)


WHAT = {
    "inputs": inputs,
    "list": list_keys,
    "to-torch": to_torch,
    "to-cerebras": to_cerebras,
    "plain-inputs": plain_inputs,
    "torch-to-safetensors": torch_to_safetensors,
    "safetensors-to-torch": safetensors_to_torch,
    "h5-to-safetensors": h5_to_safetensors,
    "safetensors-to-tensorflow": safetensors_to_tensorflow,
}

if __name__ == "__main__":
    WHAT[sys.argv[1]](*sys.argv[2:])
