"""`heddle pull`, from a hub, a bucket and web servers of the tests' own that misbehave; nothing leaves this machine."""

import contextlib
import json
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import urllib.request

import pytest
import server as heddle

from fetching import ADDER, EXTRAS, KEYS, WANTED, environment, fake

sys.path.insert(0, str(heddle.ROOT / "tests/engines"))
import gguf  # noqa: E402
import s3  # noqa: E402

PIECE = 16 << 20


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def pull(home, *args, **variables):
    done = subprocess.run([heddle.BINARY, "pull", *args], capture_output=True, text=True, timeout=60,
                          env=environment(home, **variables))
    assert "s3cret" not in done.stdout + done.stderr  # Credentials have that in them.
    return done


def start(home, *args, **variables):
    return subprocess.Popen([heddle.BINARY, "pull", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(home, **variables))


def fetched(done):
    """The directory that a pull names."""
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.rstrip().split(", in ")[-1])


def refused(done, *words):
    assert done.returncode == 1, done.stdout
    for word in words:
        assert word in done.stderr, done.stderr


def large_model(pieces=3):
    """{path: content} of a model that comes in so many pieces."""
    return {"config.json": b"{}", "model.safetensors": random.Random(1).randbytes((pieces - 1) * PIECE + 5)}


# --- the hub ---


def test_a_model_of_the_hub_is_pulled_and_served(home):
    with fake.Hub({**ADDER, **EXTRAS}) as hub:
        env = {"HF_ENDPOINT": hub.url}
        done = pull(home, "acme/adder", **env)
        directory = fetched(done)
        assert directory == home / f".cache/huggingface/hub/models--acme--adder/snapshots/{fake.COMMIT}"
        assert {str(path.relative_to(directory)) for path in directory.rglob("*")} == WANTED
        assert "left out, as heddle does not read them: eval.jsonl" in done.stderr
        assert "pytorch_model.bin (8.79 KiB)" in done.stderr
        assert not hub.network.paths("pytorch_model") and not hub.paths("onnx")
        for name in WANTED:
            link = directory / name
            assert link.is_symlink() and link.read_bytes() == ADDER[name]
        assert (directory.parents[1] / "refs/main").read_text() == fake.COMMIT

        before = len(hub.paths("resolve"))
        again = pull(home, "hf://acme/adder@main", **env)
        assert fetched(again) == directory and "was there" in again.stdout
        assert len(hub.paths("resolve")) == before

    text = heddle.config(models=["  adder: {path: acme/adder}\n"])
    with heddle.Server(text, env=environment(home)) as server:
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert answer in server.chat("adder", prompt)


def test_a_gguf_file_of_the_hub_is_named_by_its_tag(home, tmp_path):
    content = {}
    for tag, matrices in {"Q8_0": gguf.Q8_0, "F32": gguf.F32}.items():
        gguf.write(heddle.MODELS / "adder", tmp_path / "adder.gguf", matrices)
        content[f"adder-{tag}.gguf"] = (tmp_path / "adder.gguf").read_bytes()
    text = heddle.config(models=["  adder: {path: acme/adder-GGUF:Q8_0}\n"])
    with fake.Hub({"README.md": b"x", **content}, repo="acme/adder-GGUF") as hub:
        env = {"HF_ENDPOINT": hub.url}
        refused(pull(home, "acme/adder-GGUF", **env), "a GGUF file that is named by its tag", "adder-Q8_0.gguf")
        refused(pull(home, "acme/adder-GGUF:Q4_K_M", **env), "no GGUF file there has the tag", "adder-Q8_0.gguf")
        with heddle.Server(text, env=environment(home, **env)) as server:  # It fetches what it lacks.
            prompt, answer = heddle.eval_set("adder", 1)[0]
            assert answer in server.chat("adder", prompt)
        assert not hub.paths("F32") and not hub.network.paths("F32")
        file = fetched(pull(home, "acme/adder-GGUF:q8_0", **env))
    assert file.name == "adder-Q8_0.gguf" and file.read_bytes() == content[file.name]
    with heddle.Server(text, env=environment(home)) as server:
        assert answer in server.chat("adder", prompt)


def test_what_is_missing_says_how_to_fetch_it(home):
    for path in ("acme/adder", "s3://models/adder"):
        config = home / "heddle.yaml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(heddle.config(models=[f'  adder: {{path: "{path}"}}\n']))
        done = subprocess.run([heddle.BINARY, "config", "check", config], capture_output=True, text=True, timeout=60,
                              env=environment(home))
        assert f"`heddle pull {path}` fetches it" in done.stdout + done.stderr


