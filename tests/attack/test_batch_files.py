"""Files of batches that are meant to do harm: too large, with names that are paths, with lines without an end, and those
of another key."""

import json
import pathlib
import time
import uuid

import pytest
import server as heddle

BODY = 12 << 20
EXTRA = f"limits: {{body: {BODY}}}\nbatches: {{disk: 20MiB, quiet: 100ms}}\napiKeys: [alice, bob]\n"
LINE = 4 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    with heddle.Server(heddle.config(models=["adder"], extra=EXTRA + f"dataDir: {data}\n")) as running:
        running.data = data
        yield running


def call(server, path, body=None, method=None, key="alice", **headers):
    return server.call(path, body, method, {"Authorization": f"Bearer {key}", **headers})


def form(content, name="in.jsonl"):
    edge = uuid.uuid4().hex
    head = f'--{edge}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{edge}\r\n'
    head += f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return edge, head.encode() + content + f"\r\n--{edge}--\r\n".encode()


def upload(server, content, name="in.jsonl", key="alice"):
    edge, body = form(content, name)
    return call(server, "/v1/files", body, key=key, **{"Content-Type": f"multipart/form-data; boundary={edge}"})


def begin(server, content, **fields):
    status, _, file = upload(server, content)
    assert status == 200, file
    body = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h", **fields}
    status, _, batch = call(server, "/v1/batches", body)
    return status, file, batch


def finish(server, batch):
    while batch["status"] not in {"completed", "failed"}:
        time.sleep(0.05)
        batch = call(server, f"/v1/batches/{batch['id']}")[2]
    return batch


def clear(server):
    for file in call(server, "/v1/files")[2]["data"]:
        assert call(server, f"/v1/files/{file['id']}", method="DELETE")[0] == 200


def line(name, size=0):
    row = {"custom_id": name, "method": "POST", "url": "/v1/embeddings"}
    row["body"] = {"model": "adder", "input": "1", "user": ""}
    row["body"]["user"] = "x" * max(0, size - len(json.dumps(row)))
    return json.dumps(row).encode()


def test_a_file_that_is_too_large(server):
    edge, body = form(b"x" * BODY)
    status, _, _ = call(server, "/v1/files", body, **{"Content-Type": f"multipart/form-data; boundary={edge}"})
    assert status == 413
    assert upload(server, b"x" * (11 << 20))[0] == 200
    status, _, told = upload(server, b"x" * (11 << 20))
    assert status == 413 and "batches.disk" in told["error"]["message"]
    clear(server)
    assert not list(pathlib.Path(server.data, "batches/files").iterdir())


@pytest.mark.parametrize("name", ["../../escape", "/etc/escape", "a\\..\\escape", "\u0000escape", "x" * 5000, "\u202eescape"])
def test_names_are_no_paths(server, name):
    status, _, file = upload(server, b"{}", name)
    assert status == 200 and len(file["filename"].encode()) <= 255
    kept = [path.name for path in pathlib.Path(server.data).rglob("*") if path.is_file() and "files" in path.parts]
    assert file["id"] in kept and not any("escape" in one for one in kept)
    assert not list(pathlib.Path(server.data).parent.glob("**/*escape*"))
    for path in (f"/v1/files/{file['id']}/../../book.db", "/v1/files/..%2fbook.db/content", "/v1/files/%2e%2e"):
        assert call(server, path)[0] == 404
    clear(server)


def test_lines_without_an_end_fail_alone(server):
    content = b"\n".join([line("most", LINE), b"[" * 1000, line("b", LINE + 1)[: LINE + 1], line("c")])
    status, _, batch = begin(server, content)
    assert status == 200
    batch = finish(server, batch)
    assert batch["request_counts"]["total"] == 4
    told = call(server, f"/v1/files/{batch['error_file_id']}/content")[2]
    rows = [json.loads(row) for row in told.splitlines()] if isinstance(told, str) else [told]
    codes = {row["error"]["line"]: row["error"]["code"] for row in rows if row["error"]}
    assert codes == {2: "invalid_json_line", 3: "line_too_long"}
    # The longest that is read is asked, and refused by the endpoint or answered.
    assert batch["request_counts"]["completed"] + batch["request_counts"]["failed"] == 4
    clear(server)


def test_bytes_that_are_no_lines(server):
    for content in (b"", b"\n\n", b"\x00" * 1000, b"\xff\xfe" * 1000, b"\r\n" * 1000):
        status, _, batch = begin(server, content)
        assert status == 200
        batch = finish(server, batch)
        assert batch["request_counts"]["completed"] == 0, batch
    clear(server)


def test_metadata(server):
    most = {f"k{i}": "v" * 512 for i in range(16)}
    status, _, batch = begin(server, line("a"), metadata=most)
    assert status == 200 and batch["metadata"] == most
    finish(server, batch)
    for metadata in ({**most, "more": ""}, {"k" * 65: ""}, {"k": "v" * 513}, {"k": 1}, [], "k"):
        status, _, told = begin(server, line("a"), metadata=metadata)
        assert status == 400 and "metadata" in told["error"]["message"]
    clear(server)


def test_what_another_key_has_is_not_there(server):
    status, file, batch = begin(server, line("a"))
    assert status == 200
    for path in (f"/v1/files/{file['id']}", f"/v1/files/{file['id']}/content", f"/v1/batches/{batch['id']}"):
        assert call(server, path, key="bob")[0] == 404
    assert call(server, f"/v1/batches/{batch['id']}/cancel", b"", key="bob")[0] == 404
    assert call(server, f"/v1/files/{file['id']}", method="DELETE", key="bob")[0] == 404
    asked = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
    assert call(server, "/v1/batches", asked, key="bob")[0] == 404
    assert call(server, "/v1/files", key="bob")[2]["data"] == []
    batch = finish(server, batch)
    assert call(server, f"/v1/files/{batch['output_file_id']}/content", key="bob")[0] == 404
    assert call(server, f"/v1/files/{batch['output_file_id']}/content")[0] == 200
    clear(server)
