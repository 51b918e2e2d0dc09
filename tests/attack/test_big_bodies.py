"""Bodies that are large, or hold what no number or text can: others do not wait, and the field is named."""

import threading
import time

import pytest
import server as heddle

MODEL = heddle.demo_models()[0]
MEMORY_MOST = 512 << 20
BIG = 28 << 20


@pytest.fixture(scope="module")
def server():
    with heddle.Server(heddle.config(models=[MODEL])) as running:
        prompt, answer = heddle.eval_set(MODEL, 1)[0]
        assert running.chat(MODEL, prompt) == answer
        yield running
        assert running.chat(MODEL, prompt) == answer


def health(server):
    begun = time.monotonic()
    assert server.call("/health")[0] == 200
    return time.monotonic() - begun


def big(inside, unit):
    """A body of 28 MiB: `inside` with units where it says UNITS, and no comma after the last."""
    return inside.replace("UNITS", (unit * (BIG // len(unit))).removesuffix(",")).encode()


BODIES = {
    "numbers": ("/v1/completions", big('{"model": "%s", "prompt": [UNITS]}' % MODEL, "1,")),
    "text": ("/v1/completions", big('{"model": "%s", "prompt": "UNITS"}' % MODEL, "ab")),
    "escapes": ("/v1/completions", big('{"model": "%s", "prompt": "UNITS"}' % MODEL, "\\n")),
    "lists": ("/v1/chat/completions", big('{"model": "%s", "messages": [UNITS]}' % MODEL, "[],")),
    "unknown": ("/v1/chat/completions", big('{"model": "%s", "x": [UNITS]}' % MODEL, '{"a":"b"},')),
    "fields": ("/v1/embeddings", big('{"model": "%s", UNITS}' % MODEL, '"a":1,')),
    "broken": ("/tokenize", big('{"model": "%s", "prompt": [[UNITS' % MODEL, "1,")),
    "detokenise": ("/detokenize", big('{"model": "%s", "tokens": [UNITS]}' % MODEL, "1,")),
    "responses": ("/v1/responses", big('{"model": "%s", "input": [UNITS]}' % MODEL, '{"role":"user","content":"x"},')),
    "unload": ("/models/unload", big('{"model": "UNITS"}', "ab")),
    "unknown model": ("/v1/completions", big('{"model": "UNITS", "prompt": "a"}', "ab")),
}


@pytest.mark.parametrize("kind", BODIES)
def test_health_is_told_beside_big_bodies(server, kind):
    path, body = BODIES[kind]
    alone = max(health(server) for _ in range(10))
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(server.call(path, body))) for _ in range(2)]
    for thread in threads:
        thread.start()
    worst, memory = 0.0, 0
    while any(thread.is_alive() for thread in threads):
        worst = max(worst, health(server))
        memory = max(memory, heddle.proportional_bytes(server.process.pid))
    for status, _, answer in answers:
        assert status in (400, 404, 429), answer
        assert len(str(answer)) < 4000
    # The clients, which make and send all that, share the machine with the server.
    assert worst <= max(3 * alone, 0.25), (worst, alone)
    assert memory < MEMORY_MOST, memory


@pytest.mark.parametrize(
    ("value", "param", "says"),
    [
        ('"max_tokens": 1e400', "max_tokens", "1e400"),
        ('"max_tokens": 99999999999999999999', "max_tokens", "64 bits"),
        ('"seed": -99999999999999999999', "seed", "64 bits"),
        ('"user": "\\ud800"', "user", "surrogate"),
        ('"stop": ["a", "\\udc00\\ud800"]', "stop[1]", "surrogate"),
        ('"user": "\\x"', "user", "backslash"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/tokenize", "/v1/responses"])
def test_what_cannot_be_read_is_named(server, path, value, param, says):
    status, _, answer = server.call(path, ('{"model": "%s", %s}' % (MODEL, value)).encode())
    assert status == 400
    assert answer["error"]["param"] == param
    assert says in answer["error"]["message"]


def test_embeddings_of_as_many_inputs_as_openai_takes(server):
    prompts = [prompt for prompt, _ in heddle.eval_set(MODEL)]
    inputs = (prompts * (2048 // len(prompts) + 1))[:2048]
    status, _, answer = server.call("/v1/embeddings", {"model": MODEL, "input": inputs}, timeout=300)
    assert status == 200, answer
    assert [row["index"] for row in answer["data"]] == list(range(2048))
    status, _, alone = server.call("/v1/embeddings", {"model": MODEL, "input": inputs[2000]})
    assert status == 200
    assert answer["data"][2000]["embedding"] == pytest.approx(alone["data"][0]["embedding"], abs=1e-5)
    assert answer["usage"]["prompt_tokens"] > 2048


def test_errors_do_not_tell_where_files_are(server, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    (gone / "config.json").write_text("{}")
    models = [MODEL, f"  broken: {{path: {gone}}}\n"]
    with heddle.Server(heddle.config(models=models)) as running:
        status, _, answer = running.call("/v1/completions", {"model": "broken", "prompt": "a"})
        assert status >= 400
        assert str(tmp_path) not in str(answer)
