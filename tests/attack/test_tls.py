"""What clients can do to the TLS in front of a server, and what they get instead of harm."""

import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest
import server as heddle

BODY = {"model": "adder", "messages": [{"role": "user", "content": "12+34="}], "temperature": 0}
SLOWLY = 'limits: {header_timeout: 2s}\nlogLevel: debug\n'


def make_certificate(folder, name, serial):
    """NAME.crt and NAME.key in `folder`, put there at once, as those who renew them do."""
    new = [str(folder / f"new.{end}") for end in ("key", "crt")]
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-set_serial", str(serial)]
    subprocess.run([*command.split(), *names, "-keyout", new[0], "-out", new[1]], check=True, capture_output=True)
    for end in ("key", "crt"):
        os.replace(folder / f"new.{end}", folder / f"{name}.{end}")
    return folder / f"{name}.crt"


class Served:
    """A server with TLS on its first address and plain HTTP on its second."""

    def __init__(self, folder, extra=SLOWLY):
        self.certificate = make_certificate(folder, "server", 1)
        text = heddle.config(models=["adder"], extra=f"tls: {{certificate: {folder}/server.crt, key: {folder}/server.key}}\n{extra}")
        listen = 'listen: ["127.0.0.1:0", "http://127.0.0.1:0"]'
        self.server = heddle.Server(text.replace("listen: 127.0.0.1:0", listen))
        self.folder = folder
        self.url = next(line.split()[-1] for line in self.server.output if "https://" in line)
        self.port = int(self.url.rsplit(":", 1)[1])

    def context(self):
        return ssl.create_default_context(cafile=self.certificate)

    def connect(self, context=None):
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        return (context or self.context()).wrap_socket(raw, server_hostname="localhost")

    def ask(self):
        request = urllib.request.Request(
            self.url + "/v1/chat/completions", json.dumps(BODY).encode(), {"Content-Type": "application/json"}
        )
        handler = urllib.request.HTTPSHandler(context=self.context())
        with urllib.request.build_opener(urllib.request.ProxyHandler({}), handler).open(request, timeout=30) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    made = Served(tmp_path_factory.mktemp("tls"))
    with made.server:
        yield made


def eventually(true, seconds=20):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def closes(raw, seconds=20):
    raw.settimeout(seconds)
    try:
        while raw.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def request(path, body=b"", more=""):
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_clients_that_trust_the_certificate_are_served(served):
    assert "46" in served.ask()
    assert served.connect().version() == "TLSv1.3"


def test_command_line_asks_for_trust(served):
    def ps(*more, url=served.url):
        return subprocess.run([heddle.BINARY, "ps", "--url", url, *more], capture_output=True, text=True)

    assert "certificate" in ps().stderr and "--ca" in ps().stderr
    assert ps("--ca", served.certificate).returncode == 0
    assert ps("--insecure").returncode == 0
    wrong = ps(url=served.url.replace("https", "http"))
    assert wrong.returncode == 1 and "this port speaks TLS" in wrong.stderr


def test_handshake_that_drips_is_given_up(served):
    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        outgoing = ssl.MemoryBIO()
        client = served.context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        started = time.monotonic()
        with pytest.raises(OSError):
            for byte in outgoing.read():
                raw.sendall(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - started < 15
    assert "46" in served.ask()


def test_silent_clients_do_not_keep_others_out(served):
    silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(700)]
    assert "46" in served.ask()
    for raw in silent:
        assert closes(raw)
        raw.close()
    eventually(lambda: served.descriptors() < 100)


def test_old_versions_are_refused(served):
    for version in ("-tls1", "-tls1_1"):
        done = subprocess.run(
            ["openssl", "s_client", version, "-cipher", "ALL:@SECLEVEL=0", "-connect", f"127.0.0.1:{served.port}"],
            input="", capture_output=True, text=True, timeout=20,
        )
        assert "Cipher is (NONE)" in done.stdout, done.stdout
    assert "46" in served.ask()


