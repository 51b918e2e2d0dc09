"""What is shipped for those who watch heddle asks for series that it has: dashboard, alerts, KEDA, the guide's page."""

import json
import pathlib
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import engines
import pytest
import server as heddle
import yaml

DEPLOY = heddle.ROOT / "deploy"
PAGE = heddle.ROOT / "docs/guide/observing.md"
DASHBOARD = json.loads((DEPLOY / "grafana/heddle.json").read_text())
RULES_FILE = DEPLOY / "prometheus/heddle.rules.yaml"
RULES = [rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]]
RULE_TESTS = DEPLOY / "prometheus/heddle.rules.test.yaml"
KEDA = yaml.safe_load((DEPLOY / "keda/scaledobject.yaml").read_text())

# Series that the server of these tests lacks, and why. Their declarations in the source are read instead.
LATER = {
    **dict.fromkeys(
        (
            "heddle_manager_leads",
            "heddle_manager_hosts",
            "heddle_agent_led",
            "heddle_agent_leaving",
            "heddle_agent_requests_running",
            "heddle_worker_up",
        ),
        "of managers and agents: test_partitions.py looks for them",
    ),
    "heddle_fetch_bytes_total": "counted where models are fetched: test_fetch.py and test_peer_source.py",
    "heddle_agent_given_bytes": "of agents, which this server has none of",
    "heddle_manager_past_windows": "of managers; test_cluster.py has what comes of it",
    "heddle_device_others_bytes": "a GPU's driver tells it; this server has none",
    "heddle_request_restarts_total": "counted from the first worker that dies under a request",
    **dict.fromkeys(
        (
            "heddle_experts_resident",
            "heddle_expert_hits_total",
            "heddle_expert_misses_total",
            "heddle_expert_fetched_bytes_total",
        ),
        "counted where experts stay in host memory: test_experts.py",
    ),
    "heddle_trace_spans_sent_total": "counted where requests are traced",
    "heddle_trace_spans_dropped_total": "likewise",
    "heddle_trace_spans_failed_total": "likewise",
    "heddle_misplaced_reports_total": "counted from the first fault of heddle's",
}
# Panels that are empty while all is well.
EMPTY = {"dashboard: Clients turned away A": "nobody was turned away"}
# Values of labels that come with what they tell of, and labels that Prometheus adds to all that it reads.
VALUES_LATER = {("finished_reason", "error"), ("status", "429")}
ADDED = {"instance", "job"}
# Series of Prometheus itself.
OTHERS = {"up": {"instance", "job"}}

GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
SELECTOR = re.compile(r"\b([a-zA-Z_:][\w:]*)\s*\{([^{}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
NAME = re.compile(r"(?<![\w:.$\"])([a-zA-Z_:][\w:]*)\b(?!\s*\()")
WORDS = {"and", "or", "unless", "bool", "offset"}


def selectors(expression):
    """({metric: [(label, operator, value)]}, labels that it groups or joins by) of a PromQL expression."""
    grouping = {label.strip() for inner in GROUPING.findall(expression) for label in inner.split(",") if label.strip()}
    rest = re.sub(r"\[[^\]]*\]", "", re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)", "", expression))
    found = {}
    for name, inner in SELECTOR.findall(rest):
        found.setdefault(name, []).extend(MATCHER.findall(inner))
    for name in NAME.findall(SELECTOR.sub("", rest)):
        if name not in WORDS and not re.search(rf"\b{re.escape(name)}\s*\(", rest):
            found.setdefault(name, [])
    return found, grouping


def expressions():
    """(where, PromQL) of all that is shipped."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield f"dashboard: {panel['title']} {target['refId']}", target["expr"]
    for rule in RULES:
        yield f"alert: {rule['alert']}", rule["expr"]
    for trigger in KEDA["spec"]["triggers"]:
        yield f"keda: {trigger['name']}", trigger["metadata"]["query"]


EXPRESSIONS = dict(expressions())


def test_expressions_are_read_as_they_are():
    found, grouping = selectors(
        'histogram_quantile(0.9, sum by (le, a) (rate(x:y_bucket{k="v", l=~"$m"}[$__rate_interval]))) > on (b) up and z'
    )
    assert found == {"x:y_bucket": [("k", "=", "v"), ("l", "=~", "$m")], "up": [], "z": []}
    assert grouping == {"le", "a", "b"}


@pytest.fixture(scope="module")
def server():
    """Demo models, one that cannot be loaded, and two engines that take turns on their device."""
    rows = [f"  {name}: {{path: {heddle.MODELS / name}}}\n" for name in heddle.demo_models()[:3]]
    rows += ["  broken: {path: /no/such/model}\n"]
    rows += [
        f"  {name}: {{cmd: {json.dumps(engines.scripted(name))}, resume_timeout: 3s, unloadTimeout: 1, drain: 100ms}}\n"
        for name in ("left", "right")
    ]
    devices = "  - {name: cpu0, kind: cpu, memory: 16MiB, page: 64KiB}\n  - {name: gpu, kind: external, memory: 1GiB}\n"
    extra = f"startPort: {engines.free_port(2)}\n"
    with heddle.Server(heddle.config(models=rows, devices=devices, extra=extra)) as running:
        use(running)
        yield running


def use(server):
    """Requests for each model, which make the series that come with them."""
    for model in heddle.demo_models()[:3]:
        for prompt, answer in heddle.eval_set(model, 2):
            assert server.chat(model, prompt) == answer
    for model in ("left", "right", "left"):
        assert server.chat(model, "x", max_tokens=5).startswith(model + " heard ")
    body = {"model": "nobody", "messages": [{"role": "user", "content": "x"}]}
    assert server.call("/v1/chat/completions", body)[0] == 404
    assert server.call("/v1/chat/completions", body | {"model": "broken"})[0] >= 500


def read(server):
    """{name: {label: values}} of /metrics."""
    series = {}
    for line in server.metrics():
        name, _, labels = line.partition("{")
        known = series.setdefault(name, {})
        for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels):
            known.setdefault(label, set()).add(value)
    return series


@pytest.fixture(scope="module")
def series(server):
    return read(server)


def declared():
    """{name: text of the call} of metrics that the source declares by their name."""
    found = {}
    for path in (heddle.ROOT / "src").rglob("*.cc"):
        if not path.name.endswith("_test.cc"):
            for name, rest in re.findall(r'"((?:heddle_|vllm:)\w+)",(.*?);', path.read_text(), re.S):
                found[name] = rest
    return found


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_every_name_and_label_is_there(series, where):
    found, grouping = selectors(EXPRESSIONS[where])
    assert found, "no metric was read from it"
    labels = set(ADDED)
    for name, matchers in found.items():
        if name in LATER:
            call = declared()[name]
            known = {label: set() for label in re.findall(r'\{"(\w+)"', call)}
        else:
            known = series.get(name) or ({} if name in series else OTHERS.get(name))
        assert known is not None, f"/metrics has no {name}"
        for label, operator, value in matchers:
            assert label in ADDED or label in known, f"{name} has no label {label}"
            if operator == "=" and name not in LATER and label not in ADDED and (label, value) not in VALUES_LATER:
                assert value in known[label], f"{name} never has {label}={value}, but {sorted(known[label])}"
        labels |= set(known)
    assert grouping <= labels, f"none of {sorted(found)} has {sorted(grouping - labels)}"


def test_what_is_said_to_come_later_is_declared_and_not_there_yet(series):
    assert LATER.keys() <= declared().keys()
    assert not LATER.keys() & series.keys()


def test_variables_of_the_dashboard_ask_for_labels_that_are_there(series):
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables.pop("datasource")["type"] == "datasource"
    for name, variable in variables.items():
        metric, label = re.fullmatch(r"label_values\(([\w:]+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"]).groups()
        assert label in ADDED or label in series[metric], name
    used = set(re.findall(r"\$(\w+)", json.dumps(DASHBOARD["panels"]))) - {"__rate_interval"}
    assert used == set(variables), "each variable is used, and no other"


def test_the_dashboard_is_whole():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Traffic", "Switching", "Memory", "Queues", "Workers", "External engines"]
    places = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & places and place["x"] + place["w"] <= 24, panel["title"]
        places |= cells
        assert panel["type"] == "row" or panel["targets"], panel["title"]
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}", panel["title"]


def test_autoscalers_find_each_model_once(server):
    lines = list(server.metrics())
    names = ["vllm:num_requests_waiting", "vllm:num_requests_running"]
    own = heddle.demo_models()[:3]
    for name, models in [(names[0], own + ["left"]), (names[1], own + ["left"]), ("vllm:kv_cache_usage_perc", own)]:
        for model in models:
            assert lines.count(f'{name}{{engine="0",model_name="{model}"}}') == 1, (name, model)
    for model in own:
        blocks = [line for line in lines if line.startswith("vllm:cache_config_info{") and f'"{model}"' in line]
        assert len(blocks) == 1, model
        sizes = re.search(r'block_size="(\d+)".*num_gpu_blocks="(\d+)"', blocks[0])
        assert int(sizes[1]) > 0 and 0 < int(sizes[2]) < 16 * 1024 // 64  # A device of 16 MiB in pages of 64 KiB.
    assert not any("cache_config_info" in line and "left" in line for line in lines)


def test_a_model_that_cannot_be_loaded_is_told_from_those_that_can(server):
    metrics = server.metrics()
    failed = {name for name, value in metrics.items() if name.startswith("heddle_model_load_failed") and value == 1}
    assert failed == {'heddle_model_load_failed{model_name="broken"}'}
    promised = {name for name in metrics if name.startswith("heddle_model_objective_seconds")}
    assert len(promised) == 2 * 5 and not any("broken" in name for name in promised)


# --- with Prometheus' own tools ---


def prometheus(tool):
    """The path of a program of Prometheus; skips the test where it cannot be had."""
    unpacked = heddle.ROOT / "build/prometheus/usr/bin" / tool
    path = unpacked if unpacked.exists() else shutil.which(tool)
    if path is None:
        pytest.skip(f"{unpacked} is not there: ./dev test prepares it")
    return path


@pytest.mark.parametrize("arguments", [("check", RULES_FILE), ("test", RULE_TESTS)])
def test_promtool_accepts_the_alerts(arguments):
    verb, path = arguments
    ran = subprocess.run([prometheus("promtool"), verb, "rules", path], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SUCCESS" in ran.stdout


def test_each_alert_is_tested():
    raised = {
        case["alertname"]
        for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert raised == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_says_what_is_wrong_and_where_to_look(rule):
    assert rule["annotations"]["summary"] and rule["labels"]["severity"] in {"warning", "critical"}
    path, anchor = rule["annotations"]["runbook"].split("#")
    assert heddle.ROOT / path == PAGE
    sections = {
        title.lower().replace(" ", "-"): text
        for title, text in re.findall(r"^#+ (.+)\n((?:(?!#).*\n)*)", PAGE.read_text(), re.M)
    }
    assert f"| `{rule['alert']}` |" in sections[anchor]


class Prometheus:
    """A Prometheus that reads a server each second, with the alerts; use as a context manager. `settled`: a moment
    of its clock."""

    def __init__(self, server, folder):
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES_FILE)],
            "scrape_configs": [{"job_name": "heddle", "static_configs": [{"targets": [server.url.removeprefix("http://")]}]}],
        }
        pathlib.Path(folder, "prometheus.yml").write_text(json.dumps(config))
        port = engines.free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = pathlib.Path(folder, "log.txt")
        self.settled = None
        self.process = subprocess.Popen(
            [
                prometheus("prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=self.log.open("w"),
        )

    def get(self, path, **query):
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return json.loads(error.read())

    def query(self, expression, **options):
        answer = self.get("query", query=expression, **options)
        assert answer["status"] == "success", (expression, answer)
        return answer["data"]["result"]

    def wait_for(self, expression, seconds=60):
        """The first result of the expression, once it has one."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if result := self.query(expression):
                    return result[0]
            except OSError:
                pass  # It does not listen yet.
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="module")
def watcher(server, tmp_path_factory):
    with Prometheus(server, tmp_path_factory.mktemp("prometheus")) as running:
        # A rate needs two readings.
        running.settled = running.wait_for("up == 1 and sum_over_time(up[30s]) > 2")["value"][0]
        yield running


