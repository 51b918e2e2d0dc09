#!/usr/bin/env python3
"""Writes small random models as GGUF files, and what llama.cpp says of the next token after some prefixes.

    pip install gguf==0.19.0 numpy xllamacpp==2026.10.11549 && tests/golden/make_gguf_models.py [name ...]

Each model is `gguf/NAME.gguf`, whose matrices are mixtures of blocks as `Q4_K_M` files have them (or of 32, where rows
are short), with random bits and scales such that their numbers are about normal. `gguf/NAME.json` holds token ids and,
for prefixes of them, log probabilities of the twenty likeliest tokens by llama.cpp (the package xllamacpp), with keys
and values in float32: of the file, of whose products it rounds the inputs ("of_blocks"), and of the same numbers as
float32, where it rounds nothing but what it looks up of GELU ("of_numbers")."""

import json
import pathlib
import sys
import tempfile

import gguf
import numpy

FOLDER = pathlib.Path(__file__).parent / "gguf"
VOCAB, CONTEXT, PREFIXES, TOP = 320, 128, [1, 2, 5, 9, 14, 20, 27, 40], 20
TYPE = gguf.GGMLQuantizationType
# Where the float16 scale of a block stands, its minimum behind it, and what a number deviates by for a scale of 1.
SCALES = {"Q4_K": (0, 250.0, 7.5), "Q5_K": (0, 530.0, 15.5), "Q6_K": (208, 1370.0, None),
          "Q4_0": (0, 4.6, None), "Q5_1": (0, 9.2, 15.5), "Q8_0": (0, 73.0, None)}
LOCAL_WINDOW = 8


