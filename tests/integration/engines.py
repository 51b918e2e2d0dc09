"""External engines, for tests: llama.cpp with the demo models, and one that misbehaves as it is told."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest
import server as heddle
from ports import free_port

HERE = heddle.ROOT / "tests" / "engines"
NODE = 20
MODULES = heddle.ROOT / "build" / "llama" / "node_modules"


def write_gguf(model, folder):
    """A demo model as a GGUF file in `folder`."""
    spec = importlib.util.spec_from_file_location("gguf", HERE / "gguf.py")
    gguf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gguf)
    path = pathlib.Path(folder, model + ".gguf")
    gguf.write(heddle.MODELS / model, path)
    return path


def require_llama():
    """Skips the test where llama.cpp cannot be had."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed: llama.cpp was not tested as an engine")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if int(version.lstrip("v").split(".")[0]) < NODE:
        pytest.skip(f"node {version.strip()} is older than {NODE}, which llama.cpp takes: it was not tested as an engine")
    if not (MODULES / "node-llama-cpp").is_dir():
        pytest.skip(f"{MODULES} lacks llama.cpp: ./dev test prepares it")


def llama(path, port="${PORT}"):
    """The command line of llama.cpp with a model."""
    return f"node {HERE / 'llama_server.mjs'} --modules {MODULES} --model {path} --port {port}"


def scripted(name, options="", port="${PORT}"):
    """The command line of the engine that does as it is told."""
    return f"{sys.executable} {HERE / 'engine.py'} --port {port} --name {name} {options}"


QUARTERS = 4  # Windows in a day of by_turns().
TURNS = {0: "early", 2: "late"}  # Who is asked for in which of them.


def by_turns(window, start, wake, first_token_ms=0, planner=""):
    """A heddle.yaml of two engines of which one runs at a time. They sleep; `start` and `wake` seconds are what it takes them to
    start and to have their weights again. A day has four windows of so many seconds: as short as tests need it."""
    options = f"--open-after {start} --wake-after {wake} --first-token-ms {first_token_ms}"
    keys = "engine: vllm, suspend: [sleep], slo: {ttft: 100ms}"
    rows = "".join(f"  {name}: {{cmd: '{scripted(name, options)}', {keys}}}\n" for name in TURNS.values())
    return (
        f"listen: 127.0.0.1:0\nstartPort: {free_port(2)}\ndevices: [{{name: gpu, kind: external, memory: 1GiB}}]\n"
        f"planner: {{window: {window}s, day: {QUARTERS * window}s, period: 100ms{planner}}}\nmodels:\n{rows}"
    )


def next_turn(window):
    """Waits until the window begins in which the next engine of by_turns() is asked for, and says which that is."""
    while True:
        number = int(time.time() // window) + 1
        time.sleep(max(0, number * window - time.time()))
        if number % QUARTERS in TURNS:
            return TURNS[number % QUARTERS]


class Engine:
    """An engine that a test runs itself. `url` ends without a slash; use as a context manager."""

    def __init__(self, command, port, patience=60):
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(command.split())
        deadline = time.monotonic() + patience
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"the engine did not start: {command}")
            time.sleep(0.05)

    def _ready(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
