"""How much a load needs, asked from what a server remembers of it and from its log."""

import json
import subprocess
import time

import server as heddle

SERVERS = """hosts:
  - {name: small, gpu: A10, gpus: 1, cache: 10GB, nic: 1GB/s, pcie: 12GB/s, platform: a10}
"""


def plan(directory, *arguments, verb="plan", hardware="--hardware"):
    """(exit status, stdout, stderr) of the verb on servers with one A10."""
    servers = directory / "servers.yaml"
    servers.write_text(SERVERS)
    command = [heddle.BINARY, verb, hardware, servers, "--perf", heddle.ROOT / "data/perf", *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_what_a_server_remembers_is_planned_for(tmp_path):
    kept = tmp_path / "kept"
    extra = f"planner: {{window: 1s, day: 1h}}\ndataDir: {kept}\n"
    asked = {"adder": 0, "morse": 0}
    tokens = {"adder": [0, 0], "morse": [0, 0]}
    with heddle.Server(heddle.config(models=["adder", "morse"], extra=extra)) as server:
        ends = time.monotonic() + 16
        while time.monotonic() < ends:
            for model, prompt in (("adder", "123+456="), ("morse", "light grain")):
                status, _, answer = server.call("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 8})
                assert status == 200, answer
                asked[model] += 1
                tokens[model][0] += answer["usage"]["prompt_tokens"]
                tokens[model][1] += answer["usage"]["completion_tokens"]
            time.sleep(0.3)
        # While it runs: what windows had that are over.
        status, text, error = plan(tmp_path, "--from-history", kept, "--config", server.config_path, "--slo", "ttft=20s")
        assert status == 0, text + error
        assert server.stop() == 0
        known = ("--from-history", kept, "--config", server.config_path)
        status, text, error = plan(tmp_path, *known, "--slo", "ttft=20s,tpot=200ms", "--draws", "1")
        assert status == 0, text + error
        assert f"{sum(asked.values())} requests of 2 models" in text
        assert "times and single lengths are drawn" in text
        assert "1 server with 1 A10" in text

        # The requests themselves: as many, and as long on average.
        rows = tmp_path / "rows.csv"
        status, text, error = plan(tmp_path, *known, "--csv", rows, verb="simulate", hardware="--cluster")
        assert status == 0, text + error
        head, *lines = [line.split(",") for line in rows.read_text().splitlines()]
        for model in asked:
            own = [dict(zip(head, line, strict=True)) for line in lines if model in line]
            assert len(own) == asked[model]
            for place, column in ((0, "input_tokens"), (1, "output_tokens")):
                mean = sum(int(row[column]) for row in own) / len(own)
                assert abs(mean - tokens[model][place] / asked[model]) <= 1

        # The log of the same server has the same requests.
        status, text, error = plan(
            tmp_path, "--trace", server.log_path, "--config", server.config_path, "--slo", "ttft=20s", "--json", "-"
        )
        assert status == 0, text + error
        assert json.loads(text)["requests"] == sum(asked.values())


def test_what_cannot_be_planned_with_is_said(tmp_path):
    def problem(*arguments):
        status, _, error = plan(tmp_path, *arguments)
        assert status == 1
        return error

    config = tmp_path / "heddle.yaml"
    config.write_text(heddle.config(models=["adder"]))
    known = ("--config", config)
    assert "there is no such file" in problem("--from-history", tmp_path, *known)
    (tmp_path / "history.db").write_text("no database" * 1000)
    assert "it is no history of heddle" in problem("--from-history", tmp_path / "history.db", *known)
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,model,input_tokens,output_tokens\n1,adder,5,5\n")
    assert "either --trace FILE, or --from-history" in problem(*known)
    assert "say what the models are" in problem("--trace", trace)
    assert "no model has an objective" in problem("--trace", trace, *known)
    assert "want such as ttft=5s,tpot=100ms" in problem("--trace", trace, *known, "--slo", "ttft=quick")
    done = subprocess.run(
        [heddle.BINARY, "plan", "--trace", trace, *known, "--slo", "ttft=5s", "--perf", heddle.ROOT / "data/perf"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "say on which servers" in done.stderr and "H100-80G" in done.stderr
