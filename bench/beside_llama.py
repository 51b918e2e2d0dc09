#!/usr/bin/env python3
"""Prefill and decode of one sequence by heddle and by llama.cpp, in turns, over HTTP.

    tools/random_model.py /tmp/100m --size 100m && tests/engines/gguf.py /tmp/100m /tmp/100m.gguf bf16
    bench/beside_llama.py /tmp/100m /tmp/100m.gguf [--rounds 5] [--threads 2] [--prompt 512] [--binary FILE]
    tests/engines/gguf.py /tmp/100m /tmp/100m-q8.gguf q8_0 && bench/beside_llama.py /tmp/100m /tmp/100m-q8.gguf --dtype int8
    bench/beside_llama.py /tmp/100m-q8.gguf /tmp/100m-q8.gguf --dtype stored --threads 1
    tests/engines/gguf.py /tmp/100m /tmp/100m-q4k.gguf q4_k && bench/beside_llama.py /tmp/100m-q4k.gguf /tmp/100m-q4k.gguf --dtype stored --threads 1

llama.cpp is that of node-llama-cpp, which `./dev test` installs, behind tests/engines/llama_server.mjs. Prefill is
timed by the first token of a prompt that nobody has sent before; decode by the tokens after it. Medians of the
rounds; and the best of them by processor time, which tells more on a busy machine, where each has one thread. HEDDLE_SIMD holds heddle to a lower set of instructions; --modules names a copy of llama.cpp's folder with fewer
libraries than that which it would take.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import engines  # noqa: E402
import server as heddle  # noqa: E402

ANSWER = 32  # Tokens.


def processor_seconds(process):
    """Of a process, its threads and its children."""
    total, children = 0.0, []
    with contextlib.suppress(OSError):
        for thread in pathlib.Path(f"/proc/{process}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[0]) * 1e-9
            children += (thread / "children").read_text().split()
    return total + sum(processor_seconds(child) for child in children)


def ask(port, process, model, digits):
    """(seconds to the first token, seconds of each further one, tokens of the prompt, and the first two by processor)"""
    prompt = "".join(str(random.randrange(10)) for _ in range(digits))
    body = {"model": model, "prompt": prompt, "max_tokens": ANSWER, "stream": True, "temperature": 0,
            "ignore_eos": True, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began, spent = time.monotonic(), [processor_seconds(process)]
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    times, usage = [], None
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            if event["choices"] and event["choices"][0]["text"]:
                times.append(time.monotonic())
                if len(spent) == 1:
                    spent.append(processor_seconds(process))
    connection.close()
    spent.append(processor_seconds(process))
    after = max(usage["completion_tokens"] - 1, 1)
    by_processor = spent[1] - spent[0], (spent[2] - spent[1]) / after
    return times[0] - began, (times[-1] - times[0]) / after, usage["prompt_tokens"], *by_processor


@contextlib.contextmanager
def llama(file, threads, context, modules):
    port = engines.free_port()
    command = ["node", ROOT / "tests/engines/llama_server.mjs", "--model", file, "--port", str(port), "--threads",
               str(threads), "--context", str(context), "--modules", modules]
    child = subprocess.Popen(command)
    try:
        while True:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
            if child.poll() is not None:
                raise RuntimeError("llama.cpp did not start")
            time.sleep(0.2)
        yield port, child.pid
    finally:
        child.terminate()
        child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--modules", default=ROOT / "build/llama/node_modules", help="where node-llama-cpp is")
    parser.add_argument("--memory", default="600MiB")
    parser.add_argument("--dtype", default="bfloat16", help="of heddle's matrices: bfloat16, int8 or stored")
    parser.add_argument("--binary", default=ROOT / "build/release/heddle")
    arguments = parser.parse_args()
    heddle.BINARY = arguments.binary
    cores = list(range(arguments.threads))
    config = (f"listen: 127.0.0.1:0\nhost: {{memory: {arguments.memory}}}\nlogLevel: error\n"
              f"devices: [{{name: cpu0, kind: cpu, memory: {arguments.memory}, cores: {cores}, page: 2MiB}}]\n"
              f"models: {{m: {{path: {pathlib.Path(arguments.checkpoint).resolve()}, dtype: {arguments.dtype}}}}}\n")
    rows = {"heddle": [], "llama.cpp": []}
    with llama(arguments.gguf, arguments.threads, arguments.prompt + 2 * ANSWER, arguments.modules) as theirs, heddle.Server(config) as own:
        ports = {"heddle": (int(own.url.rsplit(":", 1)[1]), own.process.pid), "llama.cpp": theirs}
        for turn in range(arguments.rounds + 1):
            for name, at in ports.items():
                row = ask(*at, "m", arguments.prompt)
                if turn > 0:  # The first warms up.
                    rows[name].append(row)
    figures = {}
    for name, measured in rows.items():
        first, each, prompt, *_ = (statistics.median(column) for column in zip(*measured))
        *_, first_by_processor, each_by_processor = (min(column) for column in zip(*measured))
        figures[name] = {"prompt": prompt, "prefill_per_s": round(prompt / first, 1), "decode_per_s": round(1 / each, 1),
                         "prefill_per_processor_s": round(prompt / first_by_processor, 1),
                         "decode_per_processor_s": round(1 / each_by_processor, 1)}
    ratios = {key: round(figures["heddle"][key] / theirs, 2) for key, theirs in figures["llama.cpp"].items() if key != "prompt"}
    print(json.dumps({"simd": os.environ.get("HEDDLE_SIMD", "best"), "dtype": arguments.dtype, **figures, "ratio": ratios}))


if __name__ == "__main__":
    sys.exit(main())
