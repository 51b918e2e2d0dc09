#!/usr/bin/env python3
"""Makes tiny random models of every supported architecture and option, with their logits.

Each case is a folder in Hugging Face layout (`config.json`, safetensors) with random weights and
a `golden.safetensors` computed by `transformers` from those very files:

    input_ids    i32 [n]         one sequence, longer than any window or original RoPE length
    logits_f32   f32 [n, vocab]  every position; weights upcast to float32, eager attention
    logits_bf16  bf16 [n, vocab] the same with model and activations in bfloat16 (bf16 cases only)
    greedy       i32 [16]        greedy continuation of the first 16 tokens in float32, eos ignored

A case that sets an option also names what removing it would be (`without`); the script refuses to
write a golden that does not notice. Run it from anywhere:

    pip install torch transformers safetensors numpy
    python tests/golden/make_goldens.py [case ...]
"""

import copy
import json
import pathlib
import shutil
import sys

import golden_table
import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
PROMPT_TOKENS, GREEDY_TOKENS = 16, 16
# A greedy token counts as well defined if the runner-up is further behind than this.
GREEDY_MARGIN = 5e-3
# What removing an option must move, as a share of the largest logit.
NOTICEABLE = 1e-2
# An expert counts as clearly chosen if the next one's logit is further below than this: then
# rounding to bfloat16 chooses the same.
ROUTER_MARGIN = 0.05
# Linear attention normalises sums that may cancel, and Gemma 4 values, so that some random models make
# much of any rounding. Those are taken whose logits in bfloat16 are as near as this, by row.
STEADY = 2e-2
ROUTER_GAIN = 3.0


def base(model_type: str, architecture: str, **changes) -> dict:
    """A small config.json of `architecture` with the keys that its published checkpoints write."""
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": 67,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config.update(changes)
    return {key: value for key, value in config.items() if value is not ...}


def llama(**changes):
    return base("llama", "LlamaForCausalLM", **changes)


def mistral(**changes):
    return base("mistral", "MistralForCausalLM", **{"sliding_window": None, **changes})


def qwen2(**changes):
    return base("qwen2", "Qwen2ForCausalLM", **changes)


def qwen3(**changes):
    return base("qwen3", "Qwen3ForCausalLM", **{"head_dim": 16, "rms_norm_eps": 1e-6, **changes})


def mixtral(**changes):
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    return base("mixtral", "MixtralForCausalLM", **{"intermediate_size": 24, **experts, **changes})


def qwen3_moe(**changes):
    experts = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16}
    return base(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        **{"head_dim": 16, "rms_norm_eps": 1e-6, "norm_topk_prob": True, **experts, **changes},
    )


def qwen2_moe(**changes):
    experts = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    shared = {"shared_expert_intermediate_size": 32}
    return base("qwen2_moe", "Qwen2MoeForCausalLM", **{**experts, **shared, **changes})


def gemma(model_type: str, architecture: str, **changes):
    common = {
        "head_dim": 16,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "sliding_window": 12,
        "tie_word_embeddings": ...,
        "bos_token_id": 2,
        "eos_token_id": 1,
    }
    return base(model_type, architecture, **{**common, **changes})


def gemma2(**changes):
    caps = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 8.0}
    return gemma(
        "gemma2",
        "Gemma2ForCausalLM",
        **{"query_pre_attn_scalar": 24, "num_hidden_layers": 3, **caps, **changes},
    )


def gemma3(**changes):
    return gemma(
        "gemma3_text",
        "Gemma3ForCausalLM",
        **{"query_pre_attn_scalar": 16, "num_hidden_layers": 6, **changes},
    )


