#!/usr/bin/env python3
"""Writes small random rerankers as GGUF files, and what llama.cpp says of pairs of texts.

    pip install gguf==0.19.0 numpy sentencepiece==0.2.3 xllamacpp==2026.10.11549 && tests/golden/make_gguf_reranker.py

`gguf/reranker.gguf` is an XLM-RoBERTa with blocks of Q8_0 and Q5_1, a head that scores, and a Unigram tokenizer of
SentencePiece with a table of characters. `gguf/bare_reranker.gguf` is a BERT whose head is its last product alone, as
conversion leaves it. `gguf/reranker.json` has by file pairs of texts, and llama.cpp's scores of them before the
sigmoid (the package xllamacpp): of the file ("of_blocks") and of the same numbers as float32 ("of_numbers")."""

import io
import json
import pathlib
import sys
import tempfile
import urllib.request

import gguf
import numpy
from make_gguf_encoder import EncoderWriter
from make_gguf_models import FOLDER

sys.path.insert(0, str(FOLDER.parents[1] / "text"))
import corpus  # noqa: E402: tests/text/corpus.py

LAYERS, HIDDEN, HEADS, WIDTH, POSITIONS = 2, 64, 4, 96, 80
# What the table of characters makes of some: full width, ligatures, spaces of all kinds.
RULES = [("\uff21", "A"), ("\uff22", "B"), ("\ufb01", "fi"), ("\u2460", "1"), ("\u00bd", "1/2"), ("e\u0301", "\u00e9"),
         ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\u200b", ""), ("\u1e9e", "SS")]
QUERY = "how long  is the loom?"
DOCUMENTS = ["the loom", "Water is found\tin place", "  \uff21\uff22 \ufb01rst \u00bd part\u00a0of it ", "na\u00efve caf\u00e9 \u2460", "number 1234 \u65e5\u672c",
             "the people may like a device and the memory of a model that many use"]
WORD_PAIRS = ["the loom", "weaver", "cafe loom s the weavers", "zz the a b", "the the the"]


class XlmWriter(EncoderWriter):
    def __init__(self, path, plain):
        import sentencepiece

        self.file, self.architecture, self.plain = gguf.GGUFWriter(path, "bert"), "bert", plain
        self.random = numpy.random.default_rng(47)
        with tempfile.TemporaryDirectory() as folder:
            rules = pathlib.Path(folder, "rules.tsv")
            rules.write_text("".join(f"{' '.join(f'{ord(c):X}' for c in a)}\t{' '.join(f'{ord(c):X}' for c in b)}\n" for a, b in RULES))
            model = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(list(corpus.training_lines(count=600))), model_writer=model, vocab_size=260,
                model_type="unigram", normalization_rule_tsv=str(rules), character_coverage=0.98, minloglevel=2,
                num_threads=1)
        pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        from sentencepiece import sentencepiece_model_pb2
        proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
        # As conversion has XLM-RoBERTa's: <s>, <pad>, </s> and <unk> first, <mask> last.
        own = [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(3, pieces.vocab_size())]
        self.tokens = ["<s>", "<pad>", "</s>", "<unk>", *(piece for piece, _ in own), "<mask>"]
        self.file.add_tokenizer_model("t5")
        self.file.add_tokenizer_pre("default")
        self.file.add_token_list(self.tokens)
        self.file.add_token_scores([0.0] * 4 + [score for _, score in own] + [0.0])
        self.file.add_token_types([3, 3, 3, 2] + [1] * len(own) + [3])
        self.file.add_add_space_prefix(True)
        self.file.add_remove_extra_whitespaces(True)
        self.file.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
        for name, token in (("bos", 0), ("eos", 2), ("unknown", 3), ("seperator", 2), ("padding", 1), ("cls", 0), ("mask", len(self.tokens) - 1)):
            self.file.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
        for name in ("bos", "eos", "sep"):
            self.file.add_bool(f"tokenizer.ggml.add_{name}_token", True)
        self.file.add_uint32("tokenizer.ggml.token_type_count", 1)
        self.file.add_bool("bert.attention.causal", False)


