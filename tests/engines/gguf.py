#!/usr/bin/env python3
"""Writes a checkpoint of tests as GGUF, so that llama.cpp can run it: gguf.py FOLDER FILE [bf16|q8_0|q4_k].

For Llama, Mistral, Qwen2 and Qwen3 architectures with byte-level BPE. Standard library only. Numbers are written as f32, so that
llama.cpp has exactly the weights that heddle has; with bf16, matrices as they are; with q8_0, matrices as llama.cpp's
own quantizer makes them of that type, embeddings and head included; with q4_k, matrices rounded from the least to the
largest number of each 32."""

import array
import itertools
import json
import pathlib
import struct
import sys

ALIGNMENT = 32
F32, Q8_0, Q4_K, BF16 = 0, 8, 12, 30
MATRICES = {"f32": F32, "bf16": BF16, "q8_0": Q8_0, "q4_k": Q4_K}
Q8_0_NUMBERS = 32  # That share a scale.
Q4_K_NUMBERS = 256  # Eight times 32, each with a scale and a minimum in 6 bits.
NUMBERS = {Q8_0: Q8_0_NUMBERS, Q4_K: Q4_K_NUMBERS}  # Of a block.
NORMAL, CONTROL = 1, 3
U32, FLOAT, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, value):
    if kind == STRING:
        body = text(value)
    else:
        body = struct.pack({U32: "<I", FLOAT: "<f", BOOL: "<?"}[kind], value)
    return text(key) + struct.pack("<I", kind) + body


def entries(key, kind, values):
    body = b"".join(text(value) for value in values) if kind == STRING else struct.pack(f"<{len(values)}i", *values)
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + body


def read_tensors(folder):
    """{name: (shape, f32 array)} of all safetensors files in a folder."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        (length,) = struct.unpack_from("<Q", raw)
        for name, about in json.loads(raw[8 : 8 + length]).items():
            if name == "__metadata__":
                continue
            if about["dtype"] != "BF16":
                raise ValueError(f"{path}: {name} is {about['dtype']}; want BF16")
            begin, end = (8 + length + offset for offset in about["data_offsets"])
            halves = array.array("H", raw[begin:end])
            # The upper half of an f32 is its bf16.
            tensors[name] = about["shape"], array.array("I", (half << 16 for half in halves))
    return tensors


def interleaved(shape, values, heads):
    """Rows of a query or key projection in llama.cpp's order: it turns neighbours, not halves, together."""
    rows, columns = shape if len(shape) > 1 else (*shape, 1)
    size = rows // heads
    order = (head * size + half * (size // 2) + i for head in range(heads) for i in range(size // 2) for half in (0, 1))
    mixed = array.array("I")
    for row in order:
        mixed.extend(values[row * columns : (row + 1) * columns])
    return shape, mixed


def architecture(config):
    """How llama.cpp calls it: Mistral is a Llama to it."""
    return config["model_type"] if config["model_type"].startswith("qwen") else "llama"


def renamed(tensors, config):
    """The same tensors by llama.cpp's names."""
    inner = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
    }
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    named = {
        "token_embd.weight": tensors["model.embed_tokens.weight"],
        "output_norm.weight": tensors["model.norm.weight"],
        "output.weight": tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"]),
    }
    for layer in range(config["num_hidden_layers"]):
        for (theirs, ours), part in itertools.product(inner.items(), ("weight", "bias")):
            tensor = tensors.get(f"model.layers.{layer}.{theirs}.{part}")
            if tensor is None:
                continue
            if ours in heads and architecture(config) == "llama":
                tensor = interleaved(*tensor, heads[ours])
            named[f"blk.{layer}.{ours}.{part}"] = tensor
    return named


def metadata(folder, config):
    size = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ids = {**tokenizer["model"]["vocab"], **{token["content"]: token["id"] for token in tokenizer["added_tokens"]}}
    special = {token["id"] for token in tokenizer["added_tokens"]}
    words = sorted(ids, key=ids.get)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    # Its splitter takes digits one by one, as ours do, and its detokenizer leaves the spaces before points.
    splitter = "qwen2"
    kind = architecture(config)
    optional = []
    if config.get("bos_token_id") is not None:
        optional.append(entry("tokenizer.ggml.bos_token_id", U32, config["bos_token_id"]))
    if config.get("sliding_window") is not None and config.get("use_sliding_window", True):
        optional.append(entry(f"{kind}.attention.sliding_window", U32, config["sliding_window"]))
    return [
        *optional,
        entry("general.architecture", STRING, kind),
        entry("general.name", STRING, folder.name),
        entry(f"{kind}.block_count", U32, config["num_hidden_layers"]),
        entry(f"{kind}.context_length", U32, config["max_position_embeddings"]),
        entry(f"{kind}.embedding_length", U32, config["hidden_size"]),
        entry(f"{kind}.feed_forward_length", U32, config["intermediate_size"]),
        entry(f"{kind}.attention.head_count", U32, config["num_attention_heads"]),
        entry(f"{kind}.attention.head_count_kv", U32, config["num_key_value_heads"]),
        entry(f"{kind}.attention.key_length", U32, size),
        entry(f"{kind}.attention.value_length", U32, size),
        entry(f"{kind}.attention.layer_norm_rms_epsilon", FLOAT, config["rms_norm_eps"]),
        entry(f"{kind}.rope.dimension_count", U32, size),
        entry(f"{kind}.rope.freq_base", FLOAT, config["rope_theta"]),
        entry(f"{kind}.vocab_size", U32, len(words)),
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, splitter),
        entries("tokenizer.ggml.tokens", STRING, words),
        entries("tokenizer.ggml.token_type", I32, [CONTROL if ids[word] in special else NORMAL for word in words]),
        entries("tokenizer.ggml.merges", STRING, merges),
        entry("tokenizer.ggml.eos_token_id", U32, config["eos_token_id"]),
        entry("tokenizer.ggml.add_bos_token", BOOL, False),
        entry("tokenizer.chat_template", STRING, (folder / "chat_template.jinja").read_text()),
    ]


