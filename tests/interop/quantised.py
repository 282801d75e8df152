"""Compares logits of quantised models with those of their dense form, as `statelens convert --dequantize` writes it.

    python quantised.py --statelens BINARY --work FOLDER [--only TEXT]

Makes a small Llama in each scheme that transformers runs on a CPU. Needs torch and transformers; a scheme whose library
is missing (bitsandbytes, compressed-tensors, torchao, optimum-quanto, gguf) is skipped and counted. The kernels of GPTQ
and AWQ need a GPU, so their logits are those of weights that this script unpacks with the formulas of AutoGPTQ and
AutoAWQ. Those of FP8 and MXFP4 do, too: transformers dequantises such models as it loads them. Int8 of bitsandbytes
also rounds activations, so that its logits are those of `model.dequantize()`. Quanto compiles its unpacking with ninja,
which must be in PATH. The exit status is 1 if logits differ by more than the tolerance of the dtype.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import transformers

# Schemes whose library always dequantises to bfloat16, which a model in float32 can't compute with.
BFLOAT16 = ["compressed-tensors, MXFP4", "compressed-tensors, NVFP4"]

# The largest difference, relative to the largest logit. A library may multiply in another order or in 16 bits.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}


def dense(folder, dtype, experts=False, hidden=128):
    torch.manual_seed(0)
    if experts:
        config = transformers.GptOssConfig(
            vocab_size=256, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
            layer_types=["full_attention"] * 2,
        )
        config.dtype = dtype
        transformers.GptOssForCausalLM(config).to(dtype).save_pretrained(folder)
        return folder
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False,
    )
    config.dtype = dtype
    transformers.LlamaForCausalLM(config).to(dtype).save_pretrained(folder)
    return folder


def logits(folder, dtype, loader=None, dequantised=False, **how):
    if loader:
        model = loader(folder).eval()
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map="cpu", **how).eval()
    if dequantised:
        model = model.dequantize(dtype=dtype)
    with torch.no_grad():
        return model(torch.arange(48).reshape(2, 24)).logits.float()


def bitsandbytes(work, dtype, **options):
    config = transformers.BitsAndBytesConfig(**options)
    source = dense(work / "dense", dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, quantization_config=config, dtype=dtype, device_map="cpu"
    )
    model.save_pretrained(work / "quantised")
    return work / "quantised", {}


def nf4(work, dtype):
    return bitsandbytes(work, dtype, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def fp4_nested(work, dtype):
    return bitsandbytes(
        work, dtype, load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def int8(work, dtype):
    source, how = bitsandbytes(work, dtype, load_in_8bit=True)
    return source, how | {"dequantised": True}


def rewritten(work, dtype, change, settings, ends=("_proj.weight",), experts=False):
    """Saves the model with other tensors for each weight whose key has one of `ends`, and settings in the config."""
    import safetensors.torch

    source = dense(work / "dense", dtype, experts)
    target = work / "quantised"
    shutil.copytree(source, target)
    tensors = {}
    for key, tensor in safetensors.torch.load_file(source / "model.safetensors").items():
        tensors.update(change(key, tensor) if key.endswith(ends) else {key: tensor})
    safetensors.torch.save_file(tensors, target / "model.safetensors", {"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    return target


def fp8_blocks(work, dtype):
    def change(key, tensor):
        rows, columns = tensor.shape
        squares = tensor.float().reshape(rows // 64, 64, columns // 64, 64)
        scales = squares.abs().amax((1, 3)) / 448
        codes = (squares / scales[:, None, :, None]).reshape(rows, columns).to(torch.float8_e4m3fn)
        return {key: codes, key + "_scale_inv": scales}

    settings = {"quant_method": "fp8", "weight_block_size": [64, 64], "activation_scheme": "dynamic"}
    source = rewritten(work, dtype, change, settings)
    return source, {"quantization_config": transformers.FineGrainedFP8Config(weight_block_size=(64, 64), dequantize=True)}


def mxfp4(work, dtype):
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])

    def change(key, tensor):
        groups = tensor.float().transpose(1, 2).unflatten(-1, (-1, 32))
        exponents = groups.abs().amax(-1).log2().floor() - 2
        codes = (groups / exponents.exp2()[..., None])[..., None].sub(values).abs().argmin(-1).to(torch.uint8)
        return {
            key + "_blocks": codes[..., ::2] | codes[..., 1::2] << 4,
            key + "_scales": (exponents + 127).to(torch.uint8),
        }

    ends = ("experts.gate_up_proj", "experts.down_proj")
    source = rewritten(work, dtype, change, {"quant_method": "mxfp4"}, ends, experts=True)
    return source, {"quantization_config": transformers.Mxfp4Config(dequantize=True)}


def with_values(work, dtype, values):
    """Returns what loads the dense model with these weights instead of its own."""
    model = transformers.AutoModelForCausalLM.from_pretrained(work / "dense", dtype=dtype)
    missing = set(values) - set(dict(model.named_parameters()))
    assert values and not missing, missing
    model.load_state_dict({key: value.to(dtype) for key, value in values.items()}, strict=False)
    return lambda *_, **__: model


def compressed(work, dtype, kind):
    """Writes a model in a format of compressed-tensors, with the library's own functions for packing."""
    from compressed_tensors.compressors.pack_quantized import pack_to_int32
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    unpacked = {}
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])

    def fp4(groups):
        codes = (groups.abs()[..., None] - values).abs().argmin(-1) + 8 * (groups < 0)
        codes = codes.flatten(1).to(torch.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4

    def change(key, tensor):
        groups = tensor.float().reshape(tensor.shape[0], -1, 32)
        most = groups.abs().amax(-1)
        spread = lambda scales: scales.float()[..., None]  # noqa: E731
        if kind == "int4":
            scales = (most / 7).to(dtype)
            codes = (groups / spread(scales)).round().clamp(-8, 7).reshape(tensor.shape).to(torch.int8)
            parts = {"_packed": pack_to_int32(codes, 4), "_scale": scales, "_shape": torch.tensor(tensor.shape)}
        elif kind == "int4, asymmetric":
            low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
            scales = ((high - low) / 15).to(dtype)
            zeros = (-8 - low / scales.float()).round().clamp(-8, 7)
            codes = (groups / spread(scales) + zeros[..., None]).round().clamp(-8, 7)
            codes = codes.reshape(tensor.shape).to(torch.int8)
            parts = {"_packed": pack_to_int32(codes, 4), "_scale": scales, "_shape": torch.tensor(tensor.shape)}
            zeros = zeros.to(torch.int8)
            parts["_zero_point"] = pack_to_int32(zeros, 4, packed_dim=0)
            args = QuantizationArgs(**(weights | {"symmetric": False}))
            unpacked[key] = dequantize(codes, scales, zeros, args=args)
        elif kind == "int8":
            scales = (tensor.float().abs().amax(-1, keepdim=True) / 127).to(dtype)
            parts = {"": (tensor / scales).round().clamp(-128, 127).to(torch.int8), "_scale": scales}
        elif kind == "FP8":
            scales = (tensor.float().abs().amax(-1, keepdim=True) / 448).to(dtype)
            parts = {"": (tensor.float() / scales.float()).to(torch.float8_e4m3fn), "_scale": scales}
        elif kind == "FP8 in squares":
            squares = tensor.float().unflatten(0, (-1, 64)).unflatten(2, (-1, 64))
            scales = (squares.abs().amax((1, 3)) / 448).to(dtype)
            codes = (squares / scales.float()[:, None, :, None]).reshape(tensor.shape)
            parts = {"": codes.to(torch.float8_e4m3fn), "_scale": scales}
        elif kind == "MXFP4":
            exponents = most.log2().floor() - 2
            parts = {"_packed": fp4(groups / spread(exponents.exp2())), "_scale": (exponents + 127).to(torch.uint8)}
        else:
            groups = groups.reshape(tensor.shape[0], -1, 16)
            of_scales = torch.tensor([2688.0]) / tensor.float().abs().amax()
            scales = (groups.abs().amax(-1) / 6 * of_scales).to(torch.float8_e4m3fn)
            codes = fp4(groups / (spread(scales) / of_scales))
            parts = {"_packed": codes, "_scale": scales, "_global_scale": of_scales}
        return {key + name: part.contiguous() for name, part in parts.items()}

    form, more = {
        "int4": ("pack-quantized", {}),
        "int4, asymmetric": ("pack-quantized", {"symmetric": False}),
        "int8": ("int-quantized", {"num_bits": 8, "strategy": "channel", "group_size": None}),
        "FP8": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel", "group_size": None}),
        "FP8 in squares": (
            "float-quantized",
            {"num_bits": 8, "type": "float", "strategy": "block", "group_size": None, "block_structure": [64, 64]},
        ),
        "MXFP4": (
            "mxfp4-pack-quantized", {"type": "float", "scale_dtype": "torch.uint8", "zp_dtype": "torch.float8_e4m3fn"},
        ),
        "NVFP4": (
            "nvfp4-pack-quantized", {"type": "float", "strategy": "tensor_group", "group_size": 16},
        ),
    }[kind]
    settings = {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights | more, "format": form}},
    }
    source = rewritten(work, dtype, change, settings)
    # transformers 5.24 expects other shapes of packed zero points than the library writes.
    return source, {"loader": with_values(work, dtype, unpacked)} if unpacked else {}


