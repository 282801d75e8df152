"""Measures gguf's own numpy code for `cargo xtask bench quantised`.

    python quantised.py inputs FOLDER       writes FOLDER/quantised-NAME: 256 MB of float32 in each scheme, and dense
                                            float16
    python quantised.py model FILE GB       writes a GGUF file of this size with the types of Q4_K_M
    python quantised.py dequantize FILE     prints the seconds for reading a GGUF file and decoding all of its blocks

The seconds exclude the start of the interpreter.
"""

import json
import sys
import time

import numpy as np

ROWS, COLUMNS, MATRICES = 4_096, 4_096, 4
TYPES = ["Q4_K", "Q6_K", "Q8_0"]


def safetensors(path, tensors):
    entries, at = {}, 0
    for name, (tag, array) in tensors.items():
        entries[name] = {"dtype": tag, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    head = json.dumps(entries).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for _, array in tensors.values():
            file.write(array.tobytes())


def inputs(folder):
    import gguf

    generator = np.random.default_rng(1)
    dense = [
        (generator.standard_normal((ROWS, COLUMNS), np.float32) * np.float32(0.02)).astype(np.float16)
        for _ in range(MATRICES)
    ]
    safetensors(f"{folder}/quantised-f16.safetensors", {f"w{at}": ("F16", array) for at, array in enumerate(dense)})
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.constants.GGML_QUANT_SIZES[kind]
        writer = gguf.GGUFWriter(f"{folder}/quantised-{name}.gguf", "llama")
        for at in range(MATRICES):
            # Small exponents, so that no scale is infinite.
            stored = generator.integers(0, 0x3C, (ROWS, COLUMNS // elements * size), np.uint8)
            writer.add_tensor(f"blk.{at}.ffn_up.weight", stored, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    nf4, awq = {}, {}
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [ROWS, COLUMNS]}
    for at in range(MATRICES):
        count = ROWS * COLUMNS
        nf4[f"w{at}.weight"] = ("U8", generator.integers(0, 256, (count // 2, 1), np.uint8))
        nf4[f"w{at}.weight.absmax"] = ("F32", generator.random(count // 64, np.float32))
        nf4[f"w{at}.weight.quant_map"] = ("F32", np.linspace(-1, 1, 16, dtype=np.float32))
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        nf4[f"w{at}.weight.quant_state.bitsandbytes__nf4"] = ("U8", text)
        word = lambda rows: generator.integers(-(2**31), 2**31, (rows, ROWS // 8), np.int32)  # noqa: E731
        awq[f"w{at}.qweight"] = ("I32", word(COLUMNS))
        awq[f"w{at}.qzeros"] = ("I32", word(COLUMNS // 128))
        awq[f"w{at}.scales"] = ("F16", generator.random((COLUMNS // 128, ROWS), np.float32).astype(np.float16))
    safetensors(f"{folder}/quantised-nf4.safetensors", nf4)
    safetensors(f"{folder}/quantised-awq.safetensors", awq)


def blocks(generator, kind, rows, columns):
    """Returns blocks whose values are those of a layer: codes around the middle, scales near 0.001."""
    import gguf

    elements, size = gguf.constants.GGML_QUANT_SIZES[kind]
    count = rows * columns // elements
    # The sum of two random numbers is near the middle more often than at the ends.
    nibbles = generator.integers(0, 8, (2, count, size, 2), np.uint8)
    nibbles = nibbles[0] + nibbles[1]
    stored = nibbles[..., 0] | nibbles[..., 1] << 4
    scale = lambda middle: (generator.random(count, np.float32) * middle + middle).astype(np.float16)  # noqa: E731
    halves = lambda numbers: numbers[:, None].view(np.uint8)  # noqa: E731
    if kind.name == "Q4_K":
        stored[:, 0:2], stored[:, 2:4] = halves(scale(1e-4)), halves(scale(7e-4))
        stored[:, 4:16] = generator.integers(0, 256, (count, 12), np.uint8)
    else:
        stored[:, 192:208] = generator.integers(20, 128, (count, 16), np.uint8)
        stored[:, 208:210] = halves(scale(1e-5))
    return stored.reshape(rows, -1)


def model(path, size):
    """Writes layers as llama-quantize does for Q4_K_M: half of `attn_v` and `ffn_down`, and the head, are Q6_K."""
    import gguf

    generator = np.random.default_rng(1)
    four, six = gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K
    hidden, inner, vocabulary = 4_096, 14_336, 32_000
    shapes = {"attn_q": (hidden, hidden), "attn_k": (1_024, hidden), "attn_v": (1_024, hidden)}
    shapes |= {"attn_output": (hidden, hidden), "ffn_gate": (inner, hidden), "ffn_up": (inner, hidden)}
    shapes |= {"ffn_down": (hidden, inner)}
    writer = gguf.GGUFWriter(path, "llama")
    written = 0

    def add(name, kind, shape):
        nonlocal written
        data = blocks(generator, kind, *shape)
        written += data.nbytes
        writer.add_tensor(name, data, raw_dtype=kind)

    add("token_embd.weight", four, (vocabulary, hidden))
    add("output.weight", six, (vocabulary, hidden))
    layer = 0
    while written < float(size) * 1e9:
        for name, shape in shapes.items():
            more = name in ("attn_v", "ffn_down") and layer % 2 == 0
            add(f"blk.{layer}.{name}.weight", six if more else four, shape)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(hidden, np.float32))
        layer += 1
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def dequantize(path):
    import gguf

    for tensor in gguf.GGUFReader(path).tensors:
        gguf.quants.dequantize(tensor.data, tensor.tensor_type)


if __name__ == "__main__":
    what, *paths = sys.argv[1:]
    started = time.perf_counter()
    {"inputs": inputs, "model": model, "dequantize": dequantize}[what](*paths)
    if what == "dequantize":
        print(time.perf_counter() - started)