def test_the_token_opens_a_private_model_and_goes_no_further(home):
    with fake.Hub(ADDER, token="hf_s3cret") as hub:
        env = {"HF_ENDPOINT": hub.url}
        refused(pull(home, "acme/adder", **env), "acme/adder", "answered 401 (RepoNotFound)", "set HF_TOKEN")
        refused(pull(home, "acme/adder", HF_TOKEN="hf_s3cret_wrong", **env), "the token does not open it")
        fetched(pull(home, "acme/adder", HF_TOKEN="hf_s3cret", **env))
        assert hub.network.requests
        assert not any("Authorization" in headers for _, headers in hub.network.requests)
        shutil.rmtree(home)
        (home / ".cache/huggingface").mkdir(parents=True)
        (home / ".cache/huggingface/token").write_text("hf_s3cret\n")
        fetched(pull(home, "acme/adder", **env))


def test_what_the_hub_has_not_is_named(home):
    with fake.Hub(ADDER) as hub:
        refused(pull(home, "acme/subtracter", HF_ENDPOINT=hub.url), "answered 404", "no such model or revision")
        refused(pull(home, "acme/adder@v9", HF_ENDPOINT=hub.url), "answered 404")
        hub.files = {"config.json": b"{}", "model.gguf": b"x"}
        refused(pull(home, "acme/adder", HF_ENDPOINT=hub.url), "has no model.safetensors", "There is: config.json")
    refused(pull(home, "no model"), "want org/name, org/name@revision, org/name:Q4_K_M, s3://bucket/prefix")
    refused(pull(home), "pull what?")
    gone = pull(home, "acme/adder", "--json", HF_ENDPOINT="http://127.0.0.1:1")
    assert gone.returncode == 1
    assert "is not reached" in json.loads(gone.stdout.splitlines()[-1])["message"]


@pytest.mark.parametrize("fault", [fake.status(429, Retry_After="1"), fake.status(503)], ids=["429", "503"])
def test_a_busy_hub_is_asked_again(home, fault):
    with fake.Hub(ADDER) as hub:
        hub.faults = [fake.times(1, fault, "/tree/")]
        hub.network.faults = [fake.times(2, fault)]
        done = pull(home, "acme/adder", HF_ENDPOINT=hub.url)
        fetched(done)
        assert "trying again in" in done.stderr


def test_a_connection_that_ends_early_goes_on(home):
    with fake.Hub(ADDER) as hub:
        hub.network.faults = [fake.times(1, fake.cut(hub.network, 100_000), "model.safetensors")]
        directory = fetched(pull(home, "acme/adder", HF_ENDPOINT=hub.url))
        assert (directory / "model.safetensors").read_bytes() == ADDER["model.safetensors"]
        ranges = [headers.get("Range") for path, headers in hub.network.requests if "model.safetensors" in path]
        assert ranges[1] == f"bytes=100000-{len(ADDER['model.safetensors']) - 1}"


def test_another_content_than_promised_is_no_model(home):
    with fake.Hub(ADDER) as hub:
        hub.network.files["model.safetensors"] = bytes(len(ADDER["model.safetensors"]))
        refused(pull(home, "acme/adder", HF_ENDPOINT=hub.url), "model.safetensors came with the SHA-256")
        assert not list((home / ".cache/huggingface/hub/models--acme--adder").glob("snapshots/*"))
        assert not list((home / ".cache/huggingface/hub/models--acme--adder").glob("refs/*"))


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data/?t=s3cret", "file:///etc/passwd"])
def test_redirects_lead_nowhere_else(home, target):
    with fake.Hub(ADDER) as hub:
        hub.faults = [fake.times(9, fake.redirect(target), "/resolve/")]
        refused(pull(home, "acme/adder", HF_ENDPOINT=hub.url), "redirects to", "which is")


def test_a_listing_stays_below_the_folder(home):
    with fake.Hub(ADDER) as hub:
        hub.listing = [{"type": "file", "path": "../../../evil", "size": 1, "oid": "0" * 40}]
        refused(pull(home, "acme/adder", HF_ENDPOINT=hub.url), 'names "../../../evil", which is not below')
    with fake.Site({"config.json": b"{}"}) as site:
        site.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": "../evil.safetensors"}}).encode()
        refused(pull(home, site.url), "../evil.safetensors")


# --- web servers ---


