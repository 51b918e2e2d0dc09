"""A limit of processes that is too low: one line says so, and nothing aborts."""

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

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root alone may start what another user runs")


def confine(limit):
    """Of a child: a user that is not root, as that is exempt, and may have so many processes."""

    def begin():
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    return begin


class Confined:
    """`heddle serve` as nobody, from a place that nobody may read."""

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
            preexec_fn=confine(limit),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()

    def said(self):
        return self.log.read_text(errors="replace")


@pytest.mark.parametrize("limit", range(1, 10))
def test_a_server_without_threads_says_so_and_ends(limit):
    with Confined(limit) as server:
        assert server.process.wait(30) == 1, server.said()
        lines = [line for line in server.said().splitlines() if line.startswith("heddle: ")]
        assert len(lines) == 1, server.said()
        assert "Resource temporarily unavailable" in lines[0]
        assert f"(ulimit -u) is {limit}, heddle needs about" in lines[0]
        assert "terminate" not in server.said()


@pytest.mark.parametrize("limit", range(10, 24))
def test_a_worker_without_threads_says_so(limit):
    """Where the server itself has its threads, it ends by itself or lives on and tells why it cannot serve."""
    with Confined(limit) as server:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            said = server.said()
            ended = server.process.poll()
            if ended is not None or "Resource temporarily unavailable" in said or "worker ready" in said:
                break
            time.sleep(0.05)
        assert "terminate" not in said and "core dumped" not in said and "signal 6" not in said, said
        assert ended in (None, 1), said
        assert "Resource temporarily unavailable" in said or "worker ready" in said, said


def test_a_server_with_enough_serves():
    with Confined(100) as server:
        line = server.process.stdout.readline()
        url = line.split()[-1]
        with urllib.request.urlopen(url + "/health", timeout=30) as answer:
            assert answer.status == 200
