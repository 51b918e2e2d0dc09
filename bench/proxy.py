#!/usr/bin/env python3
"""What forwarding to an engine costs: heddle before an engine that answers at once, beside other proxies.

    bench/proxy.py [--binary build/release/heddle] [--before OTHER_HEDDLE] [--llama-swap PATH] [--rounds 5] [--seconds 3]

Needs nginx and wrk (Debian: nginx-light, wrk). The engine is an nginx that answers every chat with the same
stream of 32 events. Everybody has one core for itself, the engine and the clients share the other; who is
measured changes every few seconds, so that what else the machine does strikes all alike. Figures are medians
over the rounds; `added` is against asking the engine itself, `cpu` is of the proxy's processes.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = "nothing"
EVENT = json.dumps({"choices": [{"index": 0, "delta": {"content": "word "}}]}, separators=(",", ":"))
STREAM = f"data: {EVENT}\n\n" * 32 + "data: [DONE]\n\n"
CHAT = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hello " * 20}], "stream": True})
OTHERS, OURS = 0, 1  # Cores.

NGINX = """daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  {server}
}}
"""
ENGINE = """server {{ listen 127.0.0.1:{port} backlog=4096; default_type text/event-stream;
    location /health {{ return 200 "ok"; }}
    location / {{ return 200 '{stream}'; }} }}"""
PROXY = """upstream engine {{ server 127.0.0.1:{engine}; keepalive 1024; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} backlog=4096;
    location / {{ proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
                  proxy_buffering off; }} }}"""
HEDDLE = """listen: 127.0.0.1:{port}
logLevel: error
host: {{memory: 64MiB}}
devices: [{{name: elsewhere, kind: external, memory: 1GiB}}]
limits: {{queue: 4000, connections: 8000}}
models: {{{model}: {{proxy: "http://127.0.0.1:{engine}", memory: 1MiB, pin: true, probe: false}}}}
"""
LLAMA_SWAP = """logLevel: error
healthCheckTimeout: 30
models: {{{model}: {{cmd: "sleep infinity", proxy: "http://127.0.0.1:{engine}", concurrencyLimit: 5000}}}}
"""
SCRIPT = """wrk.method = "POST"
wrk.body = [==[{chat}]==]
wrk.headers["Content-Type"] = "application/json"
done = function(summary, latency)
  io.write(string.format("figures %d %d %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def process(command, core, ready_url):
    """A program on one core, up when `ready_url` answers."""
    child = subprocess.Popen(["taskset", "-c", str(core), *map(str, command)], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(ready_url, timeout=5):
                break
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"did not start: {command}")
            time.sleep(0.05)
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        child.wait()


def nginx(stack, folder, name, server, port, core):
    own = folder / name
    own.mkdir()
    config = own / "nginx.conf"
    config.write_text(NGINX.format(folder=own, server=server))
    command = [shutil.which("nginx") or "/usr/sbin/nginx", "-p", own, "-c", config, "-e", own / "error"]
    return stack.enter_context(process(command, core, f"http://127.0.0.1:{port}/health"))


def processor_seconds(pid):
    """Of a process and its children."""
    total = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if pid in (int(stat.parent.name), int(fields[1])):
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def wake(port):
    """The first request may have to wait; that is not what is measured."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", CHAT.encode(),
                                     {"Content-Type": "application/json"})
    answer = urllib.request.urlopen(request, timeout=60).read().decode()
    if answer != STREAM:
        raise RuntimeError(f"port {port} does not pass the stream on as it is: {answer[:200]!r}")


def measure(port, child, connections, seconds, script):
    before = processor_seconds(child.pid)
    command = ["taskset", "-c", str(OTHERS), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s",
               "-s", script, f"http://127.0.0.1:{port}/v1/chat/completions"]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    figures = re.search(r"figures (.*)", output)
    requests, duration, p50, p99, wrong, broken = map(int, figures[1].split())
    return {"per_s": requests / (duration / 1e6), "p50_us": p50, "p99_us": p99, "failed": wrong + broken,
            "cpu_us": (processor_seconds(child.pid) - before) / requests * 1e6}


def run(arguments):
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="heddle-proxy-")))
        script = folder / "chat.lua"
        script.write_text(SCRIPT.format(chat=CHAT))
        engine = free_port()
        text = STREAM.replace("\n", "\\n")  # As nginx writes a line break.
        children = {}
        children["engine"] = nginx(stack, folder, "engine", ENGINE.format(port=engine, stream=text), engine, OTHERS)
        ports = {"engine": engine}
        ports["nginx"] = free_port()
        proxy = PROXY.format(port=ports["nginx"], engine=engine)
        children["nginx"] = nginx(stack, folder, "nginx", proxy, ports["nginx"], OURS)
        for name, binary in (("heddle", arguments.binary), ("before", arguments.before)):
            if not binary:
                continue
            ports[name] = free_port()
            config = folder / f"{name}.yaml"
            config.write_text(HEDDLE.format(port=ports[name], engine=engine, model=MODEL))
            ready = f"http://127.0.0.1:{ports[name]}/health"
            command = [binary, "serve", "--config", config]
            children[name] = stack.enter_context(process(command, OURS, ready))
        if arguments.llama_swap:
            ports["llama-swap"] = free_port()
            config = folder / "llama-swap.yaml"
            config.write_text(LLAMA_SWAP.format(engine=engine, model=MODEL))
            command = [arguments.llama_swap, "-config", config, "-listen", f"127.0.0.1:{ports['llama-swap']}"]
            ready = f"http://127.0.0.1:{ports['llama-swap']}/health"
            children["llama-swap"] = stack.enter_context(process(command, OURS, ready))
        for port in ports.values():
            wake(port)
        for connections in (1, 1000):
            rounds = {name: [] for name in ports}
            for _ in range(arguments.rounds):
                for name, port in ports.items():
                    rounds[name].append(measure(port, children[name], connections, arguments.seconds, script))
            direct = None
            for name, measured in rounds.items():
                median = {key: statistics.median(one[key] for one in measured) for key in measured[0]}
                direct = direct or median
                row = {"connections": connections, "who": name, "requests_per_s": round(median["per_s"]),
                       "p50_us": round(median["p50_us"]), "p99_us": round(median["p99_us"]),
                       "added_p50_us": round(median["p50_us"] - direct["p50_us"]),
                       "added_p99_us": round(median["p99_us"] - direct["p99_us"]),
                       "cpu_us": round(median["cpu_us"], 1), "failed": sum(one["failed"] for one in measured)}
                print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/release/heddle")
    parser.add_argument("--before", help="another heddle to compare with, in the same turns")
    parser.add_argument("--llama-swap", help="its program; left out without")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
