"""Batches against the real server: lines run when nobody else needs the devices, and a server that is killed goes on
where it was."""

import itertools
import json
import os
import pathlib
import signal
import time

import openai
import pytest
import server as heddle

SUMS = heddle.eval_set("adder", 12)
SORTS = heddle.eval_set("sorter", 6)
PACE = ", pace: {step: 10ms}"
QUIET = "batches: {at_once: 2, quiet: 100ms}\n"


def serve(data, memory="5MiB", extra=QUIET):
    text = heddle.config(memory=memory, models=["adder", "sorter"], device_extra=PACE, extra=extra)
    return heddle.Server(text + f"dataDir: {data}\n")


def connect(server, key="unused"):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=60)


def line(name, model, prompt, **options):
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0, **options}
    return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})


def questions():
    """{name: (line, answer)} of two models that do not ask the same."""
    rows = [("adder", row) for row in SUMS] + [("sorter", row) for row in SORTS]
    return {f"{i}": (line(f"{i}", model, prompt), answer) for i, (model, (prompt, answer)) in enumerate(rows)}


def begin(client, lines, endpoint="/v1/chat/completions"):
    content = "\n".join(lines).encode() + b"\n"
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")


def finish(client, batch, state="completed", seconds=120):
    deadline = time.monotonic() + seconds
    while client.batches.retrieve(batch.id).status not in {"completed", "failed", "expired", "cancelled"}:
        assert time.monotonic() < deadline, client.batches.retrieve(batch.id)
        time.sleep(0.05)
    told = client.batches.retrieve(batch.id)
    assert told.status == state, told
    return told


def content(client, file):
    rows = [json.loads(row) for row in client.files.content(file).text.splitlines()]
    names = [row["custom_id"] for row in rows]
    assert len(set(names)) == len(names), names
    return {row["custom_id"]: row for row in rows}


def said(row):
    return row["response"]["body"]["choices"][0]["message"]["content"]


def test_every_line_is_answered_and_wrong_ones_fail_alone(tmp_path):
    asked = questions()
    with serve(tmp_path) as server:
        client = connect(server)
        wrong = [line("stream", "adder", "1+1=", stream=True), line("nobody", "no-such-model", "?"), "{"]
        wrong.append(line("negative", "adder", "1+1=", temperature=-1))
        batch = begin(client, [row for row, _ in asked.values()] + wrong)
        told = finish(client, batch)
        counts = told.request_counts
        assert (counts.total, counts.completed, counts.failed) == (len(asked) + 4, len(asked), 4)
        answers = content(client, told.output_file_id)
        assert {name: said(row) for name, row in answers.items()} == {name: told for name, (_, told) in asked.items()}
        errors = content(client, told.error_file_id)
        assert errors["stream"]["error"]["code"] == "invalid_body"
        assert errors["nobody"]["response"]["status_code"] == 404
        assert errors["negative"]["response"]["body"]["error"]["param"] == "temperature"
        assert errors[None]["error"]["line"] == len(asked) + 3


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/embeddings", "/v1/responses"])
def test_other_endpoints(tmp_path, endpoint):
    body = {"model": "adder", ("prompt" if endpoint == "/v1/completions" else "input"): "1+2="}
    row = json.dumps({"custom_id": "a", "method": "POST", "url": endpoint, "body": body})
    with serve(tmp_path) as server:
        client = connect(server)
        told = finish(client, begin(client, [row], endpoint))
        answer = content(client, told.output_file_id)["a"]["response"]
        assert answer["status_code"] == 200
        assert answer["body"]["object"] in {"text_completion", "list", "response"}


def outputs(data):
    """What has been answered so far, whole lines, of the one batch that there is."""
    found = (path.read_bytes() for path in pathlib.Path(data, "batches/files").iterdir())
    texts = [text for text in found if text.startswith(b'{"id":"batch_req_')]
    return texts[0][: texts[0].rfind(b"\n") + 1] if texts else b""


def test_a_server_that_is_killed_goes_on_where_it_was(tmp_path):
    asked = questions()
    with serve(tmp_path) as server:
        batch = begin(connect(server), [row for row, _ in asked.values()])
        while outputs(tmp_path).count(b"\n") < 3:
            time.sleep(0.01)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
    before = outputs(tmp_path)
    assert 3 <= before.count(b"\n") < len(asked)
    with serve(tmp_path) as server:
        client = connect(server)
        told = finish(client, batch)
        assert told.request_counts.completed == len(asked)
        assert client.files.content(told.output_file_id).content.startswith(before)  # None was asked again.
        answers = content(client, told.output_file_id)
        assert {name: said(row) for name, row in answers.items()} == {name: told for name, (_, told) in asked.items()}
        assert client.batches.list().data[0].id == batch.id


def running(server, model):
    rows = server.call("/running")[2]["running"]
    return sum(row["requests_running"] for row in rows if row["model"] == model)


def test_clients_do_not_wait_for_lines(tmp_path):
    """The memory holds one of the two models; a client of the other has it at once, whatever lines run."""
    prompt, answer = SORTS[0]
    endless = {"guided_regex": "[0-9]{900}", "max_tokens": 900}  # Some seconds at this pace.
    with serve(tmp_path, memory="2304KiB") as server:
        client = connect(server)
        batch = begin(client, [line(f"{i}", "adder", "1+1=", **endless) for i in range(2)])
        while running(server, "adder") == 0:
            time.sleep(0.01)
        assert server.chat("sorter", prompt) == answer
        counts = client.batches.retrieve(batch.id).request_counts
        assert counts.completed == 0, "the client waited for the lines"
        finish(client, batch)


def test_lines_count_for_the_key_that_asked(tmp_path):
    keys = "apiKeys: [{key: alice, name: alice}, {key: bob, name: bob}, {key: root, role: admin}]\n"
    with serve(tmp_path, extra=QUIET + keys) as server:
        alice, bob = connect(server, "alice"), connect(server, "bob")
        batch = begin(alice, [line(f"{i}", "adder", prompt) for i, (prompt, _) in enumerate(SUMS[:3])])
        with pytest.raises(openai.NotFoundError):
            bob.batches.retrieve(batch.id)
        with pytest.raises(openai.NotFoundError):
            bob.files.content(batch.input_file_id)
        finish(alice, batch)
        assert not list(itertools.chain(bob.files.list(), bob.batches.list()))
        _, _, usage = server.call("/api/usage", headers={"Authorization": "Bearer root"})
        told = json.dumps(usage)
        rows = [row for row in usage["usage"] if row["key"] == "alice"]
        assert sum(row["requests"] for row in rows) == 3, told
        assert not any(row["key"] == "bob" for row in usage["usage"]), told
