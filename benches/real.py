"""Runs the operations of the real libraries that `cargo xtask bench` measures. In the environment of Cerebras:

    python real.py inputs FOLDER NAME ROWS    writes a state dict to FOLDER/NAME.mdl with cstorch.save and to
                                              FOLDER/NAME.pt with torch.save: 37 float32 and 37 bfloat16 tensors
                                              of ROWS x 1000 random numbers, and some scalars
    python real.py list FILE                  lists the keys of a .mdl
    python real.py to-torch IN OUT            converts .mdl to .pt
    python real.py to-cerebras IN OUT         converts .pt to .mdl
    python real.py family-steps IN OUT HEADS  converts a llama of Hugging Face to .mdl with the steps of Cerebras's
                                              converter: load all, rename, permute q and k, cstorch.save

In the environment of current torch, or of TensorFlow:

    python real.py plain-inputs FOLDER NAME   writes 500 MiB in 100 float32 tensors to FOLDER/NAME.pt and .safetensors
    python real.py torch-to-safetensors IN OUT
    python real.py safetensors-to-torch IN OUT
    python real.py h5-to-safetensors IN OUT   converts every dataset of a .mdl with h5py
    python real.py safetensors-to-tensorflow IN PREFIX

Each operation is a short script as users write it. The times include the start of the interpreter and the imports.
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


def family_steps(source, target, heads):
    import re

    import cerebras.pytorch as cstorch
    import torch

    names = {
        "self_attn.q_proj": "self_attn.proj_q_dense_layer",
        "self_attn.k_proj": "self_attn.proj_k_dense_layer",
        "self_attn.v_proj": "self_attn.proj_v_dense_layer",
        "self_attn.o_proj": "self_attn.proj_output_dense_layer",
        "input_layernorm": "norm1",
        "post_attention_layernorm": "norm3",
        "mlp.up_proj": "ffn.ffn.0.linear_layer",
        "mlp.gate_proj": "ffn.ffn.0.linear_layer_for_glu",
        "mlp.down_proj": "ffn.ffn.1.linear_layer",
    }
    state, new = torch.load(source, weights_only=True), {}
    size = state["model.layers.0.self_attn.q_proj.weight"].shape[0] // int(heads)
    for key in list(state):
        tensor = state.pop(key)
        layer = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.weight", key)
        if layer is None:
            other = {"model.embed_tokens.weight": "embedding_layer.word_embeddings.weight"}.get(key, key)
            other = other.replace("model.norm", "transformer_decoder.norm")
            new[other] = tensor
            if key == "model.norm.weight":
                new["ln_f.weight"] = tensor
            continue
        number, name = layer.groups()
        if name in ("self_attn.q_proj", "self_attn.k_proj"):
            rows, columns = tensor.shape
            split = tensor.reshape(rows // size, 2, size // 2, columns)
            tensor = split.permute(0, 2, 1, 3).reshape(rows, columns)
        new[f"transformer_decoder.layers.{number}.{names[name]}.weight"] = tensor
    cstorch.save({"model": new}, target)


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
        placeholder = tf1.placeholder(array.dtype, array.shape)
        variables.append(tf1.get_variable(name, initializer=placeholder, use_resource=True))
        values[placeholder] = array
    with tf1.Session() as session:
        session.run([variable.initializer for variable in variables], values)
        tf1.train.Saver(variables).save(session, prefix, write_meta_graph=False, write_state=False)


OPERATIONS = {
    "inputs": inputs,
    "list": list_keys,
    "to-torch": to_torch,
    "to-cerebras": to_cerebras,
    "family-steps": family_steps,
    "plain-inputs": plain_inputs,
    "torch-to-safetensors": torch_to_safetensors,
    "safetensors-to-torch": safetensors_to_torch,
    "h5-to-safetensors": h5_to_safetensors,
    "safetensors-to-tensorflow": safetensors_to_tensorflow,
}

if __name__ == "__main__":
    OPERATIONS[sys.argv[1]](*sys.argv[2:])
