#!/usr/bin/env python3
"""Makes a checkpoint with random weights: for measuring speed, where what is said does not matter.

    tools/random_model.py DIR [--size 8b|1b|500m-hybrid|100m|100m-hybrid|40m|10m|600m-a100m] [--seed N]

Nothing but Python's standard library is needed. `1b` has 1.04e9 parameters (2.1 GB in bfloat16), `8b`
Llama 3's shape but for the head, which is tied (15 GB).
`600m-a100m` has 32 experts a layer, of which a token takes 4, and `100m-hybrid` three layers of linear
attention to each layer of attention, as Qwen3.5 has; the others are Llamas.
The tokenizer knows bytes and spaced numbers: each of " 0", " 1", ... is one token, so that a prompt
of N tokens is easily written, and random answers are readable.
"""

import argparse
import json
import pathlib
import random
import struct
import sys

VOCAB = 32000
SIZES = {
    "8b": dict(layers=32, hidden=4096, intermediate=14336, heads=32, kv_heads=8, vocab=128256),
    "1b": dict(layers=16, hidden=2048, intermediate=8192, heads=32, kv_heads=8),
    "100m": dict(layers=8, hidden=768, intermediate=2304, heads=12, kv_heads=4),
    "100m-hybrid": dict(
        layers=12, hidden=768, intermediate=2304, heads=6, kv_heads=2, key_heads=8, value_heads=16, linear_dim=64
    ),
    "500m-hybrid": dict(
        layers=24, hidden=1024, intermediate=3584, heads=8, kv_heads=2, key_heads=16, value_heads=16, linear_dim=128
    ),
    "40m": dict(layers=16, hidden=448, intermediate=1280, heads=7, kv_heads=7, vocab=2000),
    "10m": dict(layers=4, hidden=256, intermediate=1024, heads=8, kv_heads=4),
    "600m-a100m": dict(layers=12, hidden=1024, intermediate=0, heads=16, kv_heads=4, experts=32, active=4, wide=512),
}
POOL = 1 << 20  # random values that all tensors are cut from, each from places of its own
PIECE = 1 << 16
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIALS = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def bf16(value: float) -> bytes:
    return struct.pack("<f", value)[2:]


def linear_shapes(layer: str, size: dict) -> dict[str, tuple[int, ...]]:
    """Tensors of a layer of linear attention."""
    hidden, heads, dim = size["hidden"], size["value_heads"], size["linear_dim"]
    channels = (2 * size["key_heads"] + heads) * dim
    return {
        f"{layer}.A_log": (heads,),
        f"{layer}.dt_bias": (heads,),
        f"{layer}.conv1d.weight": (channels, 1, 4),
        f"{layer}.in_proj_a.weight": (heads, hidden),
        f"{layer}.in_proj_b.weight": (heads, hidden),
        f"{layer}.in_proj_qkv.weight": (channels, hidden),
        f"{layer}.in_proj_z.weight": (heads * dim, hidden),
        f"{layer}.norm.weight": (dim,),
        f"{layer}.out_proj.weight": (hidden, heads * dim),
    }


def shapes(size: dict) -> dict[str, tuple[int, ...]]:
    """Tensors by name, embeddings tied."""
    hidden, wide = size["hidden"], size.get("wide", size["intermediate"])
    head_dim = hidden // size["heads"]
    kv = size["kv_heads"] * head_dim
    result = {"model.embed_tokens.weight": (size.get("vocab", VOCAB), hidden)}
    for i in range(size["layers"]):
        layer = f"model.layers.{i}"
        result |= {
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
        }
        if "linear_dim" in size and i % 4 != 3:
            result |= linear_shapes(f"{layer}.linear_attn", size)
        else:
            gated = 2 if "linear_dim" in size else 1  # Queries have their gates beside them.
            result |= {
                f"{layer}.self_attn.q_proj.weight": (gated * hidden, hidden),
                f"{layer}.self_attn.k_proj.weight": (kv, hidden),
                f"{layer}.self_attn.v_proj.weight": (kv, hidden),
                f"{layer}.self_attn.o_proj.weight": (hidden, hidden),
            }
            if "linear_dim" in size:
                result |= {f"{layer}.self_attn.{x}_norm.weight": (head_dim,) for x in "qk"}
        if "experts" in size:
            result |= {
                f"{layer}.self_attn.q_norm.weight": (head_dim,),
                f"{layer}.self_attn.k_norm.weight": (head_dim,),
                f"{layer}.mlp.gate.weight": (size["experts"], hidden),
            }
        mlps = [f"experts.{e}." for e in range(size["experts"])] if "experts" in size else [""]
        for mlp in mlps:
            result |= {
                f"{layer}.mlp.{mlp}gate_proj.weight": (wide, hidden),
                f"{layer}.mlp.{mlp}up_proj.weight": (wide, hidden),
                f"{layer}.mlp.{mlp}down_proj.weight": (hidden, wide),
            }
    return result | {"model.norm.weight": (hidden,)}


