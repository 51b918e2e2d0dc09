"""`heddle lab`: real servers with paced devices, asked what a small experiment says, and the report it makes of that."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import server as heddle
from ports import free_port

DEVICE = "{name: %s, memory: %s, page: 64KiB, load_bandwidth: 20MB/s, pace: {step: 10ms}}"
TWO_SMALL = ", ".join(DEVICE % (name, "3MiB") for name in "ab")
EXPERIMENT = f"""
config:
  host: {{memory: 64MiB}}
  devices: [{TWO_SMALL}]
  models:
    one: {{path: {heddle.MODELS}/adder, min_residence: 0s, slo: {{ttft: 30s, tpot: 10s}}}}
    two: {{path: {heddle.MODELS}/sorter, min_residence: 0s, slo: {{ttft: 1us}}}}
    three: {{path: {heddle.MODELS}/adder, min_residence: 0s}}
policies:
  small: {{}}
  roomy: {{devices: [{DEVICE % ("a", "16MiB")}]}}
warmup: 1s
"""
DRAWN = "trace: {rate: 3, duration: 30s, zipf: 0.5, input_tokens: 20..40, output_tokens: 12}\nscale: 10\n"


def lab(folder, text, *options, timeout=120):
    """(finished process, report or None) of an experiment that is written in `folder`."""
    file = folder / "experiment.yaml"
    file.write_text(text)
    out = folder / "out"
    done = subprocess.run(
        [heddle.BINARY, "lab", file, "--out", out, *options], capture_output=True, text=True, timeout=timeout
    )
    report = out / "report.json"
    return done, json.loads(report.read_text()) if report.exists() else None


def test_policies_are_compared_over_seeds(tmp_path):
    done, report = lab(tmp_path, EXPERIMENT + DRAWN, "--seeds", "2")
    assert report, done.stderr
    # Whether steps are late depends on what else this machine does: either way the verdict must fit.
    late = [run["late_steps"] for policy in report["policies"] for run in policy["runs"]]
    assert report["valid"] == all(part <= 0.01 for part in late)
    assert done.returncode == (0 if report["valid"] else 1)
    assert ("invalid" in done.stdout) == (not report["valid"])
    assert [policy["policy"] for policy in report["policies"]] == ["small", "roomy"]
    for policy in report["policies"]:
        assert [run["seed"] for run in policy["runs"]] == [0, 1]
        for run in policy["runs"]:
            assert run["failed"] == 0
            assert run["requests"] > 20
            assert run["tpot_p50_s"] > 0.0095, "a step takes 10 ms"
            assert run["counters"]["heddle_worker_steps_total"] > 50
            assert 0 < run["attainment"] < 1, "two's objective cannot be met, the others' can"
    small, roomy = ({seed: run for seed, run in enumerate(policy["runs"])} for policy in report["policies"])
    assert [small[seed]["requests"] for seed in (0, 1)] == [roomy[seed]["requests"] for seed in (0, 1)]
    assert small[0]["requests"] != small[1]["requests"] or small[0]["ttft_p50_s"] != small[1]["ttft_p50_s"]
    simulated = {run["policy"]: run for run in report["report"]["runs"]}
    assert simulated["small"]["gpus"] == 2 and simulated["roomy"]["gpus"] == 1
    met = {model["name"]: (model["requests"], model["both_met"]) for model in simulated["roomy"]["models"]}
    assert met["one"][0] == met["one"][1] and met["two"][1] == 0 and met["three"][0] == met["three"][1]
    rows = (tmp_path / "out/requests.csv").read_text().splitlines()
    assert len(rows) - 1 == sum(run["requests"] for runs in (small, roomy) for run in runs.values())
    page = (tmp_path / "out/report.html").read_text()
    assert "heddle lab" in page and "against small" in page and "http:" not in page
    assert "TTFT p50" in done.stdout and "against small" in done.stdout


def test_an_experiment_is_predicted_without_a_server(tmp_path):
    done, report = lab(tmp_path, EXPERIMENT + DRAWN, "--mode", "predict", "--seeds", "2")
    assert done.returncode == 0 and report, done.stderr
    assert done.stdout.startswith("Predicted")
    assert "--mode predict" in report["command"]
    small, roomy = ([run for run in policy["runs"]] for policy in report["policies"])
    for few, many in zip(small, roomy):
        assert few["requests"] == many["requests"] > 20
        assert few["failed"] == many["failed"] == 0
        assert many["tpot_p50_s"] == pytest.approx(0.010, rel=0.05), "a step takes 10 ms, and nothing is late here"
        assert many["loads"] <= few["loads"], "one device holds them all, two do not"
        assert many["attainment"] >= few["attainment"] > 0
    assert not (tmp_path / "out/small-0").exists(), "no server had a folder"


def test_a_cluster_of_hosts_is_played_and_predicted(tmp_path):
    text = EXPERIMENT.replace(f"devices: [{TWO_SMALL}]", f"devices: [{DEVICE % ('a', '3MiB')}]") + DRAWN
    text += "hosts: {h1: {}, h2: {}, h3: {devices: [%s]}}\n" % (DEVICE % ("b", "3MiB"))
    for mode in "live", "predict":
        done, report = lab(tmp_path, text, "--mode", mode, "--policy", "small")
        assert report, done.stderr
        (run,) = report["policies"][0]["runs"]
        assert run["failed"] == 0 and run["requests"] > 20
        (simulated,) = report["report"]["runs"]
        assert simulated["gpus"] == 3
        assert "h3/b with 3.00 MiB" in (tmp_path / "out/report.html").read_text()
        if mode == "live":
            logs = {name: (tmp_path / f"out/small-0/{name}.txt").read_text() for name in ("h1", "h3", "lab-manager")}
            assert "manager leads" in logs["h1"] and "manager leads" in logs["h3"]
            assert "host is linked host=h2" in logs["lab-manager"]


def test_models_that_no_host_has_are_fetched_by_several_together(tmp_path):
    (tmp_path / "trace.csv").write_text("arrival_s,model,input_tokens,output_tokens\n1,one,16,60\n5,one,16,4\n")
    text = f"""
