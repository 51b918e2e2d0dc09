"""What is shipped for Kubernetes and containers: it is valid, fits the program, and runs as far as it can here."""

import base64
import contextlib
import gzip
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request

import cluster
import jsonschema
import kubernetes_validate
import pytest
import server as heddle
import test_observing as observing
import yaml

DEPLOY = heddle.ROOT / "deploy"
CHART = DEPLOY / "helm/heddle"
CONTRACT = heddle.ROOT / "docs/contracts/cluster.md"


def tool(name):
    """A script of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, heddle.ROOT / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


manifests, image = tool("manifests"), tool("image")
needs_helm = pytest.mark.skipif(manifests.helm() is None, reason="helm is not installed: the chart was not rendered anew")


def documents(text):
    return [each for each in yaml.safe_load_all(text) if each]


RENDERED = {name: documents((DEPLOY / "kubernetes" / name).read_text()) for name in manifests.FILES}
OBJECTS = {(each["kind"], each["metadata"]["name"]): each for each in RENDERED["heddle.yaml"]}
WORKLOADS = {kind_name[1]: each for kind_name, each in OBJECTS.items() if kind_name[0] == "StatefulSet"}
CONFIG = yaml.safe_load(OBJECTS["ConfigMap", "heddle"]["data"]["heddle.yaml"])
OTHER_VALUES = {
    "image": {"pullSecrets": [{"name": "pull"}], "tag": "1"},
    "models": {"chat": {"path": str(heddle.MODELS / "adder")}},
    "config": {"apiKeys": ["${env.KEY}"], "allowed_hosts": ["models.example"], "limits": {"queue": 10}},
    "envFromSecrets": ["keys"],
    "certs": {"gateways": "mine"},
    "managers": {"persistence": {"enabled": True, "storageClassName": "fast"}, "nodeSelector": {"zone": "a"}},
    "gateways": {"replicas": 12, "tlsSecret": "tls", "service": {"type": "LoadBalancer", "annotations": {"a": "b"}}},
    "agents": {
        "kind": "DaemonSet",
        "nodeSelector": {"gpus": "yes"},
        "devices": [{"name": "cpu0", "kind": "cpu", "memory": "64MiB"}],
        "host": {"memory": "64MiB"},
        "gpus": 8,
        "runtimeClassName": "nvidia",
        "hugepages2Mi": "16Gi",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
    "networkPolicy": {"clients": [{"namespaceSelector": {}}], "scrapers": [{"namespaceSelector": {}}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "x"}, "keySecret": {"name": "keys", "key": "SCRAPE"}},
    "prometheusRule": {"enabled": True},
    "keda": {"enabled": True},
}


# ---- Manifests ----


def is_selected(document, selector):
    """Whether the labels of an object are those that a selector wants."""
    labels = document["metadata"]["labels"]
    return selector["matchLabels"].items() <= labels.items() and all(
        each["operator"] == "In" and labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", [])
    )


def monitoring_is_sound(document):
    """What of kinds without schemas here is known to be needed."""
    spec = document["spec"]
    if document["kind"] == "ServiceMonitor":
        (endpoint,) = spec["endpoints"]
        read = {name for (kind, name), each in OBJECTS.items() if kind == "Service" and is_selected(each, spec["selector"])}
        assert read == ({"heddle"} if document["metadata"]["name"] == "heddle" else {"heddle-manager", "heddle-agent"})
        for name in read:
            assert endpoint["port"] in {each["name"] for each in OBJECTS["Service", name]["spec"]["ports"]}
        assert {"targetLabel": "job", "replacement": "heddle"} in endpoint["relabelings"]
    elif document["kind"] == "PrometheusRule":
        assert spec == yaml.safe_load(observing.RULES_FILE.read_text())
    else:
        assert document["kind"] == "ScaledObject"
        assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "heddle-agent"}
        assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
        assert all(isinstance(value, str) for trigger in spec["triggers"] for value in trigger["metadata"].values())


def is_valid(document):
    for version in ("1.30", kubernetes_validate.latest_version()):
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            assert document["apiVersion"].split("/")[0] in {"monitoring.coreos.com", "keda.sh"}
            monitoring_is_sound(document)
    assert document["metadata"]["namespace"] == "heddle"
    return True


@pytest.mark.parametrize("name", manifests.FILES)
def test_manifests_are_valid_and_of_the_chart_as_it_is(name):
    assert manifests.is_current(name), "run tools/manifests.py where helm is"
    assert all([is_valid(each) for each in RENDERED[name]])


def restarted(*arguments):
    """Whose pods begin anew when the chart is rendered with these."""
    found = set()
    for each in documents(manifests.template(*arguments)):
        if each["kind"] == "StatefulSet":
            name = each["metadata"]["name"]
            found |= {name} if each["spec"]["template"] != WORKLOADS[name]["spec"]["template"] else set()
    return found


@needs_helm
def test_helm_renders_what_is_committed(tmp_path):
    for name in manifests.FILES:
        assert manifests.render(name) == (DEPLOY / "kubernetes" / name).read_text(), name
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(OTHER_VALUES))
    rendered = documents(manifests.template("--values", values))
    kinds = {(each["kind"], each["metadata"]["name"]) for each in rendered}
    assert {("DaemonSet", "heddle-agent"), ("ServiceMonitor", "heddle"), ("PrometheusRule", "heddle")} <= kinds
    config = next(each for each in rendered if each["kind"] == "ConfigMap")["data"]["heddle.yaml"]
    written = yaml.safe_load(config)
    daemons = next(each for each in rendered if each["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    assert daemons["containers"][0]["args"][-4:] == ["--name", "$(NAME)", "--address", "[$(NODE_IP)]:7701"]
    named = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in daemons["containers"][0]["env"][1:]}
    assert named == {"NAME": "spec.nodeName", "NODE_IP": "status.hostIP"} and daemons["nodeSelector"] == {"gpus": "yes"}
    assert written["tls"] == {"certificate": "/run/heddle/tls/tls.crt", "key": "/run/heddle/tls/tls.key"}
    checked(re.sub(r"^tls: .*\n", "", config, flags=re.M), tmp_path, {"KEY": "k"})
    for each in rendered:
        if each["apiVersion"].split("/")[0] not in {"monitoring.coreos.com", "keda.sh"}:
            kubernetes_validate.validate(each, "1.30", strict=True)
    monitored = allowed(documents(manifests.template("--set", "serviceMonitor.enabled=true")))
    assert monitored["manager"]["status"] == monitored["agent"]["status"] == [] and "status" not in monitored["gateway"]
    assert restarted("--set", "models.a.path=/models/a") == {"heddle-manager"}, "which tells the others"
    assert restarted("--set", "config.limits.queue=9") == {"heddle-manager", "heddle-gateway"}
    assert restarted("--set", "agents.host.memory=1GiB") == {"heddle-agent"}
    linted = subprocess.run([manifests.helm(), "lint", "--strict", CHART], capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout
    assert not restarted("--set", "agents.replicas=9,gateways.replicas=7"), "more of them change nothing for those there are"
    for wrong in ("agents.replicas=0", "config.listen=x", "nonsense=1", "agents.kind=Deployment"):
        with pytest.raises(subprocess.CalledProcessError):
            manifests.template("--set", wrong)


def merged(values, others):
    """As helm lays values over values."""
    both = {**values, **others}
    return {key: merged(values[key], each) if isinstance(values.get(key), dict) and isinstance(each, dict) else each
            for key, each in both.items()}


def test_values_are_as_their_schema_says():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(values, schema)
    jsonschema.validate(merged(values, OTHER_VALUES), schema)
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", (heddle.ROOT / "docs/guide/kubernetes.md").read_text(), re.M | re.S)
    jsonschema.validate(merged(values, yaml.safe_load(shown)), schema)
    for wrong in ({"agents": {"kind": "Deployment"}}, {"gateways": {"replicas": 0}}, {"config": {"cluster": {}}}, {"x": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(merged(values, wrong), schema)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == image.version()


def checked(text, folder, env=None):
    """The configuration, which the program takes."""
    path = folder / "heddle.yaml"
    path.write_text(text)
    done = subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True,
                          env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def command_of(workload, pod):
    """(role, --name, --address) with which a pod of a StatefulSet starts, as Kubernetes fills in what is its own."""
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    own = {each["name"]: {"metadata.name": pod}[each["valueFrom"]["fieldRef"]["fieldPath"]]
           for each in container.get("env", []) if "valueFrom" in each}
    role, *options = [re.sub(r"\$\((\w+)\)", lambda found: own[found[1]], each) for each in container["args"]]
    given = dict(zip(options[::2], options[1::2], strict=True))
    return role, given.get("--name", pod), given.get("--address")


def test_pods_are_called_and_reached_as_the_configuration_and_services_have_it(tmp_path):
    checked(OBJECTS["ConfigMap", "heddle"]["data"]["heddle.yaml"], tmp_path)
    members = CONFIG["cluster"]
    assert "hosts" not in members and "gateways" not in members, "they join, as many as there are"
    assert WORKLOADS.keys() == {"heddle-manager", "heddle-agent", "heddle-gateway"}
    assert list(members["managers"]) == [f"heddle-manager-{i}" for i in range(WORKLOADS["heddle-manager"]["spec"]["replicas"])]
    for name, workload in WORKLOADS.items():
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        role, called, address = command_of(workload, f"{name}-0")
        assert (role, called) == (name.removeprefix("heddle-"), f"{name}-0")
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        service = OBJECTS["Service", workload["spec"]["serviceName"]]["spec"]
        assert service["selector"].items() <= workload["spec"]["template"]["metadata"]["labels"].items()
        assert {port["targetPort"] for port in service["ports"]} == ports.keys()
        if role != "gateway":
            address = address or members["managers"][called]["address"]
            assert address == f"{called}.{name}.heddle.svc:{ports['links']}"
            assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"]
            assert members["status"] == f"0.0.0.0:{ports['status']}"


def test_pods_are_confined_and_get_the_time_to_end():
    for name, workload in WORKLOADS.items():
        pod = workload["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == image.USER
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                "capabilities": {"drop": ["ALL"]}}
        assert pod["automountServiceAccountToken"]
        assert pod["serviceAccountName"] == ("heddle-manager" if name == "heddle-manager" else "heddle-member")
        hook = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        patience = int(CONFIG["shutdown_timeout"].removesuffix("s")) if name != "heddle-manager" else 0
        assert pod["terminationGracePeriodSeconds"] > hook + patience
        assert OBJECTS["PodDisruptionBudget", name]["spec"]["selector"] == workload["spec"]["selector"]


def verbs(role):
    (rule,) = OBJECTS["Role", role]["rules"]
    return rule["verbs"]


def test_each_may_do_what_the_contract_says_and_no_more():
    told = re.search(r"managers have ([\w, ]+) on\s+`(\w+)` of `([\w.]+)`\. Members have ([\w, ]+)\.", CONTRACT.read_text())
    for role, words in (("heddle-manager", told[1]), ("heddle-member", told[4])):
        (rule,) = OBJECTS["Role", role]["rules"]
        assert rule["resources"] == [told[2]] and rule["apiGroups"] == [told[3]]
        assert rule["verbs"] == re.findall(r"\w+", words.replace(" and", ","))
        assert OBJECTS["RoleBinding", role]["subjects"] == [{"kind": "ServiceAccount", "name": role, "namespace": "heddle"}]
        assert OBJECTS["RoleBinding", role]["roleRef"]["name"] == role


def allowed(objects):
    """{role: {port: roles that may come in there; empty: everyone}} by network policies."""
    found = {}
    for policy in objects:
        if policy["kind"] == "NetworkPolicy":
            for rule in policy["spec"]["ingress"]:
                sources = [source for one in rule.get("from", []) for source in one["podSelector"]["matchExpressions"][0]["values"]]
                role = policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
                found.setdefault(role, {})[rule["ports"][0]["port"]] = sources
    return found


def test_only_those_who_link_may_come_in():
    links = {"gateway": {"http": []}, "manager": {"links": ["gateway"]}, "agent": {"links": ["agent", "gateway", "manager"]}}
    assert allowed(OBJECTS.values()) == links


# ---- A cluster as the manifests describe it ----


def certificates(folder, *counts):
    """{Secret: its entries} as the script prints them."""
    done = subprocess.run([DEPLOY / "kubernetes/certs.sh", folder, "heddle", "heddle", *counts],
                          capture_output=True, text=True, env={**os.environ, "HEDDLE": str(heddle.BINARY)})
    assert done.returncode == 0, done.stderr
    found = {}
    for secret in documents(done.stdout):
        assert is_valid(secret)
        found[secret["metadata"]["name"]] = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    return found


class Pod(cluster.Node):
    """A manager or an agent, started with the arguments that its pod has."""

    def arguments(self):
        return self.cluster.arguments_of(self)


class Described:
    """Processes with the configuration and the Secrets of the manifests: names and ports of one machine, an API server
    that forbids what the Roles do not give, and the demo models."""

    def __init__(self, folder):
        self.path, self.env, self.nodes = folder, {}, []
        self.certs = certificates(folder / "authority", "2", "2", "2")
        self.registry_port = cluster.free_port()
        with (folder / "kubernetes.log").open("w") as log:
            self.registry = subprocess.Popen(
                [sys.executable, heddle.ROOT / "tests/cluster/fake_kubernetes.py", "--port", str(self.registry_port),
                 "--state", folder / "leases"], stdout=log, stderr=log)
        until(lambda: self.fake({"roles": {role: verbs(role) for role in ("heddle-manager", "heddle-member")}}))
        config = yaml.safe_load(OBJECTS["ConfigMap", "heddle"]["data"]["heddle.yaml"])
        members = config["cluster"]
        del members["status"]  # One port for all, on pods that are machines of their own.
        self.addresses = {pod: f"127.0.0.1:{cluster.free_port()}" for pod in [*members["managers"], "heddle-agent-0", "heddle-agent-1"]}
        for name, member in members["managers"].items():
            member["address"] = self.addresses[name]
        config |= {"listen": "127.0.0.1:0", "dataDir": str(folder / "data"), "host": {"memory": "64MiB"}}
        config["devices"] = [{"name": "cpu0", "kind": "cpu", "memory": "5MiB", "page": "64KiB"}]
        config["models"] = {name: {"path": str(heddle.MODELS / name)} for name in heddle.demo_models()}
        for role in ("manager", "agent", "gateway"):
            place = folder / role
            place.mkdir()
            for name, content in self.certs[f"heddle-{role}-certs"].items():
                (place / name).write_bytes(content)
            (place / "token").write_text(WORKLOADS[f"heddle-{role}"]["spec"]["template"]["spec"]["serviceAccountName"])
            registry = f"{members['registry']}?server=http://127.0.0.1:{self.registry_port}&token_file={place}/token"
            own = {**config, "cluster": {**members, "certs": str(place), "registry": registry}}
            (place / "heddle.yaml").write_text(yaml.safe_dump(own, sort_keys=False))

    def config_path(self, role, _name):
        return self.path / role / "heddle.yaml"

    def address(self, _node):
        return "127.0.0.1"

    def command(self, _node):
        return []

    def arguments_of(self, node):
        _, called, address = command_of(WORKLOADS[f"heddle-{node.role}"], node.name)
        assert called == node.name
        host, port = self.addresses[node.name].split(":")
        return ["--address", f"[{host}]:{port}"] if address else []  # In brackets, as a DaemonSet gives the node's.

    def fake(self, request):
        whole = urllib.request.Request(f"http://127.0.0.1:{self.registry_port}/fake", json.dumps(request).encode())
        with contextlib.suppress(OSError):
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(whole, timeout=10) as answer:
                return json.load(answer)

    def start(self, role, name):
        node = (cluster.Gateway if role == "gateway" else Pod)(self, role, name).start()
        self.nodes.append(node)
        return node


def until(what, seconds=30):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    running = Described(tmp_path_factory.mktemp("described"))
    try:
        running.managers = [running.start("manager", f"heddle-manager-{i}") for i in range(2)]
        running.agent = running.start("agent", "heddle-agent-0")
        running.gateway = running.start("gateway", "heddle-gateway-0")
        running.gateway.await_url()
        until(lambda: running.gateway.call("/readyz")[0] == 200)
        yield running
    finally:
        for node in running.nodes[::-1]:
            node.stop()
        running.registry.kill()
        running.registry.wait()


def test_a_cluster_of_the_manifests_serves(described):
    for model in heddle.demo_models():
        prompt, answer = heddle.eval_set(model, 1)[0]
        assert described.gateway.chat(model, prompt) == answer
    assert [device["name"] for device in described.gateway.call("/api/devices")[2]["devices"]] == ["heddle-agent-0/cpu0"]
    assert sum("this manager leads" in manager.log() for manager in described.managers) == 1
    asked = described.fake({})["asked"]
    assert asked.keys() == {"heddle-manager", "heddle-member"}
    for role in asked:
        assert {"create", "update"} <= set(asked[role]) <= set(verbs(role))


def test_replicas_grow_and_shrink_without_a_change_of_the_configuration(described):
    agent, gateway = described.start("agent", "heddle-agent-1"), described.start("gateway", "heddle-gateway-1")
    gateway.await_url()
    until(lambda: gateway.call("/readyz")[0] == 200)

    def up():
        return sorted(each["name"] for each in gateway.call("/api/devices")[2]["devices"] if each["up"])

    until(lambda: up() == ["heddle-agent-0/cpu0", "heddle-agent-1/cpu0"])
    assert agent.stop() == 0
    until(lambda: up() == ["heddle-agent-0/cpu0"])
    prompt, answer = heddle.eval_set("adder", 1)[0]
    assert gateway.chat("adder", prompt) == answer
    assert gateway.stop() == 0
    assert "delete" in described.fake({})["asked"]["heddle-member"], "who leaves takes its Lease away"


def test_probes_are_answered_and_leave_no_warnings(described):
    # A gateway that looks for the leader may have left one while it began.
    before = {node: node.log().count("link refused") for node in (*described.managers, described.agent)}
    for node in (*described.managers, described.agent):
        host, port = described.addresses[node.name].split(":")
        for _ in range(3):
            socket.create_connection((host, int(port)), timeout=10).close()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        (container,) = WORKLOADS["heddle-gateway"]["spec"]["template"]["spec"]["containers"]
        until(lambda path=container[probe]["httpGet"]["path"]: described.gateway.call(path)[0] == 200)
    prompt, answer = heddle.eval_set("adder", 1)[0]
    assert described.gateway.chat("adder", prompt) == answer
    assert {node: node.log().count("link refused") for node in before} == before


def test_what_autoscalers_and_alerts_ask_a_gateway_for_is_there(described):
    names = {name.split("{")[0] for name in described.gateway.metrics()}
    queries = [trigger["metadata"]["query"] for trigger in RENDERED["keda.yaml"][0]["spec"]["triggers"]]
    rules = [rule["expr"] for each in RENDERED["monitoring.yaml"] if each["kind"] == "PrometheusRule"
             for group in each["spec"]["groups"] for rule in group["rules"]]
    for query in queries:
        assert observing.selectors(query)[0].keys() <= names, query
    source = "".join(path.read_text() for path in (heddle.ROOT / "src").rglob("*.*") if path.stem[-5:] != "_test")
    for name in {name for rule in rules for name in observing.selectors(rule)[0]} - observing.OTHERS.keys():
        assert name in names or f'"{name.removesuffix("_bucket")}"' in source, name


def test_certificates_are_issued_once_and_are_those_of_their_pods(described, tmp_path):
    again = certificates(described.path / "authority", "2", "2", "2")
    assert again == described.certs
    soon = tmp_path / "soon"
    shutil.copytree(described.path / "authority", soon)
    for kind in ("crt", "key"):
        (soon / f"heddle-gateway-0.{kind}").unlink()
    subprocess.run([heddle.BINARY, "certs", "issue", soon, "--role", "gateway", "--name", "heddle-gateway-0", "--days", "20"],
                   check=True, capture_output=True)
    ending = (soon / "heddle-gateway-0.crt").read_bytes()
    renewed = certificates(soon, "2", "2", "2")["heddle-gateway-certs"]
    assert renewed["heddle-gateway-0.crt"] not in (ending, described.certs["heddle-gateway-certs"]["heddle-gateway-0.crt"])
    grown = certificates(described.path / "authority", "2", "2", "node-x,node-y")
    assert grown["heddle-manager-certs"] == described.certs["heddle-manager-certs"]
    for secret, entries in {**described.certs, **grown}.items():
        assert "ca.key" not in entries
        for name, content in entries.items():
            if name.endswith(".crt") and name != "ca.crt":
                assert name.replace(".crt", ".key") in entries
                (tmp_path / name).write_bytes(content)
                told = subprocess.run([heddle.BINARY, "certs", "show", tmp_path / name], capture_output=True, text=True).stdout
                for word in ("heddle", secret.split("-")[1], name.removesuffix(".crt")):
                    assert word in told.split(), told
    assert set(grown["heddle-agent-certs"]) == {"ca.crt", "node-x.crt", "node-x.key", "node-y.crt", "node-y.key"}


# ---- The image ----


def blob(archive, descriptor):
    content = archive.extractfile("blobs/" + descriptor["digest"].replace(":", "/")).read()
    assert len(content) == descriptor["size"] and descriptor["digest"] == "sha256:" + hashlib.sha256(content).hexdigest()
    return content


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """(the image's configuration, a folder with its layers) as a container engine makes them."""
    folder = tmp_path_factory.mktemp("image")
    image.make(heddle.BINARY, folder / "image.tar", "0", level=1)
    root = folder / "root"
    with tarfile.open(folder / "image.tar") as archive:
        (manifest,) = json.load(archive.extractfile("index.json"))["manifests"]
        manifest = json.loads(blob(archive, manifest))
        config = json.loads(blob(archive, manifest["config"]))
        for layer, diff in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            tar = gzip.decompress(blob(archive, layer))
            assert diff == "sha256:" + hashlib.sha256(tar).hexdigest()
            with tarfile.open(fileobj=io.BytesIO(tar)) as content:
                content.extractall(root, numeric_owner=True)
        saved = json.load(archive.extractfile("manifest.json"))[0]
        assert all(path in archive.getnames() for path in [saved["Config"], *saved["Layers"]])
    return config, root


def test_the_same_inputs_make_the_same_image(tmp_path):
    program = shutil.which("true")
    digests = {image.make(program, tmp_path / name, "1", level=1) for name in ("a", "b")}
    assert len(digests) == 1 and (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# Read-only but for what the chart mounts, with a first process of its own, as in a container.
CONTAINER = """
mount --bind "$ROOT" "$ROOT"
for each in tmp var/lib/heddle; do mount -t tmpfs -o mode=1777 tmpfs "$ROOT/$each"; done
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount -o remount,ro,bind "$ROOT"
exec chroot "$@"
"""


def in_container(config, root, *arguments):
    """The command that runs heddle in the image, as its user where this is root."""
    for each in ("proc", "dev"):
        (root / each).mkdir(exist_ok=True)
    environment = ["env", "-i", *config["config"]["Env"], f"ROOT={root}", f"PATH={os.environ['PATH']}"]
    apart, user = ["unshare", "--mount", "--pid", "--fork", "--kill-child"], [f"--userspec={config['config']['User']}"]
    if os.geteuid() != 0:
        apart, user = [*apart, "--user", "--map-root-user"], []
    return [*environment, *apart, "sh", "-ec", CONTAINER, "sh", *user, root, *config["config"]["Entrypoint"], *arguments]


def test_the_image_runs_and_serves(unpacked, tmp_path):
    config, root = unpacked
    version = subprocess.run(in_container(config, root, "--version"), capture_output=True, text=True, timeout=60)
    if version.returncode != 0 and re.search(r"(unshare|mount|chroot): .*(not permitted|denied)", version.stderr):
        pytest.skip(f"this may not make a container: {version.stderr.strip()}")
    assert version.returncode == 0 and version.stdout == f"heddle {image.version()}\n", version.stderr
    rows = "".join(f"  {name}: {{path: /usr/share/heddle/models/{name}}}\n" for name in heddle.demo_models())
    text = heddle.config(models=[rows], extra="dataDir: /var/lib/heddle\n")
    (root / "etc/heddle/test.yaml").write_text(text)
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(in_container(config, root, "serve", "--config", "/etc/heddle/test.yaml"), stdout=out, stderr=out)
    try:
        serving = cluster.Gateway.__new__(cluster.Gateway)
        serving.url = until(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()) or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        serving.url = serving.url[0]
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert serving.chat("adder", prompt) == answer
    finally:
        # The first process in there; whoever waits for it ends with it. One that has become another user is not ended
        # by the end of its parent.
        for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        process.wait(30)


def test_the_container_file_has_the_user_and_the_command_of_the_image(unpacked):
    config = unpacked[0]["config"]
    text = (DEPLOY / "Containerfile").read_text()
    assert json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1]) == config["Entrypoint"]
    assert json.loads(re.search(r"^CMD (.*)$", text, re.M)[1]) == config["Cmd"]
    assert re.search(r"^USER (.*)$", text, re.M)[1] == config["User"]
    assert f"EXPOSE {next(iter(config['ExposedPorts'])).split('/')[0]}\n" in text
    made = re.search(r"install -d .* (/\S+.*?)\\?$", text, re.M)[1].split()
    assert set(made) <= {"/" + path for path in image.FOLDERS}
