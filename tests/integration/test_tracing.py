"""Traces of requests, as a collector of OpenTelemetry gets them: real servers before a collector on loopback."""

import concurrent.futures
import http.server
import json
import re
import signal
import subprocess
import threading
import time
import urllib.request

import cluster
import engines
import pytest
import server as heddle

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
CHAT = "/v1/chat/completions"


def wait_until(what, seconds=30):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Listener:
    """An HTTP server on loopback; `answer(handler, body)` gives status and body. Use as a context manager."""

    def __init__(self):
        listener = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = listener.answer(self, body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


class Collector(Listener):
    """Keeps what it is sent, and answers with `status`."""

    def __init__(self, status=200):
        self.status, self.asked, self.requests = status, 0, []
        super().__init__()

    def answer(self, handler, body):
        self.asked += 1
        if self.status == 200:
            self.requests.append((handler.path, named(handler.headers), json.loads(body)))
        return self.status, b"{}"

    def resources(self):
        return [attributes(part["resource"]) for _, _, body in self.requests for part in body["resourceSpans"]]

    def spans(self):
        return [
            span
            for _, _, body in self.requests
            for part in body["resourceSpans"]
            for scope in part["scopeSpans"]
            for span in scope["spans"]
        ]

    def traces(self):
        """{trace id: its spans}."""
        found = {}
        for span in self.spans():
            found.setdefault(span["traceId"], []).append(span)
        return found


class Engine(Listener):
    """An external engine that keeps the headers of what it is asked."""

    def __init__(self):
        self.headers = []
        super().__init__()

    def answer(self, handler, _body):
        self.headers.append(named(handler.headers))
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        return 200, json.dumps({"choices": [choice], "usage": usage}).encode()


def named(headers):
    return {name.lower(): value for name, value in headers.items()}


def attributes(holder):
    def value(held):
        if "arrayValue" in held:
            return [value(one) for one in held["arrayValue"]["values"]]
        return int(held["intValue"]) if "intValue" in held else next(iter(held.values()))

    return {one["key"]: value(one["value"]) for one in holder["attributes"]}


def tracing(collector, more="sample: 1"):
    return f"tracing: {{endpoint: \"{collector.url}\", {more}}}\n"


def assert_well_formed(spans):
    """One root, and its children within it and in order; returns the root and their names."""
    root = spans[0]
    begin, end = int(root["startTimeUnixNano"]), int(root["endTimeUnixNano"])
    assert abs(begin / 1e9 - time.time()) < 600, "by the wall clock"
    at = begin
    for span in spans[1:]:
        assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and span["spanId"] != root["spanId"]
        assert span["parentSpanId"] == root["spanId"]
        assert at <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) <= end, span["name"]
        at = int(span["startTimeUnixNano"])
        for event in span.get("events", []):
            assert at <= int(event["timeUnixNano"]) <= int(span["endTimeUnixNano"])
    return root, [span["name"] for span in spans[1:]]


@pytest.fixture(scope="module")
def collector():
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def engine():
    with Engine() as running:
        yield running


@pytest.fixture(scope="module")
def server(collector, engine):
    """Of clients that do not say, nothing is traced."""
    models = heddle.demo_models()[:2] + [f"  far: {{proxy: \"{engine.url}\", checkEndpoint: none}}\n"]
    devices = "  - {name: cpu0, kind: cpu, memory: 5MiB, page: 64KiB}\n  - {name: far, kind: external, memory: 1GiB}\n"
    extra = "logFormat: json\n" + tracing(collector, "sample: 0, service: edge, headers: {X-Scope: ours}")
    with heddle.Server(heddle.config(models=models, devices=devices, extra=extra)) as running:
        yield running


def ask(server, model="adder", trace=TRACE, flags="01", **more):
    body = {"model": model, "messages": [{"role": "user", "content": "12+34="}], "temperature": 0, **more}
    headers = {"traceparent": f"00-{trace}-{PARENT}-{flags}", "tracestate": "vendor=1"}
    return server.call(CHAT, body, headers=headers)