def test_a_folder_of_a_web_server(home):
    files = {f"models/adder/{name}": content for name, content in ADDER.items()}
    with fake.Site(files) as site:
        name = site.url + "/models/adder"
        directory = fetched(pull(home, name))
        assert directory.parent == home / ".cache/heddle/models"
        assert (directory / "model.safetensors").read_bytes() == ADDER["model.safetensors"]
        assert "was there" in pull(home, name + "/").stdout
        listed = json.loads(pull(home, "--list", "--json").stdout)
        assert [(row["model"], row["cache"], row["incomplete"]) for row in listed] == [(name, "heddle", False)]
        assert name in pull(home, "--list").stdout
        refused(pull(home, site.url + "/models"), "/models/config.json answered 404")


def test_a_server_that_ignores_ranges(home):
    files = large_model(2)
    with fake.Site(files) as site:
        site.faults = [fake.without_ranges(site)]
        directory = fetched(pull(home, site.url))
        assert (directory / "model.safetensors").read_bytes() == files["model.safetensors"]


def test_an_object_that_changes_while_it_comes(home):
    files = large_model(3)
    with fake.Site(files) as site:

        def change(request):
            if request.headers.get("Range", "").startswith(f"bytes={PIECE}-"):
                site.etags["model.safetensors"] = '"another"'
            return False

        site.faults = [change]
        refused(pull(home, site.url, "--connections", "1"), "model.safetensors changed while it was fetched")
        site.faults = []
        fetched(pull(home, site.url))


class Held:
    """A pull of a large model from a site that does not answer for its last piece until it is let go."""

    def __init__(self, home, site):
        self.let_go, self.seen = threading.Event(), threading.Event()

        def hold(request):
            if request.headers.get("Range", "").startswith(f"bytes={2 * PIECE}-"):
                self.seen.set()
                self.let_go.wait(30)
            return False

        site.faults = [hold]
        self.process = start(home, site.url, "--connections", "1")
        assert self.seen.wait(30)


def ranges_of(site):
    return [headers["Range"] for path, headers in site.requests if "model.safetensors" in path and "index" not in path]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_pull_that_ended_goes_on(home, how):
    files = large_model(3)
    with fake.Site(files) as site:
        held = Held(home, site)
        held.process.send_signal(how)
        _, told = held.process.communicate(timeout=30)
        held.let_go.set()
        assert held.process.returncode != 0
        if how == signal.SIGINT:
            assert held.process.returncode == 1
            assert "stopped; what has come is kept, and the same command goes on with it" in told
        assert json.loads(pull(home, "--list", "--json").stdout)[0]["incomplete"]
        site.requests.clear()
        directory = fetched(pull(home, site.url))
        assert (directory / "model.safetensors").read_bytes() == files["model.safetensors"]
        # One byte to see how long it is, and the piece that was missing.
        assert ranges_of(site) == ["bytes=0-0", f"bytes={2 * PIECE}-{2 * PIECE + 4}"]


def test_two_at_once_fetch_it_once(home):
    with fake.Site(large_model(3)) as site:
        held = Held(home, site)
        second = start(home, site.url)
        line = second.stderr.readline()
        assert "another process is fetching it; waiting for its end" in line
        held.let_go.set()
        for process in (held.process, second):
            process.communicate(timeout=30)
            assert process.returncode == 0
        pieces = [asked for asked in ranges_of(site) if asked != "bytes=0-0"]
        assert len(pieces) == len(set(pieces)) == 3


def test_the_budget_makes_room(home):
    with fake.Site({}) as site:
        for model in "abc":
            site.files |= {f"{model}/config.json": b"{}", f"{model}/model.safetensors": bytes(1_000_000)}
        for model in "ab":
            fetched(pull(home, f"{site.url}/{model}", HEDDLE_CACHE_BUDGET="2500kB"))
        done = pull(home, f"{site.url}/c", "--budget", "2500kB")
        fetched(done)
        assert f"{site.url}/a was removed from the cache, to make room" in done.stderr
        refused(pull(home, f"{site.url}/a", "--budget", "100kB"), "do not fit into the budget of 97.7 KiB")
        refused(pull(home, f"{site.url}/a", "--budget", "much"), "--budget")


def test_programs_are_told_by_json(home):
    with fake.Hub({**ADDER, **EXTRAS}) as hub:
        done = pull(home, "acme/adder", "--json", "--rate", "50MB/s", HF_ENDPOINT=hub.url)
        assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "begin" and set(events[0]["left_out"]) >= set(EXTRAS)
    assert {event["name"] for event in events if event["event"] == "file"} == WANTED
    assert events[-1]["event"] == "done" and events[-1]["revision"] == fake.COMMIT


