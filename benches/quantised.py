"""Measures gguf's own numpy code for `cargo xtask bench quantised`.

    python quantised.py inputs FOLDER       writes FOLDER/quantised-NAME: 256 MB of float32 in each scheme, and dense
                                            float16
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
            blocks = generator.integers(0, 0x3C, (ROWS, COLUMNS // elements * size), np.uint8)
            writer.add_tensor(f"blk.{at}.ffn_up.weight", blocks, raw_dtype=kind)
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


def dequantize(path):
    import gguf

    for tensor in gguf.GGUFReader(path).tensors:
        gguf.quants.dequantize(tensor.data, tensor.tensor_type)


if __name__ == "__main__":
    what, path = sys.argv[1:]
    started = time.perf_counter()
    {"inputs": inputs, "dequantize": dequantize}[what](path)
    if what != "inputs":
        print(time.perf_counter() - started)
