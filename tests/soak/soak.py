"""Many clients against a memory too small for the models, while everything happens to the server that can.

Counts at the client: every request that was sent ends in exactly one answer, and every answer that can
be known is right. Ends with status 1 and the first failures where not, where a worker died that nobody
killed, or where memory is not where it was when all is over.
"""

import argparse
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import clients  # noqa: E402
import disturbances  # noqa: E402
import hostile  # noqa: E402
import server as heddle  # noqa: E402

# The first device holds one model, copies its weights over a slow link, and is too small for the longest answers.
DEVICES = """\
  - {name: copying, kind: cpu, cores: "0", memory: 2304KiB, page: 64KiB, copy: true, load_bandwidth: 40MB/s}
  - {name: mapping, kind: cpu, cores: "1", memory: 3840KiB, page: 64KiB, pace: {step: 2ms, token: 500us}}
"""
# Weights fill half of each, so that answers which run together lack memory, and are lent what the other leaves.
WOVEN = "".join(
    f"  - {{name: {name}, cores: '{core}', memory: 3328KiB, page: 64KiB, pace: {{step: 4ms}}, step_budget: 100ms}}\n"
    for name, core in (("left", 0), ("right", 1))
)
WEAVE = "planner: {weave: true, replicas: false, pressure: false}\n"
# Of four pages a model takes two or three; who answers long takes them from the others.
GPU = "  - {name: gpu0, kind: cuda, memory: 8MiB}\n"
# A GPU orders sums by what runs together: where two tokens are as good as each other another one may come.
GPU_WRONG = 0.02
LIMITS = "limits: {queue: 40}\n"
PROMPTS, LONG_PROMPTS = 40, 8


def configuration(models, options):
    devices = GPU if options.gpu else WOVEN if options.weave else DEVICES
    return heddle.config(devices=devices, models=models, extra=LIMITS + (WEAVE if options.weave else ""))


def undisturbed(server, models, seed, weave):
    """What each model says when nothing disturbs it: the text that no disturbance may change."""
    rng = random.Random(f"{seed}-questions")
    expected = {}
    for model in models:
        for prompt, _ in heddle.eval_set(model, LONG_PROMPTS if weave else PROMPTS):
            options = 0 if rng.random() < 0.6 else rng.randrange(1, clients.LONG)
            options = clients.LONG if weave and rng.random() < 0.7 else options
            question = clients.Question(model, prompt, options)
            expected[question] = clients.ask(server.url, question)
    return expected


def deaths_of_their_own(server):
    """What the log says of workers that nobody killed."""
    return [line for line in server.log().splitlines() if "worker ended" in line and "signal 9" not in line]


def faults_at_rest(server):
    """What is not as it should be when no request is left; waits for things to settle."""
    faults, deadline = [], time.monotonic() + 30
    while time.monotonic() < deadline:
        server.call("/unload", method="POST")
        state = server.call("/api/devices")[2]
        running = [trace["id"] for trace in server.call("/api/requests")[2]["requests"] if trace["running"]]
        faults = [f"request {name} still runs" for name in running]
        for device in state["devices"]:
            if not device["up"] or device["pages_free"] != device["pages_total"]:
                free = f"{device['pages_free']} of {device['pages_total']} pages are free"
                faults.append(f"device {device['name']}: up {device['up']}, {free} with nothing loaded")
        host, images = state["host"], state["host"]["pages"]["image"]["held"]
        if host["pages_free"] + images != host["pages_total"]:
            faults.append(f"host: {host['pages_free']} free and {images} of images are not {host['pages_total']}")
        if not faults:
            break
        time.sleep(0.5)
    return faults


