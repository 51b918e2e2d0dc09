"""A cluster whose registry is an etcd of three members: they die, hang and go back in time under load."""

import re

import cluster
import etcd
import pytest
from cluster_load import Clients, at_rest, up
from test_cluster import leads, ready, wait_until

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="etcd is not there: ./dev test puts it into build/etcd")

MEMBERS = 3


class Registered(cluster.Cluster):
    """A cluster on loopback, with an etcd of its own."""

    def registry(self):
        places = [("127.0.0.1", (cluster.free_port(), cluster.free_port())) for _ in range(MEMBERS)]
        self.etcd = etcd.Etcd(self.path / "etcd", places)
        return f"  registry: \"{self.etcd.url()}\"\n"

    def leaders(self):
        return [manager for manager in self.managers if manager.process.poll() is None and leads(manager)]

    def one_leads(self):
        wait_until(lambda: len(self.leaders()) == 1)
        return self.leaders()[0]

    def terms(self):
        """[(term, manager)] of all elections so far."""
        return [(int(term), manager.name) for manager in self.managers
                for term in re.findall(r"this manager leads term=(\d+)", manager.log())]

    def __enter__(self):
        self.etcd.start()
        return self.start()

    def __exit__(self, *why):
        try:
            super().__exit__(*why)
        finally:
            self.etcd.kill()


@pytest.fixture(scope="module")
def running():
    with Registered(hosts=2, gateways=2, managers=2, device_extra=", pace: {step: 5ms}") as started:
        for gateway in started.gateways:
            ready(gateway, len(started.models))
        up(started)
        yield started


@pytest.fixture(scope="module")
def answers(running):
    return at_rest(running)


@pytest.fixture
def clients(running, answers):
    with Clients(running, answers) as asking:
        asking.more()
        yield asking
    asking.check()


def is_replaced(running, clients):
    """Kills the manager that leads, has the other one lead, and starts the first again."""
    first = running.one_leads()
    (other,) = [manager for manager in running.managers if manager is not first]
    first.kill()
    wait_until(lambda: running.leaders() == [other])
    clients.more(answers=20)
    first.restart()
    up(running)
    return other


def leader_of(running):
    """The member of etcd that leads."""
    wait_until(lambda: running.etcd.leader() is not None)
    return running.etcd.leader()


def test_members_die_and_hang_under_load(running, clients):
    dead = leader_of(running)
    dead.kill()
    clients.more(answers=20)
    frozen = leader_of(running)
    assert frozen is not dead
    frozen.freeze()  # One of three is left, which decides nothing.
    clients.more(3, answers=20)
    assert len(running.leaders()) == 1, "it leads on"
    running.etcd.start()
    clients.more(answers=20)
    is_replaced(running, clients)  # By the two members that answer, while the third takes calls and says nothing.
    frozen.thaw()
    clients.more(answers=20)
    is_replaced(running, clients)


def test_a_registry_that_goes_back_in_time_makes_nobody_lead_twice(running, clients):
    running.etcd.kill()
    running.etcd.keep_copy("before")
    running.etcd.start()
    is_replaced(running, clients)  # So that the copy has another leader, and an earlier term.
    running.etcd.kill()
    clients.more(answers=20)  # By the leader that there is.
    running.etcd.go_back_to("before")
    before = running.terms()
    running.etcd.start()
    leader_of(running)
    clients.more(2, answers=20)  # The leader may have to see that nobody else is one.
    is_replaced(running, clients)
    terms = running.terms()
    assert len({term for term, _ in terms}) == len(terms), terms
    assert min(set(terms) - set(before)) > max(before)
