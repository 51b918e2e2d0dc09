#!/usr/bin/env python3
"""Loads a model from disk, nothing of whose files is in memory, beside reading the same file directly.

    bench/cold_file.py FILE.gguf [--rounds 5] [--memory SIZE] [--binary FILE]

In turns: `dd` with reads of 4 MiB, once direct and once through the kernel's cache, and a load on a server that has
just started. Before each that cache is emptied (/proc/sys/vm/drop_caches), so this runs as root, on a machine where
nothing else reads.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "integration"))
import server as heddle


def forget():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def seconds_of(work):
    forget()
    began = time.monotonic()
    work()
    return time.monotonic() - began


def read(file, *flags):
    subprocess.run(["dd", f"if={file}", "of=/dev/null", "bs=4M", *flags], check=True, capture_output=True)


def load(server):
    """Until all weights are there; the load itself answers once the model takes requests."""
    status, _, answer = server.call("/models/load", {"model": "m"})
    assert status == 200, answer
    while True:
        model = server.call("/running")[2]["running"][0]
        if model["loaded_bytes"] == model["bytes"]:
            return
        time.sleep(0.005)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="2400MiB", help="of the device, and of the host cache")
    parser.add_argument("--binary", type=pathlib.Path, default=heddle.BINARY)
    options = parser.parse_args()
    heddle.BINARY = options.binary
    heddle.START_SECONDS = 600
    config = (
        f"listen: 127.0.0.1:0\nhost: {{memory: {options.memory}}}\n"
        f"devices:\n  - {{name: cpu0, kind: cpu, memory: {options.memory}, page: 2MiB}}\n"
        f"models:\n  m: {{path: {options.file.resolve()}}}\n"
    )
    direct, buffered, loads = [], [], []
    for _ in range(options.rounds):
        direct.append(seconds_of(lambda: read(options.file, "iflag=direct")))
        buffered.append(seconds_of(lambda: read(options.file)))
        with heddle.Server(config) as server:
            loads.append(seconds_of(lambda: load(server)))
    size = options.file.stat().st_size
    for name, taken in (("dd direct", direct), ("dd", buffered), ("load", loads)):
        print(f"{name:10} median {statistics.median(taken):6.3f} s  best {min(taken):6.3f} s  {size / min(taken) / 1e9:5.2f} GB/s")
    median, best = statistics.median(direct) / statistics.median(loads), min(direct) / min(loads)
    print(f"load at {median:.0%} of dd direct by medians, {best:.0%} by the best")


if __name__ == "__main__":
    main()