def test_a_request_is_one_trace_with_its_phases_in_order(server, collector):
    status, headers, answer = ask(server)
    assert status == 200, answer
    assert "traceparent" not in {name.lower() for name in headers}
    wait_until(lambda: TRACE in collector.traces())
    path, sent, _ = collector.requests[0]
    assert path == "/v1/traces" and sent["x-scope"] == "ours" and sent["content-type"] == "application/json"
    assert collector.resources()[0]["service.name"] == "edge"
    root, phases = assert_well_formed(collector.traces()[TRACE])
    assert phases == ["queue", "load", "prefill", "decode"]
    assert root["name"] == "POST /v1/chat/completions" and root["parentSpanId"] == PARENT and root["kind"] == 2
    told = attributes(root)
    assert told["http.response.status_code"] == 200
    assert told["gen_ai.request.model"] == "adder" and told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == answer["usage"]["completion_tokens"]
    assert told["gen_ai.response.finish_reasons"] == ["stop"]
    assert told["gen_ai.response.id"] == answer["id"]
    parts = {span["name"]: attributes(span) for span in collector.traces()[TRACE][1:]}
    assert parts["queue"]["heddle.component"] == "manager"
    assert parts["load"]["gen_ai.request.model"] == "adder"
    assert {parts[phase]["heddle.device"] for phase in ["load", "prefill", "decode"]} == {"cpu0"}


def test_phases_last_as_long_as_the_request_trace_says(server, collector):
    trace = "a" * 32
    assert ask(server, trace=trace)[0] == 200
    wait_until(lambda: trace in collector.traces())
    requests = server.call("/api/requests")[2]["requests"]
    phases = next(one for one in requests if one["trace_id"] == trace)["parts"][0]["phases"]
    for span in collector.traces()[trace][1:]:
        took = (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e6
        assert took == pytest.approx(phases[span["name"] + "_ms"], abs=0.01)


def test_what_is_not_sampled_is_not_sent_but_has_its_id_in_the_log(server, collector):
    unkept, kept = "b" * 32, "c" * 32
    assert ask(server, trace=unkept, flags="00")[0] == 200
    assert server.chat("adder", "12+34=")  # Its client does not say, and the part of those is 0.
    assert ask(server, trace=kept)[0] == 200
    wait_until(lambda: kept in collector.traces())
    assert unkept not in collector.traces()
    ended = [json.loads(line) for line in server.log().splitlines() if '"request ended"' in line]
    ids = [line["trace_id"] for line in ended[-3:]]
    assert ids[0] == unkept and ids[2] == kept and re.fullmatch("[0-9a-f]{32}", ids[1])
    assert ids[1] not in collector.traces()


@pytest.mark.parametrize(
    "parent",
    [
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
    ],
)
def test_what_is_no_traceparent_begins_a_trace_of_its_own(server, parent):
    body = {"model": "adder", "messages": [{"role": "user", "content": "1+1="}], "max_tokens": 4}
    assert server.call(CHAT, body, headers={"traceparent": parent})[0] == 200
    trace = server.call("/api/requests")[2]["requests"][0]["trace_id"]
    assert trace != TRACE and re.fullmatch("[0-9a-f]{32}", trace)


def test_a_refused_request_is_one_span(server, collector):
    trace = "d" * 32
    assert ask(server, model="nobody", trace=trace)[0] == 404
    wait_until(lambda: trace in collector.traces())
    (span,) = collector.traces()[trace]
    assert attributes(span)["http.response.status_code"] == 404 and "status" not in span


def test_an_external_engine_takes_part_in_the_trace(server, collector, engine):
    trace = "e" * 32
    status, _, answer = ask(server, model="far", trace=trace)
    assert status == 200, answer
    wait_until(lambda: trace in collector.traces())
    root, phases = assert_well_formed(collector.traces()[trace])
    assert phases[-1] == "forward" and phases[0] == "queue"
    forward = collector.traces()[trace][-1]
    assert forward["kind"] == 3
    assert engine.headers[-1]["traceparent"] == f"00-{trace}-{forward['spanId']}-01"
    assert engine.headers[-1]["tracestate"] == "vendor=1"
    assert attributes(root)["gen_ai.usage.output_tokens"] == 2
    assert attributes(forward)["server.address"] == "127.0.0.1"


def test_the_metrics_count_what_became_of_spans(server, collector):
    wait_until(lambda: server.metrics()["heddle_trace_spans_sent_total"] == len(collector.spans()))
    metrics = server.metrics()
    assert metrics["heddle_trace_spans_failed_total"] == 0
    assert metrics["heddle_trace_spans_dropped_total"] == 0


def test_the_last_spans_are_sent_at_the_end_and_the_environment_says_where():
    with Collector() as collector:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "theirs"}
        with heddle.Server(heddle.config(models=["adder"]), env=variables) as server:
            server.chat("adder", "12+34=")
            assert server.stop() == 0
        assert [span["name"] for span in collector.spans()][0] == "POST /v1/chat/completions"
        assert collector.resources()[0]["service.name"] == "theirs"


