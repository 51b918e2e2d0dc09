"""How the cost of an event grows with models and GPUs: a table for docs/performance.md.

    python3 tools/reproduce/speed.py [--build DIR] [POLICY ...]

Each row replays 50,000 requests; every step has four times the models, GPUs and requests per second of the one
before. One core; CPU time.
"""

import argparse
import json
import pathlib
import random
import resource
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import ROOT, Simulator

REQUESTS = 50_000


def workload(sim, scale, seed=1):
    """Zipf popularity over 32 * scale models, Poisson arrivals of 1.5 * scale requests per second."""
    rng = random.Random(seed)
    models = [f"m{i:05}" for i in range(32 * scale)]
    weights = [1 / (i + 1) for i in range(len(models))]
    at, rows = 0.0, []
    for model in rng.choices(models, weights, k=REQUESTS):
        at += rng.expovariate(1.5 * scale)
        rows.append((at, model, rng.randint(16, 1024), rng.randint(2, 400)))
    trace = sim.write_trace(f"speed-{scale}", rows)
    cluster = sim.file(f"speed-{scale}.yaml", {"hosts": [{
        "count": 2 * scale, "name": "h", "gpu": "H100-80G", "gpus": 8, "usable": "0.9", "cache": "400GB", "nic": "12GB/s",
        "pcie": "50GB/s", "nvlink": "250GB/s", "host_memory": "94GB/s", "platform": "h100"}]})
    rules = sim.file("speed-models.yaml", {"models": {"*": {
        "shape": "llama3-8b", "engine": "graphs", "batch": 64, "chunk": 2048, "overhead": "1GB", "ttft": "5s", "tpot": "100ms"}}})
    return trace, cluster, rules


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--scales", default="1,4,16,64")
    parser.add_argument("policies", nargs="*", default=["serverlessllm"])
    options = parser.parse_args()
    sim = Simulator(pathlib.Path(options.build), None, ROOT / "build/reproduce", 1)
    print("| policy | GPUs | models | requests/s | events | CPU seconds | µs an event | MiB at most so far |")
    print("|---|---|---|---|---|---|---|---|")
    for policy in options.policies:
        for scale in map(int, options.scales.split(",")):
            trace, cluster, rules = workload(sim, scale)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([sim.binary, "simulate", "-t", trace, "-c", cluster, "-m", rules, "-p", policy, "--perf",
                                   ROOT / "data/perf", "--json", "-"], capture_output=True, text=True, check=True)
            events = json.loads(done.stdout)["runs"][0]["counts"]["events"]
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            peak = after.ru_maxrss / 1024
            print(f"| {policy} | {16 * scale} | {32 * scale} | {1.5 * scale:g} | {events} | {took:.2f} | {took / events * 1e6:.1f} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
