"""A cluster whose processes are on machines of their own (network namespaces)."""

import urllib.error
import urllib.request

import cluster
import etcd
import network
from test_cluster import leads

STATUS_PORT = 9464
ETCD_PORTS = 2379, 2380


class Machines(cluster.Cluster):
    """A cluster of which each process has a machine, and so has each member of etcd, as far as there is etcd."""

    def __init__(self, registries=1, **options):
        self.network = None
        self.etcd = None
        names = [f"m{i + 1}" for i in range(options["managers"])]
        names += [f"h{i + 1}" for i in range(options["hosts"])] + [f"g{i + 1}" for i in range(options["gateways"])]
        etcds = [f"e{i + 1}" for i in range(registries)]
        self.network = network.Network([*names, *etcds, "client"]).__enter__()
        self.names = names
        self._etcds = etcds
        super().__init__(**options)

    def address(self, node):
        return self.network.address(node.name)

    def command(self, node):
        return self.network.command(node.name)

    def registry(self):
        status = f"  status: \"0.0.0.0:{STATUS_PORT}\"\n"
        if not etcd.is_there():
            return super().registry() + status
        places = [(self.network.address(name), ETCD_PORTS, self.network.command(name)) for name in self._etcds]
        self.etcd = etcd.Etcd(self.path / "etcd", places)
        return f"  registry: \"{self.etcd.url()}\"\n" + status

    def told(self, node, path):
        """(status, text) of what a manager or an agent tells of itself."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://{self.address(node)}:{STATUS_PORT}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def leader(self):
        (first,) = [manager for manager in self.managers if manager.process.poll() is None and leads(manager)]
        return first

    def __enter__(self):
        if self.etcd is not None:
            self.etcd.start()
        self._inside = self.network.inside("client")
        self._inside.__enter__()
        return self.start()

    def __exit__(self, *why):
        try:
            super().__exit__(*why)
        finally:
            self._inside.__exit__(None, None, None)
            if self.etcd is not None:
                self.etcd.kill()
            self.network.__exit__()
