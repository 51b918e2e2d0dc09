"""External engines: llama.cpp beside a model of our own, heddle beneath heddle, and engines that misbehave."""

import concurrent.futures
import json
import subprocess
import time

import engines
import openai
import pytest
import server as heddle


def check(text, tmp_path):
    """(exit status, output) of `heddle config check`."""
    path = tmp_path / "heddle.yaml"
    path.write_text(text)
    ran = subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stdout + ran.stderr


def test_llama_cpp_gives_the_answers_of_our_own_engine(tmp_path):
    engines.require_llama()
    port = engines.free_port()
    with (
        engines.Engine(engines.llama(engines.write_gguf("adder", tmp_path), port), port) as engine,
        heddle.Server(heddle.config(models=["adder"])) as server,
    ):
        theirs = openai.OpenAI(base_url=engine.url + "/v1", api_key="unused", max_retries=0)
        for prompt, answer in heddle.eval_set("adder", 20):
            messages = [{"role": "user", "content": prompt}]
            got = theirs.chat.completions.create(model="adder", messages=messages, temperature=0)
            assert got.choices[0].message.content == server.chat("adder", prompt) == answer
            parts = theirs.chat.completions.create(model="adder", messages=messages, temperature=0, stream=True)
            assert "".join(part.choices[0].delta.content or "" for part in parts) == answer


def test_config_check_shows_how_a_file_of_llama_swap_was_understood(tmp_path):
    status, output = check(
        """
        healthCheckTimeout: 90
        captureBuffer: 15
        macros: {server: "python3 -m http.server ${PORT}"}
        models:
          b: {cmd: "${server}", ttl: 60}
          a: {cmd: "${server}", cmdStop: "kill ${PID}"}
          tts: {proxy: "http://127.0.0.1:9999/v0", checkEndpoint: none}
        groups: {both: {swap: true, members: [a, b]}}
        """,
        tmp_path,
    )
    assert status == 0, output
    assert "captureBuffer: has no effect" in output
    assert "started by    python3 -m http.server 5800" in output
    assert "started by    python3 -m http.server 5801" in output
    assert "started by    somebody else" in output
    assert "listens at    http://127.0.0.1:9999/v0, ready when the port is open" in output
    assert "displaces     b" in output and "displaces     a" in output
    assert "nothing wrong" in output


def test_names_of_a_llama_swap_file_stand_for_its_models():
    """Selectors, a profile, priorities, capabilities, and paths that start no engine, of one file."""
    rows = "".join(
        f"  {name}: {{cmd: {json.dumps(engines.scripted(name))}, memory: 1MiB, probe: false, capabilities: {{tools: true}}}}\n"
        for name in ("one", "two")
    )
    text = f"""listen: 127.0.0.1:0
startPort: {engines.free_port(2)}
devices: [{{name: far, kind: external, memory: 64MiB}}]
models:
{rows}selectors:
  warm: {{strategy: warm, targets: [one, two]}}
  spill: {{strategy: spillover, targets: [two, one]}}
profiles: {{night: {{pins: {{chat: two, gone: ~}}}}}}
routing: {{scheduler: {{settings: {{fifo: {{priority: {{one: 5}}}}}}}}}}
"""
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}

    def answered_by(server, name):
        status, _, answer = server.call("/v1/chat/completions", {"model": name, **body})
        assert status == 200, answer
        return answer["choices"][0]["message"]["content"].split()[0]

    with heddle.Server(text) as server:
        assert server.call("/upstream/two/app.js")[0] == 409
        assert answered_by(server, "spill") == "two"
        assert answered_by(server, "warm") == "two", "the one that runs"
        listed = {model["id"]: model for model in server.call("/v1/models")[2]["data"]}
        assert listed["warm"]["status"]["value"] == "loaded" and listed["spill"]["targets"] == ["two", "one"]
        assert listed["one"]["capabilities"] == {"function_calling": True}
        assert server.call("/v1/chat/completions", {"model": "chat", **body})[0] == 404
        assert server.call("/api/profiles/active", {"name": "night"}, method="PUT")[2] == {"active": "night"}
        assert answered_by(server, "chat") == "two"
        assert server.call("/v1/chat/completions", {"model": "gone", **body})[0] == 404
        assert "chat" in {model["id"] for model in server.call("/v1/models")[2]["data"]}


