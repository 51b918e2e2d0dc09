#!/usr/bin/env python3
"""Writes goldens/: small tokenizers of every family, and what the Python libraries make of them and of
the chat templates. The C++ tests read them and need no Python.

    pip install -r requirements.txt && python make_goldens.py
"""

import contextlib
import datetime
import json
import pathlib
import random
import tempfile
import unittest.mock

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

import cases
import corpus

HERE = pathlib.Path(__file__).parent
GOLDENS = HERE / "goldens"
SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
NOW = datetime.datetime(2025, 3, 9, 12, 30, 5)

GPT2 = None  # ByteLevel's own expression
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(expression, normalizer=None, post=True):
    """Byte-level BPE: GPT-2, Llama 3, Qwen 2."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=expression is LLAMA3))
    if normalizer:
        tokenizer.normalizer = normalizer
    byte = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=expression is None)
    split = [] if expression is None else [pre_tokenizers.Split(Regex(expression), "isolated", invert=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, byte])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=620, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus.training_lines(), trainer)
    add_special(tokenizer)
    if post:
        begin = ("<|begin|>", tokenizer.token_to_id("<|begin|>"))
        template = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[begin])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def add_special(tokenizer):
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("héllo", normalized=True)])


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def metaspace_bpe(prepend):
    """BPE over words that begin with a lower one eighth block, unknown characters as bytes: Llama 2, Mistral."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if prepend == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        train_split = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
        tokenizer.pre_tokenizer = train_split
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend, split=False)
    trainer = trainers.BpeTrainer(vocab_size=760, special_tokens=["<unk>", "<s>", "</s>", *BYTES],
                                  limit_alphabet=120, show_progress=False)
    tokenizer.train_from_iterator(corpus.training_lines(), trainer)
    state = json.loads(tokenizer.to_str())
    # Byte tokens are ordinary pieces of the vocabulary, as converted sentencepiece models have them.
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in BYTES]
    if prepend == "normalizer":
        state["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(state))
    strip = [decoders.Strip(" ", 1, 0)] if prepend != "never" else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    add_special(tokenizer)
    begin = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[begin])
    return tokenizer


def gemma():
    """BPE in which words end with their lower one eighth blocks, unknown characters as bytes: Gemma."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_previous")
    trainer = trainers.BpeTrainer(vocab_size=760, special_tokens=["<unk>", "<s>", "</s>", *BYTES],
                                  limit_alphabet=120, show_progress=False)
    tokenizer.train_from_iterator(corpus.training_lines(), trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in BYTES]
    # As published: it never cuts, as there are no spaces any more.
    state["pre_tokenizer"]["pattern"] = {"String": " "}
    state["model"]["ignore_merges"] = False
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    add_special(tokenizer)
    # Runs of blank space are tokens that are added, and not special.
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁▁", normalized=False)])
    begin = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[begin])
    return tokenizer


def unigram(byte_fallback):
    """Unigram with Metaspace, with bytes (Gemma's decoder) and without (T5's)."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "</s>", *(BYTES if byte_fallback else [])]
    trainer = trainers.UnigramTrainer(vocab_size=700, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(corpus.training_lines(), trainer)
    state = json.loads(tokenizer.to_str())
    if byte_fallback:
        state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in BYTES]
        state["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(state))
    chain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(chain) if byte_fallback else decoders.Metaspace()
    add_special(tokenizer)
    end = ("</s>", tokenizer.token_to_id("</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[end])
    return tokenizer


def without_decoder():
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2, "long": 3}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    add_special(tokenizer)
    return tokenizer


TOKENIZERS = {
    "gpt2": lambda: byte_level(GPT2),
    "llama3": lambda: byte_level(LLAMA3),
    "qwen2": lambda: byte_level(QWEN2, normalizers.NFC(), post=False),
    "llama2": lambda: metaspace_bpe("normalizer"),
    "mistral": lambda: metaspace_bpe("first"),
    "no_prefix": lambda: metaspace_bpe("never"),
    "gemma": gemma,
    "unigram": lambda: unigram(byte_fallback=False),
    "unigram_bytes": lambda: unigram(byte_fallback=True),
    "no_decoder": without_decoder,
}


def write(path, value, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), **options) + "\n")