def test_a_collector_that_does_not_take_spans_costs_no_request():
    with Collector(status=503) as busy:
        with heddle.Server(heddle.config(models=["adder"], extra=tracing(busy))) as server:
            for prompt, answer in heddle.eval_set("adder", 5):
                assert server.chat("adder", prompt) == answer
            wait_until(lambda: busy.asked > 1)  # It was tried again.
            assert server.log().count("does not take spans") == 1
            assert server.stop() == 0


def test_a_collector_that_is_away_costs_no_request():
    away = Collector()
    away.__exit__()
    with heddle.Server(heddle.config(models=["adder"], extra=tracing(away))) as server:
        for prompt, answer in heddle.eval_set("adder", 5):
            assert server.chat("adder", prompt) == answer
        wait_until(lambda: "does not take spans" in server.log())
        assert server.stop() == 0


def test_an_engine_that_is_suspended_with_a_request_is_told_of(collector):
    rows = [
        f"  {name}: {{cmd: {json.dumps(engines.scripted(name, '--token-ms 40'))}, suspend: [freeze], drain: 0, min_residence: 0s}}\n"
        for name in ("left", "right")
    ]
    devices = "  - {name: gpu, kind: external, memory: 1GiB}\n"
    extra = f"startPort: {engines.free_port(2)}\n" + tracing(collector, "sample: 0")
    trace = "f" * 32
    body = {"model": "left", "messages": [{"role": "user", "content": "x"}], "max_tokens": 60, "stream": True}
    with heddle.Server(heddle.config(models=rows, devices=devices, extra=extra)) as server:
        assert server.chat("right", "x", max_tokens=2) == "right heard", "it is there to be resumed, which is quick"
        headers = {"Content-Type": "application/json", "traceparent": f"00-{trace}-{PARENT}-01"}
        request = urllib.request.Request(server.url + CHAT, json.dumps(body).encode(), headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            while b"heard" not in answer.readline():
                pass
            assert server.chat("right", "x", max_tokens=2) == "right heard"
            assert b"[DONE]" in answer.read()
        wait_until(lambda: trace in collector.traces())
    assert_well_formed(collector.traces()[trace])
    forward = collector.traces()[trace][-1]
    assert [event["name"] for event in forward["events"]] == ["first byte", "suspended", "awoken"]
    assert attributes(forward)["heddle.device"] == "gpu"


def test_requests_that_give_way_to_others_are_told_of(collector):
    """Twelve long answers in memory for a few."""
    extra = tracing(collector, "sample: 0")
    with heddle.Server(heddle.config(memory="2176KiB", models=["adder"], extra=extra)) as server:

        def complete(number):
            body = {"model": "adder", "prompt": f"1 2 3 {number}", "max_tokens": 200, "ignore_eos": True}
            trace = f"{number + 1:032x}"
            status = server.call("/v1/completions", body, headers={"traceparent": f"00-{trace}-{PARENT}-01"})[0]
            return trace, status

        with concurrent.futures.ThreadPoolExecutor(12) as clients:
            answers = dict(clients.map(complete, range(12)))
        assert set(answers.values()) == {200}
        assert server.stop() == 0
    events = []
    for trace in answers:
        assert_well_formed(collector.traces()[trace])
        events += [event for span in collector.traces()[trace] for event in span.get("events", [])]
    preempted = [attributes(event) for event in events if event["name"] == "preempted"]
    assert preempted and all(told["heddle.lasted_us"] > 0 for told in preempted)


@pytest.mark.parametrize(
    "wrong, says",
    [
        ("{endpoint: /v1/traces}", "want such as http://otel:4318"),
        ("{endpoint: 'http://otel:4318', sample: 2}", "is no number from 0 to 1"),
        ("{endpoint: 'http://otel:4318', sampel: 1}", 'did you mean "sample"'),
        ("{sample: 1}", "tracing.endpoint: is missing"),
    ],
)
def test_config_check_says_what_would_be_right(tmp_path, wrong, says):
    path = tmp_path / "heddle.yaml"
    path.write_text(f"models: {{}}\ntracing: {wrong}\n")
    ran = subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True)
    assert ran.returncode != 0
    assert says in ran.stdout + ran.stderr


