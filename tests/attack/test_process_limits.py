"""A limit of processes that is too low: one line says so, and nothing aborts."""

import itertools
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import time
import urllib.request

import pytest
import server as heddle

# A user for each server: the limit counts what is left of the last one's processes too.
NOBODIES = itertools.count(1_000_000 + 100 * os.getpid())
JSON = {"Content-Type": "application/json"}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root alone may start what another user runs")


def confine(limit, user):
    """Of a child: it is not root, as that is exempt, and may have so many processes."""

    def begin():
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)

    return begin


class Confined:
    """`heddle serve` as a user nobody knows, from a place that anybody may read."""

    def __init__(self, limit):
        self.directory = tempfile.TemporaryDirectory(prefix="heddle-nobody-")
        folder = pathlib.Path(self.directory.name)
        folder.chmod(0o755)
        shutil.copy(heddle.BINARY, folder / "heddle")
        shutil.copytree(heddle.MODELS / "adder", folder / "adder")
        (folder / "heddle.yaml").write_text(
            heddle.config(models=[f"  adder: {{path: {folder / 'adder'}}}\n"])
        )
        self.log = folder / "log.txt"
        self.process = subprocess.Popen(
            [folder / "heddle", "serve", "--config", folder / "heddle.yaml"],
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            cwd=folder,
            text=True,
            preexec_fn=confine(limit, next(NOBODIES)),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()

    def said(self):
        return self.log.read_text(errors="replace")


def until_it_is_clear(server):
    """Whether the server answers in the end; else it has ended, or told why it cannot."""
    deadline = time.monotonic() + 30
    line = server.process.stdout.readline()  # Empty at its end.
    while time.monotonic() < deadline:
        if server.process.poll() is not None or "Resource temporarily unavailable" in server.said():
            return False
        body = b'{"model":"adder","prompt":"1+1=","max_tokens":2}'
        request = urllib.request.Request(line.split()[-1] + "/v1/completions", body, JSON)
        try:
            with urllib.request.urlopen(request, timeout=1) as answer:
                return answer.status == 200
        except OSError:
            continue
    raise AssertionError(server.said())


@pytest.mark.parametrize("limit", [1, 2, 5, 8, 12])
def test_a_server_without_threads_says_so_and_ends(limit):
    with Confined(limit) as server:
        assert server.process.wait(30) == 1, server.said()
        lines = server.said().splitlines()
        assert len(lines) == 1, server.said()
        assert lines[0].startswith("heddle: start ")
        assert "Resource temporarily unavailable" in lines[0]
        assert f"(ulimit -u) is {limit}, heddle needs about" in lines[0]


@pytest.mark.parametrize("limit", [14, 16, 18, 20])
def test_a_worker_without_threads_says_so(limit):
    """Where the server itself has its threads, it serves, or lives on and tells why it cannot."""
    with Confined(limit) as server:
        serves = until_it_is_clear(server)
        said = server.said()
        assert serves or "Resource temporarily unavailable" in said, said
        assert server.process.poll() in (None, 1), said
        assert "terminate" not in said and "signal 6" not in said and "Aborted" not in said, said


def test_a_server_with_enough_serves():
    with Confined(100) as server:
        assert until_it_is_clear(server), server.said()