@pytest.mark.parametrize("where", [where for where in EXPRESSIONS if not where.startswith("alert")])
def test_prometheus_answers_with_series(watcher, where):
    expression = EXPRESSIONS[where]
    asked = re.sub(r"\$(instance|model|device)", ".*", expression.replace("$__rate_interval", "1m"))
    result = watcher.query(asked, time=watcher.settled)
    expected = where not in EMPTY and not LATER.keys() & selectors(expression)[0].keys()
    assert bool(result) == expected, asked


def test_prometheus_evaluates_the_alerts(watcher):
    watcher.wait_for('ALERTS{alertname="HeddleModelLoadFails", model_name="broken"}')
    rules = [rule for group in watcher.get("rules")["data"]["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {rule["alert"] for rule in RULES}
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []


# --- what is written down ---


def test_keda_is_told_numbers_as_text():
    assert (KEDA["apiVersion"], KEDA["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert 1 <= KEDA["spec"]["minReplicaCount"] < KEDA["spec"]["maxReplicaCount"]
    for trigger in KEDA["spec"]["triggers"]:
        assert trigger["type"] == "prometheus" and trigger["metricType"] in {"AverageValue", "Value"}
        assert {"serverAddress", "query", "threshold"} <= trigger["metadata"].keys()
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        assert float(trigger["metadata"]["threshold"]) > 0
        assert f"`{trigger['metadata']['query']}`" in PAGE.read_text()


def test_metrics_that_the_page_names_are_there(series):
    named = re.findall(r"\b((?:heddle_|vllm:)\w+)(?:\{([^{}]*)\})?", PAGE.read_text())
    assert len(named) > 20
    for name, labels in named:
        known = next((series[each] for each in (name, name + "_bucket") if each in series), None)
        assert known is not None or name in LATER, name
        for label in re.findall(r"(\w+)\s*(?:!?=[^,]*)?(?:,|$)", labels):
            assert known is None or label in known or label in ADDED, (name, label)
