"""Keys that want more than their role has: others' requests, the log, the models; and paths of the machine in what it says."""

import os
import shutil
import signal
import time

import pytest
import server as heddle

MODEL = "adder"
KEYS = """apiKeys:
  - ask
  - {key: other}
  - {key: scrape, role: metrics}
  - {key: rule, name: operators, role: admin}
"""


@pytest.fixture(scope="module")
def server():
    with heddle.Server(heddle.config(models=[MODEL], extra=KEYS)) as running:
        yield running


def call(server, key, path, body=None, method=None, **headers):
    return server.call(path, body, method, headers={"Authorization": f"Bearer {key}", **headers})


def complete(server, key, request_id):
    body = {"model": MODEL, "prompt": "1+1=", "max_tokens": 2}
    status, _, answer = call(server, key, "/v1/completions", body, **{"x-request-id": request_id})
    assert status == 200, answer
    return answer["id"]


def test_a_key_neither_reads_of_others_nor_changes_anything(server):
    for path in ("/logs", "/logs/stream", "/api/decisions", "/api/devices", "/metrics", "/api/forecasts", "/api/engines"):
        status, _, said = call(server, "ask", path)
        assert status == 403 and said["error"]["code"] == "insufficient_permissions", path
        assert "role admin" in said["error"]["message"] or "role metrics" in said["error"]["message"]
    for path in ("/unload", "/models/load", "/models/unload", "/api/models/unload", "/sleep", "/wake_up", "/upstream/x/v1/models", "/api/pull"):
        assert call(server, "ask", path, {"model": MODEL})[0] == 403, path
        assert call(server, "scrape", path, {"model": MODEL})[0] == 403, path


def test_one_key_is_enough_for_prometheus_and_opens_nothing_else(server):
    for path in ("/metrics", "/api/devices", "/api/engines", "/api/forecasts", "/running", "/v1/models"):
        assert call(server, "scrape", path)[0] == 200, path
    for path in ("/logs", "/api/requests", "/api/decisions"):
        assert call(server, "scrape", path)[0] == 403, path
    for path in ("/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/api/chat", "/api/generate", "/api/embed", "/api/show"):
        assert call(server, "scrape", path, {"model": MODEL, "prompt": "1"})[0] == 403, path
    # A request that asks nothing unloads; so may administrators alone.
    assert call(server, "ask", "/api/generate", {"model": MODEL, "keep_alive": 0})[0] == 403


def test_requests_are_told_to_who_made_them(server):
    mine = complete(server, "ask", "the-same")
    theirs = complete(server, "other", "the-same")
    assert {each["answer_id"] for each in call(server, "ask", "/api/requests")[2]["requests"]} == {mine}
    assert call(server, "ask", f"/api/requests/{theirs}")[0] == 404
    assert call(server, "ask", "/api/requests/the-same")[2]["answer_id"] == mine
    assert call(server, "other", "/api/requests/the-same")[2]["answer_id"] == theirs
    assert {mine, theirs} <= {each["answer_id"] for each in call(server, "rule", "/api/requests")[2]["requests"]}


def test_an_admin_may_all(server):
    for path in ("/logs", "/api/decisions", "/api/devices", "/metrics", "/api/requests", "/running", "/v1/models"):
        assert call(server, "rule", path)[0] == 200, path
    complete(server, "rule", "r")
    assert "client=operators" in call(server, "rule", "/logs")[2]
    assert call(server, "rule", "/models/unload", {"model": MODEL})[0] == 200


def test_keys_without_an_admin_are_warned_of_and_sighup_takes_roles():
    text = heddle.config(models=[MODEL], extra="apiKeys: [ask]\n")
    with heddle.Server(text) as server:
        assert "add {key: KEY, role: admin}" in server.log()
        assert call(server, "ask", "/logs")[0] == 403
        server.config_path.write_text(text.replace("[ask]", "[{key: ask, role: admin}]"))
        os.kill(server.process.pid, signal.SIGHUP)
        deadline = time.monotonic() + 30
        while call(server, "ask", "/logs")[0] != 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert call(server, "ask", "/logs")[0] == 200


def test_an_address_of_the_network_without_keys_is_warned_of():
    text = heddle.config(models=[MODEL])
    with heddle.Server(text.replace("127.0.0.1:0", "[127.0.0.1:0, 0.0.0.0:0]")) as server:
        assert "no key is asked for" in server.log() and "whoever reaches 0.0.0.0" in server.log()
    with heddle.Server(text) as server:
        assert "no key is asked for" not in server.log()


def test_errors_tell_no_paths_of_the_machine(tmp_path):
    for name in ("gone", "torn", "wrong"):
        shutil.copytree(heddle.MODELS / MODEL, tmp_path / name)
    rows = [f"  {name}: {{path: {tmp_path / name}}}\n" for name in ("gone", "torn", "wrong")]
    with heddle.Server(heddle.config(models=rows)) as server:
        (tmp_path / "gone" / "config.json").unlink()
        (tmp_path / "torn" / "tokenizer.json").write_text("{")
        weights = next((tmp_path / "wrong").glob("*.safetensors"))
        weights.write_bytes(weights.read_bytes()[:1000])
        for name in ("gone", "torn", "wrong"):
            status, _, said = server.call("/v1/completions", {"model": name, "prompt": "1", "max_tokens": 1})
            assert status >= 400 and str(tmp_path) not in str(said), said
            assert str(tmp_path) not in str(server.call(f"/v1/models/{name}")[2])
        assert str(tmp_path) not in str(server.call("/api/requests")[2])
        assert str(tmp_path) in server.log()
