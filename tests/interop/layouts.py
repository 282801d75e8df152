"""Converts other layouts of models: Meta's ranks, Megatron, OpenAI, stacked experts, split projections.

The converted tensors must be equal, bit for bit, to tensors computed from the layout's definition. In transformers, the
converted model must have the logits of the original layout. The models are small, with random weights.
"""

import argparse
import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path

import safetensors.torch
import torch
import torch.distributed as dist
import transformers as hf
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel

import verdicts

SIZES = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)


def randomise(model):
    """Adds noise to all parameters, because the loss of biases of zero and scales of one would not be visible."""
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.02)
    return model.eval()


def compute_logits(model, tokens):
    with torch.no_grad():
        return model(input_ids=tokens).logits


def assert_equal(expected, actual):
    """Asserts that two state dicts have the same keys, in any order, and equal tensors."""
    assert set(expected) == set(actual), sorted(set(expected) ^ set(actual))
    for key in expected:
        assert expected[key].dtype == actual[key].dtype, key
        assert torch.equal(expected[key], actual[key]), key


class Converter:
    def __init__(self, statelens, work):
        self.statelens, self.work = statelens, work

    def run(self, source, to, out, *arguments):
        command = [self.statelens, "convert-model", source, "--to", to, "-o", out, *arguments]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True)

    def __call__(self, source, to, out, *arguments):
        """Converts a model, and returns the output folder."""
        out = self.work / out
        process = self.run(source, to, out, *arguments)
        assert process.returncode == 0, f"{source} to {to}: {process.stderr.strip()}"
        (folder,) = out.glob(f"*_to_{to}")
        return folder

    def save(self, name, model):
        """Saves a model with transformers, and returns its folder."""
        model.save_pretrained(self.work / name)
        return self.work / name


def load_tensors(folder):
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(safetensors.torch.load_file(file))
    for file in sorted(folder.glob("*.bin")):
        tensors.update(torch.load(file, weights_only=True))
    return tensors


def load_model(cls, folder, config):
    """Loads a model, and asserts that no keys are missing, unexpected or mismatched."""
    config.save_pretrained(folder)
    model, info = cls.from_pretrained(folder, output_loading_info=True)
    wrong = {name: info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[name]}
    assert not wrong, wrong
    return model.eval()


