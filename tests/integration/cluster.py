"""A cluster for tests: real managers, gateways and agents of `heddle`, on loopback, in one directory."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import server as heddle
from ports import free_port

PAGE = "64KiB"
START_SECONDS = 60


class Node:
    """A process of the cluster. `url` is that of a gateway."""

    def __init__(self, cluster, role, name):
        self.cluster, self.role, self.name = cluster, role, name
        self.log_path = cluster.path / f"{role}-{name}.log"
        self.process = None
        self.url = None
        self.env = {}  # Of this process, beside the cluster's.
        self.binary = heddle.BINARY

    def start(self):
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(
                [
                    *self.cluster.command(self),
                    *(self.binary, self.role),
                    *("--config", self.cluster.config_path(self.role, self.name), "--name", self.name),
                    *self.arguments(),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.cluster.env, **self.env},
            )
        return self

    def arguments(self):
        if self.role == "agent" and self.cluster.joining:
            return ["--address", f"{self.cluster.address(self)}:{self.cluster.ports[self.name]}"]
        return []

    def log(self):
        return self.log_path.read_text(errors="replace")

    def await_line(self, pattern, count=1):
        """The last of so many matches of the pattern in the log."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            found = re.findall(pattern, self.log())
            if len(found) >= count:
                return found[-1]
            assert self.process.poll() is None and time.monotonic() < deadline, f"{self.role} {self.name}: {self.log()}"
            time.sleep(0.02)

    def restart(self):
        """Starts it anew, until it says that it runs."""
        before = self.log().count(" of cluster test at ")
        self.start()
        self.await_line(r" of cluster test at ", before + 1)
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode if self.process is not None else None


class Gateway(Node):
    """With what tests ask of a server."""

    call = heddle.Server.call
    chat = heddle.Server.chat
    metrics = heddle.Server.metrics

    def arguments(self):
        return ["--listen", f"{self.cluster.address(self)}:0"]

    def restart(self):
        before = len(re.findall(self._greeting(), self.log()))
        self.start()
        self.await_url(before + 1)
        return self

    def _greeting(self):
        return r" of cluster \S+ at (http://" + re.escape(self.cluster.address(self)) + r":\d+)"

    def await_url(self, count=1):
        self.url = self.await_line(self._greeting(), count)
        return self.url


class Cluster:
    """So many of each; started by start(), ended on leaving the context. Where hosts and gateways join, the configuration
    does not list them."""

    def __init__(self, hosts=2, gateways=1, managers=1, memory="5MiB", models=None, device_extra="", extra="", env=None,
                 joining=False):
        self.joining = joining
        self.directory = tempfile.TemporaryDirectory(prefix="heddle-cluster-")
        self.path = pathlib.Path(self.directory.name)
        self.env = env or {}
        self.models = heddle.demo_models() if models is None else models
        self.hosts = [Node(self, "agent", f"h{i + 1}") for i in range(hosts)]
        self.gateways = [Gateway(self, "gateway", f"g{i + 1}") for i in range(gateways)]
        self.managers = [Node(self, "manager", f"m{i + 1}") for i in range(managers)]
        self.memory, self.device_extra, self.extra = memory, device_extra, extra
        self.ports = {node.name: free_port() for node in self.hosts + self.managers}
        self._make_certificates()
        (self.path / "heddle.yaml").write_text(self.text())

    def address(self, _node):
        return "127.0.0.1"

    def command(self, _node):
        """What goes before the command of a process."""
        return []

    def text(self):
        def members(nodes):
            return "".join(
                f"    {node.name}: {{address: \"{self.address(node)}:{self.ports[node.name]}\"}}\n" for node in nodes
            )

        names = ", ".join(node.name for node in self.gateways)
        cluster = (
            f"cluster:\n  name: test\n  certs: {self.path}\n{self.registry()}  managers:\n{members(self.managers)}"
        )
        if not self.joining:
            cluster += f"  hosts:\n{members(self.hosts)}  gateways: [{names}]\n"
        return heddle.config(memory=self.memory, page=PAGE, models=self.models, device_extra=self.device_extra,
                             extra=cluster + self.extra)

    def registry(self):
        return f"  registry: \"file:{self.path}/registry\"\n" if len(self.managers) > 1 else ""

    def config_path(self, _role, _name):
        return self.path / "heddle.yaml"

    def certs(self, *arguments):
        done = subprocess.run([heddle.BINARY, "certs", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def _make_certificates(self):
        self.certs("init", str(self.path), "--cluster", "test")
        for node in self.nodes():
            self.certs("issue", str(self.path), "--role", node.role, "--name", node.name)

    def nodes(self):
        return self.managers + self.hosts + self.gateways

    def start(self):
        for node in self.nodes():
            node.start()
        for gateway in self.gateways:
            gateway.await_url()
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        for node in self.gateways + self.managers + self.hosts:
            node.stop()
        for node in self.nodes():
            # A build with sanitizers goes on after most of what they find, and says it here.
            assert "Sanitizer: " not in node.log(), node.log()
