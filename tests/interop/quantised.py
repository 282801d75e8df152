"""Compares logits of quantised models with those of their dense form, as `statelens convert --dequantize` writes it.

    python quantised.py --statelens BINARY --work FOLDER [--only TEXT]

Makes a small Llama in each scheme that transformers runs on a CPU. Needs torch and transformers; a scheme whose library
is missing (bitsandbytes, compressed-tensors, torchao, optimum-quanto) is skipped and counted. The kernels of GPTQ and
AWQ need a GPU, so their logits are those of weights that this script unpacks with the formulas of AutoGPTQ and AutoAWQ.
Int8 of bitsandbytes is left out: it also rounds activations, so that its logits are not those of its weights.
The exit status is 1 if logits differ by more than the tolerance of the dtype.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import transformers

# The largest difference, relative to the largest logit. A library may multiply in another order or in 16 bits.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}


def dense(folder, dtype, experts=False):
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
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False,
    )
    config.dtype = dtype
    transformers.LlamaForCausalLM(config).to(dtype).save_pretrained(folder)
    return folder


def logits(folder, dtype, loader=None, **how):
    if loader:
        model = loader(folder).eval()
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map="cpu", **how).eval()
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


def compressed(work, dtype):
    def change(key, tensor):
        groups = tensor.float().reshape(tensor.shape[0], -1, 32)
        scales = (groups.abs().amax(-1) / 7).to(dtype)
        codes = (groups / scales.float()[..., None]).round().clamp(-8, 7).reshape(tensor.shape).to(torch.int8)
        from compressed_tensors.compressors.pack_quantized import pack_to_int32

        return {
            key + "_packed": pack_to_int32(codes, 4),
            key + "_scale": scales,
            key + "_shape": torch.tensor(tensor.shape),
        }

    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    settings = {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
        "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    return rewritten(work, dtype, change, settings), {}


def torchao(work, dtype):
    from torchao.quantization import Int8WeightOnlyConfig

    source = dense(work / "dense", dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, quantization_config=transformers.TorchAoConfig(Int8WeightOnlyConfig()), dtype=dtype, device_map="cpu"
    )
    model.save_pretrained(work / "quantised")
    return work / "quantised", {}


def quanto(work, dtype, bits):
    from optimum.quanto import QuantizedModelForCausalLM, qint2, qint4, qint8

    model = transformers.AutoModelForCausalLM.from_pretrained(dense(work / "dense", dtype), dtype=dtype)
    qtype = {2: qint2, 4: qint4, 8: qint8}[bits]
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
    model = transformers.AutoModelForCausalLM.from_pretrained(work / "dense", dtype=dtype)
    missing = set(values) - set(dict(model.named_parameters()))
    assert values and not missing, missing
    model.load_state_dict({key: value.to(dtype) for key, value in values.items()}, strict=False)
    return source, {"loader": lambda *_, **__: model}


SCHEMES = {
    "bitsandbytes nf4": (nf4, "bitsandbytes"),
    "bitsandbytes fp4, nested": (fp4_nested, "bitsandbytes"),
    "GPTQ": (lambda work, dtype: by_formula(work, dtype, "gptq"), "torch"),
    "AWQ": (lambda work, dtype: by_formula(work, dtype, "awq"), "torch"),
    "quanto, 2 bits": (lambda work, dtype: quanto(work, dtype, 2), "optimum.quanto"),
    "quanto, 4 bits": (lambda work, dtype: quanto(work, dtype, 4), "optimum.quanto"),
    "quanto, 8 bits": (lambda work, dtype: quanto(work, dtype, 8), "optimum.quanto"),
    "torchao int8": (torchao, "torchao"),
    "FP8 in squares": (fp8_blocks, "transformers"),
    "MXFP4 of gpt-oss": (mxfp4, "transformers"),
    "compressed-tensors, 4 bits": (compressed, "compressed_tensors"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    failed = skipped = compared = 0
    for name, (make, library) in SCHEMES.items():
        for dtype in TOLERANCE:
            if options.only not in name:
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
            quantised, how = make(work, dtype)
            output = work / "converted"
            output.mkdir()
            named = str(dtype).removeprefix("torch.")
            subprocess.run(
                [options.statelens, "convert", quantised / "model.safetensors", output / "model.safetensors",
                 "--dequantize", named],
                check=True, stdout=subprocess.DEVNULL,
            )
            # A config without settings of a quantisation, as quanto's, is not written.
            if not (output / "config.json").exists():
                shutil.copy(quantised / "config.json", output)
            expected, found = logits(quantised, dtype, **how), logits(output, dtype)
            assert expected.isfinite().all() and expected.std() > 0
            apart = ((expected - found).abs().max() / expected.abs().max()).item()
            # The weights that are not quantised give other logits, so the comparison can fail.
            control = ((expected - logits(work / "dense", dtype)).abs().max() / expected.abs().max()).item()
            wrong = apart > TOLERANCE[dtype] or control <= TOLERANCE[torch.float32]
            failed, compared = failed + wrong, compared + 1
            print(f"{'DIFFERS' if wrong else 'same'} {name}, {named}: {apart:.2e} apart; the original {control:.2e}")
    print(f"{compared} compared, {skipped} skipped, {failed} differ")
    return failed > 0 or compared == 0


if __name__ == "__main__":
    sys.exit(main())
