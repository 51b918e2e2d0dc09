"""Encoders: vectors of texts and scores of pairs, of tiny random models against what transformers says of them, and of
a real one against what it gives in float64."""

import json
import math
import os
import pathlib
import struct
import subprocess
import sys

import pytest
import server as heddle
from goldens import GOLDENS, with_words

sys.path.insert(0, str(heddle.ROOT / "tests/engines"))
import gguf  # noqa: E402: tests/engines/gguf.py

REAL = json.loads((GOLDENS / "minilm/golden.json").read_text())
MINILM = pathlib.Path(os.environ.get("HEDDLE_MINILM", heddle.ROOT / "build/minilm/model"))
needs_minilm = pytest.mark.skipif(
    not MINILM.exists(), reason=f"there is no {MINILM}: no real encoder was tested (./dev setup fetches it)"
)
NAMES = ("bert", "roberta", "bert-score", "roberta-score")


def golden(name, key, kind):
    """A tensor of a case as a flat list."""
    data = (GOLDENS / "encoders" / name / "golden.safetensors").read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    begin, stop = json.loads(data[8:end])[key]["data_offsets"]
    return list(struct.unpack(f"<{(stop - begin) // 4}{kind}", data[end + begin : end + stop]))


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """The cases with words for tokens, of which pairs stand side by side in two types."""
    folder = tmp_path_factory.mktemp("encoders")
    made = {}
    for name in NAMES:
        made[name] = with_words(f"encoders/{name}", folder / name)
        path = made[name] / "tokenizer.json"
        first, second = ({"Sequence": {"id": which, "type_id": kind}} for which, kind in (("A", 0), ("B", 1)))
        processor = {"type": "TemplateProcessing", "single": [first], "pair": [first, second], "special_tokens": {}}
        path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": processor}))
    (made["roberta"] / "1_Pooling").mkdir()
    (made["roberta"] / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    (made["roberta"] / "modules.json").write_text('[{"type": "x.Transformer"}, {"type": "x.Pooling"}]')
    return made


@pytest.fixture(scope="module")
def server(directories):
    """Memory for two of them, so that they take turns with a model that generates."""
    rows = [f"  {name}: {{path: {path}, dtype: float32}}\n" for name, path in directories.items()]
    with heddle.Server(heddle.config(models=["adder", *rows], memory="3MiB")) as running:
        yield running


def ask(server, path, **body):
    status, _, answer = server.call(path, body)
    assert status == 200, answer
    return answer


def refusal(server, path, **body):
    status, _, answer = server.call(path, body)
    assert status == 400, answer
    return answer["error"]["message"]


def words(ids):
    return " ".join(f"t{token}" for token in ids)


def near(got, wanted, most):
    return len(got) == len(wanted) and max(abs(a - b) for a, b in zip(got, wanted, strict=True)) <= most


def test_vectors_are_those_of_transformers(server):
    ids, hidden = golden("roberta", "input_ids", "i"), golden("roberta", "hidden_f32", "f")
    width = len(hidden) // len(ids)
    for text in (ids, words(ids)):
        answer = ask(server, "/v1/embeddings", model="roberta", input=[text, ids[:3]])
        assert near(answer["data"][0]["embedding"], hidden[:width], 1e-5), "the first state, as it is"
        assert answer["usage"]["prompt_tokens"] == len(ids) + 3
    # Without files of sentence-transformers: the mean, of length 1. The case is a pair, which no text is.
    vector = ask(server, "/v1/embeddings", model="bert", input=ids)["data"][0]["embedding"]
    assert math.isclose(sum(x * x for x in vector), 1, abs_tol=1e-5)


def test_models_take_turns(server):
    prompt, answer = heddle.eval_set("adder", 1)[0]
    for _ in range(2):
        first = ask(server, "/v1/embeddings", model="bert", input="t5 t6")["data"][0]["embedding"]
        assert server.chat("adder", prompt) == answer
        ask(server, "/v1/score", model="bert-score", text_1="t5", text_2="t6")
        assert ask(server, "/v1/embeddings", model="bert", input="t5 t6")["data"][0]["embedding"] == first


@pytest.mark.parametrize("name", ["bert-score", "roberta-score"])
def test_scores_are_those_of_transformers(server, name):
    ids, logit = golden(name, "input_ids", "i"), golden(name, "score_f32", "f")[0]
    border = golden(name, "second_text", "i")[0] or 9
    query, document = words(ids[:border]), words(ids[border:])
    wanted = 1 / (1 + math.exp(-logit))
    documents = ["t7", {"text": document}, "t9 t10 t11"]
    answer = ask(server, "/v1/rerank", model=name, query=query, documents=documents)
    scores = {result["index"]: result["relevance_score"] for result in answer["results"]}
    assert abs(scores[1] - wanted) <= 1e-5
    assert list(scores.values()) == sorted(scores.values(), reverse=True) and len(scores) == 3
    best = ask(server, "/rerank", model=name, query=query, documents=documents, top_n=1, return_documents=False)
    assert best["results"] == [{"index": next(iter(scores)), "relevance_score": next(iter(scores.values()))}]
    pairs = ask(server, "/v1/score", model=name, text_1=query, text_2=["t7", document])
    assert [row["score"] for row in pairs["data"]] == [scores[0], scores[1]]


def test_what_is_wrong_is_said(server):
    long = words([9] * 40)
    assert "ask it by /v1/embeddings" in refusal(server, "/v1/completions", model="bert", prompt="t5")
    assert "ask it by /v1/rerank" in refusal(server, "/v1/embeddings", model="bert-score", input="t5")
    assert "makes vectors of texts" in refusal(server, "/v1/rerank", model="bert", query="t5", documents=["t6"])
    assert "generates text" in refusal(server, "/v1/rerank", model="adder", query="1", documents=["2"])
    assert "input: is 40 tokens long" in refusal(server, "/v1/embeddings", model="bert", input=long)
    assert "documents[1]: is 41 tokens long" in refusal(
        server, "/v1/rerank", model="bert-score", query="t5", documents=["t6", long]
    )
    assert len(ask(server, "/v1/embeddings", model="bert", input=words([9] * 32))["data"]) == 1, "all positions"
    cut = ask(server, "/v1/embeddings", model="bert", input=[long, words([9] * 32)], truncate_prompt_tokens=-1)
    assert cut["data"][0]["embedding"] == cut["data"][1]["embedding"]
    assert cut["usage"]["prompt_tokens"] == 64


def test_verbs_know_encoders(directories, tmp_path):
    def run(*args):
        return subprocess.run([heddle.BINARY, *args], capture_output=True, text=True, timeout=60)

    shown = run("inspect", directories["bert-score"])
    assert shown.returncode == 0, shown.stderr
    assert "encoder" in shown.stdout and "32 tokens" in shown.stdout
    path = tmp_path / "heddle.yaml"
    row = f"  bert: {{path: {directories['bert']}, dtype: int8}}\n"
    path.write_text(heddle.config(models=[row]))
    checked = run("config", "check", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    two = "".join(f"  - {{name: cpu{i}, kind: cpu, memory: 16MiB}}\n" for i in range(2))
    path.write_text(heddle.config(models=[row.replace("dtype: int8", "tensor_parallel: 2")], devices=two))
    refused = run("config", "check", path)
    assert refused.returncode != 0 and "only whole models are encoders" in refused.stdout + refused.stderr


def gives_what_minilm_gives_in_float64(path, dtype, most):
    text = (
        "listen: 127.0.0.1:0\nhost: {memory: 160MiB}\ndevices: [{name: cpu0, kind: cpu, memory: 240MiB}]\n"
        f"models:\n  minilm: {{path: {path}, dtype: {dtype}}}\n"
    )
    with heddle.Server(text) as server:
        answer = ask(server, "/v1/embeddings", model="minilm", input=[row["text"] for row in REAL])
        for row, got in zip(REAL, answer["data"], strict=True):
            assert server.call("/tokenize", {"model": "minilm", "prompt": row["text"]})[2]["tokens"] == row["tokens"]
            assert near(got["embedding"], row["embedding"], most)


@needs_minilm
@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-6), ("bfloat16", 4e-3)])
def test_minilm_gives_what_it_gives_in_float64(dtype, most):
    gives_what_minilm_gives_in_float64(MINILM, dtype, most)