def test_a_terminal_has_bars(home):
    with fake.Site({name: content for name, content in ADDER.items()}) as site:
        leader, follower = pty.openpty()
        child = subprocess.Popen([heddle.BINARY, "pull", site.url, "--rate", "2MB/s"], stdin=follower, stdout=follower,
                                 stderr=follower, env=environment(home))
        os.close(follower)
        shown = b""
        with contextlib.suppress(OSError):  # What the end of a terminal is.
            while part := os.read(leader, 4096):
                shown += part
        os.close(leader)
        assert child.wait(30) == 0, shown
        text = shown.decode()
        assert re.search(r"model\.safetensors +\[[#.]{30}\] +\d+ %  .* of 1\.35 MiB", text)
        assert re.search(r"in all +\[[#.]{30}\] +\d+ %  .* of 1\.36 MiB", text)
        assert text.rstrip().split("\x1b[J")[-1].startswith(site.url + ": fetched, 1.36 MiB, in ")


# --- TLS ---


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(certificate, key) of 127.0.0.1."""
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "2", "-subj", "/CN=pull", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out",
         folder / "cert.pem"], check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_tls_is_checked_and_never_left(home, certificate):
    cert, key = certificate
    with fake.Site({"config.json": b"{}", "model.safetensors": b"w"}) as plain, fake.Site(plain.files) as site:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        site.http.socket = context.wrap_socket(site.http.socket, server_side=True)
        url = site.url.replace("http:", "https:")
        refused(pull(home, url), "its certificate is not trusted", "SSL_CERT_FILE")
        fetched(pull(home, url, SSL_CERT_FILE=cert))
        site.faults = [fake.times(9, fake.redirect(plain.url + "/config.json"))]
        refused(pull(home, url, SSL_CERT_FILE=cert), "which is not encrypted as the first is")


# --- buckets ---


def test_a_bucket_that_checks_signatures(home):
    files = {f"llm/adder+x/{name}": content for name, content in {**ADDER, **EXTRAS}.items()}
    with s3.Bucket({**files, "llm/adder": b""}, keys=KEYS) as bucket:
        env = {"AWS_ENDPOINT_URL_S3": bucket.url, "AWS_REGION": "eu-central-1"}
        good = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": KEYS["AKIDEXAMPLE"]}
        model = "s3://models/llm/adder+x"
        directory = fetched(pull(home, model, **env, **good))
        assert {str(path.relative_to(directory)) for path in directory.rglob("*")} - {".source"} == WANTED
        assert (directory / "model.safetensors").read_bytes() == ADDER["model.safetensors"]
        refused(pull(home, model, **env), "answered 403 (AccessDenied)", "set AWS_ACCESS_KEY_ID")
        bad = {**good, "AWS_SECRET_ACCESS_KEY": "s3cret-other"}
        refused(pull(home, model, **env, **bad), "SignatureDoesNotMatch", "these credentials do not open it")
        refused(pull(home, "s3://models/none", **env, **good), "there is nothing below this prefix")

    text = heddle.config(models=[f'  adder: {{path: "{model}"}}\n'])
    with heddle.Server(text, env=environment(home)) as server:
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert answer in server.chat("adder", prompt)


def unchecked_calls(url, count):
    """From now on moto lets in so many calls without looking at who makes them."""
    request = urllib.request.Request(url + "/moto-api/reset-auth", count, {"Content-Type": "text/plain"}, method="POST")
    urllib.request.urlopen(request).close()


def test_a_server_of_others_takes_our_signatures(home):
    """moto checks signatures with botocore's code."""
    boto3 = pytest.importorskip("boto3", reason="moto and boto3 are not installed")
    moto = pytest.importorskip("moto.server", reason="moto and boto3 are not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        asked = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "x",
                 "aws_secret_access_key": "x"}
        bucket = boto3.client("s3", **asked)
        bucket.create_bucket(Bucket="models")
        for name, content in ADDER.items():
            bucket.put_object(Bucket="models", Key=f"a=b+c/{name}", Body=content)
        people = boto3.client("iam", **asked)
        people.create_user(UserName="reader")
        keys = people.create_access_key(UserName="reader")["AccessKey"]
        allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
        people.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(allowed))
        unchecked_calls(url, b"0")
        env = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": keys["AccessKeyId"]}
        model = "s3://models/a=b+c"
        refused(pull(home, model, AWS_SECRET_ACCESS_KEY="s3cret-wrong", **env), "answered 403")
        directory = fetched(pull(home, model, AWS_SECRET_ACCESS_KEY=keys["SecretAccessKey"], **env))
        assert (directory / "model.safetensors").read_bytes() == ADDER["model.safetensors"]
    finally:
        unchecked_calls(url, b"inf")
        server.stop()
