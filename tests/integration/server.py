"""Starts the real `heddle serve` for tests: own directory, own port, nothing left behind."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("HEDDLE_BINARY", ROOT / "build/release/heddle"))
NEXT_BINARY = BINARY.parent / "tests/integration/heddle_next"  # Speaks a version more between hosts.
MODELS = ROOT / "models"
START_SECONDS = 60


def demo_models():
    """Names of the trained demo models, those that have held-out prompts."""
    return sorted(path.parent.name for path in MODELS.glob("*/eval.jsonl"))


def eval_set(model, count=None):
    """[(prompt, answer)] of a demo model, none of which it saw in training."""
    lines = (MODELS / model / "eval.jsonl").read_text().splitlines()[:count]
    return [(row["prompt"], row["answer"]) for row in map(json.loads, lines)]


def config(memory="5MiB", page="64KiB", models=None, extra="", device_extra="", devices=None):
    """A heddle.yaml over the demo models, by default with a memory that holds two or three of them."""
    names = demo_models() if models is None else models
    rows = "".join(name if name.endswith("\n") else f"  {name}: {{path: {MODELS / name}}}\n" for name in names)
    if devices is None:
        devices = f"  - {{name: cpu0, kind: cpu, memory: {memory}, page: {page}{device_extra}}}\n"
    return f"listen: 127.0.0.1:0\nhost: {{memory: 64MiB}}\ndevices:\n{devices}models:\n{rows}{extra}"


class Server:
    """One running server. `url` ends without a slash; use as a context manager."""

    def __init__(self, text, args=(), env=None):
        self.directory = tempfile.TemporaryDirectory(prefix="heddle-test-")
        self.config_path = pathlib.Path(self.directory.name, "heddle.yaml")
        self.config_path.write_text(text)
        self.log_path = pathlib.Path(self.directory.name, "log.txt")
        self.process = subprocess.Popen(
            [BINARY, "serve", "--config", self.config_path, *args],
            stdout=subprocess.PIPE,
            stderr=self.log_path.open("w"),
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.url = None
        self.output = []
        ready = threading.Event()
        threading.Thread(target=self._read, args=(ready,), daemon=True).start()
        deadline = time.monotonic() + START_SECONDS
        while not ready.wait(0.05):
            if self.process.poll() is not None or time.monotonic() > deadline:
                break
        if self.url is None:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"the server did not start: {self.log()}\n{''.join(self.output)}")

    def _read(self, ready):
        for line in self.process.stdout:
            self.output.append(line)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found and self.url is None:
                self.url = found[0]
                ready.set()
        ready.set()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        # A build with sanitizers goes on after most of what they find, and says it here.
        assert "Sanitizer: " not in self.log(), self.log()

    def stop(self, timeout=30):
        """Ends the server as an operator would; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    # --- plain HTTP, for what the official client does not do ---

    def call(self, path, body=None, method=None, headers=None, timeout=60):
        """(status, headers, parsed JSON or text)."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as response:
                return response.status, response.headers, parse(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, parse(error.read())

    def chat(self, model, prompt, **options):
        """The answer of a model to one user message, greedy unless told otherwise."""
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0, **options}
        status, _, answer = self.call("/v1/chat/completions", body)
        assert status == 200, answer
        return answer["choices"][0]["message"]["content"]

    def told_twice(self, model, prompt, tokens=6):
        """The log probabilities of an answer's tokens as they were generated, and as they are in a prompt."""
        asked = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": tokens, "logprobs": 2}
        status, _, answer = self.call("/v1/completions", asked)
        assert status == 200, answer
        generated = answer["choices"][0]["logprobs"]["token_logprobs"]
        whole = {**asked, "prompt": prompt + answer["choices"][0]["text"], "echo": True, "max_tokens": 0}
        status, _, answer = self.call("/v1/completions", whole)
        assert status == 200, answer
        scored = answer["choices"][0]["logprobs"]["token_logprobs"]
        assert scored[0] is None and None not in scored[1:], scored
        assert answer["usage"]["completion_tokens"] == 0
        assert len(scored) == answer["usage"]["prompt_tokens"] == len(answer["choices"][0]["logprobs"]["tokens"])
        return generated, scored[len(scored) - len(generated) :]

    def metrics(self):
        """{'name{labels}': value} of /metrics."""
        _, _, text = self.call("/metrics")
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    # --- processes ---

    def workers(self):
        """Process ids of the worker processes, lowest device first."""
        return sorted(child for child in children(self.process.pid) if "worker" in command_line(child))

    def resident_bytes(self):
        """Memory of all processes, each shared page counted once (proportional set size)."""
        return sum(proportional_bytes(pid) for pid in [self.process.pid, *children(self.process.pid)])


def parse(raw):
    text = raw.decode()
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def command_line(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def proportional_bytes(pid):
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
        return int(found[1]) * 1024
    return 0