def config_of(size: dict) -> dict:
    """What the configuration of a size has beside Llama's."""
    if "experts" in size:
        return {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_experts": size["experts"],
            "num_experts_per_tok": size["active"],
            "moe_intermediate_size": size["wide"],
            "norm_topk_prob": True,
        }
    if "linear_dim" in size:
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "head_dim": size["hidden"] // size["heads"],
            "linear_num_key_heads": size["key_heads"],
            "linear_num_value_heads": size["value_heads"],
            "linear_key_head_dim": size["linear_dim"],
            "linear_value_head_dim": size["linear_dim"],
            "linear_conv_kernel_dim": 4,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.25},
            "full_attention_interval": 4,
        }
    return {}


def write_weights(path: pathlib.Path, tensors: dict[str, tuple[int, ...]], rng: random.Random):
    header, offset, counts = {}, 0, {}
    for name, shape in tensors.items():
        count = 1
        for n in shape:
            count *= n
        counts[name] = count
        header[name] = {
            "dtype": "BF16",
            "shape": shape,
            "data_offsets": [offset, offset + 2 * count],
        }
        offset += 2 * count
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pool = memoryview(b"".join(bf16(rng.gauss(0.0, 0.02)) for _ in range(POOL)))
    one = bf16(1.0)
    written, shown = 0, -1
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, count in counts.items():
            if name.endswith("norm.weight"):
                file.write(one * count)
                written += count
                continue
            while count > 0:
                piece = min(PIECE, count)
                start = 2 * rng.randrange(POOL - piece)
                file.write(pool[start : start + 2 * piece])
                count -= piece
                written += piece
            percent = 200 * written // offset
            if percent != shown and sys.stderr.isatty():
                print(f"\r{path}: {percent} %", end="", file=sys.stderr)
                shown = percent
    if sys.stderr.isatty():
        print(file=sys.stderr)


def byte_alphabet() -> list[str]:
    """How byte-level tokenizers write the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    extra = 256
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(extra)
            extra += 1
    return [letters[byte] for byte in range(256)]


def tokenizer(vocab: int) -> dict:
    added = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False, "special": True}
        for i, text in enumerate(SPECIALS)
    ]
    words = SPECIALS + byte_alphabet()
    words += [f"Ġ{n}" for n in range(vocab - len(words))]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        # Whole words are looked up before merges are tried, of which there are none.
        "model": {
            "type": "BPE",
            "ignore_merges": True,
            "vocab": {word: i for i, word in enumerate(words)},
            "merges": [],
        },
    }


def write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--size", choices=SIZES, default="1b")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    size, folder = SIZES[arguments.size], arguments.directory
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": size["hidden"],
            "intermediate_size": size["intermediate"],
            "num_hidden_layers": size["layers"],
            "num_attention_heads": size["heads"],
            "num_key_value_heads": size["kv_heads"],
            "hidden_act": "silu",
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "vocab_size": size.get("vocab", VOCAB),
            "bos_token_id": 0,
            "eos_token_id": 0,
        }
        | config_of(size),
    )
    write_json(folder / "generation_config.json", {"eos_token_id": 0, "do_sample": False})
    write_json(folder / "tokenizer.json", tokenizer(size.get("vocab", VOCAB)))
    write_json(folder / "tokenizer_config.json", {"eos_token": "<|end|>", "pad_token": "<|end|>"})
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    write_weights(folder / "model.safetensors", shapes(size), random.Random(arguments.seed))


if __name__ == "__main__":
    main()