def q8_0(values):
    """f32 numbers as blocks of a scale in f16 and integers of 8 bits; whole blocks of them."""
    numbers = array.array("f", values.tobytes())
    blocks = bytearray()
    for begin in range(0, len(numbers), Q8_0_NUMBERS):
        block = numbers[begin : begin + Q8_0_NUMBERS]
        scale = max(max(block), -min(block)) / 127
        inverse = 1 / scale if scale > 0 else 0.0
        blocks += struct.pack(f"<e{Q8_0_NUMBERS}b", scale, *[round(number * inverse) for number in block])
    return blocks


def q4_k_scales(scales, minima):
    """Eight of each, of 6 bits, in twelve bytes: the last four of each are parted."""
    first = [scales[j] | scales[j + 4] >> 4 << 6 for j in range(4)]
    second = [minima[j] | minima[j + 4] >> 4 << 6 for j in range(4)]
    return bytes(first + second + [scales[j] & 15 | (minima[j] & 15) << 4 for j in range(4, 8)])


def q4_k(values):
    """f32 numbers as blocks of 256: two scales in f16, eight of 6 bits and eight minima, and 4 bits a number."""
    numbers = array.array("f", values.tobytes())
    blocks = bytearray()
    for begin in range(0, len(numbers), Q4_K_NUMBERS):
        parts = [numbers[at : at + 32] for at in range(begin, begin + Q4_K_NUMBERS, 32)]
        lows = [max(-min(part), 0.0) for part in parts]
        steps = [max((max(part) + low) / 15, 0.0) for part, low in zip(parts, lows)]
        step, low = max(steps) / 63, max(lows) / 63
        scales = [round(one / step) if step > 0 else 0 for one in steps]
        minima = [round(one / low) if low > 0 else 0 for one in lows]
        codes = []
        for part, scale, minimum in zip(parts, scales, minima):
            inverse = 1 / (scale * step) if scale * step > 0 else 0.0
            codes.append([min(max(round((number + minimum * low) * inverse), 0), 15) for number in part])
        blocks += struct.pack("<ee", step, low) + q4_k_scales(scales, minima)
        for even, odd in zip(codes[::2], codes[1::2]):
            blocks += bytes(a | b << 4 for a, b in zip(even, odd))
    return blocks


def encoded(values, kind):
    """f32 numbers as bytes of the given type."""
    if kind == BF16:
        return array.array("H", (value >> 16 for value in values)).tobytes()
    blocks = {Q8_0: q8_0, Q4_K: q4_k}.get(kind)
    return blocks(values) if blocks else values.tobytes()


def write(folder, path, matrices=F32):
    """Writes the checkpoint in `folder` to `path`; returns its size in bytes."""
    folder, path = pathlib.Path(folder), pathlib.Path(path)
    config = json.loads((folder / "config.json").read_text())
    rows = metadata(folder, config)
    tensors = renamed(read_tensors(folder), config)
    infos, data = b"", bytearray()
    for name, (shape, values) in tensors.items():
        dimensions = list(reversed(shape))
        kind = matrices if len(shape) > 1 else F32
        if shape[-1] % NUMBERS.get(kind, 1) != 0:
            raise ValueError(f"{name} has {shape[-1]} columns; the type wants a multiple of {NUMBERS[kind]}")
        infos += text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, len(data))
        data += encoded(values, kind)
        data += bytes(-len(data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(rows)) + b"".join(rows) + infos
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
    return path.stat().st_size


if __name__ == "__main__":
    print(write(sys.argv[1], sys.argv[2], MATRICES[sys.argv[3] if sys.argv[3:] else "f32"]), "bytes")
