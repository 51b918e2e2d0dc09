"""What engine.py has for KV where that is elastic: kvcached's segment, and a scheduler that keeps to it."""

import fcntl
import os
import struct
import threading
import time

MIB = 1 << 20


class ElasticKv:
    """A scheduler whose requests take KV that it maps and unmaps, within a limit that others set in its segment.

    As kvcached: it looks at the limit every 100 ms and applies it when it admits a request; what it has mapped beyond goes as its
    requests end, or are preempted where KV is to shrink below what they use. `made` has the tokens of each step that had work.
    """

    def __init__(self, options):
        self.options = options
        self.path = os.path.join(options.kv_directory, os.environ.get("KVCACHED_IPC_NAME") or f"kvcached_engine_{os.getpgrp()}")
        self.limit = self.target = options.kv_mib * MIB
        self.waiting, self.running = [], []
        self.prealloc = 0
        self.late = []  # (when it is unmapped, bytes)
        self.made, self.preempted, self.looked_at = [], 0, 0.0
        self.changed = threading.Condition()
        if not options.kv_missing:
            self.write(self.limit)
        threading.Thread(target=self.run, daemon=True).start()

    def used(self):
        held = sum(size for _, size in self.late)
        return len(self.running) * self.options.kv_request_mib * MIB + held

    def write(self, total=None):
        """Says what it has, under the lock that kvcached takes."""
        if self.options.kv_missing:
            return
        lost = self.options.kv_lose_while
        if lost and os.path.exists(lost):
            if os.path.exists(self.path):
                os.unlink(self.path)
            return
        if total is None and not os.path.exists(self.path):
            total = self.limit
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            over = self.options.kv_over_mib * MIB
            use = struct.pack("<qq", self.used() + (self.limit + over if over else 0), self.prealloc)
            if total is not None:
                os.pwrite(descriptor, struct.pack("<q", total), 0)
            os.pwrite(descriptor, use + (b"version2" if self.options.kv_other_version else b""), 8)
        finally:
            os.close(descriptor)

    def look(self):
        """What limit it was told; kvcached takes no notice of 0."""
        now = time.monotonic()
        if now - self.looked_at < 0.1 or self.options.kv_deaf:
            return
        self.looked_at = now
        try:
            with open(self.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                total = struct.unpack("<q", file.read(8))[0]
        except OSError:
            return
        self.target = total or self.target

    def serve(self, tokens):
        """Waits until a request has had so many tokens."""
        request = {"left": tokens}
        with self.changed:
            self.waiting.append(request)
            while request["left"] > 0:
                self.changed.wait()

    def release(self, size):
        if self.options.kv_forget:
            self.prealloc += size
        elif self.options.kv_late:
            self.late.append((time.monotonic() + self.options.kv_late, size))
        else:
            self.prealloc = min(self.prealloc + size, self.options.kv_prealloc_mib * MIB)

    def admit(self):
        size = self.options.kv_request_mib * MIB
        if self.waiting:
            self.limit = self.target  # Applied as something is allocated.
            while self.used() > self.limit and len(self.running) > 1:
                self.waiting.insert(0, self.running.pop())
                self.preempted += 1
                self.release(size)
        while self.waiting and self.used() + size <= self.limit:
            self.running.append(self.waiting.pop(0))
            self.prealloc = max(0, self.prealloc - size)
        if not self.options.kv_forget:
            self.prealloc = min(self.prealloc, max(0, self.limit - self.used()))

    def step(self):
        self.look()
        now = time.monotonic()
        self.late = [(when, size) for when, size in self.late if when > now]
        had_work = bool(self.waiting or self.running)
        self.admit()
        for request in self.running:
            request["left"] -= 1
        if had_work:
            self.made.append(len(self.running))
        ended = [request for request in self.running if request["left"] <= 0]
        self.running = [request for request in self.running if request["left"] > 0]
        for _ in ended:
            self.release(self.options.kv_request_mib * MIB)
        if ended:
            self.changed.notify_all()
        self.write()

    def run(self):
        while True:
            time.sleep(self.options.kv_step_ms / 1000)
            with self.changed:
                self.step()

    def told(self, steps):
        """What it made in so many steps since the last time that this was asked."""
        with self.changed:
            made, self.made = self.made, []
            return {
                "steps": len(made),
                "tokens": sum(made[:steps]) if steps else sum(made),
                "limit": self.limit,
                "used": self.used(),
                "running": len(self.running),
                "waiting": len(self.waiting),
                "preempted": self.preempted,
            }
