"""Machines of their own for tests: network namespaces on one bridge, whose packets can be dropped in one direction."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess

_CLONE_NEWNET = 0x40000000
_LOSS = 30  # Percent, of links that lose packets.
_RULES = f"""
table inet links {{
  set cut {{ type ipv4_addr; }}
  set lossy {{ type ipv4_addr; }}
  chain arriving {{
    type filter hook input priority 0;
    ip saddr @cut drop
    ip saddr @lossy numgen random mod 100 < {_LOSS} drop
  }}
}}
"""


def _run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def why_not():
    """Why this machine cannot have such networks; None: it can."""
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        return f"there is no {' and no '.join(missing)}: install iproute2 and nftables"
    try:
        with Network(["a"]):
            return None
    except OSError as error:
        return f"namespaces cannot be made here: {error}"


class Network:
    """A machine for each name. Use as a context manager."""

    def __init__(self, names):
        self._prefix = f"heddle{os.getpid()}"
        self._names = list(names)
        self._made = []

    def __enter__(self):
        try:
            self._make("switch")
            switch = self.namespace("switch")
            _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", switch, "link", "set", "br0", "up")
            for number, name in enumerate(self._names):
                self._make(name)
                here = self.namespace(name)
                _run("ip", "link", "add", "eth0", "netns", here, "type", "veth", "peer", "name", f"p{number}", "netns", switch)
                _run("ip", "-n", switch, "link", "set", f"p{number}", "master", "br0", "up")
                _run("ip", "-n", here, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
                for device in ("lo", "eth0"):
                    _run("ip", "-n", here, "link", "set", device, "up")
                _run("ip", "netns", "exec", here, "nft", "-f", "-", text=_RULES)
        except OSError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self._made:
            subprocess.run(["ip", "netns", "del", self.namespace(name)], capture_output=True)
        self._made = []

    def _make(self, name):
        _run("ip", "netns", "add", self.namespace(name))
        self._made.append(name)

    def namespace(self, name):
        return f"{self._prefix}-{name}"

    def address(self, name):
        return f"10.77.0.{self._names.index(name) + 1}"

    def command(self, name):
        """What goes before a command that is to run on that machine."""
        return ["ip", "netns", "exec", self.namespace(name)]

    @contextlib.contextmanager
    def inside(self, name):
        """This thread, and those it starts meanwhile, are on that machine."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net", "rb") as before, pathlib.Path("/run/netns", self.namespace(name)).open("rb") as there:
            if libc.setns(there.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                yield
            finally:
                libc.setns(before.fileno(), _CLONE_NEWNET)

    def shape(self, name, rate):
        """So many bytes per second, at most, go to that machine, and as many come from it."""
        port = f"p{self._names.index(name)}"
        for namespace, device in ((self.namespace("switch"), port), (self.namespace(name), "eth0")):
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{8 * rate}bit",
                 "burst", "64kb", "latency", "50ms")

    # --- packets ---

    def _change(self, verb, kind, receiver, sender):
        _run("ip", "netns", "exec", self.namespace(receiver), "nft", verb, "element", "inet", "links", kind,
             f"{{ {self.address(sender)} }}")

    @contextlib.contextmanager
    def cut(self, sender, receiver):
        """Nothing of one machine arrives at another, though what that one sends still arrives."""
        self._change("add", "cut", receiver, sender)
        try:
            yield
        finally:
            self._change("delete", "cut", receiver, sender)

    @contextlib.contextmanager
    def lossy(self, names):
        """Of what goes between these machines, 30 % is lost."""
        pairs = [(receiver, sender) for receiver in names for sender in names if sender != receiver]
        for pair in pairs:
            self._change("add", "lossy", *pair)
        try:
            yield
        finally:
            for pair in pairs:
                self._change("delete", "lossy", *pair)
