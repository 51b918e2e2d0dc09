"""Tiny random models of tests/golden, and what transformers says of them."""

import json
import shutil
import struct

import server as heddle

GOLDENS = heddle.ROOT / "tests/golden"
PROMPT = 16  # Tokens of a case that a test sends; the others follow greedily.


def golden(name):
    """The token ids of a case, and those that follow the first PROMPT in float32."""
    data = (GOLDENS / name / "golden.safetensors").read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:end])

    def ids(key):
        begin, stop = header[key]["data_offsets"]
        return list(struct.unpack(f"<{(stop - begin) // 4}i", data[end + begin : end + stop]))

    return ids("input_ids"), ids("greedy")


def with_words(name, folder):
    """A case as a model directory whose token i is the word "ti"."""
    shutil.copytree(GOLDENS / name, folder)
    config = json.loads((folder / "config.json").read_text())
    vocab = {f"t{i}": i for i in range(config.get("text_config", config)["vocab_size"])}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"}
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}, "added_tokens": []})
    )
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def complete(server, model, prompt, tokens):
    """A server's greedy answer to token ids, that many tokens long."""
    asked = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    status, _, answer = server.call("/v1/completions", asked)
    assert status == 200, answer
    return answer


def tokens_of(answer):
    """The token ids in the answer of a model that has with_words."""
    return [int(word[1:]) for word in answer["choices"][0]["text"].split()]


def greedy_of(server, model, prompt, tokens):
    return tokens_of(complete(server, model, prompt, tokens))
