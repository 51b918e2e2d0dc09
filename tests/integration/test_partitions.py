"""A cluster on machines of their own (network namespaces): any process dies, any link is cut in one direction."""

import subprocess

import network
import pytest
import server as heddle
from cluster_load import Clients, at_rest, up
from machines import Machines
from test_cluster import leads, ready, wait_until

WHY_NOT = network.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

CUT = 3  # Seconds; a link is given up after two.
PACE = ", pace: {step: 5ms}"


@pytest.fixture(scope="module")
def running():
    with Machines(hosts=4, gateways=2, managers=2, device_extra=PACE) as machines:
        for gateway in machines.gateways:
            ready(gateway, len(machines.models))
        up(machines)
        yield machines


@pytest.fixture(scope="module")
def answers(running):
    return at_rest(running)


@pytest.fixture
def clients(running, answers):
    with Clients(running, answers) as asking:
        asking.more()
        yield asking
    asking.check()


def test_managers_and_agents_tell_of_themselves(running):
    leader = running.leader()
    for manager in running.managers:
        status, text = running.told(manager, "/metrics")
        assert status == 200 and f"heddle_manager_leads {1 if manager is leader else 0}\n" in text
        assert running.told(manager, "/readyz")[0] == 200
    assert 'heddle_manager_hosts{state="here"} 4\n' in running.told(leader, "/metrics")[1]
    for host in running.hosts:
        status, text = running.told(host, "/metrics")
        assert status == 200 and "heddle_agent_led 1\n" in text and "heddle_agent_leaving 0\n" in text
        assert 'heddle_worker_up{device="cpu0"} 1\n' in text and "heddle_agent_requests_running 0\n" in text
        assert running.told(host, "/readyz")[0] == running.told(host, "/healthz")[0] == 200
    assert running.told(leader, "/v1/models")[0] == 404
    lags = "heddle_loop_lag_seconds_count"
    assert all(f"\n{lags} " in running.told(node, "/metrics")[1] for node in running.managers + running.hosts)
    assert all(lags in gateway.metrics() for gateway in running.gateways)


def test_every_process_is_killed_in_turn(running, clients):
    first = running.leader()
    (other,) = [manager for manager in running.managers if manager is not first]
    for node in [first, other, *running.hosts]:
        node.kill()
        clients.more(0.5)
        node.restart()
        clients.more()
        up(running)
    for gateway in running.gateways:
        clients.down.add(gateway)
        gateway.kill()
        clients.more(0.5)
        gateway.restart()
        ready(gateway, len(running.models))
        clients.down.remove(gateway)
        clients.more()
    clients.check()


def test_links_are_cut_in_one_direction(running, clients):
    manager = running.leader().name
    pairs = [("h1", manager), ("h2", "g1"), ("g2", manager)]
    if running.etcd is not None:
        pairs.append((manager, "e1"))
    for one, other in pairs:
        for sender, receiver in [(one, other), (other, one)]:
            with running.network.cut(sender, receiver):
                clients.more(CUT, answers=1)
            up(running)
            clients.more()
            clients.check()


def test_links_lose_packets(running, clients):
    with running.network.lossy(running.names):
        clients.more(5, answers=4)
    up(running)
    clients.more()


def test_the_registry_is_frozen_dies_and_comes_back(running, clients):
    if running.etcd is None:
        pytest.skip("there is no etcd")
    leader = running.leader()
    running.etcd.members[0].freeze()
    leader.await_line("this manager leads on", leader.log().count("this manager leads on") + 1)
    clients.more(CUT, answers=20)  # New ones, which a manager has decided about.
    running.etcd.members[0].thaw()
    clients.more()
    running.etcd.kill()
    clients.more(CUT)
    clients.more(answers=20)
    running.etcd.start()
    wait_until(lambda: any(leads(manager) for manager in running.managers), 60)
    clients.more()


def drain(running, host):
    return subprocess.run(
        [heddle.BINARY, "drain", host.name, "--url", running.gateways[1].url], capture_output=True, text=True, timeout=60
    )


def versions(running):
    """What each host says that it runs."""
    return {host["name"]: host["version"] for host in running.gateways[0].call("/api/hosts")[2]["hosts"]}


def test_hosts_are_drained_and_upgraded_one_after_the_other(running, clients):
    """To a program that speaks the next version beside this one; gateways stay as they are."""
    before = versions(running)["h1"]
    for number, host in enumerate(running.hosts, 1):
        host.binary = heddle.NEXT_BINARY
        done = drain(running, host)
        assert done.returncode == 0, done.stderr
        assert f"{host.name} is empty" in done.stdout
        assert host.stop() == 0
        clients.more()
        host.restart()
        up(running)
        assert sorted(versions(running).values()) == sorted(["next"] * number + [before] * (len(running.hosts) - number))
    for manager in running.managers:
        manager.binary = heddle.NEXT_BINARY
        assert manager.stop() == 0
        clients.more()
        manager.restart()
        up(running)
    clients.check()
    assert drain(running, running.hosts[0]).returncode == 0
    undone = [heddle.BINARY, "drain", "--undo", "h1", "--url", running.gateways[0].url]
    assert "takes requests again" in subprocess.run(undone, capture_output=True, text=True, check=True).stdout
    up(running)
    wrong = subprocess.run([heddle.BINARY, "drain", "h9", "--url", running.gateways[0].url], capture_output=True, text=True)
    assert wrong.returncode == 1 and 'there is no host "h9"; there are h1, h2, h3, h4' in wrong.stderr
