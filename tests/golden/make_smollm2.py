#!/usr/bin/env python3
"""Writes gguf/smollm2.json: what SmolLM2-135M-Instruct.Q4_1.gguf answers, and how it reads texts.

    pip install gguf==0.19.0 numpy tokenizers==0.23.3 && tests/golden/make_smollm2.py FILE.gguf

The answers are greedy, computed in float64 from the dequantised tensors as the file has them: neighbours of a head
turn together, as in llama.cpp, and nothing is permuted. `margin` is the least by which a chosen token was ahead of the
runner-up in logits; a prompt whose answer has a smaller one than MARGIN is refused. The tokens of texts are those of
`tokenizers`, built here of the file's vocabulary and merges as SmolLM2's own tokenizer.json has them."""

import json
import pathlib
import sys

import gguf
import numpy
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):",
    "<|im_start|>user\nWhat is the capital of Japan?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
]
ANSWER = 24
MARGIN = 0.02
TEXTS = [
    "",
    "Hello, world!",
    " leading and trailing spaces  ",
    "It's they'll WE'RE don't",
    "1234567890 3.14159 0x1F 2026-11-27",
    "tabs\tand\nlines\r\n\r\n\n  indented\n    def f(x):\n        return x ** 2",
    "Grüße, naïve café — “quotes” … €100",
    "Привет, мир! Ωμέγα 日本語 한국어 ไทย עברית हिन्दी",
    "😀 👩‍🚀 🇩🇪 e\u0301 ﬁ ½ ²",
    "<|im_start|>system\nYou help.<|im_end|>\n<|endoftext|>a<|im_end|>",
    "<|im_star|> |im_end|> <repo_name>x<file_sep>",
    "a" * 50 + " " * 20 + "=" * 40,
    "https://example.com/a/b?c=d&e=%20#f {\"json\": [true, null, -1e9]}",
    "\u0000\u0001\u007f\u00a0\u2028\ufeff",
]


class Reference:
    """The model in float64."""

    def __init__(self, reader):
        def value(key):
            return reader.fields[f"llama.{key}"].contents()

        self.layers = value("block_count")
        self.heads, self.kv_heads = value("attention.head_count"), value("attention.head_count_kv")
        self.size = value("embedding_length") // self.heads
        self.epsilon = float(value("attention.layer_norm_rms_epsilon"))
        self.theta = float(value("rope.freq_base"))
        self.tensors = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(numpy.float64) for t in reader.tensors}

    def norm(self, x, name):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.tensors[name]

    def turned(self, x, positions):
        """x [tokens, heads, size], whose neighbours turn together."""
        frequencies = self.theta ** (-numpy.arange(0, self.size, 2) / self.size)
        angles = positions[:, None, None] * frequencies
        even, odd = x[..., 0::2], x[..., 1::2]
        out = numpy.empty_like(x)
        out[..., 0::2] = even * numpy.cos(angles) - odd * numpy.sin(angles)
        out[..., 1::2] = even * numpy.sin(angles) + odd * numpy.cos(angles)
        return out

    def step(self, tokens, cache):
        """Logits behind the last of `tokens`, which follow what is in the cache."""
        x = self.tensors["token_embd.weight"][tokens]
        begin = cache[0][0].shape[0] if cache else 0
        positions = numpy.arange(begin, begin + len(tokens))
        for layer in range(self.layers):

            def weight(name):
                return self.tensors[f"blk.{layer}.{name}.weight"]

            h = self.norm(x, f"blk.{layer}.attn_norm.weight")
            q = self.turned((h @ weight("attn_q").T).reshape(len(tokens), self.heads, self.size), positions)
            k = self.turned((h @ weight("attn_k").T).reshape(len(tokens), self.kv_heads, self.size), positions)
            v = (h @ weight("attn_v").T).reshape(len(tokens), self.kv_heads, self.size)
            if len(cache) > layer:
                k, v = numpy.concatenate([cache[layer][0], k]), numpy.concatenate([cache[layer][1], v])
                cache[layer] = k, v
            else:
                cache.append((k, v))
            group = self.heads // self.kv_heads
            scores = numpy.einsum("thd,shd->hts", q, k.repeat(group, 1)) / numpy.sqrt(self.size)
            scores[:, positions[:, None] < numpy.arange(k.shape[0])[None, :]] = -numpy.inf
            scores = numpy.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            mixed = numpy.einsum("hts,shd->thd", scores, v.repeat(group, 1)).reshape(len(tokens), -1)
            x = x + mixed @ weight("attn_output").T
            h = self.norm(x, f"blk.{layer}.ffn_norm.weight")
            gate = h @ weight("ffn_gate").T
            x = x + (gate / (1 + numpy.exp(-gate)) * (h @ weight("ffn_up").T)) @ weight("ffn_down").T
        return self.tensors["token_embd.weight"] @ self.norm(x[-1], "output_norm.weight")

    def greedy(self, tokens, count):
        cache, answer, margin = [], [], numpy.inf
        for _ in range(count):
            logits = self.step(tokens, cache)
            second, first = numpy.argsort(logits)[-2:]
            margin = min(margin, logits[first] - logits[second])
            tokens = [int(first)]
            answer += tokens
        return answer, float(margin)


def tokenizer_of(reader):
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in reader.fields["tokenizer.ggml.merges"].contents()]
    made = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(
        [tokenizers.AddedToken(t, special=True, normalized=False) for t, kind in zip(tokens, types) if kind == 3]
    )
    return made


def main():
    source = pathlib.Path(sys.argv[1])
    reader = gguf.GGUFReader(source)
    tokenizer, model = tokenizer_of(reader), Reference(reader)
    answers = []
    for prompt in PROMPTS:
        tokens = tokenizer.encode(prompt, add_special_tokens=False).ids
        answer, margin = model.greedy(tokens, ANSWER)
        print(f"{margin:.4f} {prompt!r} {tokenizer.decode(answer)!r}")
        if margin < MARGIN:
            sys.exit("too small a margin: choose another prompt")
        rows = {"prompt": prompt, "tokens": tokens, "answer": answer, "text": tokenizer.decode(answer)}
        answers.append({**rows, "margin": round(margin, 4)})
    texts = [{"text": text, "tokens": tokenizer.encode(text, add_special_tokens=False).ids} for text in TEXTS]
    path = pathlib.Path(__file__).parent / "gguf" / "smollm2.json"
    rows = {"file": source.name, "bytes": source.stat().st_size, "answers": answers, "texts": texts}
    path.write_text(json.dumps(rows, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
