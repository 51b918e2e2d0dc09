"""The memory of this machine's GPUs: pages are counted right while models come and go, and all goes back in the end."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("HEDDLE_BINARY", str(HERE / "bin" / "heddle"))
sys.path.insert(0, str(HERE / "tests" / "integration"))

import server as heddle  # noqa: E402

ROUNDS = 20
SLACK_MIB = 64  # Of what nvidia-smi says before and after: others may come and go.


def used_mib():
    """What is used of each GPU; empty where nvidia-smi does not tell."""
    try:
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
        )
        return [int(line) for line in told.stdout.split()]
    except (OSError, subprocess.CalledProcessError, ValueError):
        return []


def at_rest(server):
    """Unloads all; what is not free then."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        server.call("/unload", method="POST")
        devices = server.call("/api/devices")[2]["devices"]
        if all(device["up"] and device["pages_free"] == device["pages_total"] for device in devices):
            return []
        time.sleep(0.2)
    return [f"{d['name']}: up {d['up']}, {d['pages_free']} of {d['pages_total']} pages are free" for d in devices]


def main(rounds=ROUNDS):
    rows = "".join(f"  {name}: {{path: {heddle.MODELS / name}}}\n" for name in heddle.demo_models())
    # Four pages: a model and hardly anything for its answers.
    text = f"listen: 127.0.0.1:0\nhost: {{memory: 256MiB}}\ndevices: [{{kind: cuda, memory: 8MiB}}]\nmodels:\n{rows}"
    before = used_mib()
    faults = []
    with heddle.Server(text) as server:
        first = None  # A device tells its pages once it has run something.
        for turn in range(rounds):
            for model in heddle.demo_models():
                prompt, answer = heddle.eval_set(model, rounds)[turn]
                if not server.chat(model, prompt):
                    faults.append(f"{model} did not answer {prompt!r} ({answer!r})")
            first = first or server.call("/api/devices")[2]["devices"][0]
            if turn % 5 == 4 or turn == rounds - 1:
                faults += at_rest(server)
                os.kill(server.workers()[0], signal.SIGKILL)
        faults += at_rest(server)
        (last,) = server.call("/api/devices")[2]["devices"]
        print(f"pages: {first['pages_total']} at first, {last['pages_total']} at last; restarts: {last['restarts']}")
        if first["pages_total"] != last["pages_total"]:
            faults.append("pages were lost")
    time.sleep(2)
    after = used_mib()
    print(f"used of the GPUs [MiB]: {before} before, {after} after")
    faults += [f"GPU {i} keeps {b - a} MiB" for i, (a, b) in enumerate(zip(before, after)) if b - a > SLACK_MIB]
    for fault in faults:
        print(f"FAILED: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of at most 50")
    sys.exit(main(parser.parse_args().rounds))
