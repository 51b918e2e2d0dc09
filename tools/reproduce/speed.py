"""How the cost of an event grows with models and GPUs: a table for bench/results/simulator.md.

    python3 tools/reproduce/speed.py [--build DIR] [POLICY ...]
    python3 tools/reproduce/speed.py --day [POLICY]
    python3 tools/reproduce/speed.py --plan

Each row replays 50,000 requests; every step has four times the models, GPUs and requests per second of the one
before. With --day: one day of 2,000 models on 1,000 GPUs at 100 requests per second. One core; CPU time. With --plan:
what `heddle plan` takes for a day of 100 models at 1, 3 and 10 requests per second, on all cores.
"""

import argparse
import gzip
import itertools
import json
import pathlib
import random
import resource
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import ROOT, Simulator

REQUESTS = 50_000


def files(sim, hosts):
    """A cluster of servers of eight H100s, and what every model is."""
    cluster = sim.file(f"speed-{hosts}.yaml", {"hosts": [{
        "count": hosts, "name": "h", "gpu": "H100-80G", "gpus": 8, "usable": "0.9", "cache": "400GB", "nic": "12GB/s",
        "pcie": "50GB/s", "nvlink": "250GB/s", "host_memory": "94GB/s", "platform": "h100"}]})
    rules = sim.file("speed-models.yaml", {"models": {"*": {
        "shape": "llama3-8b", "engine": "graphs", "batch": 64, "chunk": 2048, "overhead": "1GB", "ttft": "5s", "tpot": "100ms"}}})
    return cluster, rules


def requests(models, rate, seed=1):
    """Without end: Zipf popularity, Poisson arrivals."""
    rng = random.Random(seed)
    labels = [f"m{i:05}" for i in range(models)]
    weights = list(itertools.accumulate(1 / (i + 1) for i in range(models)))
    at = 0.0
    while True:
        for model in rng.choices(labels, cum_weights=weights, k=1000):
            at += rng.expovariate(rate)
            yield at, model, rng.randint(16, 1024), rng.randint(2, 400)


def workload(sim, scale):
    """Zipf popularity over 32 * scale models, Poisson arrivals of 1.5 * scale requests per second."""
    rows = itertools.islice(requests(32 * scale, 1.5 * scale), REQUESTS)
    return sim.write_trace(f"speed-{scale}", rows), *files(sim, 2 * scale)


def day(sim, name, models, rate):
    """The trace of a day."""
    path = sim.work / f"speed-{name}.csv.gz"
    if not path.exists():
        with gzip.open(path, "wt", compresslevel=1) as trace:
            trace.write("arrival_s,model,input_tokens,output_tokens\n")
            for at, model, prompt, answer in itertools.takewhile(lambda row: row[0] < 86400, requests(models, rate)):
                trace.write(f"{at:.6f},{model},{prompt},{answer}\n")
    return path


def measure_plan(sim, rate):
    """Servers of one H100 for 100 models, each a Llama-3-8B."""
    trace = day(sim, f"plan-{rate}", 100, rate)
    _, rules = files(sim, 1)
    hardware = sim.file("speed-h100.yaml", {"hosts": [{
        "name": "h100", "gpu": "H100-80G", "gpus": 1, "usable": "0.9", "cache": "100GB", "nic": "12GB/s",
        "pcie": "50GB/s", "host_memory": "94GB/s", "platform": "h100"}]})
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([sim.binary.parents[2] / "heddle", "plan", "-t", trace, "-c", hardware, "-m", rules, "-a", "97", "--perf",
                           ROOT / "data/perf", "--json", "-"], capture_output=True, text=True, check=True)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    plan = json.loads(done.stdout)
    kind = plan["kinds"][0]
    sizes = " ".join(str(size["servers"]) for size in kind["sizes"])
    print(f"| {rate} | {plan['requests']} | {plan['replayed_requests']} | {sizes} | {kind['servers']} | {took:.0f} | {cpu:.0f} |",
          flush=True)


def measure(sim, policy, size, inputs):
    trace, cluster, rules = inputs
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sim.binary, "simulate", "-t", trace, "-c", cluster, "-m", rules, "-p", policy, "--perf",
                           ROOT / "data/perf", "--json", "-"], capture_output=True, text=True, check=True)
    events = json.loads(done.stdout)["runs"][0]["counts"]["events"]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"| {policy} {size} {events} | {took:.2f} | {took / events * 1e6:.1f} | {after.ru_maxrss / 1024:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--scales", default="1,4,16,64")
    parser.add_argument("--day", action="store_true", help="a day of the largest size instead")
    parser.add_argument("--plan", action="store_true", help="what a plan takes instead")
    parser.add_argument("policies", nargs="*", default=["heddle"])
    options = parser.parse_args()
    sim = Simulator(pathlib.Path(options.build), None, ROOT / "build/reproduce", 1)
    if options.plan:
        print("| requests/s | requests | counted at each size | servers tried | enough | seconds | CPU seconds |")
        print("|---|---|---|---|---|---|---|")
        for rate in (1, 3, 10):
            measure_plan(sim, rate)
        return
    print("| policy | GPUs | models | requests/s | events | CPU seconds | µs an event | MiB at most so far |")
    print("|---|---|---|---|---|---|---|---|")
    for policy in options.policies:
        if options.day:
            measure(sim, policy, "| 1000 | 2000 | 100 |", (day(sim, "day", 2000, 100), *files(sim, 125)))
            continue
        for scale in map(int, options.scales.split(",")):
            measure(sim, policy, f"| {16 * scale} | {32 * scale} | {1.5 * scale:g} |", workload(sim, scale))


if __name__ == "__main__":
    main()
