"""heddle bench, as typed, against the real server."""

import http.server
import json
import os
import ssl
import subprocess
import threading

import pytest
import server as heddle

MODELS = heddle.demo_models()[:2]


def bench(server, *args):
    return subprocess.run(
        [heddle.BINARY, "bench", "--url", server.url, *args], capture_output=True, text=True, timeout=120
    )


def report(server, *args):
    done = bench(server, "--json", "-", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_closed_loop_over_a_mix_of_models(server, tmp_path):
    page = tmp_path / "bench.html"
    mix = [f"{MODELS[0]}=3", MODELS[1]]
    slo = "ttft=60s,tpot=60s"
    got = report(
        server, "-m", *mix, "-c", "4", "-n", "60", "-i", "40..80", "-o", "9", "--ignore-eos", "--slo", slo, "--html", page
    )
    assert got["all"]["requests"] == got["all"]["good"] == 60 and got["all"]["failed"] == 0
    assert got["all"]["completion_tokens"] == 60 * 9
    assert {row["model"] for row in got["models"]} == set(MODELS)
    assert got["models"][0]["requests"] > got["models"][1]["requests"] > 0
    # Prompts are as long as was asked for, whatever the tokenizer: within a word or two.
    assert all(30 <= row["prompt_tokens"] <= 90 for row in got["requests"])
    assert 0 < got["all"]["ttft"]["p50"] <= got["all"]["ttft"]["p99"] <= got["all"]["latency"]["max"]
    assert "<svg" in page.read_text() and MODELS[1] in page.read_text()


def test_an_open_loop_sends_at_its_rate(server):
    got = report(server, "-m", MODELS[0], "--rate", "50", "-d", "2s", "-i", "40", "-o", "5")
    assert 60 <= got["all"]["requests"] <= 140
    dues = [row["due"] for row in got["requests"]]
    assert max(dues) <= 2 and all(row["begun"] >= row["due"] for row in got["requests"])


def test_a_trace_is_replayed(server, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = [f"{at},{label},{40 + at},{3}" for at, label in [(0, MODELS[1]), (1, "other"), (2, MODELS[1]), (4, "more")]]
    trace.write_text("arrival_s,model,input_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    got = report(server, "-m", *MODELS, "-t", trace, "--speed", "20")
    assert got["all"]["requests"] == 4
    assert sorted(round(row["due"], 6) for row in got["requests"]) == [0, 0.05, 0.1, 0.2]
    named = [row["model"] for row in sorted(got["requests"], key=lambda row: row["due"])]
    assert named[0] == named[2] == MODELS[1], "labels that are models stay"
    assert {named[1], named[3]} == set(MODELS), "others are given out in turn"


def test_a_table_for_people(server):
    done = bench(server, "-m", MODELS[0], "-n", "5", "-i", "40", "-o", "3", "--api", "completions")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("MODEL") and MODELS[0] in done.stdout and "GOODPUT" in done.stdout


@pytest.mark.parametrize(
    "args, words",
    [
        (["-m", "nobody"], "does not exist"),
        (["-m", "a=0"], "no model with a weight"),
        (["-m", "a", "-i", "9..3"], "no number of tokens"),
        (["-m", "a", "--slo", "fast"], "--slo"),
        (["-m", "a", "-t", "/no/such/trace"], "cannot be read"),
        (["-m", "a", "--rate", "5", "-c", "2"], "excludes"),
    ],
)
def test_what_is_wrong_is_said(server, args, words):
    done = bench(server, *args)
    assert done.returncode != 0 and words in done.stderr + done.stdout


def test_requests_that_fail_are_told():
    with heddle.Server(heddle.config(models=[MODELS[0]])) as running:
        done = bench(running, "-m", MODELS[0], "-n", "4", "-i", "40", "-o", "3", "--timeout", "0.0001s")
        assert done.returncode != 0 and done.stderr


class Endpoint(http.server.BaseHTTPRequestHandler):
    """As little of the API as a run needs."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        usage = '"usage":{"prompt_tokens":7,"completion_tokens":2}'
        body = f'{{"choices":[],{usage}}}'
        kind = "application/json"
        if asked.get("stream"):
            pieces = ['data: {"choices":[{"delta":{"content":"x"}}]}\n\n'] * 2
            body = "".join(pieces) + f"data: {{\"choices\":[],{usage}}}\n\ndata: [DONE]\n\n"
            kind = "text/event-stream"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


def test_https_endpoints_are_trusted_by_their_certificates(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    endpoint = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    command = [heddle.BINARY, "bench", "-m", "any", "-n", "6", "-c", "2", "--json", "-", "--url"]
    url = f"https://localhost:{endpoint.server_address[1]}/v1"
    try:
        trusting = {**os.environ, "SSL_CERT_FILE": str(certificate)}
        done = subprocess.run([*command, url], capture_output=True, text=True, timeout=60, env=trusting)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["all"]["completion_tokens"] == 12
        wrong_name = url.replace("localhost", "127.0.0.1")
        for args, env in [([*command, url], dict(os.environ)), ([*command, wrong_name], trusting)]:
            refused = subprocess.run(args, capture_output=True, text=True, timeout=60, env=env)
            assert refused.returncode != 0 and "certificate verify failed" in refused.stderr
    finally:
        endpoint.shutdown()
        endpoint.server_close()
