"""Peers: models of servers elsewhere behind the same endpoint, over TLS with an authority of these tests' own."""

import contextlib
import http.server
import json
import ssl
import subprocess
import threading

import openai
import pytest
import server as heddle

KEY, THEIRS = "sesame", "theirs"
EVENTS = [f'data: {{"choices":[{{"delta":{{"content":"{word}"}}}}]}}\n\n' for word in ("one", "two", "three")]
EVENTS += ['data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n', "data: [DONE]\n\n"]


def certificates(folder, name="localhost"):
    """An authority, and the certificate that it gave to a server of this name."""
    run = lambda *words: subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)  # noqa: E731
    ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    run("req", "-x509", *ec, "-days", "2", "-subj", "/CN=an authority", "-keyout", "ca.key", "-out", "ca.pem")
    run("req", *ec, "-subj", f"/CN={name}", "-keyout", "server.key", "-out", "server.csr")
    (folder / "names").write_text(f"subjectAltName=DNS:{name}\n")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "server.pem")  # fmt: skip
    return folder / "ca.pem", folder / "server.pem", folder / "server.key"


class Answers(http.server.BaseHTTPRequestHandler):
    """Remembers what it was asked, and answers by the model's name."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, dict(self.headers), body))
        if body["model"] == "wrong":
            self.reply(422, json.dumps({"error": {"message": "theirs", "code": "of_theirs"}}))
        elif body.get("stream"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in EVENTS:
                self.wfile.write(f"{len(event):x}\r\n{event}\r\n".encode())
            self.wfile.write(b"0\r\n\r\n")
        else:
            told = {"id": "x", "object": "chat.completion", "created": 1, "model": body["model"]}
            told["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "far"}}]
            told["usage"] = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
            self.reply(200, json.dumps(told))

    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def tls_peer(certificate, key):
    peer = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    peer.asked = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    peer.socket = context.wrap_socket(peer.socket, server_side=True)
    threading.Thread(target=peer.serve_forever, daemon=True).start()
    try:
        yield peer
    finally:
        peer.shutdown()
        peer.server_close()


def config(port, ca, extra="", models="[far, wrong]"):
    peers = f"peers:\n  hosted: {{proxy: 'https://localhost:{port}/api', apiKey: {THEIRS}, models: {models}"
    peers += f", ca: {ca}}}\n" if ca else "}\n"
    return heddle.config(models=["adder"], extra=f"apiKeys: [{{key: {KEY}, name: me, role: admin}}]\n{peers}{extra}")


def connect(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0, timeout=60)


def test_models_of_a_peer_are_answered_there(tmp_path):
    ca, certificate, key = certificates(tmp_path)
    messages = [{"role": "user", "content": "hi"}]
    with tls_peer(certificate, key) as peer, heddle.Server(config(peer.server_port, ca)) as server:
        client = connect(server)
        assert [model.id for model in client.models.list()] == ["adder", "far", "wrong"]
        whole = client.chat.completions.create(model="far", messages=messages)
        assert whole.choices[0].message.content == "far"
        path, headers, body = peer.asked[0]
        assert path == "/api/v1/chat/completions" and body == {"messages": messages, "model": "far"}
        assert headers["Authorization"] == f"Bearer {THEIRS}" and headers["x-api-key"] == THEIRS
        assert KEY not in json.dumps(headers)
        status, _, events = server.call(
            "/v1/chat/completions", {"model": "far", "stream": True}, headers={"Authorization": f"Bearer {KEY}"}
        )
        assert status == 200 and events == "".join(EVENTS)
        with pytest.raises(openai.UnprocessableEntityError) as wrong:
            client.chat.completions.create(model="wrong", messages=messages)
        assert wrong.value.code == "of_theirs"
        prompt, answer = heddle.eval_set("adder", 1)[0]
        asked = [{"role": "user", "content": prompt}]
        ours = client.chat.completions.create(model="adder", temperature=0, messages=asked)
        assert ours.choices[0].message.content == answer and len(peer.asked) == 3
        _, _, usage = server.call("/api/usage", headers={"Authorization": f"Bearer {KEY}"})
        rows = {row["model"]: row for row in usage["usage"]}
        assert (rows["far"]["prompt_tokens"], rows["far"]["completion_tokens"]) == (12, 4)
        assert THEIRS not in server.log()


@pytest.mark.parametrize("name", ["nobody vouches", "another name"])
def test_a_certificate_that_is_not_to_be_trusted(tmp_path, name):
    ca, certificate, key = certificates(tmp_path, "elsewhere" if name == "another name" else "localhost")
    with (
        tls_peer(certificate, key) as peer,
        heddle.Server(config(peer.server_port, ca if name == "another name" else None)) as server,
    ):
        with pytest.raises(openai.APIStatusError) as refused:
            connect(server).chat.completions.create(model="far", messages=[])
        assert refused.value.status_code == 502 and "certificate" in str(refused.value)
        assert peer.asked == []


def test_batches_ask_peers(tmp_path):
    ca, certificate, key = certificates(tmp_path)
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "far", "messages": []}}
    with (
        tls_peer(certificate, key) as peer,
        heddle.Server(config(peer.server_port, ca, f"dataDir: {tmp_path / 'data'}\n")) as server,
    ):
        client = connect(server)
        file = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        while batch.status not in {"completed", "failed"}:
            batch = client.batches.retrieve(batch.id)
        told = json.loads(client.files.content(batch.output_file_id).text)
        assert told["response"]["body"]["choices"][0]["message"]["content"] == "far"


def test_a_reload_takes_other_peers(tmp_path):
    ca, certificate, key = certificates(tmp_path)
    with tls_peer(certificate, key) as peer, heddle.Server(config(peer.server_port, ca)) as server:
        server.config_path.write_text(config(peer.server_port, ca, models="[farther]"))
        server.process.send_signal(1)
        client = connect(server)
        while [model.id for model in client.models.list()] != ["adder", "farther"]:
            pass
        assert client.chat.completions.create(model="farther", messages=[]).choices[0].message.content == "far"