def test_renegotiation_is_refused(served):
    client = subprocess.Popen(
        ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{served.port}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    client.stdin.write("R\n")
    client.stdin.flush()
    output, _ = client.communicate(timeout=30)
    assert "RENEGOTIATING" in output and "no renegotiation" in output, output
    assert "46" in served.ask()


def test_other_protocols_are_refused(served):
    context = served.context()
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError):
        served.connect(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    assert served.connect(context).selected_alpn_protocol() == "http/1.1"


def test_plain_http_is_told_of_tls(served):
    for start in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", request("/v1/chat/completions", b"x" * 200_000)):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as raw:
            raw.sendall(start)
            raw.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: raw.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 400 ") and b"this port speaks TLS" in answer


def test_garbage_after_the_handshake_ends_the_connection(served):
    for noise in (b"\x00" * 100, b"\x17\x03\x03\x00\x20" + b"x" * 32, os.urandom(20_000), b"GET / HTTP/1.1\r\n\r\n"):
        client = served.connect()
        raw = socket.socket(fileno=os.dup(client.fileno()))
        raw.sendall(noise)
        assert closes(raw)
        raw.close()
        client.close()
    assert "46" in served.ask()


def test_garbage_instead_of_a_handshake_ends_the_connection(served):
    for noise in (b"\x00" * 100, b"\x16\x03\x01\xff\xff" + b"x" * 66000, os.urandom(1) + os.urandom(20_000)):
        with socket.create_connection(("127.0.0.1", served.port)) as raw:
            try:
                raw.sendall(noise)
            except ConnectionError:
                continue
            assert closes(raw)
    assert "46" in served.ask()


def test_hang_ups_leave_nothing_behind(served):
    before = served.descriptors()
    body = json.dumps({**BODY, "stream": True, "max_tokens": 4}).encode()
    for i in range(60):
        client = served.connect()
        client.sendall(request("/v1/chat/completions", body)[: None if i % 2 else -10])
        if i % 3 == 0:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.close()
    eventually(lambda: served.descriptors() <= before)
    assert "46" in served.ask()


def test_a_new_certificate_is_taken_and_a_broken_one_is_not(served):
    def serial():
        with served.connect(ssl._create_unverified_context()) as client:
            der = client.getpeercert(binary_form=True)
        pem = ssl.DER_cert_to_PEM_cert(der)
        told = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=pem, capture_output=True, text=True)
        return int(told.stdout.strip().split("=")[1], 16)

    def told(what, times):
        return served.server.log().count(what) >= times

    assert serial() == 1
    stays = served.connect()
    make_certificate(served.folder, "server", 2)
    served.server.process.send_signal(signal.SIGHUP)
    eventually(lambda: told("certificate reloaded", 1))
    assert serial() == 2
    whole = served.certificate.read_bytes()
    served.certificate.write_bytes(whole[:100])
    served.server.process.send_signal(signal.SIGHUP)
    eventually(lambda: told("the certificate was not reloaded", 1))
    assert serial() == 2
    served.certificate.write_bytes(whole)
    stays.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert stays.recv(100).startswith(b"HTTP/1.1 200")
    assert "46" in served.ask()


def test_wrong_files_are_found_before_and_at_the_start(tmp_path):
    make_certificate(tmp_path, "a", 1)
    make_certificate(tmp_path, "b", 1)
    config = tmp_path / "heddle.yaml"
    for files, why in (
        ("{certificate: a.crt, key: b.key}", "key values mismatch"),
        ("{certificate: none.crt, key: a.key}", "No such file"),
        ("{certificate: a.key, key: a.key}", "has no certificate"),
        ("{certificate: a.crt}", "tls.key"),
    ):
        config.write_text(heddle.config(models=["adder"], extra=f"tls: {files}\n"))
        for verb in (["config", "check", config], ["serve", "--config", config]):
            done = subprocess.run([heddle.BINARY, *verb], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and why in done.stderr, done.stderr
    config.write_text("listen: https://127.0.0.1:0\n" + heddle.config(models=["adder"]).split("\n", 1)[1])
    done = subprocess.run([heddle.BINARY, "config", "check", config], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "tls.certificate" in done.stderr


def test_the_end_waits_for_no_idle_client(tmp_path):
    """A client that has not read its answer, and one in its handshake, hold up no shutdown."""
    made = Served(tmp_path, "shutdown_timeout: 2s\n")
    with made.server:
        raw = socket.create_connection(("127.0.0.1", made.port))
        client = made.connect()
        client.sendall(request("/v1/chat/completions", json.dumps({**BODY, "stream": True}).encode()))
        started = time.monotonic()
        assert made.server.stop(timeout=10) == 0
        assert time.monotonic() - started < 5
        raw.close()
        client.close()


def test_many_clients_at_once(served):
    answers = []

    def work():
        for _ in range(2):
            answers.append(served.ask())

    threads = [threading.Thread(target=work) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 100 and all("46" in answer for answer in answers)