def meta_logits(weights, tokens, heads, kv, theta, eps):
    """Computes Meta's model as in `llama/model.py`: rotary embeddings rotate pairs of neighbours as complex numbers."""
    dim = weights["norm.weight"].numel()
    size = dim // heads
    angles = 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
    rotations = torch.outer(torch.arange(tokens.shape[1]).float(), angles)
    rotations = torch.polar(torch.ones_like(rotations), rotations)[None, :, None]

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weights[name]

    def rotate(x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * rotations
        return torch.view_as_real(pairs).flatten(3)

    x = weights["tok_embeddings.weight"][tokens]
    mask = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)
    layers = 1 + max(int(key.split(".")[1]) for key in weights if key.startswith("layers."))
    for n in range(layers):
        at = f"layers.{n}."
        h = norm(x, at + "attention_norm.weight")
        q, k, v = (
            (h @ weights[f"{at}attention.w{name}.weight"].T).view(*h.shape[:2], -1, size) for name in "qkv"
        )
        q, k = rotate(q), rotate(k)
        k, v = (part.repeat_interleave(heads // kv, dim=2) for part in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / size**0.5 + mask
        mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2)
        x = x + mixed @ weights[at + "attention.wo.weight"].T
        h = norm(x, at + "ffn_norm.weight")
        gate = torch.nn.functional.silu(h @ weights[at + "feed_forward.w1.weight"].T)
        x = x + (gate * (h @ weights[at + "feed_forward.w3.weight"].T)) @ weights[at + "feed_forward.w2.weight"].T
    return norm(x, "norm.weight") @ weights["output.weight"].T


# Weights that Meta splits across ranks by rows (ColumnParallelLinear) and by columns (RowParallelLinear).
META_ROWS = ("wq", "wk", "wv", "w1", "w3", "output")
META_COLUMNS = ("wo", "w2")


def meta(convert, ranks, llama3):
    name = f"meta-{ranks}-{'3' if llama3 else '2'}"
    heads, kv, dim, hidden, eps = 4, 2, 32, 48, 1e-5
    theta = 500000.0 if llama3 else 10000.0
    weights = {"tok_embeddings.weight": (96, dim), "norm.weight": (dim,), "output.weight": (96, dim)}
    for n in range(2):
        for key, shape in {
            "attention.wq": (dim, dim),
            "attention.wk": (dim * kv // heads, dim),
            "attention.wv": (dim * kv // heads, dim),
            "attention.wo": (dim, dim),
            "feed_forward.w1": (hidden, dim),
            "feed_forward.w2": (dim, hidden),
            "feed_forward.w3": (hidden, dim),
            "attention_norm": (dim,),
            "ffn_norm": (dim,),
        }.items():
            weights[f"layers.{n}.{key}.weight"] = shape
    weights = {key: torch.randn(shape) * 0.2 + (len(shape) == 1) for key, shape in weights.items()}

    def part(key, tensor, rank):
        kind = key.split(".")[-2]
        if kind == "tok_embeddings":
            return tensor.chunk(ranks, dim=0 if llama3 else 1)[rank]
        if kind in META_ROWS:
            return tensor.chunk(ranks, dim=0)[rank]
        return tensor.chunk(ranks, dim=1)[rank] if kind in META_COLUMNS else tensor

    folder = convert.work / name
    folder.mkdir(parents=True)
    parts = []
    for rank in range(ranks):
        parts.append({key: part(key, tensor, rank).clone() for key, tensor in weights.items()})
        torch.save(parts[-1] | {"rope.freqs": torch.ones(4)}, folder / f"consolidated.{rank:02}.pth")
    params = dict(dim=dim, n_layers=2, n_heads=heads, n_kv_heads=kv, norm_eps=eps, vocab_size=96)
    (folder / "params.json").write_text(json.dumps(params | ({"rope_theta": theta} if llama3 else {})))

    converted = convert(folder, "hf", name + "-hf", "--export-safetensors")
    config = hf.LlamaConfig(**SIZES, rms_norm_eps=eps, rope_parameters=dict(rope_type="default", rope_theta=theta))
    model = load_model(hf.LlamaForCausalLM, converted, config)
    tokens = torch.randint(0, 96, (2, 12))
    ours, theirs = compute_logits(model, tokens), meta_logits(weights, tokens, heads, kv, theta, eps)
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4), (ours - theirs).abs().max()
    back = convert(converted, "meta", name + "-back", "--ranks", ranks)
    for rank in range(ranks):
        assert_equal(parts[rank], torch.load(back / f"consolidated.{rank:02}.pth", weights_only=True))


def flat(tree, path=""):
    leaves = {}
    for key, value in tree.items():
        leaves.update(flat(value, f"{path}{key}/") if isinstance(value, dict) else {path + key: value})
    return leaves


def megatron(convert, ranks):
    """Compares with the split in `checkpoint_reshaping_and_interoperability.py` of transformers 4.46.3."""
    name = f"megatron-{ranks}"
    config = hf.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    model = randomise(hf.GPT2LMHeadModel(config))
    source = convert.save(name, model)
    converted = convert(source, "megatron", name + "-there", "--ranks", ranks)
    state = model.state_dict()
    padded = -(-97 // (128 * ranks)) * 128 * ranks
    words = state["transformer.wte.weight"]
    words = torch.cat([words, words[-1:].expand(padded - 97, -1)]).chunk(ranks)
    names = {
        "attn.c_attn": ("self_attention.query_key_value", 0),
        "attn.c_proj": ("self_attention.dense", 1),
        "mlp.c_fc": ("mlp.dense_h_to_4h", 0),
        "mlp.c_proj": ("mlp.dense_4h_to_h", 1),
        "ln_1": ("input_layernorm", None),
        "ln_2": ("post_attention_layernorm", None),
    }
    for rank in range(ranks):
        expected = {
            "language_model/embedding/word_embeddings/weight": words[rank],
            "language_model/embedding/position_embeddings/weight": state["transformer.wpe.weight"],
            "word_embeddings_for_head/weight": words[rank],
        }
        for kind in ("weight", "bias"):
            expected[f"language_model/encoder/final_layernorm.{kind}"] = state[f"transformer.ln_f.{kind}"]
            for n in range(2):
                for hf_name, (megatron_name, dim) in names.items():
                    tensor = state[f"transformer.h.{n}.{hf_name}.{kind}"]
                    tensor = tensor.T if tensor.dim() == 2 else tensor
                    if hf_name == "attn.c_attn":
                        split = tensor.reshape(3, 4, 8, *tensor.shape[1:])
                        tensor = split.transpose(0, 1).reshape(tensor.shape)
                    if dim == 0 or dim == 1 and kind == "weight":
                        tensor = tensor.chunk(ranks, dim=dim)[rank]
                    expected[f"language_model/encoder/layers.{n}.{megatron_name}.{kind}"] = tensor
        file = converted / f"mp_rank_{rank:02}/model_optim_rng.pt"
        actual = torch.load(file, weights_only=True)
        assert actual.pop("checkpoint_version") == 3.0
        assert_equal(expected, flat(actual.pop("model")))
        assert not actual, actual.keys()
    shutil.copy(source / "config.json", converted)
    back = convert(converted, "hf", name + "-back", "--export-safetensors")
    reloaded = load_model(hf.GPT2LMHeadModel, back, config)
    tokens = torch.randint(0, 97, (2, 12))
    assert torch.equal(compute_logits(model, tokens), compute_logits(reloaded, tokens))
    # With a missing rank, the conversion must fail instead of writing a part of the model.
    if ranks > 1:
        shutil.rmtree(converted / f"mp_rank_{ranks - 1:02}")
        process = convert.run(converted, "hf", convert.work / f"{name}-part")
        assert process.returncode and "some of its files are missing" in process.stderr, process.stderr


def experts(convert, name, model):
    """Compares stacked experts with the state dict in memory: transformers saves each expert separately, but stacks
    them in memory."""
    model = randomise(model)
    source = convert.save(name, model)
    converted = convert(source, "stacked", name + "-there", "--export-safetensors")
    assert_equal(dict(model.state_dict()), load_tensors(converted))
    assert any(key.endswith("experts.gate_up_proj") for key in load_tensors(converted))
    shutil.copy(source / "config.json", converted)
    back = convert(converted, "hf", name + "-back", "--export-safetensors")
    assert_equal(load_tensors(source), load_tensors(back))
    reloaded = load_model(type(model), back, model.config)
    tokens = torch.randint(0, 96, (2, 12))
    assert torch.equal(compute_logits(model, tokens), compute_logits(reloaded, tokens))


def phi3(convert):
    """Loads Phi-3 with split projections as a Llama."""
    config = hf.Phi3Config(**SIZES, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model = randomise(hf.Phi3ForCausalLM(config))
    source = convert.save("phi3", model)
    converted = convert(source, "split", "phi3-there", "--export-safetensors")
    shutil.copy(source / "config.json", converted)
    back = convert(converted, "hf", "phi3-back", "--export-safetensors")
    assert_equal(load_tensors(source), load_tensors(back))
    theta = config.rope_parameters["rope_theta"]
    llama_config = hf.LlamaConfig(
        **SIZES, rms_norm_eps=config.rms_norm_eps, rope_parameters=dict(rope_type="default", rope_theta=theta)
    )
    llama = load_model(hf.LlamaForCausalLM, converted, llama_config)
    tokens = torch.randint(0, 96, (2, 12))
    ours, theirs = compute_logits(llama, tokens), compute_logits(model, tokens)
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5), (ours - theirs).abs().max()


# The values of the 16 codes of FP4.
FP4 = torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def unpack(blocks, scales):
    """Unpacks MXFP4: 16 bytes are 32 numbers, the lower half of a byte first, times a power of two."""
    numbers = FP4[torch.stack([blocks & 15, blocks >> 4], dim=-1).int()].flatten(-2)
    return torch.ldexp(numbers, scales.int()[..., None] - 127).flatten(-2)


def openai_logits(weights, tokens, config):
    """Computes gpt-oss as OpenAI's `gpt_oss/torch/model.py`."""
    heads, kv, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    weights = {key: tensor if tensor.dtype == torch.uint8 else tensor.float() for key, tensor in weights.items()}
    length = len(tokens)
    angles = config.rope_parameters["rope_theta"] ** (-torch.arange(0, size, 2).float() / size)
    angles = torch.outer(torch.arange(length).float(), angles)[:, None]

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weights[name]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def rotate(x):
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], dim=-1
        )

    x = weights["embedding.weight"][tokens]
    for n in range(config.num_hidden_layers):
        at = f"block.{n}.attn."
        q, k, v = linear(norm(x, at + "norm.scale"), at + "qkv").split([heads * size, kv * size, kv * size], -1)
        q, k = rotate(q.view(length, heads, size)), rotate(k.view(length, kv, size))
        k, v = (part.repeat_interleave(heads // kv, dim=1) for part in (k, v.view(length, kv, size)))
        scores = torch.einsum("qhd,khd->hqk", q, k) / size**0.5
        hidden = torch.ones(length, length).triu(1)
        if n % 2 == 0:
            hidden += torch.ones(length, length).tril(-config.sliding_window)
        scores = scores.masked_fill(hidden.bool(), float("-inf"))
        sinks = weights[at + "sinks"].view(heads, 1, 1).expand(heads, length, 1)
        shares = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        x = x + linear(torch.einsum("hqk,khd->qhd", shares, v).flatten(1), at + "out")
        at = f"block.{n}.mlp."
        h = norm(x, at + "norm.scale")
        best = linear(h, at + "gate").topk(config.num_experts_per_tok, dim=-1)
        one, two = (
            (unpack(weights[f"{at}{name}_weight.blocks"], weights[f"{at}{name}_weight.scales"])[best.indices],
             weights[f"{at}{name}_bias"][best.indices])
            for name in ("mlp1", "mlp2")
        )
        inner = torch.einsum("beck,bk->bec", one[0], h) + one[1]
        gate, up = inner[..., ::2].clamp(max=7), inner[..., 1::2].clamp(-7, 7)
        inner = gate * torch.sigmoid(1.702 * gate) * (up + 1)
        outer = torch.einsum("beck,bek->bec", two[0], inner) + two[1]
        x = x + torch.einsum("bec,be->bc", outer, best.values.softmax(-1))
    return norm(x, "norm.scale") @ weights["unembedding.weight"].T


def gpt_oss(convert):
    hidden, inner, experts, heads, kv, size = 64, 32, 4, 4, 2, 16
    config = hf.GptOssConfig(
        **dict(SIZES, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=2),
        head_dim=size,
        num_local_experts=experts,
        num_experts_per_tok=2,
        sliding_window=4,
        rope_parameters=dict(rope_type="default", rope_theta=150000.0),
    )
    shapes = {"embedding.weight": (96, hidden), "norm.scale": (hidden,), "unembedding.weight": (96, hidden)}
    packed = {}
    for n in range(2):
        at, mlp = f"block.{n}.attn.", f"block.{n}.mlp."
        shapes |= {
            at + "norm.scale": (hidden,),
            at + "qkv.weight": ((heads + 2 * kv) * size, hidden),
            at + "qkv.bias": ((heads + 2 * kv) * size,),
            at + "sinks": (heads,),
            at + "out.weight": (hidden, heads * size),
            at + "out.bias": (hidden,),
            mlp + "norm.scale": (hidden,),
            mlp + "gate.weight": (experts, hidden),
            mlp + "gate.bias": (experts,),
            mlp + "mlp1_bias": (experts, 2 * inner),
            mlp + "mlp2_bias": (experts, hidden),
        }
        packed |= {mlp + "mlp1_weight": (experts, 2 * inner, hidden), mlp + "mlp2_weight": (experts, hidden, inner)}
    weights = {
        key: (torch.randn(shape) * 0.2 + (1 if key.endswith("norm.scale") else 0)).bfloat16()
        for key, shape in shapes.items()
    }
    for key, (*front, last) in packed.items():
        weights[key + ".blocks"] = torch.randint(0, 256, (*front, last // 32, 16), dtype=torch.uint8)
        weights[key + ".scales"] = torch.randint(122, 126, (*front, last // 32), dtype=torch.uint8)
    folder = convert.work / "gpt-oss"
    folder.mkdir()
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    # OpenAI's config.json has no model_type.
    openai_config = dict(num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=kv, head_dim=size)
    (folder / "config.json").write_text(json.dumps(openai_config))

    converted = convert(folder, "hf", "gpt-oss-there", "--export-safetensors")
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config.quantization_config = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    model = load_model(hf.GptOssForCausalLM, converted, config).float()
    tokens = torch.randint(0, 96, (12,))
    ours, theirs = compute_logits(model, tokens[None])[0], openai_logits(weights, tokens, config)
    assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3), (ours - theirs).abs().max()
    back = convert(converted, "openai", "gpt-oss-back", "--export-safetensors")
    assert_equal(weights, load_tensors(back))


def wrapped(convert):
    """Converts keys with the prefixes of torch's wrappers: they are an error without --unwrap, which removes them."""
    config = hf.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    model = randomise(hf.GPT2LMHeadModel(config))
    source = convert.save("unwrapped", model)

    def to_megatron(source, name, *arguments):
        converted = convert(source, "megatron", name, "--model", "gpt2-megatron", *arguments)
        return flat(torch.load(converted / "mp_rank_00/model_optim_rng.pt", weights_only=True)["model"])

    expected = to_megatron(source, "unwrapped-there")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for at, wrap in enumerate((torch.nn.DataParallel, torch.compile, sharded)):
        folder = convert.work / f"wrapped-{at}"
        folder.mkdir()
        keys = dict(wrap(copy.deepcopy(model)).named_parameters())
        assert not any(key in keys for key in model.state_dict()), list(keys)[:3]
        torch.save({key: tensor.detach().clone() for key, tensor in keys.items()}, folder / "pytorch_model.bin")
        config.save_pretrained(folder)
        process = convert.run(folder, "cs-2.9", folder / "refused")
        assert process.returncode and "--unwrap" in process.stderr, process.stderr
        assert_equal(expected, to_megatron(folder, f"wrapped-{at}-there", "--unwrap"))
    dist.destroy_process_group()


def sharded(model):
    """Wraps the model and each of its blocks in FullyShardedDataParallel, with checkpointed activations."""
    cpu = torch.device("cpu")
    blocks = model.transformer.h
    for at, block in enumerate(blocks):
        blocks[at] = FullyShardedDataParallel(checkpoint_wrapper(block), use_orig_params=True, device_id=cpu)
    return FullyShardedDataParallel(model, use_orig_params=True, device_id=cpu)


MOE = dict(SIZES, moe_intermediate_size=24)
CASES = {
    **{
        f"Meta's Llama {'3' if llama3 else '2'} in {ranks}": lambda c, r=ranks, l=llama3: meta(c, r, l)
        for ranks in (1, 2)
        for llama3 in (False, True)
    },
    **{f"Megatron's GPT-2 in {ranks}": lambda c, r=ranks: megatron(c, r) for ranks in (1, 2, 4)},
    "Mixtral": lambda c: experts(
        c, "mixtral", hf.MixtralForCausalLM(hf.MixtralConfig(**SIZES, num_local_experts=4))
    ),
    "Qwen2-MoE": lambda c: experts(
        c,
        "qwen2-moe",
        hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(**MOE, num_experts=4, num_experts_per_tok=2, shared_expert_intermediate_size=40)),
    ),
    "Qwen3-MoE": lambda c: experts(
        c, "qwen3-moe", hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(**MOE, num_experts=4, num_experts_per_tok=2, head_dim=8))
    ),
    "DeepSeek-V3": lambda c: experts(
        c,
        "deepseek-v3",
        hf.DeepseekV3ForCausalLM(
            hf.DeepseekV3Config(
                **dict(MOE, num_key_value_heads=4),
                n_routed_experts=4,
                num_experts_per_tok=2,
                n_group=2,
                topk_group=1,
                first_k_dense_replace=1,
                q_lora_rank=16,
                kv_lora_rank=16,
                qk_rope_head_dim=8,
                qk_nope_head_dim=8,
                v_head_dim=8,
            )
        ),
    ),
    "DeepSeek-V2": lambda c: experts(
        c,
        "deepseek-v2",
        hf.DeepseekV2ForCausalLM(
            hf.DeepseekV2Config(
                **dict(MOE, num_key_value_heads=4),
                n_routed_experts=4,
                num_experts_per_tok=2,
                first_k_dense_replace=1,
                q_lora_rank=16,
                kv_lora_rank=16,
                qk_rope_head_dim=8,
                qk_nope_head_dim=8,
                v_head_dim=8,
            )
        ),
    ),
    "OLMoE": lambda c: experts(c, "olmoe", hf.OlmoeForCausalLM(hf.OlmoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2))),
    "Phi-3": phi3,
    "gpt-oss": gpt_oss,
    "wrapped by torch": wrapped,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--statelens", required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    convert = Converter(options.statelens, options.work)

    def check(name):
        torch.manual_seed(0)
        CASES[name](convert)

    return verdicts.run("layouts", "layouts converted there and back", CASES, check)


if __name__ == "__main__":
    sys.exit(main())
