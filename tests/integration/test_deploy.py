"""What is shipped for Kubernetes, Slurm and containers: it is valid, fits the program, and runs as far as it can here."""

import base64
import concurrent.futures
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
        "nodes": [{"name": "node-b", "address": "10.0.0.2"}, {"name": "node-a", "address": "10.0.0.1"}],
        "devices": [{"name": "cpu0", "kind": "cpu", "memory": "64MiB"}],
        "host": {"memory": "64MiB"},
        "gpus": 8,
        "runtimeClassName": "nvidia",
        "hugepages2Mi": "16Gi",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
    "networkPolicy": {"clients": [{"namespaceSelector": {}}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "x"}, "keySecret": {"name": "keys", "key": "SCRAPE"}},
    "prometheusRule": {"enabled": True},
    "keda": {"enabled": True},
}


# ---- Manifests ----


def monitoring_is_sound(document):
    """What of kinds without schemas here is known to be needed."""
    spec = document["spec"]
    if document["kind"] == "ServiceMonitor":
        service = OBJECTS["Service", "heddle"]
        assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert {each["port"] for each in spec["endpoints"]} <= {each["name"] for each in service["spec"]["ports"]}
        assert {"targetLabel": "job", "replacement": "heddle"} in spec["endpoints"][0]["relabelings"]
    elif document["kind"] == "PrometheusRule":
        assert spec == yaml.safe_load(observing.RULES_FILE.read_text())
    else:
        assert document["kind"] == "ScaledObject"
        assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "heddle-agent"}
        assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"] == len(CONFIG["cluster"]["hosts"])
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
    assert list(written["cluster"]["hosts"]) == ["node-b", "node-a"], "places in the list are numbers"
    assert written["cluster"]["gateways"] == [f"heddle-gateway-{i}" for i in range(12)]
    assert written["tls"] == {"certificate": "/run/heddle/tls/tls.crt", "key": "/run/heddle/tls/tls.key"}
    checked(re.sub(r"^tls: .*\n", "", config, flags=re.M), tmp_path, {"KEY": "k"})
    for each in rendered:
        if each["apiVersion"].split("/")[0] not in {"monitoring.coreos.com", "keda.sh"}:
            kubernetes_validate.validate(each, "1.30", strict=True)
    assert restarted("--set", "models.a.path=/models/a") == {"heddle-manager"}, "which tells the others"
    assert restarted("--set", "config.limits.queue=9") == {"heddle-manager", "heddle-gateway"}
    assert restarted("--set", "agents.host.memory=1GiB") == {"heddle-agent"}
    linted = subprocess.run([manifests.helm(), "lint", "--strict", CHART], capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout
    for wrong in ("agents.replicas=0", "config.listen=x", "nonsense=1", "agents.kind=DaemonSet"):
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


def test_pods_have_the_names_and_addresses_that_the_configuration_says(tmp_path):
    checked(OBJECTS["ConfigMap", "heddle"]["data"]["heddle.yaml"], tmp_path)
    members = CONFIG["cluster"]
    known = {"heddle-manager": list(members["managers"]), "heddle-agent": list(members["hosts"]),
             "heddle-gateway": members["gateways"]}
    assert known.keys() == WORKLOADS.keys()
    for name, workload in WORKLOADS.items():
        spec = workload["spec"]
        assert known[name][: spec["replicas"]] == [f"{name}-{i}" for i in range(spec["replicas"])]
        (container,) = spec["template"]["spec"]["containers"]
        assert container["args"][0] == name.removeprefix("heddle-") and "--name" not in container["args"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        service = OBJECTS["Service", spec["serviceName"]]["spec"]
        assert service["selector"].items() <= spec["template"]["metadata"]["labels"].items()
        assert service["ports"][0]["targetPort"] in ports
        for pod, member in {**members["managers"], **members["hosts"]}.items():
            if pod.startswith(name):
                assert member["address"] == f"{pod}.{name}.heddle.svc:{ports['links']}"
                assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"]


def test_pods_are_confined_and_get_the_time_to_end():
    for name, workload in WORKLOADS.items():
        pod = workload["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == image.USER
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                "capabilities": {"drop": ["ALL"]}}
        assert pod["automountServiceAccountToken"] == (name == "heddle-manager")
        hook = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        patience = int(CONFIG["shutdown_timeout"].removesuffix("s")) if name == "heddle-gateway" else 0
        assert pod["terminationGracePeriodSeconds"] > hook + patience
        assert OBJECTS["PodDisruptionBudget", name]["spec"]["selector"] == workload["spec"]["selector"]


def test_managers_may_do_what_the_contract_says_and_no_more():
    (rule,) = OBJECTS["Role", "heddle-manager"]["rules"]
    told = re.search(r"One rule gives the rights: ([\w, ]+) on `(\w+)` of\s+`([\w.]+)`", CONTRACT.read_text())
    assert rule == {"verbs": re.findall(r"\w+", told[1].replace(" and", ",")), "resources": [told[2]], "apiGroups": [told[3]]}
    assert OBJECTS["RoleBinding", "heddle-manager"]["subjects"][0]["name"] == "heddle-manager"


def test_only_those_who_link_may_come_in():
    allowed = {}
    for (kind, name), policy in OBJECTS.items():
        if kind == "NetworkPolicy":
            (rule,) = policy["spec"]["ingress"]
            sources = [source for one in rule.get("from", []) for source in one["podSelector"]["matchExpressions"][0]["values"]]
            allowed[policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]] = sources
    assert allowed == {"gateway": [], "manager": ["gateway"], "agent": ["gateway", "manager"]}


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


class Described:
    """Processes with the configuration and the Secrets of the manifests: names and ports of one machine, an API server
    that forbids what the Role does not give, and the demo models."""

    def __init__(self, folder):
        self.path, self.env, self.nodes = folder, {}, []
        self.certs = certificates(folder / "authority", "2", "1", "1")
        self.registry_port = cluster.free_port()
        with (folder / "kubernetes.log").open("w") as log:
            self.registry = subprocess.Popen(
                [sys.executable, heddle.ROOT / "tests/cluster/fake_kubernetes.py", "--port", str(self.registry_port),
                 "--state", folder / "leases"], stdout=log, stderr=log)
        (rule,) = OBJECTS["Role", "heddle-manager"]["rules"]
        until(lambda: self.fake({"verbs": rule["verbs"]}))
        config = yaml.safe_load(OBJECTS["ConfigMap", "heddle"]["data"]["heddle.yaml"])
        members = config["cluster"]
        members["registry"] += f"?server=http://127.0.0.1:{self.registry_port}"
        for member in [*members["managers"].values(), *members["hosts"].values()]:
            member["address"] = f"127.0.0.1:{cluster.free_port()}"
        self.addresses = {name: member["address"] for name, member in {**members["managers"], **members["hosts"]}.items()}
        config |= {"listen": "127.0.0.1:0", "dataDir": str(folder / "data"), "host": {"memory": "64MiB"}}
        config["devices"] = [{"name": "cpu0", "kind": "cpu", "memory": "5MiB", "page": "64KiB"}]
        config["models"] = {name: {"path": str(heddle.MODELS / name)} for name in heddle.demo_models()}
        for role in ("manager", "agent", "gateway"):
            place = folder / role
            place.mkdir()
            for name, content in self.certs[f"heddle-{role}-certs"].items():
                (place / name).write_bytes(content)
            (place / "heddle.yaml").write_text(yaml.safe_dump({**config, "cluster": {**members, "certs": str(place)}}, sort_keys=False))

    def config_path(self, role, _name):
        return self.path / role / "heddle.yaml"

    def address(self, _node):
        return "127.0.0.1"

    def command(self, _node):
        return []

    def fake(self, request):
        whole = urllib.request.Request(f"http://127.0.0.1:{self.registry_port}/fake", json.dumps(request).encode())
        with contextlib.suppress(OSError):
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(whole, timeout=10) as answer:
                return json.load(answer)

    def start(self, role, name):
        node = (cluster.Gateway if role == "gateway" else cluster.Node)(self, role, name).start()
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


def test_a_cluster_of_the_manifests_serves_and_is_ready_without_its_reserve_of_hosts(described):
    for model in heddle.demo_models():
        prompt, answer = heddle.eval_set(model, 1)[0]
        assert described.gateway.chat(model, prompt) == answer
    assert [device["name"] for device in described.gateway.call("/api/devices")[2]["devices"]] == ["heddle-agent-0/cpu0"]
    assert sum("this manager leads" in manager.log() for manager in described.managers) == 1
    asked = set(described.fake({})["asked"])
    assert {"create", "update"} <= asked <= set(OBJECTS["Role", "heddle-manager"]["rules"][0]["verbs"])


def test_probes_are_answered_and_leave_no_warnings(described):
    for node in (*described.managers, described.agent):
        host, port = described.addresses[node.name].split(":")
        for _ in range(3):
            socket.create_connection((host, int(port)), timeout=10).close()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        (container,) = WORKLOADS["heddle-gateway"]["spec"]["template"]["spec"]["containers"]
        until(lambda path=container[probe]["httpGet"]["path"]: described.gateway.call(path)[0] == 200)
    prompt, answer = heddle.eval_set("adder", 1)[0]
    assert described.gateway.chat("adder", prompt) == answer
    for node in (*described.managers, described.agent):
        assert "link refused" not in node.log()


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
    again = certificates(described.path / "authority", "2", "1", "1")
    assert again == described.certs
    soon = tmp_path / "soon"
    shutil.copytree(described.path / "authority", soon)
    for kind in ("crt", "key"):
        (soon / f"heddle-gateway-0.{kind}").unlink()
    subprocess.run([heddle.BINARY, "certs", "issue", soon, "--role", "gateway", "--name", "heddle-gateway-0", "--days", "20"],
                   check=True, capture_output=True)
    ending = (soon / "heddle-gateway-0.crt").read_bytes()
    renewed = certificates(soon, "2", "1", "1")["heddle-gateway-certs"]
    assert renewed["heddle-gateway-0.crt"] not in (ending, described.certs["heddle-gateway-certs"]["heddle-gateway-0.crt"])
    grown = certificates(described.path / "authority", "2", "1", "node-x,node-y")
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


# ---- Slurm ----

# What sbatch gives a job: nodes are addresses of this machine.
SRUN = """#!/usr/bin/env bash
# Runs a step here, at the node that it is for.
while [[ $1 == --* ]]; do
  [[ $1 != --nodelist=* ]] || export SLURMD_NODENAME=${1#*=}
  [[ $1 != --job-name=* ]] || step=${1#*=}
  shift
done
trap '' TERM # Which the real one does not hand on well.
printf '%s %s\\n' "$SLURMD_NODENAME" "$*" >>"$FAKE_SLURM_LOG"
(
  trap - TERM
  printf '%s %s\\n' "$BASHPID" "$step" >>"$FAKE_SLURM_LOG.steps"
  exec "$@"
)
"""
SQUEUE = """#!/usr/bin/env bash
cat "$FAKE_SLURM_LOG.steps"
"""
SCANCEL = """#!/usr/bin/env bash
kill -s "${1#--signal=}" "$2"
"""
SCONTROL = """#!/usr/bin/env bash
case "$1 $2" in
  "show hostnames") [ "$3" = "n[1-3]" ] && printf 'n1\\nn2\\nn3\\n' ;;
  "show node") printf 'NodeName=%s Arch=x86_64 NodeAddr=127.0.0.%d NodeHostName=%s\\n' "$4" "$((${4#n} + 1))" "$4" ;;
  *) exit 1 ;;
esac
"""


class Job:
    """A job of heddle.sbatch on three nodes."""

    def __init__(self, folder, registry):
        self.folder, self.log = folder, folder / "job.log"
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("squeue", SQUEUE), ("scancel", SCANCEL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        config = folder / "heddle.yaml"
        config.write_text(heddle.config(models=["adder", "sorter"], device_extra=", pace: {step: 20ms}"))
        self.port = cluster.free_port()
        self.id = f"{os.getpid()}{self.port}"
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HEDDLE": str(heddle.BINARY),
                       "SLURM_JOB_ID": self.id, "SLURM_JOB_NODELIST": "n[1-3]", "HEDDLE_GATEWAYS": "2",
                       "HEDDLE_HTTP_PORT": str(self.port), "HEDDLE_PORT": str(self.port - 5000 if self.port > 10000 else self.port + 5000),
                       "FAKE_SLURM_LOG": str(folder / "steps")}
        if registry:
            environment["HEDDLE_REGISTRY"] = registry
        with self.log.open("w") as out:
            self.process = subprocess.Popen([DEPLOY / "slurm/heddle.sbatch", config], stdout=out, stderr=out, env=environment,
                                            start_new_session=True)
        self.gateways = []
        for address in ("127.0.0.2", "127.0.0.3"):
            gateway = cluster.Gateway.__new__(cluster.Gateway)
            gateway.url = f"http://{address}:{self.port}"
            self.gateways.append(gateway)

    def kill(self):
        """Whatever is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def steps(self, role):
        """Nodes with such a process."""
        lines = [line.split() for line in (self.folder / "steps").read_text().splitlines()]
        return sorted(line[0] for line in lines if line[1] == str(heddle.BINARY) and line[2] == role)

    def pid(self, step):
        return int(re.search(rf"^(\d+) {step}$", (self.folder / "steps.steps").read_text(), re.M)[1])

    def is_ready(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return all(gateway.call("/readyz")[0] == 200 for gateway in self.gateways)
        except OSError:
            return False


@pytest.mark.parametrize("registry", ["none", "shared"])
def test_a_job_of_slurm_serves_from_its_nodes_and_ends_well(tmp_path, registry):
    job = Job(tmp_path, None if registry == "none" else f"file:{tmp_path}/registry")
    try:
        until(job.is_ready)
        assert job.steps("manager") == (["n1"] if registry == "none" else ["n1", "n2"])
        assert job.steps("agent") == ["n1", "n2", "n3"] and job.steps("gateway") == ["n1", "n2"]
        first = job.gateways[0]
        until(lambda: len([each for each in first.call("/api/devices")[2]["devices"] if each["up"]]) == 3)
        if registry == "none":
            os.kill(job.pid("agent-n3"), signal.SIGKILL)
            until(lambda: job.steps("agent").count("n3") == 2)
            until(lambda: all(each["up"] for each in first.call("/api/devices")[2]["devices"]))
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert [gateway.chat("adder", prompt) for gateway in job.gateways] == [answer, answer]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            body = {"model": "sorter", "prompt": "1 2 3", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
            running = pool.submit(first.call, "/v1/completions", body)
            other = job.gateways[1]
            until(lambda: other.metrics().get('vllm:num_requests_running{model_name="sorter"}') == 1)  # It tells of all.
            job.process.send_signal(signal.SIGTERM)
            status, _, told = running.result(60)
        assert status == 200 and told["usage"]["completion_tokens"] == 60, "what runs ends first"
        assert job.process.wait(60) == 0, job.log.read_text()
    finally:
        job.kill()
    assert not list(pathlib.Path("/tmp").glob(f"heddle-{job.id}-*")), "keys are left on no node"


def test_a_job_has_one_manager_where_the_registry_is_not_shared(tmp_path):
    job = Job(tmp_path, f"file:{tmp_path}/registry")
    job.kill()
    (tmp_path / "srun").write_text(SRUN.replace('exec "$@"', '[ "$SLURMD_NODENAME $1" != "n2 test" ] && exec "$@"'))
    script = (DEPLOY / "slurm/heddle.sbatch").read_text().split("# ---- What each node gets")[0]
    done = subprocess.run(["bash", "-c", script + 'echo "managers ${#managers[@]} registry [$registry]"', "x", tmp_path / "heddle.yaml"],
                          capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "1",
                               "SLURM_JOB_NODELIST": "n[1-3]", "HEDDLE_REGISTRY": f"file:{tmp_path}/registry",
                               "FAKE_SLURM_LOG": str(tmp_path / "steps")})
    assert "managers 1 registry []" in done.stdout and "is not shared" in done.stdout, done.stdout + done.stderr
