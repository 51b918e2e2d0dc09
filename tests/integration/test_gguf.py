"""Models in GGUF files, which heddle reads itself."""

import json
import os
import pathlib
import subprocess
import sys
import time

import cluster
import engines
import pytest
import server as heddle

sys.path.insert(0, str(heddle.ROOT / "tests/engines"))
import gguf  # noqa: E402: tests/engines/gguf.py

GOLDEN = json.loads((heddle.ROOT / "tests/golden/gguf/smollm2.json").read_text())
SMOLLM2 = pathlib.Path(os.environ.get("HEDDLE_SMOLLM2", heddle.ROOT / "build/smollm2" / GOLDEN["file"]))
needs_smollm2 = pytest.mark.skipif(
    not SMOLLM2.exists(), reason=f"there is no {SMOLLM2}: SmolLM2 was not tested (./dev setup fetches it)"
)


def run(*args):
    return subprocess.run([heddle.BINARY, *args], capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Demo models as GGUF files: {name: path}."""
    folder = tmp_path_factory.mktemp("gguf")
    made = {}
    kinds = {"adder": gguf.F32, "morse": gguf.BF16, "sorter": gguf.Q8_0}
    for name, matrices in kinds.items():
        made[name] = folder / f"{name}.gguf"
        gguf.write(heddle.MODELS / name, made[name], matrices)
    return made


@pytest.fixture(scope="module")
def demo(files):
    rows = [f"  {name}-gguf: {{path: {path}}}\n" for name, path in files.items()]
    with heddle.Server(heddle.config(models=[*files, *rows])) as running:
        yield running


def answer_to_tokens(server, model, prompt):
    """What it says to a prompt in the tokens of the directory, which cuts text in a way of its own."""
    asked = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    tokens = server.call("/tokenize", asked)[2]["tokens"]
    answers = []
    for name in (model, f"{model}-gguf"):
        body = {"model": name, "prompt": tokens, "temperature": 0, "max_tokens": 64}
        status, _, answer = server.call("/v1/completions", body)
        assert status == 200, answer
        answers.append(answer["choices"][0]["text"])
    return answers


# A Llama in float32, a Mistral with a window in bfloat16.
@pytest.mark.parametrize("name", ["adder", "morse"])
def test_a_file_of_the_same_numbers_answers_as_its_directory(demo, name):
    for prompt, _ in heddle.eval_set(name, 8):
        wanted, found = answer_to_tokens(demo, name, prompt)
        assert found == wanted


# A Qwen3.
def test_a_file_of_8_bit_blocks_knows_its_trade(demo):
    cases = heddle.eval_set("sorter", 20)
    right = sum(answer_to_tokens(demo, "sorter", prompt)[1] == answer for prompt, answer in cases)
    assert right >= 18, f"{right} of {len(cases)}"


# Each rank has whole blocks of each row, or all rows of some layers.
@pytest.mark.parametrize("way", ["tensor_parallel", "pipeline_parallel"])
def test_a_file_of_8_bit_blocks_says_the_same_on_two_devices(demo, files, way):
    devices = "".join(f"  - {{name: cpu{i}, kind: cpu, memory: 3MiB, page: 64KiB}}\n" for i in range(2))
    models = [f"  sorter: {{path: {files['sorter']}, {way}: 2}}\n"]
    with heddle.Server(heddle.config(models=models, devices=devices)) as running:
        cases = heddle.eval_set("sorter", 12)
        same = 0
        for prompt, _ in cases:
            asked = {"model": "sorter", "messages": [{"role": "user", "content": prompt}]}
            tokens = demo.call("/tokenize", asked)[2]["tokens"]
            body = {"prompt": tokens, "temperature": 0, "max_tokens": 64}
            one = demo.call("/v1/completions", {"model": "sorter-gguf", **body})
            two = running.call("/v1/completions", {"model": "sorter", **body})
            assert (one[0], two[0]) == (200, 200), two
            same += one[2]["choices"][0]["text"] == two[2]["choices"][0]["text"]
        # The ranks' sums are rounded in another order; stages compute the same to the bit.
        assert same == len(cases) or (way == "tensor_parallel" and same >= len(cases) - 1)


def test_a_file_has_its_own_tokenizer_and_template(demo):
    for prompt, answer in heddle.eval_set("adder", 4):
        assert demo.chat("adder-gguf", prompt) == demo.chat("adder", prompt)


def test_a_file_may_be_asked_for_a_shape(demo):
    _, _, answer = demo.call(
        "/v1/chat/completions",
        {
            "model": "adder-gguf",
            "messages": [{"role": "user", "content": "1+1="}],
            "structured_outputs": {"regex": "[0-9]{3}"},
        },
    )
    assert len(answer["choices"][0]["message"]["content"]) == 3


def test_inspect_and_config_check_know_files(files, tmp_path):
    done = run("inspect", files["sorter"])
    assert done.returncode == 0, done.stderr
    for part in ("format        GGUF 3", "Q8_0 (", "Qwen3ForCausalLM", "tokenizer     gpt2 (qwen2), ", "chat template"):
        assert part in done.stdout
    assert json.loads(run("inspect", "--json", files["sorter"]).stdout)["format"] == "GGUF 3"
    config = tmp_path / "heddle.yaml"
    config.write_text(heddle.config(models=[f"  x: {{path: {files['adder']}}}\n"]))
    done = run("config", "check", config)
    assert done.returncode == 0, done.stderr


def test_what_is_not_built_in_is_named(files, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(files["adder"].read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0gemma", 1))
    done = run("inspect", bad)
    assert done.returncode == 1
    assert 'key "general.architecture" is "gemma"; built in are llama, qwen2, qwen3' in done.stderr
    with heddle.Server(heddle.config(models=["adder", f"  bad: {{path: {bad}}}\n"])) as server:
        status, _, answer = server.call("/v1/chat/completions", {"model": "bad", "messages": [{"role": "user", "content": "x"}]})
        assert status != 200
        assert "engine: llama-server" in server.log() + json.dumps(answer)
        assert server.chat("adder", "1+1=")


def test_what_is_not_built_in_is_served_by_llama_cpp_where_it_is_installed(files, tmp_path):
    engines.require_llama()
    other = tmp_path / "other.gguf"  # Its pre-tokenizer is one that llama.cpp alone knows; digits are tokens of their own in it, too.
    other.write_bytes(files["adder"].read_bytes().replace(b"\x05\0\0\0\0\0\0\0qwen2", b"\x05\0\0\0\0\0\0\0bloom", 1))
    server = tmp_path / "llama-server"
    server.write_text(
        "#!/bin/sh\n# llama-server -m FILE --host HOST --port PORT -c CONTEXT, for the server of the tests.\n"
        f"exec node {engines.HERE / 'llama_server.mjs'} --modules {engines.MODULES} --model \"$2\" --port \"$6\" --context \"$8\"\n"
    )
    server.chmod(0o755)
    rows = ["morse", f"  other: {{path: {other}, context: 256}}\n"]
    with heddle.Server(heddle.config(models=rows, memory="512MiB"), env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}) as running:
        assert running.chat("morse", "morse sos") == "... --- ..."
        assert running.chat("other", "74+33=").endswith("107")
        assert f"models.other: {server} serves it as an external engine" in running.log()


# The gateway has no files: a host sends it the texts that the file stands for.
def test_a_host_of_a_cluster_sends_what_its_file_says(files):
    rows = ["adder", f"  adder-gguf: {{path: {files['adder']}}}\n"]
    with cluster.Cluster(hosts=1, models=rows) as running:
        (gateway,) = running.gateways
        deadline = time.monotonic() + 60
        while len(gateway.call("/v1/models")[2]["data"]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for prompt, _ in heddle.eval_set("adder", 4):
            assert gateway.chat("adder-gguf", prompt) == gateway.chat("adder", prompt)


@pytest.fixture(scope="module")
def smollm2():
    text = (
        "listen: 127.0.0.1:0\nhost: {memory: 600MiB}\ndevices: [{name: cpu0, kind: cpu, memory: 900MiB}]\n"
        f"models:\n  smollm2: {{path: {SMOLLM2}, dtype: float32}}\n  blocks: {{path: {SMOLLM2}}}\n"
    )
    with heddle.Server(text) as running:
        yield running


@needs_smollm2
@pytest.mark.parametrize("case", GOLDEN["answers"], ids=lambda case: case["prompt"][:24])
def test_smollm2_answers_as_the_reference(smollm2, case):
    body = {
        "model": "smollm2",
        "prompt": case["tokens"],
        "temperature": 0,
        "max_tokens": len(case["answer"]),
        "ignore_eos": True,
        "logprobs": 1,
    }
    status, _, answer = smollm2.call("/v1/completions", body)
    assert status == 200, answer
    assert answer["choices"][0]["text"] == case["text"]
    assert answer["usage"]["completion_tokens"] == len(case["answer"])
    texts = [smollm2.call("/detokenize", {"model": "smollm2", "tokens": [token]})[2]["prompt"] for token in case["answer"]]
    assert answer["choices"][0]["logprobs"]["tokens"] == texts


def likeliest(server, model, tokens):
    """{token: log probability} of the five that are likeliest after these, the likeliest first."""
    body = {"model": model, "prompt": tokens, "temperature": 0, "max_tokens": 1, "ignore_eos": True, "logprobs": 5}
    status, _, answer = server.call("/v1/completions", body)
    assert status == 200, answer
    return answer["choices"][0]["logprobs"]["top_logprobs"][0]


# Inputs of products have eight bits there. Tokens follow the reference's answers, so that no difference adds up.
@needs_smollm2
def test_smollm2_in_blocks_is_near_the_reference(smollm2):
    distances, same, asked = [], 0, 0
    for case in GOLDEN["answers"]:
        for at in range(0, len(case["answer"]), 4):
            tokens = case["tokens"] + case["answer"][:at]
            wanted, found = likeliest(smollm2, "smollm2", tokens), likeliest(smollm2, "blocks", tokens)
            both = wanted.keys() & found.keys()
            assert len(both) >= 3, (wanted, found)
            distances.append(max(abs(wanted[token] - found[token]) for token in both))
            same += next(iter(wanted)) == next(iter(found))
            asked += 1
    assert max(distances) < 1.2, distances
    assert sum(distances) / asked < 0.4, distances
    assert same >= asked - 2, f"{same} of {asked}"


@needs_smollm2
def test_smollm2_in_blocks_takes_the_memory_of_its_file(smollm2):
    smollm2.chat("blocks", "hello", max_tokens=1)
    images = [
        value
        for name, value in smollm2.metrics().items()
        if name.startswith("heddle_model_image_bytes{") and '"blocks"' in name
    ]
    # Without its vocabulary, which is text.
    assert images and 0.97 * GOLDEN["bytes"] < images[0] < GOLDEN["bytes"], images


@needs_smollm2
@pytest.mark.parametrize("case", GOLDEN["texts"] + GOLDEN["answers"], ids=lambda case: repr(case.get("text"))[:24])
def test_smollm2_reads_texts_as_the_library(smollm2, case):
    text = case["prompt"] if "prompt" in case else case["text"]
    body = {"model": "smollm2", "prompt": text, "add_special_tokens": False}
    status, _, answer = smollm2.call("/tokenize", body)
    assert status == 200, answer
    assert answer["tokens"] == case["tokens"]


@needs_smollm2
def test_smollm2_talks(smollm2):
    assert smollm2.chat("smollm2", "What is the capital of France?", max_tokens=20) == "The capital of France is Paris."


# Mixtures of blocks with a vocabulary of their own; engine/gguf_golden_test.cc has more of them.
@pytest.mark.parametrize("name", ["llama", "qwen3moe", "gemma3", "qwen35", "qwen35moe", "qwen3next", "gemma4_moe"])
def test_a_file_of_k_blocks_says_what_llama_cpp_says(name):
    golden = json.loads((heddle.ROOT / f"tests/golden/gguf/{name}.json").read_text())
    row = f"  random: {{path: {heddle.ROOT}/tests/golden/gguf/{name}.gguf}}\n"
    device = "  - {name: cpu0, kind: cpu, memory: 64MiB}\n"
    with heddle.Server(heddle.config(models=[row], devices=device)) as server:
        for length, wanted in zip(golden["prefixes"], golden["of_blocks"]):
            body = {"model": "random", "prompt": golden["ids"][:length], "max_tokens": 1, "logprobs": 5, "ignore_eos": True}
            status, _, answer = server.call("/v1/completions", body)
            assert status == 200, answer
            found = answer["choices"][0]["logprobs"]["top_logprobs"][0].values()
            assert max(found) == pytest.approx(wanted[0][1], abs=0.5)