class Writer:
    def __init__(self, path, architecture, seed, plain):
        self.file, self.architecture, self.plain = gguf.GGUFWriter(path, architecture), architecture, plain
        self.random = numpy.random.default_rng(seed)
        self.file.add_tokenizer_model("llama")
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
        tokens += [f"t{i}" for i in range(VOCAB - len(tokens))]
        self.file.add_token_list(tokens)
        self.file.add_token_scores([0.0] * VOCAB)
        self.file.add_token_types([2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259))
        for name, token in (("bos", 1), ("eos", 2), ("unknown", 0)):
            self.file.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
        self.file.add_bool("tokenizer.ggml.add_bos_token", False)

    def keys(self, **values):
        for key, value in values.items():
            full = f"{self.architecture}.{key.replace('__', '.')}"
            if isinstance(value, str):
                self.file.add_string(full, value)
            elif isinstance(value, float):
                self.file.add_float32(full, value)
            else:
                self.file.add_uint32(full, value)

    def numbers(self, name, numbers):
        self.file.add_tensor(name, numbers.astype(numpy.float32))

    def norm(self, name, size):
        self.numbers(f"{name}.weight", 1 + 0.3 * self.random.normal(size=size))

    def blocks(self, kind, shape, gain):
        """Random blocks whose numbers have the deviation gain / sqrt(columns)."""
        elements, size = gguf.GGML_QUANT_SIZES[TYPE[kind]]
        data = self.random.integers(0, 256, size=(numpy.prod(shape) // elements, size), dtype=numpy.uint8)
        if kind == "MXFP4":  # Numbers deviate by 2.9 for a scale of 1, which is a power of two.
            exponent = numpy.round(numpy.log2(gain / shape[-1] ** 0.5 / 2.9)) + 127
            data[:, 0] = exponent + self.random.integers(-1, 2, size=len(data))
            return data.reshape(*shape[:-1], -1)
        at, deviation, mean = SCALES[kind]
        scale = gain / shape[-1] ** 0.5 / deviation
        scales = scale * self.random.uniform(0.7, 1.3, size=len(data))
        data[:, at : at + 2] = scales.astype(numpy.float16).view(numpy.uint8).reshape(-1, 2)
        if mean is not None:
            # What is added or, with blocks of 256, taken away, by a scale of its own.
            minimum = scales * mean * (1 if kind.endswith("_K") else -1)
            data[:, at + 2 : at + 4] = minimum.astype(numpy.float16).view(numpy.uint8).reshape(-1, 2)
        return data.reshape(*shape[:-1], -1)

    def matrix(self, name, kind, *shape, gain=1.0):
        data = self.blocks(kind, shape, gain)
        if self.plain:
            return self.numbers(f"{name}.weight", gguf.dequantize(data, TYPE[kind]))
        self.file.add_tensor(f"{name}.weight", data, raw_dtype=TYPE[kind])

    def close(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def common(w, *, layers, hidden, heads, kv, head_dim, ff, tied, types, gemma=False, q_norm=False, bias=False, mlp=True,
           behind=False, fused=False, rotary=0):
    """All of a model but for its experts."""
    w.keys(context_length=CONTEXT, embedding_length=hidden, block_count=layers, feed_forward_length=ff,
           attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=head_dim,
           attention__value_length=head_dim, attention__layer_norm_rms_epsilon=1e-6)
    if not gemma:
        w.keys(rope__dimension_count=rotary or head_dim)
    main, better, short = types  # `short`: of rows that are no whole blocks of 256.
    w.matrix("token_embd", better if tied else main, VOCAB, hidden, gain=2.0 if tied else hidden**0.5)
    w.norm("output_norm", hidden)
    if not tied:
        w.matrix("output", better, VOCAB, hidden, gain=2.0)
    for layer in range(layers):
        at = f"blk.{layer}."
        if not behind:
            w.norm(at + "attn_norm", hidden)
            w.norm(at + "ffn_norm", hidden)
        if fused:
            w.matrix(at + "attn_qkv", main, (heads + 2 * kv) * head_dim, hidden)
        else:
            w.matrix(at + "attn_q", main, heads * head_dim, hidden)
            w.matrix(at + "attn_k", main, kv * head_dim, hidden)
            w.matrix(at + "attn_v", better if layer % 2 == 0 else main, kv * head_dim, hidden)
        w.matrix(at + "attn_output", main if heads * head_dim % 256 == 0 else short, hidden, heads * head_dim, gain=0.5)
        if q_norm:
            w.norm(at + "attn_q_norm", head_dim)
            w.norm(at + "attn_k_norm", head_dim)
        if bias:
            for name, rows in (("q", heads), ("k", kv), ("v", kv)):
                w.numbers(f"{at}attn_{name}.bias", 0.3 * w.random.normal(size=rows * head_dim))
        if behind:
            w.norm(at + "attn_q_norm", heads * head_dim)
            w.norm(at + "attn_k_norm", kv * head_dim)
        if gemma or behind:
            w.norm(at + "post_attention_norm", hidden)
            w.norm(at + "post_ffw_norm", hidden)
        if mlp:
            if not fused:
                w.matrix(at + "ffn_gate", main, ff, hidden)
            w.matrix(at + "ffn_up", main, 2 * ff if fused else ff, hidden)
            w.matrix(at + "ffn_down", better if layer % 2 == 0 else main, hidden, ff, gain=0.5)


def experts(w, *, layers, hidden, count, used, width, types, shared=0):
    main, better, _ = types
    w.keys(expert_count=count, expert_used_count=used)
    for layer in range(layers):
        at = f"blk.{layer}.ffn_"
        w.numbers(at + "gate_inp.weight", 3 * w.random.normal(size=(count, hidden)) / hidden**0.5)
        w.matrix(at + "gate_exps", main, count, width, hidden)
        w.matrix(at + "up_exps", main if layer % 2 == 0 else better, count, width, hidden)
        w.matrix(at + "down_exps", better if layer % 2 == 0 else main, count, hidden, width, gain=0.5)
        if shared:
            w.numbers(at + "gate_inp_shexp.weight", w.random.normal(size=hidden) / hidden**0.5)
            w.matrix(at + "gate_shexp", main, shared, hidden)
            w.matrix(at + "up_shexp", main, shared, hidden)
            w.matrix(at + "down_shexp", better, hidden, shared, gain=0.5)


def hybrid(w, *, layers, hidden, heads, kv, head_dim, rotary, key_heads, value_heads, state, types, interval=2, ff=0, form=""):
    """Linear attention in all but every `interval`-th layer, attention with gates in those. `form`: "next" and "old" are
    those of Qwen3-Next's files, of which "old" have queries, keys, values and gates of a key head together."""
    main, better, short = types
    keys, values = key_heads * state, value_heads * state
    w.keys(context_length=CONTEXT, embedding_length=hidden, block_count=layers, attention__head_count=heads,
           attention__head_count_kv=kv, attention__key_length=head_dim, attention__value_length=head_dim,
           attention__layer_norm_rms_epsilon=1e-6, rope__dimension_count=rotary, rope__freq_base=100.0,
           full_attention_interval=interval, ssm__conv_kernel=4, ssm__state_size=state, ssm__group_count=key_heads,
           ssm__time_step_rank=value_heads, ssm__inner_size=values)
    if not form:
        w.file.add_array(f"{w.architecture}.rope.dimension_sections", [3, 3, 2, 0])  # Of eight pairs.
    w.matrix("token_embd", main, VOCAB, hidden, gain=hidden**0.5)
    w.norm("output_norm", hidden)
    w.matrix("output", better, VOCAB, hidden, gain=2.0)
    for layer in range(layers):
        at = f"blk.{layer}."
        w.norm(at + "attn_norm", hidden)
        w.norm(at + "post_attention_norm", hidden)
        if (layer + 1) % interval == 0:
            w.matrix(at + "attn_q", main, 2 * heads * head_dim, hidden)
            w.matrix(at + "attn_k", main, kv * head_dim, hidden)
            w.matrix(at + "attn_v", better, kv * head_dim, hidden)
            w.norm(at + "attn_q_norm", head_dim)
            w.norm(at + "attn_k_norm", head_dim)
            w.matrix(at + "attn_output", main if heads * head_dim % 256 == 0 else short, hidden, heads * head_dim, gain=0.5)
        else:
            if form == "old":
                w.matrix(at + "ssm_in", main, 2 * (keys + values), hidden)
            else:
                w.matrix(at + "attn_qkv", main if layer % 2 else better, 2 * keys + values, hidden)
                w.matrix(at + "attn_gate", main, values, hidden)
            if form:
                w.matrix(at + "ssm_ba", short, 2 * value_heads, hidden)
            else:
                w.matrix(at + "ssm_alpha", short, value_heads, hidden)
                w.matrix(at + "ssm_beta", short, value_heads, hidden)
            w.numbers(at + "ssm_a", -numpy.exp(w.random.normal(size=value_heads) - 2))
            w.numbers(at + "ssm_dt.bias", 0.3 * w.random.normal(size=value_heads))
            w.numbers(at + "ssm_conv1d.weight", 2 * w.random.normal(size=(2 * keys + values, 4)))
            w.norm(at + "ssm_norm", state)
            w.matrix(at + "ssm_out", main if values % 256 == 0 else short, hidden, values, gain=0.5)
        if ff:
            w.matrix(at + "ffn_gate", main, ff, hidden)
            w.matrix(at + "ffn_up", main, ff, hidden)
            w.matrix(at + "ffn_down", better, hidden, ff, gain=0.5)


K_M, OF_32 = ("Q4_K", "Q6_K", "Q8_0"), ("Q4_0", "Q8_0", "Q8_0")


def llama(w):
    common(w, layers=2, hidden=256, heads=4, kv=2, head_dim=64, ff=256, tied=False, types=K_M)
    w.keys(rope__freq_base=10000.0)


def mixtral(w):
    size = {"layers": 2, "hidden": 64, "types": OF_32}
    common(w, heads=4, kv=2, head_dim=16, ff=96, tied=False, mlp=False, **size)
    experts(w, count=4, used=2, width=96, **size)
    w.keys(rope__freq_base=10000.0)


def qwen2moe(w):
    size = {"layers": 2, "hidden": 64, "types": ("Q5_1", "Q8_0", "Q8_0")}
    common(w, heads=4, kv=2, head_dim=16, ff=192, tied=False, mlp=False, bias=True, **size)
    experts(w, count=6, used=2, width=32, shared=64, **size)
    w.keys(rope__freq_base=10000.0, expert_feed_forward_length=32, expert_shared_feed_forward_length=64)


def qwen3moe(w):
    size = {"layers": 1, "hidden": 256, "types": K_M}
    common(w, heads=4, kv=1, head_dim=64, ff=512, tied=True, mlp=False, q_norm=True, **size)
    experts(w, count=4, used=2, width=256, **size)
    w.keys(rope__freq_base=10000.0, expert_feed_forward_length=256)


def gemma2(w):
    common(w, layers=2, hidden=64, heads=4, kv=2, head_dim=32, ff=96, tied=True, types=OF_32, gemma=True)
    w.keys(attention__sliding_window=LOCAL_WINDOW, attn_logit_softcapping=3.0, final_logit_softcapping=8.0)


def gemma3(w):
    common(w, layers=6, hidden=256, heads=2, kv=1, head_dim=32, ff=256, tied=True, types=K_M, gemma=True, q_norm=True)
    w.keys(attention__sliding_window=LOCAL_WINDOW, rope__freq_base=1000.0, rope__scaling__type="linear",
           rope__scaling__factor=8.0)


def granite(w):
    common(w, layers=2, hidden=64, heads=4, kv=2, head_dim=16, ff=96, tied=True, types=OF_32)
    w.keys(rope__freq_base=10000.0, attention__scale=0.2, embedding_scale=3.0, residual_scale=0.4, logit_scale=2.0)


def olmo2(w):
    common(w, layers=2, hidden=64, heads=4, kv=4, head_dim=16, ff=96, tied=False, types=OF_32, behind=True)
    w.keys(rope__freq_base=10000.0)


def smollm3(w):
    common(w, layers=4, hidden=64, heads=4, kv=2, head_dim=16, ff=96, tied=True, types=OF_32)
    w.keys(rope__freq_base=10000.0)


def phi3(w):
    common(w, layers=2, hidden=64, heads=4, kv=2, head_dim=16, ff=96, tied=False, types=OF_32, fused=True)
    w.keys(rope__freq_base=10000.0)


def phi3_long(w):
    """Of a context eight times the original, and heads of which three quarters rotate."""
    common(w, layers=2, hidden=64, heads=4, kv=2, head_dim=16, ff=96, tied=False, types=OF_32, fused=True, rotary=12)
    w.keys(rope__freq_base=10000.0, rope__scaling__original_context_length=16,
           rope__scaling__attn_factor=(1 + numpy.log(8) / numpy.log(16)) ** 0.5)
    for name, factors in (("long", [1.5, 2.0, 2.5, 4.0, 6.0, 9.5]), ("short", [1.0, 1.0, 1.05, 1.1, 1.3, 1.5])):
        w.numbers(f"rope_factors_{name}.weight", numpy.array(factors))


def qwen35(w):
    hybrid(w, layers=2, hidden=256, heads=4, kv=1, head_dim=64, rotary=16, key_heads=2, value_heads=4, state=64, ff=256,
           types=K_M)
    w.keys(feed_forward_length=256)


def qwen35moe(w):
    size = {"layers": 3, "hidden": 64, "types": OF_32}
    hybrid(w, heads=4, kv=2, head_dim=32, rotary=16, key_heads=2, value_heads=6, state=32, **size)
    experts(w, count=4, used=2, width=96, shared=64, **size)
    w.keys(expert_feed_forward_length=96, expert_shared_feed_forward_length=64)


def qwen3next(w, form="next"):
    size = {"layers": 3, "hidden": 64, "types": OF_32}
    hybrid(w, heads=4, kv=2, head_dim=32, rotary=16, key_heads=2, value_heads=6, state=32, form=form, **size)
    experts(w, count=4, used=2, width=96, shared=64, **size)
    w.keys(expert_feed_forward_length=96, expert_shared_feed_forward_length=64)


def qwen3next_old(w):
    qwen3next(w, "old")


def gemma4(w, windowed=(False, True, False), count=0):
    """Layers without a window have fewer and wider heads, whose keys are values too. With experts beside the MLP."""
    hidden, heads, ff, width = 64, 4, 96, 32
    main, better, _ = OF_32
    sizes = {True: (2, 32), False: (1, 64)}  # Heads of keys, and their length.
    w.keys(context_length=CONTEXT, embedding_length=hidden, block_count=len(windowed), feed_forward_length=ff,
           attention__head_count=heads, attention__layer_norm_rms_epsilon=1e-6, attention__sliding_window=LOCAL_WINDOW,
           attention__shared_kv_layers=0, embedding_length_per_layer_input=0, final_logit_softcapping=8.0,
           rope__freq_base=1000.0, rope__freq_base_swa=100.0)
    for ending, (_, dim) in (("", sizes[False]), ("_swa", sizes[True])):
        w.keys(**{f"attention__key_length{ending}": dim, f"attention__value_length{ending}": dim,
                  f"rope__dimension_count{ending}": dim})
    w.file.add_array("gemma4.attention.sliding_window_pattern", list(windowed))
    w.file.add_array("gemma4.attention.head_count_kv", [sizes[local][0] for local in windowed])
    w.numbers("rope_freqs.weight", numpy.array([1.0] * 8 + [1e30] * 24))
    w.matrix("token_embd", better, VOCAB, hidden, gain=2.0)
    w.norm("output_norm", hidden)
    if count:
        w.keys(expert_count=count, expert_used_count=2, expert_feed_forward_length=width)
    for layer, local in enumerate(windowed):
        at, (kv, dim) = f"blk.{layer}.", sizes[local]
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            w.norm(at + name, hidden)
        w.matrix(at + "attn_q", main, heads * dim, hidden)
        w.matrix(at + "attn_k", main, kv * dim, hidden)
        if local:
            w.matrix(at + "attn_v", better, kv * dim, hidden)
        w.norm(at + "attn_q_norm", dim)
        w.norm(at + "attn_k_norm", dim)
        w.matrix(at + "attn_output", main, hidden, heads * dim, gain=0.5)
        w.numbers(at + "layer_output_scale.weight", numpy.array([0.8 + 0.1 * layer]))
        w.matrix(at + "ffn_gate", main, ff, hidden)
        w.matrix(at + "ffn_up", main, ff, hidden)
        w.matrix(at + "ffn_down", better, hidden, ff, gain=0.5)
        if count:
            for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                w.norm(at + name, hidden)
            w.numbers(at + "ffn_gate_inp.weight", 3 * w.random.normal(size=(count, hidden)))
            w.numbers(at + "ffn_gate_inp.scale", 1 + 0.3 * w.random.normal(size=hidden))
            w.matrix(at + "ffn_gate_up_exps", main, count, 2 * width, hidden)
            w.matrix(at + "ffn_down_exps", better, count, hidden, width, gain=0.5)
            w.numbers(at + "ffn_down_exps.scale", w.random.uniform(0.5, 1.5, size=count))


def gemma4_moe(w):
    gemma4(w, (True, False), 4)


def gpt_oss(w):
    hidden, heads, kv, head_dim, count, width = 64, 4, 2, 32, 4, 96
    w.keys(context_length=CONTEXT, embedding_length=hidden, block_count=3, feed_forward_length=width,
           attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=head_dim,
           attention__value_length=head_dim, attention__layer_norm_rms_epsilon=1e-5,
           attention__sliding_window=LOCAL_WINDOW, expert_count=count, expert_used_count=2,
           expert_feed_forward_length=width)
    # All of a head turns as it would without a scaling, so that llama.cpp's rounding of the range is of no matter;
    # scores are scaled by it all the same.
    w.keys(rope__freq_base=10.0, rope__scaling__type="yarn", rope__scaling__factor=4.0,
           rope__scaling__original_context_length=8192)
    bias = lambda name, *shape: w.numbers(f"{name}.bias", 0.3 * w.random.normal(size=shape))
    w.matrix("token_embd", "Q8_0", VOCAB, hidden, gain=hidden**0.5)
    w.norm("output_norm", hidden)
    w.matrix("output", "Q8_0", VOCAB, hidden, gain=2.0)
    for layer in range(3):
        at = f"blk.{layer}."
        w.norm(at + "attn_norm", hidden)
        w.norm(at + "post_attention_norm", hidden)
        for name, rows in (("q", heads), ("k", kv), ("v", kv)):
            w.matrix(f"{at}attn_{name}", "Q8_0", rows * head_dim, hidden)
            bias(f"{at}attn_{name}", rows * head_dim)
        w.matrix(at + "attn_output", "Q8_0", hidden, heads * head_dim, gain=0.5)
        bias(at + "attn_output", hidden)
        w.numbers(at + "attn_sinks.weight", 1 + w.random.normal(size=heads))
        w.numbers(at + "ffn_gate_inp.weight", 3 * w.random.normal(size=(count, hidden)) / hidden**0.5)
        bias(at + "ffn_gate_inp", count)
        # Wide enough that the limit of 7 cuts some.
        w.matrix(at + "ffn_gate_exps", "MXFP4", count, width, hidden, gain=3.0)
        w.matrix(at + "ffn_up_exps", "MXFP4", count, width, hidden, gain=3.0)
        w.matrix(at + "ffn_down_exps", "MXFP4", count, hidden, width, gain=0.1)
        bias(at + "ffn_gate_exps", count, width)
        bias(at + "ffn_up_exps", count, width)
        bias(at + "ffn_down_exps", count, hidden)


MODELS = {make.__name__: make for make in (llama, mixtral, qwen2moe, qwen3moe, gemma2, gemma3, granite, olmo2,
                                           smollm3, phi3, phi3_long, qwen35, qwen35moe, qwen3next, qwen3next_old, gemma4, gemma4_moe,
                                           gpt_oss)}


def likeliest(path, ids):
    """By prefix: [[token, log probability], ...] of llama.cpp."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.n_gpu_layers = CONTEXT, 1, False, 0
    params.cpuparams.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    found = []
    for length in PREFIXES:
        # What is told is of the model's own logits. The bias has it say a token that is text.
        asked = {"prompt": ids[:length], "n_predict": 1, "n_probs": TOP, "cache_prompt": False, "temperature": 0,
                 "logit_bias": [[VOCAB - 1, 100.0]]}
        answer = server.handle_completions(asked)
        first = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        found.append([[token["id"], round(token["logprob"], 6)] for token in first[:TOP]])
    return found


def write(name, path, plain):
    """Returns token ids, which do not depend on `plain`."""
    architecture = {"mixtral": "llama", "gpt_oss": "gpt-oss", "phi3_long": "phi3", "qwen3next_old": "qwen3next",
                    "gemma4_moe": "gemma4"}.get(name, name)
    writer = Writer(path, architecture, sum(name.encode()), plain)
    MODELS[name](writer)
    writer.close()
    return writer.random.integers(3, VOCAB, size=PREFIXES[-1]).tolist()


def main(names):
    for name in names or MODELS:
        path = FOLDER / f"{name}.gguf"
        ids = write(name, path, False)
        with tempfile.TemporaryDirectory() as folder:
            plain = pathlib.Path(folder, path.name)
            assert write(name, plain, True) == ids
            golden = {"ids": ids, "prefixes": PREFIXES, "of_blocks": likeliest(path, ids), "of_numbers": likeliest(plain, ids)}
        path.with_suffix(".json").write_text(json.dumps(golden) + "\n")
        print(f"{path}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