def test_in_a_cluster_the_death_of_a_host_is_told_where_it_happened():
    with Collector() as collector:
        slow = ", pace: {step: 20ms}"
        hosts = cluster.Cluster(hosts=2, models=["adder"], device_extra=slow, extra=tracing(collector))
        with hosts as running:
            gateway = running.gateways[0]
            wait_until(lambda: gateway.call("/v1/models")[2]["data"])
            body = {"model": "adder", "prompt": "1 2 3", "max_tokens": 100, "stream": True, "ignore_eos": True}
            request = urllib.request.Request(
                gateway.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=120) as answer:
                for _ in range(8):
                    answer.readline()
                devices = gateway.call("/api/devices")[2]["devices"]
                (name,) = [one["name"] for one in devices if any(model["model"] == "adder" for model in one["models"])]
                host = next(node for node in running.hosts if node.name == name.split("/")[0])
                host.signal(signal.SIGKILL)
                rest = answer.read()
            assert b"[DONE]" in rest
            wait_until(lambda: any(span["name"] == "decode" for span in collector.spans()))
        spans = [span for span in collector.spans() if span["name"] == "decode"][0]
        events = {event["name"]: attributes(event) for event in spans["events"]}
        other = next(node.name for node in running.hosts if node is not host)
        assert events["lost"]["heddle.device"] == f"{host.name}/cpu0"
        assert events["resumed"]["heddle.device"] == f"{other}/cpu0"
        assert attributes(spans)["heddle.host"] == other
        (prefill,) = [span for span in collector.spans() if span["name"] == "prefill"]
        assert attributes(prefill)["heddle.host"] == host.name


def test_the_simulator_reads_what_a_collector_keeps(server, collector, tmp_path):
    """One request for each trace, however many spans it has."""
    traces = [f"{0x51a0 + i:032x}" for i in range(3)]
    for trace in traces:
        assert ask(server, trace=trace, max_tokens=4)[0] == 200
    wait_until(lambda: collector.traces().keys() >= set(traces))
    lines = "".join(json.dumps(body, separators=(",", ":")) + "\n" for _, _, body in collector.requests)
    (tmp_path / "spans.jsonl").write_text(lines)
    (tmp_path / "models.yaml").write_text("models:\n  \"*\": {shape: opt-2.7b, engine: graphs, ttft: 60s, tpot: 1s}\n")
    root = heddle.ROOT
    command = [
        heddle.BINARY, "simulate", "--trace", tmp_path / "spans.jsonl", "--models", tmp_path / "models.yaml", "--cluster",
        root / "examples/simulate/warmserve-16gpu.yaml", "--perf", root / "data/perf", "--csv", tmp_path / "rows.csv"
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "rows.csv").read_text().splitlines()[1:]
    requests = [spans for spans in collector.traces().values() if any("gen_ai.usage.output_tokens" in attributes(span)
                                                                     and "gen_ai.usage.input_tokens" in attributes(span)
                                                                     for span in spans)]
    assert len(rows) == len(requests) >= 3