cold: true
hosts: {{h1: {{}}, h2: {{}}, h3: {{}}}}
config:
  host: {{memory: 64MiB, nic: 1MB/s}}
  devices: [{{name: a, cores: "0", memory: 12MiB, page: 64KiB, pace: {{step: 10ms}}}}]
  models: {{one: {{path: {heddle.MODELS / "adder"}, dtype: float32, slo: {{ttft: 200ms}}}}}}
trace: {{file: trace.csv}}
"""
    first = {}
    for mode in "live", "predict":
        done, report = lab(tmp_path, text, "--mode", mode)
        assert report, done.stderr
        (run,) = report["policies"][0]["runs"]
        assert run["failed"] == 0 and run["requests"] == 2
        rows = (tmp_path / "out/requests.csv").read_text().splitlines()
        first[mode] = [float(dict(zip(rows[0].split(","), row.split(",")))["ttft_s"]) for row in rows[1:]]
        if mode == "live":
            logs = [(tmp_path / f"out/default-0/{name}.txt").read_text() for name in ("h1", "h2", "h3")]
            assert all("fetched model=one" in log for log in logs)
            assert (tmp_path / "out/default-0/cache/h1/heddle/models").is_dir()
    assert max(first["predict"]) > 5 * min(first["predict"]), "one finds the model there"
    assert max(first["live"]) > 2 * min(first["live"])


ENGINES = """
config:
  startPort: {port}
  devices: [{{name: e, kind: external, memory: 110MiB}}]
  macros: {{engine: "{command} --anonymous-mib 48 --first-token-ms 40 --token-ms 5 --open-after 0.5 --wake-after 0.3"}}
  models:
    early: {{cmd: "${{engine}} --name early", engine: vllm, memory: 80MiB, suspend: [sleep]}}
    late: {{cmd: "${{engine}} --name late", engine: vllm, memory: 80MiB, suspend: [sleep]}}
trace: {{file: trace.csv}}
{described}
"""
DESCRIBED = """
engines:
  early: &times {start: 5s, memory: 60MiB, first_token: 40ms, token: 5ms, suspend: {sleep: {out: 10ms, in: 1s, memory: 12MiB}}}
  late: *times