def load_or_train(name):
    """The tokenizer of an earlier run, if there is one: training breaks ties differently each time."""
    path = GOLDENS / name / "tokenizer.json"
    if not path.exists():
        return TOKENIZERS[name]()
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenizer_goldens(name, tokenizer):
    """The tokenizer itself, encodings of every text, and decodings of random ids."""
    # Left in by some published files; a server has to ignore both.
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=12, pad_token="<pad>")
    write(GOLDENS / name / "tokenizer.json", json.loads(tokenizer.to_str()))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoded = []
    for text in dict.fromkeys(corpus.nasty(SPECIAL[:3] + ["<tool_call>", "héllo"])):
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        added = tokenizer.encode(text, add_special_tokens=True).ids
        at = next(i for i in range(len(added) - len(plain) + 1) if added[i : i + len(plain)] == plain)
        encoded.append([text, plain, added[:at], added[at + len(plain) :]])
    rng = random.Random(name)
    size = max(tokenizer.get_vocab().values()) + 1
    bytes_ids = sorted(id for token, id in tokenizer.get_vocab().items() if token in BYTES) or list(range(256))
    decoded = []
    for round in range(60):
        pool = bytes_ids if round % 3 == 0 else range(size + 3)
        ids = [rng.choice(pool) if rng.random() < 0.8 else rng.randrange(size) for _ in range(rng.randrange(1, 24))]
        decoded.append([ids, tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=False)])
    write(GOLDENS / name / "cases.json", {"encode": encoded, "decode": decoded})


@contextlib.contextmanager
def clock_at(now):
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return now

    with unittest.mock.patch.object(chat_template_utils, "datetime", Clock):
        yield


def rendered(template, chat):
    """What apply_chat_template gives, or {"error": why} where it refuses."""
    variables = {"bos_token": "<s>", "eos_token": "</s>", **chat.get("variables", {})}
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [json.loads(json.dumps(chat["messages"]))], tools=chat.get("tools"), chat_template=template,
            add_generation_prompt=chat.get("add_generation_prompt", False), **variables)
        return texts[0]
    except Exception as error:  # noqa: BLE001: Jinja raises whatever Python does
        return {"error": str(error)}


def template_goldens():
    with clock_at(NOW):
        for path in sorted((HERE / "templates").glob("*.jinja")):
            results = {name: rendered(path.read_text(), chat) for name, chat in cases.CHATS.items()}
            write(GOLDENS / "templates" / f"{path.stem}.json", results)
        snippets = [[source, rendered(source, {"messages": [], "variables": cases.DATA})] for source in cases.SNIPPETS]
    write(GOLDENS / "templates" / "snippets.json", {"variables": cases.DATA, "snippets": snippets})
    write(GOLDENS / "templates" / "chats.json", {"now": int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp()), "chats": cases.CHATS})


def model_goldens(tokenizer):
    """Directories as transformers loads them: tokens and flags that only tokenizer_config.json has."""
    texts = ["hi <extra> there", "<|pad|>x<|end|>", "plain", " <extra>  b"]
    base = json.loads(tokenizer.to_str())
    next_id = max(tokenizer.get_vocab().values()) + 1
    extra = {str(next_id): {"content": "<extra>", "lstrip": True, "normalized": False, "rstrip": False,
                            "single_word": False, "special": False}}
    configs = {
        "bos": {"add_bos_token": True, "bos_token": "<|begin|>", "eos_token": "<|end|>"},
        "bos_eos": {"add_bos_token": True, "add_eos_token": True, "bos_token": "<|begin|>", "eos_token": "<|end|>",
                    "added_tokens_decoder": extra},
        "neither": {"add_bos_token": False, "bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>",
                    "added_tokens_decoder": extra},
        "silent": {"bos_token": {"content": "<|begin|>", "__type": "AddedToken", "lstrip": False, "rstrip": False,
                                 "normalized": False, "single_word": False}, "eos_token": "<|end|>"},
    }
    results = {}
    for name, config in configs.items():
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder, "tokenizer.json"), base)
            write(pathlib.Path(folder, "tokenizer_config.json"), {"tokenizer_class": "PreTrainedTokenizerFast", **config})
            loaded = PreTrainedTokenizerFast.from_pretrained(folder)
            results[name] = {"config": config, "ids": [[text, loaded(text)["input_ids"]] for text in texts],
                             "special": sorted(loaded.all_special_ids)}
    write(GOLDENS / "models.json", results)


def main():
    built = {name: load_or_train(name) for name in TOKENIZERS}
    for name, tokenizer in built.items():
        tokenizer_goldens(name, tokenizer)
    model_goldens(built["llama3"])
    template_goldens()


if __name__ == "__main__":
    main()
