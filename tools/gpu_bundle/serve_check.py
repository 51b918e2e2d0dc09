"""The server on this machine's GPUs, with nothing configured but models: right answers, turns, a killed worker."""

import argparse
import os
import pathlib
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("HEDDLE_BINARY", str(HERE / "bin" / "heddle"))
sys.path.insert(0, str(HERE / "tests" / "integration"))

import server as heddle  # noqa: E402

PROMPTS = 20
TURNS = 10


def check(name, good, of):
    print(f"{name}: {good} of {of}")
    return good >= 0.95 * of


def answers(server, count):
    fine = True
    for model in heddle.demo_models():
        pairs = heddle.eval_set(model, count)
        fine &= check(model, sum(server.chat(model, prompt) == answer for prompt, answer in pairs), len(pairs))
    return fine


def main(rounds):
    prompts, last = min(PROMPTS, 2 * rounds), min(TURNS, rounds)
    rows = "".join(f"  {name}: {{path: {heddle.MODELS / name}}}\n" for name in heddle.demo_models())
    head = "listen: 127.0.0.1:0\nhost: {memory: 1GiB}\n"
    with heddle.Server(f"{head}models:\n{rows}") as server:
        devices = server.call("/api/devices")[2]["devices"]
        print("devices:", [(device["name"], device["pages_total"]) for device in devices])
        fine = all(device["name"].startswith("gpu") for device in devices) and answers(server, prompts)
        os.kill(server.workers()[0], signal.SIGKILL)
        print("after the death of a worker:")
        fine &= answers(server, prompts)
    print("with a memory that holds two models at a time:")
    with heddle.Server(f"{head}devices: [{{kind: cuda, memory: 12MiB}}]\nmodels:\n{rows}") as server:
        turns = [(model, turn) for turn in range(last) for model in heddle.demo_models()]
        good = 0
        for model, turn in turns:
            prompt, answer = heddle.eval_set(model, last)[turn]
            good += server.chat(model, prompt) == answer
        fine &= check("in turns", good, len(turns))
    return 0 if fine else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=TURNS, help="fewer for a slow device")
    sys.exit(main(parser.parse_args().rounds))
