"""Engines that are not ours: llama.cpp beside a model of our own, heddle beneath heddle, and engines that misbehave."""

import subprocess

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
    assert "captureBuffer: is known from llama-swap and not supported" in output
    assert "started by    python3 -m http.server 5800" in output
    assert "started by    python3 -m http.server 5801" in output
    assert "started by    somebody else" in output
    assert "listens at    http://127.0.0.1:9999/v0, ready when the port is open" in output
    assert "displaces     b" in output and "displaces     a" in output
    assert "nothing wrong" in output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
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
