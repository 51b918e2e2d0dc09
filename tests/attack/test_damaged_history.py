"""A history of loads that is damaged: the server starts, serves, and says once what that costs."""

import contextlib
import os
import pathlib
import sqlite3
import subprocess
import tempfile

import pytest
import server as heddle


def truncated(file):
    file.write_bytes(file.read_bytes()[:1000])


def emptied(file):
    file.write_bytes(b"")


def cut_at_a_page(file):
    file.write_bytes(file.read_bytes()[:4096])


def without_a_table(file):
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("DROP TABLE load")
        database.commit()


def of_impossible_values(file):
    with contextlib.closing(sqlite3.connect(file)) as database:
        rows = [(LENGTH, 5, "adder", -1.0, 2.0), (LENGTH, -5, "adder", 1.0, 2.0), (LENGTH, 6, "adder", "much", 1.0)]
        database.executemany("INSERT INTO load VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()


def garbage(file):
    file.write_bytes(os.urandom(20_000))


def torn(file):
    """Its head is sound, what follows is not."""
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + os.urandom(max(len(whole), 12_288) - 4096))


def folder(file):
    file.unlink()
    file.mkdir()


def unreadable_link(file):
    file.unlink()
    file.symlink_to(file)


CONSEQUENCES = ("begun anew", "not used", "not written", "left out")
DAMAGES = [
    truncated,
    emptied,
    cut_at_a_page,
    garbage,
    torn,
    without_a_table,
    of_impossible_values,
    folder,
    unreadable_link,
]
LENGTH = 300 * 10**9  # Of the default windows.


def warnings(server):
    return [line for line in server.log().splitlines() if "load history" in line]


@contextlib.contextmanager
def serving(data):
    text = heddle.config(models=["adder"], extra=f"dataDir: {data}\n")
    with heddle.Server(text) as server:
        assert server.chat("adder", "12+34=")
        yield server


@pytest.fixture
def data():
    with tempfile.TemporaryDirectory(prefix="heddle-history-") as name:
        yield pathlib.Path(name)


@pytest.fixture
def history(data):
    """One that a server has made."""
    with serving(data) as server:
        assert warnings(server) == []
    return data / "history.db"


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_server_serves_and_warns_once(data, history, damage):
    damage(history)
    with serving(data) as server:
        said = warnings(server)
        assert len(said) == 1, server.log()
        assert "WARN" in said[0].upper()
        assert str(history) in said[0]
        assert any(word in said[0] for word in CONSEQUENCES), said[0]


def test_a_full_disk_is_said_once(data):
    if os.geteuid() != 0 or subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", data], capture_output=True, check=False
    ).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        (data / "full").write_bytes(b"x" * 4096)
        with serving(data) as server:
            said = warnings(server)
            assert len(said) == 1, server.log()
            assert "full" in said[0] and str(data / "history.db") in said[0]
    finally:
        subprocess.run(["umount", data], check=True)
