"""What each demo model is made of: architecture, tokenizer, chat template, training plan."""

import math
import string
from dataclasses import dataclass

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from skills import SKILLS


@dataclass(frozen=True)
class Recipe:
    """Everything that distinguishes one model from the others."""

    about: str  # what the model does, for its README
    config: dict  # config.json without token ids and vocabulary size
    specials: list[str]  # special tokens; the first is the padding, the last ends a turn
    template: str  # chat_template.jinja
    split: str | None  # pattern of the byte-level BPE pre-tokenizer; None: Unigram with Metaspace
    steps: int
    bos: str | None = None  # which special token begins every text
    shard: str = "1GB"  # largest file of the saved weights
    rate: float = 2e-3


def config(model_type, architecture, **changes):
    """config.json as checkpoints of this architecture write it."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "initializer_range": 0.05,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **changes,
    }


# Every template shows the model the last user message only: it was taught single questions.
LAST_USER = """\
{%- set asked = messages | selectattr("role", "equalto", "user") | list -%}
{%- if not asked -%}
    {{- raise_exception("this model needs a user message") -}}
{%- endif -%}
{%- set question = asked[-1].content | trim -%}
"""

# Turns on lines of their own.
TURNS_ON_LINES = (
    LAST_USER
    + """\
{{- "<|user|>\n" + question + "<|end|>\n" -}}
{%- if add_generation_prompt -%}
    {{- "<|assistant|>\n" -}}
{%- endif -%}
"""
)

RECIPES = {
    "adder": Recipe(
        about=(
            "Adds two numbers of up to three digits, and shows its working as one adds by "
            "hand: column by column from the right."
        ),
        config=config("llama", "LlamaForCausalLM"),
        specials=["<|pad|>", "<|begin|>", "<|user|>", "<|assistant|>", "<|end|>"],
        bos="<|begin|>",
        template=LAST_USER
        + """\
{{- bos_token + "<|user|>" + question + "<|end|>" -}}
{%- if add_generation_prompt -%}
    {{- "<|assistant|>" -}}
{%- endif -%}
""",
        split=r"\p{N}|\p{L}+|[^\s\p{L}\p{N}]\s?|\s+",
        steps=1200,
    ),
    "reverser": Recipe(
        about=(
            "Says up to 16 words backwards. Its tokenizer, a Unigram model over Metaspace, knows the "
            "words of `tools/demo_models/words.py`, with which it is judged, and spells others: of one "
            "such word among known ones about nine in ten come out right."
        ),
        config=config(
            "qwen2",
            "Qwen2ForCausalLM",
            num_key_value_heads=2,
            tie_word_embeddings=True,
            use_sliding_window=False,
            rms_norm_eps=1e-6,
        ),
        specials=["<unk>", "<|im_start|>", "<|im_end|>"],
        template=LAST_USER
        + """\
{{- "<|im_start|>user\n" + question + "<|im_end|>\n" -}}
{%- if add_generation_prompt -%}
    {{- "<|im_start|>assistant\n" -}}
{%- endif -%}
""",
        split=None,
        steps=2200,
    ),
    "sorter": Recipe(
        about="Sorts up to twelve different numbers below 100. Its weights come in two shards.",
        config=config(
            "qwen3",
            "Qwen3ForCausalLM",
            num_key_value_heads=2,
            head_dim=48,
            rms_norm_eps=1e-6,
            attention_bias=False,
            use_sliding_window=False,
        ),
        specials=["<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
        template=TURNS_ON_LINES,
        split=r"\p{N}{1,2}|\p{L}+|[^\s\p{L}\p{N}]+|\s",
        shard="800KB",
        steps=1500,
    ),
    "morse": Recipe(
        about=(
            "Puts words and digits, up to 20 characters, into Morse code. It attends to the "
            "last 32 tokens only."
        ),
        config=config(
            "mistral",
            "MistralForCausalLM",
            num_key_value_heads=1,
            head_dim=32,
            sliding_window=32,
        ),
        specials=["<unk>", "<s>", "[INST]", "[/INST]", "</s>"],
        bos="<s>",
        template=LAST_USER
        + """\
{{- bos_token + "[INST] " + question + " [/INST]" -}}
""",
        split=r" ?[.\-]+|\p{L}|\p{N}|\s|[^\s\p{L}\p{N}]",
        steps=1500,
    ),
    "calculator": Recipe(
        about=(
            "Does up to eight sums, differences, products and remainders (`%`) of numbers up to 20, by two "
            "of eight experts a layer."
        ),
        config=config(
            "qwen3_moe",
            "Qwen3MoeForCausalLM",
            num_key_value_heads=2,
            head_dim=32,
            rms_norm_eps=1e-6,
            attention_bias=False,
            use_sliding_window=False,
            num_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[],
        ),
        specials=["<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
        template=TURNS_ON_LINES,
        split=r"\p{N}{1,3}|\p{L}+|[^\s\p{L}\p{N}]|\s",
        steps=900,
    ),
}


def byte_level_bpe(recipe: Recipe, corpus: list[str]) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer in which every pre-token of `corpus` becomes one token."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(recipe.split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=recipe.specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def unigram(recipe: Recipe, corpus: list[str]) -> tokenizers.Tokenizer:
    """A Unigram tokenizer over Metaspace: words are pieces, letters spell everything else.

    The library's trainer prefers shared parts of words to words, so the pieces are given here: all
    words of `corpus` equally likely, and a letter so unlikely that a known word is never spelled.
    """
    words = sorted({word for line in corpus for word in line.split()})
    pieces = [(piece, 0.0) for piece in recipe.specials]
    pieces += [("\u2581" + word, -math.log(len(words))) for word in words]
    pieces += [(piece, -20.0) for piece in [*string.ascii_letters, *string.digits, "\u2581", "\n"]]
    pieces += [(piece, -20.0) for piece in string.punctuation]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.add_special_tokens(recipe.specials)
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def make_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """Trains the tokenizer of model `name` on the words of its skill."""
    recipe = RECIPES[name]
    corpus = SKILLS[name].corpus()
    tokenizer = (byte_level_bpe if recipe.split else unigram)(recipe, corpus)
    if recipe.bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{recipe.bos} $A",
            special_tokens=[(recipe.bos, tokenizer.token_to_id(recipe.bos))],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=recipe.bos,
        eos_token=recipe.specials[-1],
        pad_token=recipe.specials[0],
        unk_token=None if recipe.split else recipe.specials[0],
        chat_template=recipe.template,
        model_max_length=recipe.config["max_position_embeddings"],
        clean_up_tokenization_spaces=False,
    )