def as_gguf(folder, path):
    """A BERT of float32 as llama.cpp's conversion writes it."""
    config = json.loads((folder / "config.json").read_text())
    words = (folder / "vocab.txt").read_text().splitlines()
    special = {word for word in words if word.startswith("[") and word.endswith("]")}
    pieces = [word if word in special else word[2:] if word.startswith("##") else f"\u2581{word}" for word in words]
    ids = {"unknown": "[UNK]", "seperator": "[SEP]", "cls": "[CLS]", "padding": "[PAD]"}
    sizes = {
        "embedding_length": "hidden_size",
        "block_count": "num_hidden_layers",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
        "context_length": "max_position_embeddings",
    }
    rows = [
        gguf.entry("general.architecture", gguf.STRING, "bert"),
        *(gguf.entry(f"bert.{key}", gguf.U32, config[name]) for key, name in sizes.items()),
        gguf.entry("bert.attention.layer_norm_epsilon", gguf.FLOAT, config["layer_norm_eps"]),
        gguf.entry("bert.attention.causal", gguf.BOOL, False),
        gguf.entry("bert.pooling_type", gguf.U32, 1),
        gguf.entry("tokenizer.ggml.model", gguf.STRING, "bert"),
        gguf.entries("tokenizer.ggml.tokens", gguf.STRING, pieces),
        *(gguf.entry(f"tokenizer.ggml.{key}_token_id", gguf.U32, words.index(word)) for key, word in ids.items()),
    ]
    names = {
        "embeddings.word_embeddings": "token_embd",
        "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types",
        "embeddings.LayerNorm": "token_embd_norm",
        "attention.self.query": "attn_q",
        "attention.self.key": "attn_k",
        "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output",
        "attention.output.LayerNorm": "attn_output_norm",
        "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down",
        "output.LayerNorm": "layer_output_norm",
    }
    raw = (folder / "model.safetensors").read_bytes()
    end = 8 + struct.unpack("<Q", raw[:8])[0]
    infos, data = [], bytearray()
    for tensor, about in json.loads(raw[8:end]).items():
        stem, _, part = tensor.rpartition(".")
        _, _, layered = stem.partition("encoder.layer.")
        layer, _, inner = layered.partition(".")
        if (inner or stem) not in names:
            continue  # The pooler, which no vector needs.
        name = f"blk.{layer}.{names[inner]}.{part}" if layered else f"{names[stem]}.{part}"
        begin, stop = about["data_offsets"]
        shape = list(reversed(about["shape"]))
        infos.append(gguf.text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, gguf.F32, len(data)))
        data += raw[end + begin : end + stop]
        data += bytes(-len(data) % gguf.ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(rows)) + b"".join(rows) + b"".join(infos)
    path.write_bytes(head + bytes(-len(head) % gguf.ALIGNMENT) + data)


@needs_minilm
def test_minilm_of_a_gguf_file_gives_the_same(tmp_path):
    path = tmp_path / "minilm.gguf"
    as_gguf(MINILM, path)
    gives_what_minilm_gives_in_float64(path, "float32", 1e-6)


def test_rerankers_of_gguf_files_score_as_llama_cpp_does():
    golden = json.loads((GOLDENS / "gguf/reranker.json").read_text())
    rows = [f"  {name}: {{path: {GOLDENS}/gguf/{name}.gguf, dtype: float32}}\n" for name in golden]
    with heddle.Server(heddle.config(models=rows, memory="3MiB")) as server:
        for name, case in golden.items():
            queries, documents = zip(*case["pairs"])
            answer = ask(server, "/v1/rerank", model=name, query=queries[0], documents=list(documents))
            scores = {result["index"]: result["relevance_score"] for result in answer["results"]}
            for index, logit in enumerate(case["of_numbers"]):
                assert abs(scores[index] - 1 / (1 + math.exp(-logit))) <= 3e-3, f"{name} {index}"
            assert answer["usage"]["total_tokens"] == sum(len(ids) for ids in case["ids"])
        assert "ask it by /v1/rerank" in refusal(server, "/v1/embeddings", model="reranker", input="the loom")
