#!/usr/bin/env python3
"""Writes a small random encoder as a GGUF file, and the vectors that llama.cpp makes of some token ids.

    pip install gguf==0.19.0 numpy xllamacpp==2026.10.11549 && tests/golden/make_gguf_encoder.py

`gguf/bert.gguf` has blocks of Q8_0 and Q5_1; `gguf/bert.json` holds token ids with the vectors of length 1 that
llama.cpp (the package xllamacpp) makes of them: of the file, of whose products it rounds the inputs ("of_blocks"), and
of the same numbers as float32 ("of_numbers")."""

import json
import tempfile

import gguf
import numpy
from make_gguf_models import FOLDER, TYPE, Writer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581the", "\u2581weaver", "\u2581cafe", "\u2581loom", "s", "ed"]
LAYERS, HIDDEN, HEADS, WIDTH, POSITIONS, TYPES = 3, 64, 4, 96, 80, 2
LENGTHS = [3, 8, 17, 40]


class EncoderWriter(Writer):
    def __init__(self, path, plain):
        self.file, self.architecture, self.plain = gguf.GGUFWriter(path, "bert"), "bert", plain
        self.random = numpy.random.default_rng(31)
        letters = [chr(ord("a") + i) for i in range(26)]
        self.tokens = WORDS + [f"\u2581{c}" for c in letters] + [c for c in letters if c != "s"]
        self.file.add_tokenizer_model("bert")
        self.file.add_token_list(self.tokens)
        self.file.add_token_types([3] * 5 + [1] * (len(self.tokens) - 5))
        for name, token in (("cls", 2), ("bos", 2), ("seperator", 3), ("unknown", 1), ("padding", 0), ("mask", 4)):
            self.file.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
        self.file.add_uint32("tokenizer.ggml.token_type_count", TYPES)
        self.file.add_bool("bert.attention.causal", False)

    def biased(self, name, kind, rows, columns):
        self.matrix(name, kind, rows, columns)
        self.numbers(f"{name}.bias", 0.3 * self.random.normal(size=rows))

    def norm(self, name, size):
        super().norm(name, size)
        self.numbers(f"{name}.bias", 0.3 * self.random.normal(size=size))


def write(path, plain):
    w = EncoderWriter(path, plain)
    w.keys(context_length=POSITIONS, embedding_length=HIDDEN, block_count=LAYERS, feed_forward_length=WIDTH,
           attention__head_count=HEADS, attention__layer_norm_epsilon=1e-6, pooling_type=1)
    for name, rows in (("token_embd", len(w.tokens)), ("position_embd", POSITIONS), ("token_types", TYPES)):
        w.numbers(f"{name}.weight", w.random.normal(size=(rows, HIDDEN)))
    w.norm("token_embd_norm", HIDDEN)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        for name, kind in (("attn_q", "Q8_0"), ("attn_k", "Q5_1"), ("attn_v", "Q8_0"), ("attn_output", "Q8_0")):
            w.biased(at + name, kind, HIDDEN, HIDDEN)
        w.norm(at + "attn_output_norm", HIDDEN)
        w.biased(at + "ffn_up", "Q8_0", WIDTH, HIDDEN)
        w.biased(at + "ffn_down", "Q5_1", HIDDEN, WIDTH)
        w.norm(at + "layer_output_norm", HIDDEN)
    w.close()
    return [[2, *w.random.integers(5, len(w.tokens), size=length - 2).tolist(), 3] for length in LENGTHS]


def vectors(path, texts):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.n_gpu_layers = POSITIONS, 1, False, 0
    params.n_batch = params.n_ubatch = POSITIONS
    params.embedding, params.cpuparams.n_threads = True, 1
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    answer = xllamacpp.Server(params).handle_embeddings({"input": texts})
    return [[round(x, 7) for x in row["embedding"]] for row in answer["data"]]


def main():
    path = FOLDER / "bert.gguf"
    texts = write(path, False)
    with tempfile.TemporaryDirectory() as folder:
        plain = f"{folder}/bert.gguf"
        assert write(plain, True) == texts
        golden = {"ids": texts, "of_blocks": vectors(path, texts), "of_numbers": vectors(plain, texts)}
    path.with_suffix(".json").write_text(json.dumps(golden) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