"""


def engines(folder, mode, described=""):
    """(TTFTs, report, standard error) of six requests for two engines in turn, of which one is awake at a time."""
    rows = "".join(f"{3 * at},{'late' if at % 2 else 'early'},16,4\n" for at in range(6))
    (folder / "trace.csv").write_text("arrival_s,model,input_tokens,output_tokens\n" + rows)
    command = f"{sys.executable} engine.py --port ${{PORT}}"
    for name in "engine.py", "elastic_kv.py":  # Commands run in the folder of the experiment.
        (folder / name).write_bytes((heddle.ROOT / "tests" / "engines" / name).read_bytes())
    text = ENGINES.format(port=free_port(2), command=command, described=described)
    done, report = lab(folder, text, "--mode", mode)
    assert report, done.stderr
    assert done.returncode == 0, done.stdout
    (run,) = report["policies"][0]["runs"]
    assert run["failed"] == 0 and run["requests"] == 6
    lines = (folder / "out/requests.csv").read_text().splitlines()
    return [float(dict(zip(lines[0].split(","), line.split(",")))["ttft_s"]) for line in lines[1:]], report, done.stderr


def test_external_engines_are_played_measured_and_predicted(tmp_path):
    live, _, _ = engines(tmp_path, "live")
    predicted, _, said = engines(tmp_path, "predict")
    assert "listens on" in said, "the prediction has each engine run once"
    for first in live, predicted:
        assert min(first[:2]) > 0.54, "each starts, and is asked then"
        assert min(first[2:]) > 0.34, "each wakes up, and is asked then"
    assert max(predicted[2:]) < min(predicted[:2]), "an engine that sleeps is back sooner than it starts"


def test_engines_that_are_described_are_predicted_without_them(tmp_path):
    first, _, said = engines(tmp_path, "predict", DESCRIBED)
    assert "listens on" not in said
    assert first[0] == pytest.approx(5.04, abs=0.05)
    assert 1.05 < first[2] < 1.3, "the other falls asleep, it wakes up and answers; the manager may look again in between"


def test_what_was_measured_and_predicted_stand_beside_each_other(tmp_path):
    done, report = lab(tmp_path, EXPERIMENT + DRAWN, "--mode", "both", "--policy", "roomy", "--seeds", "4..4")
    assert report, done.stderr
    assert [run["seed"] for run in report["policies"][0]["runs"]] == [4]
    assert re.search(r"measured +predicted", done.stdout)
    assert re.search(r"roomy +TTFT p50 \[s\] +[0-9.]+ +[0-9.]+ +×", done.stdout)


def test_a_trace_may_be_a_file_and_one_policy_be_chosen(tmp_path):
    trace = "".join(f"{at / 4},{'two' if at % 2 else 'other'},500,3\n" for at in range(80))
    (tmp_path / "trace.csv").write_text("arrival_s,model,input_tokens,output_tokens\n" + trace)
    text = EXPERIMENT + "trace: {file: trace.csv, from: 4s, window: 12s, cut_input: 24}\nscale: 4\n"
    done, report = lab(tmp_path, text, "--policy", "roomy")
    assert report, done.stderr
    (policy,) = report["policies"]
    assert policy["policy"] == "roomy"
    assert policy["runs"][0]["requests"] == 32, "12 s are 48 rows, of which 4 s are the warm-up"
    used = {model["name"]: model["requests"] for model in report["report"]["runs"][0]["models"]}
    assert used == {"one": 16, "two": 16, "three": 0}


def test_late_steps_make_a_run_invalid(tmp_path):
    text = EXPERIMENT.replace("step: 10ms", "step: 1us") + DRAWN
    done, report = lab(tmp_path, text, "--policy", "roomy")
    assert done.returncode == 1
    assert report["valid"] is False
    (run,) = report["policies"][0]["runs"]
    assert run["slow_steps"] >= run["overrun_steps"] > 0, "no step is as quick as that"
    assert "roomy, seed 0: invalid" in done.stdout
    assert "too busy" in report["notes"][0]


@pytest.mark.parametrize(
    "text, options, message",
    [
        ("config: {}\n", [], "trace: is missing"),
        (EXPERIMENT + DRAWN, ["--policy", "none"], 'there are: small roomy'),
        (EXPERIMENT + DRAWN + "hosts: {h1: {models: {}}}\n", [], "hosts.h1.models: a host differs by devices"),
        (EXPERIMENT + DRAWN, ["--seeds", "5..3"], '--seeds: "5..3" is no number of seeds'),
        (EXPERIMENT + DRAWN.replace("rate: 3", "rate: fast"), [], 'trace.rate: "fast" is not a number'),
        (EXPERIMENT + "trace: {file: nowhere.csv}\n", [], "nowhere.csv: cannot be read"),
        (EXPERIMENT.replace("/adder", "/nowhere") + DRAWN, [], 'the files of the model \\"one\\" were not found'),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, options, message):
    done, report = lab(tmp_path, text, *options)
    assert done.returncode == 1 and report is None
    assert message in done.stderr


def test_servers_die_with_the_laboratory(tmp_path):
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT + DRAWN.replace("30s", "900s"))
    process = subprocess.Popen(
        [heddle.BINARY, "lab", tmp_path / "experiment.yaml", "--out", tmp_path / "out"], stderr=subprocess.DEVNULL
    )

    def children():
        try:
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
                return file.read().split()
        except OSError:
            return []

    deadline = time.monotonic() + 30
    while not children() and time.monotonic() < deadline:
        time.sleep(0.02)
    started = children()
    assert started
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while any(map(runs, started)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(runs, started))


def runs(pid):
    """Whether the process is there and is more than a status that nobody has fetched."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("file", sorted((heddle.ROOT / "examples/lab").glob("*.yaml")), ids=lambda file: pathlib.Path(file).stem)
