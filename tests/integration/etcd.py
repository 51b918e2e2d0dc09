"""An etcd of one or several members for tests: each can be killed, frozen, and started again with its data or older data."""

import json
import pathlib
import shutil
import signal
import subprocess
import urllib.request

import server as heddle

PROGRAM = shutil.which("etcd") or heddle.ROOT / "build/etcd/usr/bin/etcd"


def is_there():
    return pathlib.Path(PROGRAM).exists()


class Member:
    """A process of it. `before` goes before its command."""

    def __init__(self, name, folder, address, ports, before=()):
        self.name, self.address, self.ports, self.before = name, address, ports, list(before)
        self.data, self.log_path = folder / name, folder / f"{name}.log"
        self.process = None

    def client(self):
        return f"{self.address}:{self.ports[0]}"

    def peer(self):
        return f"http://{self.address}:{self.ports[1]}"

    def start(self, cluster):
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(
                [
                    *(*self.before, PROGRAM, "--name", self.name, "--data-dir", self.data, "--log-level", "error"),
                    *("--listen-client-urls", f"http://{self.client()}"),
                    *("--advertise-client-urls", f"http://{self.client()}"),
                    *("--listen-peer-urls", self.peer(), "--initial-advertise-peer-urls", self.peer()),
                    *("--initial-cluster", cluster),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def status(self):
        """What it says of itself; None where it does not answer."""
        request = urllib.request.Request(f"http://{self.client()}/v3/maintenance/status", b"{}")
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=1) as answer:
                return json.load(answer)
        except OSError:
            return None


class Etcd:
    """All of its members. `folder` has their data and logs."""

    def __init__(self, folder, places):
        """@param places  [(address, (port for clients, port for members), what goes before the command)]"""
        folder.mkdir()
        self.folder = folder
        self.members = [Member(f"e{i + 1}", folder, *place) for i, place in enumerate(places)]

    def url(self):
        return "etcd://" + ",".join(member.client() for member in self.members)

    def start(self, members=None):
        """These, or all, as far as they do not run."""
        names = ",".join(f"{member.name}={member.peer()}" for member in self.members)
        for member in self.members if members is None else members:
            if not member.runs():
                member.start(names)

    def leader(self):
        """The member that leads, as it says itself; None while none does."""
        for member in self.members:
            status = member.status() if member.runs() else None
            if status is not None and status["header"]["member_id"] == status.get("leader"):
                return member
        return None

    def kill(self):
        for member in self.members:
            member.kill()

    def keep_copy(self, name):
        """Of what all members have; none may run."""
        for member in self.members:
            shutil.copytree(member.data, self.folder / name / member.name)

    def go_back_to(self, name):
        """As from a backup; none may run."""
        for member in self.members:
            shutil.rmtree(member.data)
            shutil.copytree(self.folder / name / member.name, member.data)