def gemma4(**changes):
    """As the dense one of 31B: its layers without a window have fewer and wider heads, whose keys are values too."""
    layers = {"num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}
    heads = {"global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True}
    rope = {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 500.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    }
    others = {
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
        "enable_moe_block": False,
        "final_logit_softcapping": 8.0,
        "rope_theta": ...,
        "rope_parameters": rope,
    }
    return gemma("gemma4_text", "Gemma4ForCausalLM", **{**layers, **heads, **others, **changes})


def gemma4_moe(**changes):
    """As that of 26B: each layer has experts beside its MLP."""
    experts = {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 16}
    return gemma4(**{"intermediate_size": 32, **experts, **changes})


def gemma4_images(**changes):
    """Text and images: the config of the decoder stands within."""
    text = gemma4_moe(num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], vocab_size=69)
    for outside in ("architectures", "torch_dtype", "bos_token_id", "eos_token_id"):
        del text[outside]
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 2, "head_dim": 4, "patch_size": 4, "position_embedding_size": 8,
              "model_type": "gemma4_vision"}
    config = {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": vision,
        "audio_config": None,
        "boi_token_id": 66,
        "eoi_token_id": 67,
        "image_token_id": 68,
        "eos_token_id": [1, 60],
    }
    return {**config, **changes}


def gemma3_images(**changes):
    """Text and images: the config of the decoder stands within."""
    text = gemma3(num_hidden_layers=3, sliding_window_pattern=3, rope_theta=500.0, vocab_size=69)
    for outside in ("architectures", "torch_dtype", "bos_token_id", "eos_token_id"):
        del text[outside]
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 28, "patch_size": 14, "model_type": "siglip_vision_model"}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": vision,
        "mm_tokens_per_image": 4,
        "boi_token_index": 66,
        "eoi_token_index": 67,
        "image_token_index": 68,
        "eos_token_id": [1, 60],
    }
    return {**config, **changes}


def granite(**changes):
    multipliers = {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 2.0}
    return base("granite", "GraniteForCausalLM", **{**multipliers, **changes})


def olmo2(**changes):
    return base("olmo2", "Olmo2ForCausalLM", **changes)


def smollm3(**changes):
    return base("smollm3", "SmolLM3ForCausalLM", **{"pad_token_id": 0, **changes})


def phi3(**changes):
    return base("phi3", "Phi3ForCausalLM", **{"pad_token_id": 0, **changes})


# A factor for each pair of the six elements of a head of eight that rotate.
LONGROPE = {
    "type": "longrope",
    "long_factor": [1.5, 2.5, 6.0],
    "short_factor": [1.0, 1.05, 1.3],
    "factor": 4.25,
}


def hybrid(model_type: str, architecture: str, **changes):
    """Linear attention, attention, linear attention."""
    common = {
        "head_dim": 16,
        "rms_norm_eps": 1e-6,
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 12,
        "linear_conv_kernel_dim": 4,
        "partial_rotary_factor": 0.5,
        "rope_theta": 100.0,
    }
    return base(model_type, architecture, **{**common, **changes})


HYBRID_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
}


def qwen3_next(**changes):
    return hybrid(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        **{**HYBRID_EXPERTS, "norm_topk_prob": True, **changes},
    )


QWEN3_5 = {
    "rope_theta": ...,
    "partial_rotary_factor": ...,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
}


def qwen3_5(**changes):
    return hybrid("qwen3_5_text", "Qwen3_5ForCausalLM", **{**QWEN3_5, **changes})


def qwen3_5_moe(**changes):
    return hybrid(
        "qwen3_5_moe_text",
        "Qwen3_5MoeForCausalLM",
        **{**QWEN3_5, **HYBRID_EXPERTS, "intermediate_size": ..., **changes},
    )


def qwen3_5_moe_images(**changes):
    """Text and images: the config of the decoder stands within, and experts are stored together."""
    mrope = {"mrope_interleaved": True, "mrope_section": [2, 1, 1]}
    rope = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5, **mrope}
    text = qwen3_5_moe(vocab_size=69, rope_parameters=rope)
    for outside in ("architectures", "torch_dtype", "bos_token_id", "eos_token_id"):
        del text[outside]
    vision = {"hidden_size": 8, "intermediate_size": 8, "depth": 1, "num_heads": 2,
              "patch_size": 4, "temporal_patch_size": 1, "spatial_merge_size": 2, "out_hidden_size": 32,
              "num_position_embeddings": 16, "model_type": "qwen3_5_moe_vision"}
    config = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": vision,
        "image_token_id": 66,
        "video_token_id": 67,
        "vision_start_token_id": 68,
        "vision_end_token_id": 68,
        "tie_word_embeddings": False,
        "eos_token_id": 2,
    }
    return {**config, **changes}