def write(kind, path, plain):
    bare = kind == "bare_reranker"
    w = EncoderWriter(path, plain) if bare else XlmWriter(path, plain)
    w.keys(context_length=POSITIONS, embedding_length=HIDDEN, block_count=LAYERS, feed_forward_length=WIDTH,
           attention__head_count=HEADS, attention__layer_norm_epsilon=1e-5, pooling_type=4)
    w.file.add_classifier_output_labels(["LABEL_0"])
    if bare:  # [CLS] A [SEP] B [SEP].
        w.file.add_uint32("tokenizer.ggml.eos_token_id", 3)
        w.file.add_bool("tokenizer.ggml.add_eos_token", True)
        w.file.add_bool("tokenizer.ggml.add_sep_token", False)
    for name, rows in (("token_embd", len(w.tokens)), ("position_embd", POSITIONS)):
        w.numbers(f"{name}.weight", w.random.normal(size=(rows, HIDDEN)))
    # llama.cpp takes all tokens for the first type.
    w.numbers("token_types.weight", numpy.tile(w.random.normal(size=(1, HIDDEN)), (2 if bare else 1, 1)))
    w.norm("token_embd_norm", HIDDEN)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        for name, block in (("attn_q", "Q8_0"), ("attn_k", "Q5_1"), ("attn_v", "Q8_0"), ("attn_output", "Q8_0")):
            w.biased(at + name, block, HIDDEN, HIDDEN)
        w.norm(at + "attn_output_norm", HIDDEN)
        w.biased(at + "ffn_up", "Q8_0", WIDTH, HIDDEN)
        w.biased(at + "ffn_down", "Q5_1", HIDDEN, WIDTH)
        w.norm(at + "layer_output_norm", HIDDEN)
    if not bare:
        w.biased("cls", "Q8_0", HIDDEN, HIDDEN)
    w.numbers("cls.output.weight", w.random.normal(size=(1, HIDDEN)) / 4)
    w.numbers("cls.output.bias", numpy.array([0.25]))
    w.close()


def scores(path, pairs):
    """The scores of pairs, and with whose tokens llama.cpp makes of their texts."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.n_gpu_layers = POSITIONS, 1, False, 0
    params.n_batch = params.n_ubatch = POSITIONS
    params.embedding, params.cpuparams.n_threads = True, 1
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    found = []
    for query, document in pairs:
        answer = server.handle_rerank({"query": query, "documents": [document]})
        found.append(round(answer["results"][0]["relevance_score"], 7))
    return found, {text: tokens(server, text) for pair in pairs for text in pair}


def tokens(server, text):
    body = json.dumps({"content": text, "add_special": False, "parse_special": False}).encode()
    request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["tokens"]


def main():
    golden = {}
    for kind, first, last, pairs in (
        ("reranker", [0], [2], [(QUERY, document) for document in DOCUMENTS]),
        ("bare_reranker", [2], [3], [(WORD_PAIRS[0], document) for document in WORD_PAIRS[1:]]),
    ):
        path = FOLDER / f"{kind}.gguf"
        write(kind, path, False)
        with tempfile.TemporaryDirectory() as folder:
            plain = f"{folder}/{kind}.gguf"
            write(kind, plain, True)
            of_blocks, ids = scores(path, pairs)
            of_numbers, _ = scores(plain, pairs)
        between = last + last if kind == "reranker" else last
        golden[kind] = {"pairs": pairs, "ids": [first + ids[a] + between + ids[b] + last for a, b in pairs],
                        "of_blocks": of_blocks, "of_numbers": of_numbers}
        print(f"{path}: {path.stat().st_size} bytes", golden[kind], flush=True)
    (FOLDER / "reranker.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
