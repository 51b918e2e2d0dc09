"""Runs a part of the plan: a process with a limit, whose words are kept as they come."""

import json
import os
import re
import signal
import subprocess
import threading
import time

GRACE = 5  # Seconds from the word to end to the end.
GLANCE = 0.05  # Seconds between two looks at what runs.


class CutOff(Exception):
    """This program was told to end."""


class Keeper:
    """The growing log and the rows, which are on the disk as soon as they are known. Of several threads."""

    def __init__(self, out, echo=True):
        self.log = (out / "gpu.log").open("a", encoding="utf-8", errors="replace")
        self.rows = (out / "gpu.jsonl").open("a", encoding="utf-8")
        self.echo = echo
        self.lock = threading.Lock()

    def say(self, text, shown=True):
        with self.lock:
            self.log.write(text + "\n")
            self.log.flush()
            if shown and self.echo:
                print(text, flush=True)

    def row(self, **values):
        with self.lock:
            self.rows.write(json.dumps(values) + "\n")
            self.rows.flush()


class Told:
    """What a part says: all of it to its file and the log; objects in its output are rows, other lines of it text."""

    def __init__(self, keeper, path, stamp):
        self.keeper, self.stamp = keeper, stamp
        self.file = path.open("w", encoding="utf-8", errors="replace")
        self.counts = {}
        self.failures = []
        self.last = ""
        self.measured, self.skips = 0, []  # Rows with figures, and why others have none.

    def take(self, line, is_output):
        line = line.rstrip("\n")
        self.file.write(line + "\n")
        self.file.flush()
        self.last = line.strip() or self.last
        self.count_tests(line)
        if is_output and line.startswith("{"):
            try:
                row = json.loads(line)
                self.keeper.row(**self.stamp, **row)
                if "skipped" in row:
                    self.skips.append(row["skipped"])
                else:
                    self.measured += "what" in row
                return
            except (ValueError, TypeError):
                pass
        self.keeper.say(line, shown=not line.startswith(("[ RUN", "[       OK")))
        if is_output and self.stamp["part"].startswith("bench_"):
            self.keeper.row(**self.stamp, text=line)

    def skipped(self):
        """Why it did nothing at all, though it ended well; None where it did."""
        if self.counts and not self.counts.get("passed"):
            return "each of its tests was" if self.counts.get("skipped") else "it has no such test"
        return self.skips[0] if self.skips and not self.measured else None

    def count_tests(self, line):
        """Of GoogleTest's last lines."""
        if found := re.match(r"\[  (PASSED|SKIPPED) +\] (\d+) tests?", line):
            self.counts[found[1].lower()] = int(found[2])
        elif found := re.match(r"\[  FAILED  \] (\S+\.\S+?),? ", line + " "):
            if found[1] not in self.failures:
                self.failures.append(found[1])


def end(process):
    """The process and all that it started in its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def wait(process, limit, stop):
    """Its exit status, or None where it takes longer. CutOff where `stop` is set meanwhile."""
    until = time.monotonic() + limit
    while process.poll() is None:
        if stop.is_set():
            raise CutOff
        if time.monotonic() > until:
            return None
        time.sleep(GLANCE)
    return process.returncode


def run(command, limit, environment, folder, told, stop):
    """(status, seconds): its exit status, or None where it took longer than its limit.

    Ends it too where it raises CutOff, as `stop` was set.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lock = threading.Lock()

    def read(pipe, is_output):
        for line in pipe:
            with lock:
                told.take(line, is_output)

    readers = [
        threading.Thread(target=read, args=(pipe, is_output), daemon=True)
        for pipe, is_output in ((process.stdout, True), (process.stderr, False))
    ]
    for reader in readers:
        reader.start()
    try:
        status = wait(process, limit, stop)
    finally:
        end(process)
    for reader in readers:
        reader.join(2)
    return status, time.monotonic() - began