def torchao(work, dtype, config):
    import torchao.quantization as of

    config = {
        "int8": lambda: of.Int8WeightOnlyConfig(),
        "int4 in bytes": lambda: of.IntxWeightOnlyConfig(torch.int4, of.PerGroup(32)),
        "FP8": lambda: of.Float8WeightOnlyConfig(),
    }[config]()
    source = dense(work / "dense", dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, quantization_config=transformers.TorchAoConfig(config), dtype=dtype, device_map="cpu"
    )
    model.save_pretrained(work / "quantised")
    return work / "quantised", {}


def quanto(work, dtype, bits):
    from optimum.quanto import QuantizedModelForCausalLM, qfloat8, qint2, qint4, qint8

    model = transformers.AutoModelForCausalLM.from_pretrained(dense(work / "dense", dtype), dtype=dtype)
    qtype = {2: qint2, 4: qint4, 8: qint8, "FP8": qfloat8}[bits]
    model = QuantizedModelForCausalLM.quantize(model, weights=qtype, exclude="lm_head")
    model.save_pretrained(work / "quantised")
    return work / "quantised", {"loader": QuantizedModelForCausalLM.from_pretrained}


def in_words(codes, bits=4):
    """Packs the last dimension into words of 32 bits, the first code lowest."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int64)
    words = (codes.to(torch.int64).unflatten(-1, (-1, 32 // bits)) << shifts).sum(-1)
    return (words - (words >> 31 << 32)).to(torch.int32)


def grouped(tensor, dtype, group=32):
    """Returns codes of 4 bits, zero points and scales of groups of inputs; all have the inputs first."""
    groups = tensor.float().t().unflatten(0, (-1, group))
    low, high = groups.amin(1).clamp(max=0), groups.amax(1).clamp(min=0)
    scales = ((high - low) / 15).to(dtype)
    zeros = (-low / scales.float()).round().clamp(1, 15)
    codes = (groups / scales.float()[:, None] + zeros[:, None]).round().clamp(0, 15)
    return codes.flatten(0, 1), zeros, scales


# The columns of the eight codes of a word of AWQ, the lowest first.
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def by_formula(work, dtype, scheme):
    """Writes the packed model, and one with weights of the formula `(code - zero point) * scale`."""
    values = {}

    def change(key, tensor):
        codes, zeros, scales = grouped(tensor, dtype)
        wide = lambda of: of.float().repeat_interleave(32, 0)  # noqa: E731
        values[key] = ((codes - wide(zeros)) * wide(scales)).t().contiguous()
        module = key.removesuffix(".weight")
        if scheme == "awq":
            mixed = lambda of: of.unflatten(-1, (-1, 8))[..., AWQ_ORDER].flatten(-2)  # noqa: E731
            parts = {"qweight": in_words(mixed(codes)), "qzeros": in_words(mixed(zeros))}
        else:
            parts = {"qweight": in_words(codes.t()).t().contiguous(), "qzeros": in_words(zeros - 1)}
            parts["g_idx"] = torch.arange(len(codes), dtype=torch.int32) // 32
        return {f"{module}.{name}": part for name, part in (parts | {"scales": scales}).items()}

    settings = {
        "awq": {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32, "zero_point": True},
        "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "checkpoint_format": "gptq"},
    }[scheme]
    source = rewritten(work, dtype, change, settings)
    return source, {"loader": with_values(work, dtype, values)}


# The names of llama.cpp, and those of transformers.
GGUF_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def of_transformers(name):
    """Returns the name that transformers has for a weight of llama.cpp."""
    parts = name.removesuffix(".weight").split(".")
    prefix = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
    return prefix + GGUF_NAMES[parts[-1]] + ".weight"


def interleaved(tensor, heads):
    """Returns the rows of a query or key in the order of llama.cpp: of each head, those of both halves in turn."""
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def halves(tensor, heads):
    """Returns rows in the order of transformers."""
    return tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


HEADS = {"attn_q": 4, "attn_k": 2}


def of_gguf(work, dtype, kind):
    """Writes a GGUF file whose matrices have this type, and returns what loads it."""
    import gguf
    import numpy
    import safetensors.torch

    source = dense(work / "dense", dtype, hidden=256)
    target = work / "quantised"
    shutil.copytree(source, target)
    (target / "model.safetensors").unlink()
    writer = gguf.GGUFWriter(target / "model.gguf", "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(256)
    writer.add_block_count(2)
    writer.add_feed_forward_length(512)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(64)
    writer.add_rope_freq_base(10_000)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(256)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    stored = safetensors.torch.load_file(source / "model.safetensors")
    names = ["token_embd.weight", "output_norm.weight", "output.weight"]
    for layer in range(2):
        names += [f"blk.{layer}.{name}.weight" for name in GGUF_NAMES if name.startswith(("attn", "ffn"))]
    generator = numpy.random.default_rng(0)
    type_of = gguf.GGMLQuantizationType[kind]
    elements, size = gguf.constants.GGML_QUANT_SIZES[type_of]
    for name in names:
        tensor = stored[of_transformers(name)].float()
        own = name.split(".")[-2]
        if own in HEADS:
            tensor = interleaved(tensor, HEADS[own])
        array = tensor.contiguous().numpy()
        if "blk" not in name or array.ndim < 2:
            writer.add_tensor(name, array)
            continue
        try:
            data = gguf.quants.quantize(array, type_of)
        except NotImplementedError:
            # The package has no quantisation to K types: random codes with small scales.
            data = generator.integers(0, 256, (len(array), array.shape[1] // elements, size), numpy.uint8)
            small = (generator.random(data.shape[:2]) * 1e-4).astype(numpy.float16)[..., None].view(numpy.uint8)
            places = {"Q6_K": [208], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_XS": [0]}
            for place in places[kind]:
                data[..., place : place + 2] = small
            data = data.reshape(len(array), -1)
        writer.add_tensor(name, data, raw_dtype=type_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target, {"gguf_file": "model.gguf"}


def with_names_of_transformers(output):
    """Gives the weights that were made from a GGUF file the names, and the order of rows, of transformers."""
    import safetensors.torch

    tensors = {}
    for name, tensor in safetensors.torch.load_file(output / "model.safetensors").items():
        own = name.split(".")[-2]
        tensor = halves(tensor, HEADS[own]) if own in HEADS else tensor
        tensors[of_transformers(name)] = tensor.contiguous()
    safetensors.torch.save_file(tensors, output / "model.safetensors", {"format": "pt"})


SCHEMES = {
    "bitsandbytes nf4": (nf4, "bitsandbytes"),
    "bitsandbytes fp4, nested": (fp4_nested, "bitsandbytes"),
    "bitsandbytes int8": (int8, "bitsandbytes"),
    "GPTQ": (lambda work, dtype: by_formula(work, dtype, "gptq"), "torch"),
    "AWQ": (lambda work, dtype: by_formula(work, dtype, "awq"), "torch"),
    "FP8 in squares": (fp8_blocks, "transformers"),
    "MXFP4 of gpt-oss": (mxfp4, "transformers"),
}
for one in [2, 4, 8, "FP8"]:
    name = one if one == "FP8" else f"{one} bits"
    SCHEMES[f"quanto, {name}"] = (lambda work, dtype, one=one: quanto(work, dtype, one), "optimum.quanto")
for one in ["int8", "int4 in bytes", "FP8"]:
    SCHEMES[f"torchao, {one}"] = (lambda work, dtype, one=one: torchao(work, dtype, one), "torchao")
for one in ["int4", "int4, asymmetric", "int8", "FP8", "FP8 in squares", "MXFP4", "NVFP4"]:
    SCHEMES[f"compressed-tensors, {one}"] = (
        lambda work, dtype, one=one: compressed(work, dtype, one), "compressed_tensors",
    )
for one in ["Q8_0", "Q4_0", "Q4_K", "Q6_K", "Q2_K", "IQ4_XS"]:
    SCHEMES[f"GGUF, {one}"] = (lambda work, dtype, one=one: of_gguf(work, dtype, one), "gguf")


def is_same(statelens, work, name, dtype, quantised, how):
    """Prints how far the logits of the dense output are from those of the quantised model."""
    output = work / "converted"
    output.mkdir()
    named = str(dtype).removeprefix("torch.")
    source = quantised / how.get("gguf_file", "model.safetensors")
    subprocess.run(
        [statelens, "convert", source, output / "model.safetensors", "--dequantize", named],
        check=True, stdout=subprocess.DEVNULL,
    )
    if "gguf_file" in how:
        with_names_of_transformers(output)
    # A config without settings of a quantisation, as quanto's, is not written.
    if not (output / "config.json").exists():
        shutil.copy(quantised / "config.json", output)
    expected, found = logits(quantised, dtype, **how), logits(output, dtype)
    assert expected.isfinite().all() and expected.std() > 0
    apart = ((expected - found).abs().max() / expected.abs().max()).item()
    # The weights that are not quantised give other logits, so the comparison can fail.
    control = ((expected - logits(work / "dense", dtype)).abs().max() / expected.abs().max()).item()
    same = apart <= TOLERANCE[dtype] and control > TOLERANCE[torch.float32]
    print(f"{'same' if same else 'DIFFERS'} {name}, {named}: {apart:.2e} apart; the original {control:.2e}")
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    failed = skipped = compared = 0
    for name, (make, library) in SCHEMES.items():
        for dtype in TOLERANCE:
            if options.only not in name or name in BFLOAT16 and dtype != torch.bfloat16:
                continue
            try:
                __import__(library)
            except ImportError as why:
                print(f"skipped {name}: {why}")
                skipped += 1
                continue
            work = options.work / f"{name.replace(' ', '_').replace(',', '')}_{str(dtype).removeprefix('torch.')}"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            try:
                quantised, how = make(work, dtype)
            except Exception as why:  # noqa: BLE001
                print(f"skipped {name}, {dtype}: not made: {type(why).__name__}: {str(why)[:200]}")
                skipped += 1
                continue
            compared += 1
            try:
                failed += not is_same(options.statelens, work, name, dtype, quantised, how)
            except Exception as why:  # noqa: BLE001
                print(f"FAILED {name}, {dtype}: {type(why).__name__}: {why}")
                failed += 1
    print(f"{compared} compared, {skipped} skipped, {failed} differ")
    return failed > 0 or compared == 0


if __name__ == "__main__":
    sys.exit(main())