def tasks(server, options, seed, until, expected, tally):
    """All that goes on at once: [(function, arguments)]."""
    models = heddle.demo_models()
    full = configuration(models, options)
    without = {gone: configuration([name for name in models if name != gone], options) for gone in models}
    found = [(clients.client, (server, n, seed, until, expected, tally)) for n in range(options.clients)]
    found.append((clients.vanishing_connections, (server, seed, until, tally)))
    found += [(hostile.client, (server, models, n, seed, until, tally)) for n in range(options.hostile)]
    found.append((disturbances.reload, (server, full, without, 20, seed, until, tally)))
    found.append((disturbances.unload, (server, models, 7, seed, until, tally)))
    found.append((disturbances.overload, (server, options.clients, 25, seed, until, expected, tally)))
    if options.kill_every > 0:
        moments = disturbances.MOMENTS + (disturbances.WOVEN_MOMENTS if options.weave else ())
        found.append((disturbances.kill_workers, (server, options.kill_every, moments, seed, until, tally)))
        found.append((disturbances.stop_workers, (server, 3 * options.kill_every, seed, until, tally)))
    return found


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--kill-every", type=float, default=10, metavar="S", help="seconds; 0 kills nobody")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--hostile", type=int, default=1, metavar="N", help="further clients, that mean harm")
    parser.add_argument("--gpu", action="store_true", help="on the machine's first GPU, instead of two CPU devices")
    parser.add_argument("--weave", action="store_true", help="two equal devices that lend each other memory for KV")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep-log", metavar="FILE", help="where the server's log goes when the run failed")
    return parser.parse_args()


def main():
    options = parse_options()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"soak: seed {seed}, {options.minutes:g} minutes, a kill every {options.kill_every:g} s", flush=True)
    tally = clients.Tally()
    crashed = []

    def run(function, arguments):
        try:
            function(*arguments)
        except Exception as error:  # A thread that ends early would make the run easier than it says.
            crashed.append(f"{function.__name__}: {type(error).__name__} {error}")

    with heddle.Server(configuration(heddle.demo_models(), options)) as server:
        expected = undisturbed(server, heddle.demo_models(), seed, options.weave)
        start = time.monotonic()
        work = tasks(server, options, seed, start + 60 * options.minutes, expected, tally)
        threads = [threading.Thread(target=run, args=task) for task in work]
        for thread in threads:
            thread.start()
        shown = start
        while any(thread.is_alive() for thread in threads) and server.process.poll() is None:
            time.sleep(0.2)
            if time.monotonic() - shown > (10 if sys.stderr.isatty() else 30):
                shown = time.monotonic()
                print(f"soak: {shown - start:5.0f} s {dict(sorted(tally.counts.items()))}", flush=True)
        alive = server.process.poll() is None
        faults = faults_at_rest(server) if alive else ["the server ended"]
        faults += deaths_of_their_own(server)
        if options.weave and alive:
            lent = [each for each in server.call("/api/decisions")[2]["decisions"] if each["decision"] == "lend"]
            faults += [] if lent else ["nothing was lent"]
        resident = server.resident_bytes() / 2**20 if alive else 0
        status = server.stop()
        faults += crashed + ([f"the server ended with status {status}"] if status != 0 else [])
        counts = tally.counts
        ended = counts["right"] + counts["wrong"] + counts["lost"] + counts["cancelled by the client"]
        allowed = GPU_WRONG * counts["right"] if options.gpu else 0
        if counts["wrong"] > allowed or counts["lost"] or ended != counts["sent"] or counts["right"] == 0:
            faults.append(f"{counts['wrong']} wrong, {counts['lost']} lost, {ended} of {counts['sent']} answered")
        for what in ("attacks answered with 500", "stopped workers left alone"):
            if counts[what]:
                faults.append(f"{counts[what]} {what}")
        if faults and options.keep_log:
            pathlib.Path(options.keep_log).write_text(server.log())
    print(f"soak: {dict(sorted(counts.items()))}; {resident:.0f} MiB resident at the end")
    for what, detail in tally.failures:
        print(f"soak: {what}: {detail}")
    for fault in faults:
        print(f"soak: {fault}")
    print("soak: FAILED" if faults else f"soak: passed: {counts['wrong']} wrong, 0 lost")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
