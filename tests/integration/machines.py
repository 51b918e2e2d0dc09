"""Clusters for tests that have an etcd: on loopback, or each process on a machine of its own (network namespaces)."""

import urllib.error
import urllib.request

import cluster
import etcd
import network
from test_cluster import leads

STATUS_PORT = 9464
ETCD_PORTS = 2379, 2380


class Registered(cluster.Cluster):
    """A cluster with an etcd of so many members, as far as there is etcd; on loopback."""

    def __init__(self, registries=1, **options):
        self.etcd = None
        self.etcds = [f"e{i + 1}" for i in range(registries)]
        super().__init__(**options)

    def places(self):
        """Of etcd's members."""
        return [("127.0.0.1", (cluster.free_port(), cluster.free_port())) for _ in self.etcds]

    def registry(self):
        if not etcd.is_there():
            return super().registry()
        self.etcd = etcd.Etcd(self.path / "etcd", self.places())
        return f"  registry: \"{self.etcd.url()}\"\n"

    def leaders(self):
        return [manager for manager in self.managers if manager.process.poll() is None and leads(manager)]

    def leader(self):
        (first,) = self.leaders()
        return first

    def __enter__(self):
        if self.etcd is not None:
            self.etcd.start()
        return self.start()

    def __exit__(self, *why):
        try:
            super().__exit__(*why)
        finally:
            if self.etcd is not None:
                self.etcd.kill()


class Machines(Registered):
    """A cluster of which each process has a machine, and so has each member of etcd."""

    def __init__(self, **options):
        self.names = [f"m{i + 1}" for i in range(options["managers"])]
        self.names += [f"h{i + 1}" for i in range(options["hosts"])] + [f"g{i + 1}" for i in range(options["gateways"])]
        etcds = [f"e{i + 1}" for i in range(options.get("registries", 1))]
        self.network = network.Network([*self.names, *etcds, "client"]).__enter__()
        super().__init__(**options)

    def address(self, node):
        return self.network.address(node.name)

    def command(self, node):
        return self.network.command(node.name)

    def places(self):
        return [(self.network.address(name), ETCD_PORTS, self.network.command(name)) for name in self.etcds]

    def registry(self):
        return super().registry() + f"  status: \"0.0.0.0:{STATUS_PORT}\"\n"

    def told(self, node, path):
        """(status, text) of what a manager or an agent tells of itself."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://{self.address(node)}:{STATUS_PORT}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def __enter__(self):
        self._inside = self.network.inside("client")
        self._inside.__enter__()
        return super().__enter__()

    def __exit__(self, *why):
        try:
            super().__exit__(*why)
        finally:
            self._inside.__exit__(None, None, None)
            self.network.__exit__()
