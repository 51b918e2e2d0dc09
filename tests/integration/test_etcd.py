"""A cluster whose registry is an etcd of three members: they die, hang and go back in time under load."""

import re

import etcd
import pytest
from cluster_load import Clients, at_rest, up
from machines import Registered
from test_cluster import ready, wait_until

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="etcd is not there: ./dev test puts it into build/etcd")


def one_leads(running):
    wait_until(lambda: len(running.leaders()) == 1)
    return running.leader()


def terms(running):
    """[(term, manager)] of all elections so far."""
    return [(int(term), manager.name) for manager in running.managers
            for term in re.findall(r"this manager leads term=(\d+)", manager.log())]


@pytest.fixture(scope="module")
def running():
    with Registered(registries=3, hosts=2, gateways=2, managers=2, device_extra=", pace: {step: 5ms}") as started:
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
    first = one_leads(running)
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
    is_replaced(running, clients)  # In a term that the copy does not have.
    running.etcd.kill()
    clients.more(answers=20)  # By the leader that there is.
    before = terms(running)
    running.etcd.go_back_to("before")
    running.etcd.start()
    leader_of(running)
    clients.more(2, answers=20)
    is_replaced(running, clients)
    after = terms(running)
    assert len({term for term, _ in after}) == len(after), after
    assert min(set(after) - set(before)) > max(before)


def test_hosts_follow_managers_that_know_no_earlier_term(running, clients):
    """As when the registry is restored while no manager runs."""
    for manager in running.managers:
        manager.kill()
    running.etcd.kill()
    running.etcd.go_back_to("before")
    running.etcd.start()
    for manager in running.managers:
        manager.restart()
    one_leads(running)
    up(running)
    clients.more(answers=20)