def gpt_oss(**changes):
    common = {
        "head_dim": 16,
        "intermediate_size": 24,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "attention_bias": True,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention"],
        # Published models have 7; so near, it cuts gates and ups of these.
        "swiglu_limit": 1.5,
        "rope_theta": 1000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 8.0,
            "beta_slow": 0.5,
            "original_max_position_embeddings": 32,
            "truncate": False,
        },
    }
    return base("gpt_oss", "GptOssForCausalLM", **{**common, **changes})


# What `transformers` makes of no scaling would be that of the published models.
PLAIN_GPT_OSS = {"rope_theta": ..., "rope_scaling": ..., "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3["original_max_position_embeddings"] = 32
# New configs keep everything about RoPE in one object; `...` drops the old top-level key.
NEW = {"rope_theta": ..., "torch_dtype": ..., "dtype": "bfloat16"}
NO_ROPE_SCALING = {"rope_scaling": None}
PLAIN_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
WINDOWS = ["full_attention", "sliding_attention", "full_attention"]

# name: (config.json, how the case is stored, what the config would be without the option)
CASES = {
    "llama-mha-f32": (
        llama(num_key_value_heads=..., torch_dtype="float32"),
        {"n": 48},
        {"rms_norm_eps": 1e-1},
    ),
    "llama-gqa-sharded": (
        llama(rope_theta=500000.0, vocab_size=71),
        {"n": 48, "shard": "24KB"},
        {"rope_theta": 10000.0},
    ),
    "llama-mqa-tied-f16": (
        llama(num_key_value_heads=1, tie_word_embeddings=True, torch_dtype="float16"),
        {"n": 48},
        {"rope_theta": 500000.0},
    ),
    "llama-head-dim": (llama(head_dim=16), {"n": 48}, {"rms_norm_eps": 1e-1}),
    # Heads of whole tiles, and more positions than a step of attention on them takes.
    "llama-head-dim-64": (
        llama(head_dim=64, num_key_value_heads=1, max_position_embeddings=256),
        {"n": 150},
        {"rms_norm_eps": 1e-1},
    ),
    "mistral-head-dim-32": (
        mistral(head_dim=32, sliding_window=41, max_position_embeddings=256),
        {"n": 150},
        {"sliding_window": None},
    ),
    "llama-bias-eps": (
        llama(attention_bias=True, mlp_bias=True, rms_norm_eps=1e-2),
        {"n": 48},
        {"attention_bias": False, "mlp_bias": False},
    ),
    "llama-rope-linear-old": (
        llama(rope_scaling={"type": "linear", "factor": 2.5}, max_position_embeddings=80),
        {"n": 72},
        NO_ROPE_SCALING,
    ),
    "llama-rope-linear-new": (
        llama(
            **NEW,
            rope_parameters={"rope_type": "linear", "factor": 2.5, "rope_theta": 20000.0},
            max_position_embeddings=80,
        ),
        {"n": 72},
        PLAIN_ROPE,
    ),
    "llama-rope-llama3-old": (
        llama(rope_scaling={"rope_type": "llama3", **LLAMA3}, rope_theta=100.0, head_dim=16),
        {"n": 72},
        NO_ROPE_SCALING,
    ),
    "llama-rope-llama3-new": (
        llama(
            **NEW,
            rope_parameters={"rope_type": "llama3", "rope_theta": 100.0, **LLAMA3},
            head_dim=16,
        ),
        {"n": 72},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    ),
    "qwen2-rope-yarn-old": (
        qwen2(
            rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
            rope_theta=1000.0,
        ),
        {"n": 96},
        NO_ROPE_SCALING,
    ),
    "qwen3-rope-yarn-factor": (
        qwen3(
            rope_scaling={
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "attention_factor": 1.25,
                "beta_fast": 8.0,
                "beta_slow": 0.5,
            }
        ),
        {"n": 96},
        NO_ROPE_SCALING,
    ),
    "llama-rope-yarn-mscale-new": (
        llama(
            **NEW,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "mscale": 1.0,
                "mscale_all_dim": 0.5,
                "truncate": False,
            },
            head_dim=16,
        ),
        {"n": 96},
        PLAIN_ROPE,
    ),
    "mistral-plain": (mistral(vocab_size=61), {"n": 48}, {"sliding_window": 8}),
    "mistral-window": (
        mistral(sliding_window=16, head_dim=12, num_hidden_layers=3),
        {"n": 56},
        {"sliding_window": None},
    ),
    "mistral-window-f32": (
        mistral(sliding_window=8, torch_dtype="float32"),
        {"n": 48},
        {"sliding_window": 9},
    ),
    "qwen2-tied": (qwen2(tie_word_embeddings=True), {"n": 48}, {"rope_theta": 500000.0}),
    "qwen2-window-unused": (
        qwen2(use_sliding_window=False, sliding_window=8, max_window_layers=0),
        {"n": 48},
        {"use_sliding_window": True},
    ),
    "qwen2-window-layers-old": (
        qwen2(
            use_sliding_window=True, sliding_window=16, max_window_layers=1, num_hidden_layers=3
        ),
        {"n": 56},
        {"max_window_layers": 2},
    ),
    "qwen2-window-types-new": (
        qwen2(
            **NEW,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            use_sliding_window=True,
            sliding_window=16,
            max_window_layers=1,
            layer_types=WINDOWS,
            num_hidden_layers=3,
        ),
        {"n": 56},
        {"layer_types": ["full_attention"] * 3},
    ),
    "qwen3-tied": (
        qwen3(tie_word_embeddings=True, vocab_size=75),
        {"n": 48},
        {"rope_theta": 500000.0},
    ),
    "qwen3-bias-mqa-f32": (
        qwen3(
            attention_bias=True, num_key_value_heads=1, torch_dtype="float32", rms_norm_eps=1e-2
        ),
        {"n": 48},
        {"attention_bias": False},
    ),
    "qwen3-window": (
        qwen3(
            **NEW,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
            use_sliding_window=True,
            sliding_window=12,
            max_window_layers=1,
        ),
        {"n": 48},
        {"use_sliding_window": False},
    ),
    "mixtral-experts": (mixtral(), {"n": 24}, {"num_experts_per_tok": 1}),
    "mixtral-window-f32": (
        mixtral(sliding_window=8, torch_dtype="float32", tie_word_embeddings=True),
        {"n": 24},
        {"sliding_window": None},
    ),
    "qwen3-moe": (qwen3_moe(), {"n": 24}, {"norm_topk_prob": False}),
    "qwen3-moe-unnormalised": (
        qwen3_moe(norm_topk_prob=False, attention_bias=True, num_key_value_heads=1),
        {"n": 24},
        {"norm_topk_prob": True},
    ),
    "qwen2-moe-shared": (qwen2_moe(), {"n": 24}, {"num_experts_per_tok": 3}),
    "gemma2": (gemma2(query_pre_attn_scalar=16), {"n": 48}, {"attn_logit_softcapping": None}),
    "gemma2-f32": (
        gemma2(torch_dtype="float32", attention_bias=True),
        {"n": 48},
        {"final_logit_softcapping": None},
    ),
    "gemma2-head-dim-32": (
        gemma2(head_dim=32, sliding_window=41, max_position_embeddings=256, num_key_value_heads=1),
        {"n": 150},
        {"query_pre_attn_scalar": 96},
    ),
    # Of six layers the last attends to all positions, and rotates otherwise.
    "gemma3-old": (
        gemma3(rope_theta=500.0, rope_scaling={"factor": 8.0, "rope_type": "linear"}),
        {"n": 48},
        {"rope_scaling": None},
    ),
    "gemma3-new-f32": (
        gemma3(
            rope_theta=...,
            torch_dtype=...,
            dtype="float32",
            num_hidden_layers=3,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
            final_logit_softcapping=9.0,
            tie_word_embeddings=False,
        ),
        {"n": 48},
        {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    ),
    "gemma3-images": (
        gemma3_images(),
        {"n": 48, "vocab": 66},
        {"text_config": {**gemma3_images()["text_config"], "sliding_window": 48}},
    ),
    "gemma4": (gemma4(), {"n": 48}, {"sliding_window": 48}),
    "gemma4-f32": (
        gemma4(
            torch_dtype="float32",
            attention_k_eq_v=False,
            num_global_key_value_heads=...,
            final_logit_softcapping=...,
            num_hidden_layers=6,
            layer_types=...,
            hidden_size=24,
            intermediate_size=32,
        ),
        {"n": 48},
        {
            "rope_parameters": {
                **gemma4()["rope_parameters"],
                "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            }
        },
    ),
    "gemma4-moe": (gemma4_moe(), {"n": 48}, {"top_k_experts": 1}),
    "gemma4-images": (
        gemma4_images(),
        {"n": 48, "vocab": 66, "auto": "AutoModelForImageTextToText"},
        {"text_config": {**gemma4_images()["text_config"], "top_k_experts": 1}},
    ),
    "granite": (granite(), {"n": 48}, {"residual_multiplier": 1.0}),
    "granite-f32": (
        granite(torch_dtype="float32", tie_word_embeddings=True, mlp_bias=True),
        {"n": 48},
        {"attention_multiplier": 1.0},
    ),
    "olmo2-mha": (olmo2(num_key_value_heads=4), {"n": 48}, {"rms_norm_eps": 1e-1}),
    "olmo2-gqa-f32": (
        olmo2(torch_dtype="float32", attention_bias=True),
        {"n": 48},
        {"attention_bias": False},
    ),
    "smollm3": (
        smollm3(num_hidden_layers=3, no_rope_layers=[1, 0, 1], tie_word_embeddings=True),
        {"n": 48},
        {"no_rope_layers": [1, 1, 1]},
    ),
    "phi3": (phi3(sliding_window=16), {"n": 48}, {"sliding_window": None}),
    "phi3-longrope": (
        phi3(
            partial_rotary_factor=0.75,
            original_max_position_embeddings=15,
            rope_scaling=LONGROPE,
        ),
        {"n": 48},
        {"rope_scaling": {**LONGROPE, "long_factor": LONGROPE["short_factor"]}},
    ),
    # Longer than the 64 positions that transformers computes at once.
    "qwen3-next": (qwen3_next(), {"n": 24}, {"norm_topk_prob": False}),
    "qwen3-next-f32": (
        qwen3_next(torch_dtype="float32", linear_num_value_heads=2, linear_value_head_dim=16),
        {"n": 24},
        {"partial_rotary_factor": 1.0},
    ),
    "qwen3-5": (
        qwen3_5(linear_num_value_heads=6, linear_conv_kernel_dim=3, tie_word_embeddings=True),
        {"n": 72},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    ),
    "qwen3-5-f32": (
        qwen3_5(
            torch_dtype="float32",
            num_hidden_layers=4,
            layer_types=...,
            full_attention_interval=2,
            linear_key_head_dim=24,
        ),
        {"n": 72},
        {"rms_norm_eps": 1e-1},
    ),
    "qwen3-5-moe": (qwen3_5_moe(), {"n": 24}, {"num_experts_per_tok": 1}),
    "qwen3-5-moe-images": (
        qwen3_5_moe_images(),
        {"n": 24, "vocab": 66, "auto": "AutoModelForImageTextToText", "fused": True},
        {"text_config": {**qwen3_5_moe_images()["text_config"], "num_experts_per_tok": 1}},
    ),
    "gpt-oss": (gpt_oss(), {"n": 48}, {"swiglu_limit": 7.0}),
    "gpt-oss-f32": (
        gpt_oss(torch_dtype="float32", layer_types=..., num_hidden_layers=3, swiglu_alpha=1.3),
        {"n": 48},
        {"swiglu_alpha": 1.702},
    ),
    # Heads of whole tiles, and more positions than a step of attention on them takes.
    "gpt-oss-head-dim-32": (
        gpt_oss(**PLAIN_GPT_OSS, head_dim=32, num_key_value_heads=1, sliding_window=41, max_position_embeddings=256),
        {"n": 150},
        {"sliding_window": 128},
    ),
    # Experts as published files have them.
    "gpt-oss-mxfp4": (
        gpt_oss(intermediate_size=32, quantization_config={"quant_method": "mxfp4"}),
        {"n": 48, "mxfp4": True},
        {"swiglu_limit": 7.0},
    ),
}


def randomise(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Draws weights under which every part of the model visibly moves the logits."""
    kind = model.config.model_type
    hybrid = "qwen3_next" in kind or "qwen3_5" in kind
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if "norm" in name:
            # Gemma's are less 1, and those of hybrids but one.
            less_one = kind.startswith(("gemma2", "gemma3")) or (hybrid and "linear_attn" not in name)
            weight.data = (0 if less_one else 1) + 0.3 * noise
            if "gemma4" in kind and name.endswith(("q_norm.weight", "k_norm.weight")):
                # Its scores are not divided by the root of head_dim.
                weight.data /= weight.shape[0] ** 0.25
        elif name.endswith("A_log"):
            weight.data = noise - 2  # So that some of it is there after ten positions.
        elif "conv1d" in name:
            # So that silu() leaves queries and keys that have much in common.
            weight.data = 2 * noise
        elif name.endswith("router.bias"):
            weight.data = ROUTER_GAIN * noise
        elif name.endswith("bias"):
            weight.data = 0.3 * noise
        elif name.endswith(("router.scale", "per_expert_scale")):
            weight.data = 1 + 0.3 * noise
        elif name.endswith("sinks"):
            weight.data = noise + 1
        elif "embed_tokens" in name:
            weight.data = noise
        else:
            gain = 0.5 if ("o_proj" in name or "down_proj" in name) else 1.0
            # That of Gemma 4 is behind a division by the root of the width.
            gain = ROUTER_GAIN * weight.shape[-1] ** 0.5 if name.endswith("router.proj.weight") else gain
            gain = ROUTER_GAIN if name.endswith(("mlp.gate.weight", "router.weight")) else gain
            weight.data = gain * noise / weight.shape[-1] ** 0.5
    for name, number in model.named_buffers():
        if name.endswith("layer_scalar"):
            number.data = 0.8 + 0.2 * torch.randn(number.shape, generator=generator)


def fuse_experts(folder: pathlib.Path) -> None:
    """Stores the matrices of all experts together, as published files of some models have them."""
    path = folder / "model.safetensors"
    stacks, rest = {}, {}
    for name, tensor in load_file(path).items():
        layer, found, part = name.partition(".mlp.experts.")
        expert, _, matrix = part.partition(".")
        if found:
            stacks.setdefault(layer, {}).setdefault(int(expert), {})[matrix] = tensor
        else:
            rest[name] = tensor
    for layer, experts in stacks.items():
        ordered = [experts[i] for i in sorted(experts)]
        both = [torch.cat([e["gate_proj.weight"], e["up_proj.weight"]]) for e in ordered]
        rest[f"{layer}.mlp.experts.gate_up_proj"] = torch.stack(both)
        rest[f"{layer}.mlp.experts.down_proj"] = torch.stack([e["down_proj.weight"] for e in ordered])
    save_file(rest, path, metadata={"format": "pt"})


FLOAT4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def as_mxfp4(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks [..., inputs / 32, 16], the first number of each byte in its lower half, and scales."""
    blocks = rows.float().reshape(*rows.shape[:-1], -1, 32)
    exponent = torch.floor(torch.log2(blocks.abs().amax(-1, keepdim=True))) - 2
    scaled = blocks / torch.exp2(exponent)
    nearest = (scaled.abs()[..., None] - FLOAT4).abs().argmin(-1)
    codes = (nearest + 8 * (scaled < 0)).to(torch.uint8)
    packed = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return packed, (exponent[..., 0] + 127).to(torch.uint8)


def store_mxfp4(folder: pathlib.Path) -> None:
    """Stores experts in blocks: outputs by inputs, where plain ones are inputs by outputs."""
    path = folder / "model.safetensors"
    stored = {}
    for name, tensor in load_file(path).items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            blocks, scales = as_mxfp4(tensor.transpose(1, 2))
            stored[f"{name}_blocks"] = blocks.contiguous()
            stored[f"{name}_scales"] = scales.contiguous()
        else:
            stored[name] = tensor
    save_file(stored, path, metadata={"format": "pt"})


def load(folder: pathlib.Path, dtype: torch.dtype, auto: str, config=None) -> torch.nn.Module:
    return getattr(transformers, auto).from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", config=config
    ).eval()


def logits(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return model(ids[None], use_cache=False).logits[0]


def router_margin(model: torch.nn.Module, ids: torch.Tensor, active: int) -> float:
    """The smallest lead of a chosen expert's logit over the first that is not chosen."""
    margins = [float("inf")]

    def look(module, inputs, output):
        # Gemma 4's gives what the softmax makes of them.
        numbers = output[0].log() if "Gemma4" in type(module).__name__ else output[0]
        best = numbers.topk(active + 1).values
        margins.append((best[..., active - 1] - best[..., active]).min().item())

    routers = ("mlp.gate", "router")
    hooks = [m.register_forward_hook(look) for name, m in model.named_modules() if name.endswith(routers)]
    logits(model, ids)
    for hook in hooks:
        hook.remove()
    return min(margins)


def row_distance(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference in a row, over its largest logit, or 1."""
    scale = expected.abs().amax(-1).clamp(min=1)
    return ((got.float() - expected).abs().amax(-1) / scale).max().item()


def greedy(model: torch.nn.Module, prompt: torch.Tensor):
    """The continuation and the smallest lead of a chosen token over its runner-up."""
    ids, margin = prompt.tolist(), float("inf")
    for _ in range(GREEDY_TOKENS):
        best = logits(model, torch.tensor(ids))[-1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    return torch.tensor(ids[len(prompt) :], dtype=torch.int32), margin


def check_option_matters(name, folder, auto, config, without, ids, expected) -> None:
    changed = copy.deepcopy({**config, **without})
    kind = type(transformers.AutoConfig.from_pretrained(folder))
    other = logits(load(folder, torch.float32, auto, kind.from_dict(changed)), ids)
    moved = ((other - expected).abs().max() / expected.abs().max()).item()
    if moved < NOTICEABLE:
        sys.exit(f"{name}: {without} moves the logits by {moved:.1e} only; want {NOTICEABLE}")


@torch.no_grad()
def make(name: str) -> str:
    """Writes one case; returns its line for the table in README.md."""
    # transformers writes into the objects it is given.
    config, how, without = copy.deepcopy(CASES[name])
    folder = HERE / name
    auto = how.get("auto", "AutoModelForCausalLM")
    stored = getattr(torch, config.get("dtype") or config["torch_dtype"])
    kind = type(transformers.AutoConfig.for_model(config["model_type"]))
    for seed in range(1000):  # until every greedy token is well defined
        generator = torch.Generator().manual_seed(sum(name.encode()) * 1000 + seed)
        shutil.rmtree(folder, ignore_errors=True)
        plain = {k: v for k, v in copy.deepcopy(config).items() if k != "quantization_config"}
        model = getattr(transformers, auto).from_config(kind.from_dict(plain))
        randomise(model, generator)
        model.to(stored).save_pretrained(folder, max_shard_size=how.get("shard", "1GB"))
        if how.get("fused"):
            fuse_experts(folder)
        if how.get("mxfp4"):
            store_mxfp4(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        vocab = how.get("vocab") or config["vocab_size"]
        ids = torch.randint(vocab, (how["n"],), generator=generator)
        model = load(folder, torch.float32, auto)
        expected = logits(model, ids)
        continuation, margin = greedy(model, ids[:PROMPT_TOKENS])
        decoder = config.get("text_config", config)
        active = decoder.get("num_experts_per_tok") or decoder.get("top_k_experts", 0)
        lead = router_margin(model, ids, active)
        if margin < GREEDY_MARGIN or lead < ROUTER_MARGIN:
            continue
        if "linear_num_key_heads" not in decoder and "global_head_dim" not in decoder:
            break
        if row_distance(logits(load(folder, torch.bfloat16, auto), ids), expected) <= STEADY:
            break
    else:
        sys.exit(f"{name}: no seed gives a clear greedy continuation")
    check_option_matters(name, folder, auto, config, without, ids, expected)
    golden = {"input_ids": ids.int(), "logits_f32": expected, "greedy": continuation}
    error = "–"
    if stored == torch.bfloat16:
        golden["logits_bf16"] = logits(load(folder, torch.bfloat16, auto), ids)
        distance = (golden["logits_bf16"].float() - expected).abs().max() / expected.abs().max()
        error = f"{distance.item():.4f}"
    golden = {key: value.contiguous() for key, value in golden.items()}
    save_file(golden, folder / "golden.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    what = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in without.items())
    return f"| `{name}` | {str(stored)[6:]} | {how['n']} | {what} | {error} | {size / 1e3:.0f} |"


if __name__ == "__main__":
    golden_table.make_all(make, sys.argv[1:] or CASES)
