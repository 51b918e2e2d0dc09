"""Everything a client, a file or a configuration can get wrong: one clear error, nobody else notices."""

import json
import shutil
import socket
import subprocess

import pytest
import server as heddle


@pytest.fixture(autouse=True)
def others_do_not_notice(server):
    """Whatever a test here does, the next request is answered as ever."""
    yield
    model = heddle.demo_models()[0]
    prompt, answer = heddle.eval_set(model, 1)[0]
    assert server.chat(model, prompt) == answer
    assert server.process.poll() is None


def error_of(response):
    status, _, body = response
    assert isinstance(body, dict), body
    error = body["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    return status, error


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1]", "object"),
        (b'{"model": "\xff\xfe"}', "UTF-8"),
        (b"{}", "model"),
        (b'{"model": 5, "messages": []}', "model"),
        (b'{"model": "MODEL", "messages": "hi"}', "messages"),
        (b'{"model": "MODEL", "messages": [{"role": "user"}]}', "content"),
        (b'{"model": "MODEL", "messages": [{"role": "user", "content": 7}]}', "content"),
        (b'{"model": "MODEL", "messages": [{"content": "hi"}]}', "role"),
        (b'{"model": "MODEL", "messages": [{"role": "user", "content": "hi"}], "temperature": "warm"}', "temperature"),
        (b'{"model": "MODEL", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1e30}', "max_tokens"),
        (b'{"model": "MODEL", "messages": [{"role": "user", "content": "hi"}], "top_k": -7}', "top_k"),
        (b'{"model": "MODEL", "messages": [{"role": "user", "content": "hi"}], "logit_bias": {"99999999": 1}}', "logit_bias"),
        (b'{"model": "MODEL", "messages": [{"role": "user", "content": "hi"}], "n": 100000}', "n"),
    ],
)
def test_bodies(server, body, says):
    status, error = error_of(
        server.call("/v1/chat/completions", body.replace(b"MODEL", heddle.demo_models()[0].encode()))
    )
    assert status == 400
    assert says in error["message"]
    assert error["type"] == "invalid_request_error"


def test_deeply_nested_json(server):
    status, _ = error_of(server.call("/v1/chat/completions", b'{"a":' * 100_000))
    assert status == 400


def test_unknown_paths_and_methods(server):
    assert error_of(server.call("/v1/nothing"))[0] == 404
    assert error_of(server.call("/v1/chat/completions", method="GET"))[0] == 405
    assert error_of(server.call("/v1/models/no/such:model"))[0] == 404