def test_config_check_reads_merge_keys_and_holders(tmp_path):
    status, output = check(
        """
        x-base: &base {cmd: "python3 -m http.server ${PORT}", ttl: 60}
        defs: {other: &other {name: Other}}
        models:
          a: {<<: *base}
          b: {<<: [*base, *other], ttl: 5}
        """,
        tmp_path,
    )
    assert status == 0, output
    assert output.count("started by    python3 -m http.server") == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("models: {a: {cmd: python3, proxy: 'https://x'}}", "nginx with proxy_pass"),
        ("models: {a: {cmd: no-such-program --port 1}}", "models.a: the program no-such-program is not there"),
        ("models: {a: {cmd: 'python3 ${PORT}', cmdStop: /no/such}}", "models.a: the program /no/such is not there"),
        ("models: {a: {cmd: python3, memory: 9000GiB}}", "can never fit"),
        ("models: {a: {cmd: python3, sleeping: true}}", "sleeping: is not a known key"),
    ],
)
def test_config_check_says_what_can_never_run(tmp_path, text, problem):
    status, output = check(text, tmp_path)
    assert status != 0
    assert problem in output, output


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Two llama.cpp engines that do not fit together beside a model of our own, on one device."""
    engines.require_llama()
    folder = tmp_path_factory.mktemp("gguf")
    rows = [f"  adder: {{path: {heddle.MODELS / 'adder'}}}\n"]
    for model in ("adder", "morse"):
        command = engines.llama(engines.write_gguf(model, folder))
        rows.append(f"  llama-{model}: {{cmd: '{command}', memory: 160MiB}}\n")
    text = heddle.config(memory="256MiB", models=rows, extra=f"startPort: {engines.free_port(2)}\n")
    with heddle.Server(text) as running:
        yield running


def morse_eval(count):
    """Questions of which llama.cpp, which knows no sliding window in this format, sees all at once."""
    return [(prompt, answer) for prompt, answer in heddle.eval_set("morse") if len(prompt) <= 14][:count]


def test_engines_and_a_model_of_our_own_take_turns_with_right_answers(mixed):
    rounds = 3
    sums, letters = heddle.eval_set("adder", rounds), morse_eval(rounds)
    for (question, answer), (letter, code) in zip(sums, letters, strict=True):
        assert mixed.chat("llama-adder", question) == answer
        assert mixed.chat("adder", question) == answer
        assert mixed.chat("llama-morse", letter) == code


def test_requests_for_all_of_them_at_once_are_all_answered(mixed):
    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        asked = [
            (clients.submit(mixed.chat, model, question), answer)
            for (question, answer), (letter, code) in zip(heddle.eval_set("adder", 8), morse_eval(8), strict=True)
            for model, question, answer in (
                ("llama-adder", question, answer),
                ("adder", question, answer),
                ("llama-morse", letter, code),
            )
        ]
        for answered, answer in asked:
            assert answered.result(120) == answer


def forecast(server, model):
    _, _, answer = server.call("/api/forecasts")
    return next(each for each in answer["models"] if each["model"] == model)


def test_an_engine_is_resumed_before_the_window_in_which_it_is_expected(tmp_path):
    window, days = 4, 15
    text = engines.by_turns(window, start=0, wake=0.8) + f"dataDir: {tmp_path}\n"
    with heddle.Server(text) as server:

        def hits():
            return min(forecast(server, name)["starts"]["hit"] for name in engines.TURNS.values())

        for _ in range(2 * days):
            name = engines.next_turn(window)
            time.sleep(0.2)
            assert server.chat(name, "x", max_tokens=5).startswith(name + " heard ")
            if hits() > 0:
                break
        else:
            pytest.fail(f"no engine was there before it was asked for: {server.call('/api/decisions')[2]}")
        for name in engines.TURNS.values():
            known = forecast(server, name)
            assert known["loads"]["forecast"] > 0 and known["expected_mean"] is not None
            explained = subprocess.check_output([heddle.BINARY, "explain", "--url", server.url, name], text=True)
            assert "expected" in explained and "it stood by" in explained, explained
            (counted,) = (
                value
                for key, value in server.metrics().items()
                if key.startswith("heddle_model_starts_total{") and f'"{name}"' in key and '"hit"' in key
            )
            assert counted == known["starts"]["hit"]
    with heddle.Server(text) as server:  # What was measured is known; the engines have to be started.
        deadline = time.monotonic() + 3 * engines.QUARTERS * window
        while not any(forecast(server, name)["loads"]["forecast"] for name in engines.TURNS.values()):
            assert time.monotonic() < deadline, "no engine was started before it was asked for"
            time.sleep(0.1)


def test_heddle_itself_is_an_engine(tmp_path):
    child = tmp_path / "child.yaml"
    child.write_text(heddle.config(models=["adder"]))
    command = f"{heddle.BINARY.resolve()} serve --config {child} --listen 127.0.0.1:${{PORT}}"
    text = f"""
listen: 127.0.0.1:0
startPort: {engines.free_port(2)}
models:
  below: {{cmd: '{command}', useModelName: adder}}
  beside: {{cmd: '{engines.scripted("beside")}'}}
"""
    with heddle.Server(text) as server:
        for prompt, answer in heddle.eval_set("adder", 3):
            assert server.chat("below", prompt) == answer
            assert server.chat("beside", prompt, max_tokens=5).startswith("beside heard ")