def test_examples_can_be_read(file):
    done = subprocess.run([heddle.BINARY, "lab", file, "--policy", "none"], capture_output=True, text=True)
    assert f'"none" is not in {file}; there are:' in done.stderr


def test_calibrate_writes_what_the_simulator_reads(tmp_path):
    config = tmp_path / "heddle.yaml"
    device = DEVICE.replace("20MB/s", "4MB/s") % ("a", "16MiB")
    config.write_text(
        f"host: {{memory: 64MiB}}\ndevices: [{device}]\nmodels: {{adder: {{path: {heddle.MODELS}/adder}}}}\n"
    )
    out = tmp_path / "mine"
    done = subprocess.run(
        [heddle.BINARY, "calibrate", config, "--out", out], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "copy while it decodes" in done.stdout and "prefill" in done.stdout
    # Paced steps sleep, and an engine beside takes nothing of that.
    assert "prefill of 256, below it" in done.stdout
    assert 0 <= float(re.search(r"co_running: ([\d.e-]+)", (out / "gpus.yaml").read_text())[1]) < 3
    (tmp_path / "trace.csv").write_text("arrival_s,model,input_tokens,output_tokens\n0,any,100,11\n20,any,100,11\n")
    command = [heddle.BINARY, "simulate", "-t", tmp_path / "trace.csv", "--perf", out, "--json", "-"]
    command += ["-c", out / "cluster.yaml", "-m", out / "rules.yaml", "--policy", "heddle"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    # All steps take at least 10 ms, and the link does not carry more than it is told to.
    assert 0.009 < run["ttft_s"]["p50"] < 1
    rate = int(re.search(r"pcie: (\d+)B/s", (out / "cluster.yaml").read_text())[1])
    assert 1_000_000 < rate < 5_000_000
    assert 0.009 < run["tpot_s"]["p50"] < 0.1


@pytest.mark.parametrize(
    "options, message", [(["--device", "b"], 'has no device "b" that runs models'), (["--model", "b"], 'has no model of our own "b"')]
)
def test_calibrate_says_what_there_is_not(tmp_path, options, message):
    config = tmp_path / "heddle.yaml"
    config.write_text(heddle.config(models=["adder"]))
    done = subprocess.run([heddle.BINARY, "calibrate", config, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and message in done.stderr