def raw(server, data, timeout=20):
    """What comes back for these bytes on a fresh connection."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:
        received = b""
        try:
            connection.sendall(data)
            while chunk := connection.recv(65536):
                received += chunk
                if b"\r\n\r\n" in received and received.startswith(b"HTTP/1.1 4"):
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
        return received


def test_a_100_mb_body_is_refused_before_it_is_read(server):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n"
    assert b" 413 " in raw(server, head + b" " * 65536)


def test_a_huge_header_is_refused(server):
    assert raw(server, b"GET /health HTTP/1.1\r\nX: " + b"a" * 1_000_000).startswith((b"HTTP/1.1 4", b""))


def test_garbage_instead_of_http(server):
    raw(server, bytes(range(256)) * 100)


def test_a_half_request_is_dropped_without_harm(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{")


# --- configurations and checkpoints ---


def check(tmp_path, text):
    """(exit status, output) of `heddle config check`."""
    path = tmp_path / "heddle.yaml"
    path.write_text(text)
    done = subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_a_good_configuration_passes(tmp_path):
    status, output = check(tmp_path, heddle.config())
    assert status == 0, output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modles: {}\n", ["modles", "models", "line 1"]),
        ("models:\n  a: {pth: x}\n", ["pth", "path"]),
        ("models:\n  a: {path: x, dtype: float7}\n", ["float7", "bfloat16"]),
        ("devices: [{kind: cpu, memory: -5MiB}]\nmodels: {}\n", ["memory", "-5MiB"]),
        ("devices: [{kind: cpu, memory: lots}]\nmodels: {}\n", ["memory", "lots"]),
        ("models:\n  a: {path: /no/such/place}\n", ["/no/such/place"]),
        ("listen: nowhere\nmodels: {}\n", ["listen", "nowhere"]),
        ("models: [1, 2]\n", ["models"]),
        ("a: b: c\n", ["line 1"]),
        ("apiKeys: ['${env.HEDDLE_NO_SUCH_VARIABLE}']\nmodels: {}\n", ["HEDDLE_NO_SUCH_VARIABLE"]),
    ],
)
def test_bad_configurations_say_what_and_where(tmp_path, text, says):
    status, output = check(tmp_path, text)
    assert status != 0
    for word in says:
        assert word in output


def copy_of(tmp_path, model):
    shutil.copytree(heddle.MODELS / model, tmp_path / model)
    return tmp_path / model


def shard(folder):
    return sorted(folder.glob("*.safetensors"))[0]


def truncated(folder):
    data = shard(folder).read_bytes()
    shard(folder).write_bytes(data[: len(data) // 2])


def lying_length(folder):
    data = bytearray(shard(folder).read_bytes())
    data[:8] = (1 << 60).to_bytes(8, "little")
    shard(folder).write_bytes(data)


def overlapping(folder):
    data = shard(folder).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    names = [name for name in header if name != "__metadata__"]
    twins = [
        (a, b) for a in names for b in names if a < b and header[a]["shape"] == header[b]["shape"] and header[a]["dtype"] == header[b]["dtype"]
    ]
    a, b = twins[0]
    header[b]["data_offsets"] = header[a]["data_offsets"]
    text = json.dumps(header).encode()
    shard(folder).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


def contradicting_config(folder):
    config = json.loads((folder / "config.json").read_text())
    config["intermediate_size"] += 8
    (folder / "config.json").write_text(json.dumps(config))


def unknown_architecture(folder):
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["MambaForCausalLM"]
    config["model_type"] = "mamba"
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (truncated, "safetensors"),
        (lying_length, "safetensors"),
        (overlapping, "overlap"),
        (contradicting_config, "intermediate"),
        (unknown_architecture, "MambaForCausalLM"),
    ],
)
def test_a_bad_checkpoint_fails_its_own_requests_only(tmp_path, spoil, says):
    good, bad = "adder", "morse"
    folder = copy_of(tmp_path, bad)
    spoil(folder)
    models = [good, f"  broken: {{path: {folder}}}\n"]
    with heddle.Server(heddle.config(models=models)) as running:
        body = {"model": "broken", "messages": [{"role": "user", "content": "hi"}]}
        status, error = error_of(running.call("/v1/chat/completions", body))
        assert status >= 400
        assert says in error["message"]
        prompt, answer = heddle.eval_set(good, 1)[0]
        assert running.chat(good, prompt) == answer


def test_a_template_that_loops_for_ever(tmp_path):
    good, bad = heddle.demo_models()[:2]
    folder = copy_of(tmp_path, bad)
    (folder / "chat_template.jinja").write_text(
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"
    )
    models = [good, f"  looping: {{path: {folder}}}\n"]
    with heddle.Server(heddle.config(models=models)) as running:
        body = {"model": "looping", "messages": [{"role": "user", "content": "hi"}]}
        status, error = error_of(running.call("/v1/chat/completions", body))
        assert status in (400, 500)
        assert "template" in error["message"]
        prompt, answer = heddle.eval_set(good, 1)[0]
        assert running.chat(good, prompt) == answer


def test_a_memory_too_small_for_any_model(tmp_path):
    status, output = check(tmp_path, heddle.config(memory="256KiB"))
    assert status != 0
    assert "256 KiB" in output and heddle.demo_models()[0] in output


def test_one_model_too_large_is_refused_and_the_others_serve():
    small = heddle.demo_models()[0]
    models = [small, f"  huge: {{path: {heddle.MODELS / small}, dtype: float32}}\n"]
    with heddle.Server(heddle.config(memory="2304KiB", models=models)) as running:
        body = {"model": "huge", "messages": [{"role": "user", "content": "hi"}]}
        status, error = error_of(running.call("/v1/chat/completions", body))
        assert status >= 400 and "huge" in error["message"] and "pages" in error["message"]
        prompt, answer = heddle.eval_set(small, 1)[0]
        assert running.chat(small, prompt) == answer


def test_keys_are_asked_for_where_they_are_configured():
    text = heddle.config(extra="apiKeys: [sesame, other]\n")
    with heddle.Server(text) as running:
        assert error_of(running.call("/v1/models"))[0] == 401
        assert error_of(running.call("/v1/models", headers={"Authorization": "Bearer wrong"}))[0] == 401
        assert running.call("/v1/models", headers={"Authorization": "Bearer sesame"})[0] == 200
        assert running.call("/v1/models", headers={"x-api-key": "other"})[0] == 200
        assert running.call("/health")[0] == 200
