"""What happens to a server during a soak: workers die at the worst moments, the configuration changes, the load multiplies."""

import os
import random
import signal
import threading
import time

from clients import exchange

STOPPED_SECONDS = 15  # How long a stopped worker may stand, on a busy machine.
SEARCH_SECONDS = 5  # How long to wait for a moment before taking any.
MOMENTS = ("at any moment", "while loading", "before a first token", "all at once")
WOVEN_MOMENTS = ("of a host", "of who has guests", "while memory comes back")


def kill(server, device, tally, moment):
    """Kills the worker of a device; device None means all of them at once."""
    workers = server.workers()
    for worker in workers if device is None else workers[device : device + 1]:
        try:
            os.kill(worker, signal.SIGKILL)
            tally.add(f"killed {moment}")
            tally.add("workers killed")
        except ProcessLookupError:
            pass


def weaving(server, moment):
    """The device that the moment is about, if there are guests as it wants them."""
    devices = server.call("/api/devices")[2]["devices"]
    for place, device in enumerate(devices):
        for guest in device["guests"]:
            if guest["in_use"] > 0 and (moment != "while memory comes back" or guest["recalled"] > 0):
                of = [each["name"] for each in devices].index(guest["device"])
                return of if moment == "of who has guests" else place
    return None


def moment_of(server, moment):
    """Waits for a moment: the device that a model is being loaded on, or that a prompt runs on, or as weaving() has it.
    None if none came."""
    names = [device["name"] for device in server.call("/api/devices")[2]["devices"]]
    deadline = time.monotonic() + SEARCH_SECONDS
    while time.monotonic() < deadline:
        if moment in WOVEN_MOMENTS:
            if (place := weaving(server, moment)) is not None:
                return place
        elif moment == "while loading":
            for row in server.call("/running")[2]["running"]:
                if row["state"] == "starting" and row.get("device") in names:
                    return names.index(row["device"])
        else:
            for trace in server.call("/api/requests")[2]["requests"]:
                for part in trace["parts"] if trace["running"] else []:
                    if part["device"] in names and part["phases"]["prefill_ms"] is None:
                        return names.index(part["device"])
        time.sleep(0.002)
    return None


def kill_workers(server, every, moments, seed, until, tally):
    """A kill every so many seconds on average, at one of these moments."""
    rng = random.Random(f"{seed}-kills")
    devices = len(server.call("/api/devices")[2]["devices"])
    due = time.monotonic()
    while True:
        due += every * rng.uniform(0.5, 1.5)
        time.sleep(max(due - time.monotonic(), 0))
        if due > until:
            return
        moment = rng.choice(moments)
        if moment in ("at any moment", "all at once"):
            device = None if moment == "all at once" else rng.randrange(devices)
        else:
            device = moment_of(server, moment)
            moment = moment if device is not None else "at any moment"
            device = device if device is not None else rng.randrange(devices)
        kill(server, device, tally, moment)


def stop_workers(server, every, seed, until, tally):
    """Stops a worker for longer than one may be silent: the server has to see that by itself."""
    rng = random.Random(f"{seed}-stops")
    while True:
        time.sleep(every * rng.uniform(0.5, 1.5))
        if time.monotonic() > until:
            return
        worker = rng.choice(server.workers() or [None])
        try:
            os.kill(worker, signal.SIGSTOP)
        except (ProcessLookupError, TypeError):
            continue
        tally.add("workers stopped")
        deadline = time.monotonic() + STOPPED_SECONDS
        while worker in server.workers() and time.monotonic() < deadline:
            time.sleep(0.05)
        if worker in server.workers():
            tally.add("stopped workers left alone", f"worker {worker} stood for {STOPPED_SECONDS} s")
            os.kill(worker, signal.SIGCONT)


def reload(server, full, without, every, seed, until, tally):
    """Takes a model out of the configuration and puts it back; its requests are refused meanwhile and sent again."""
    rng = random.Random(f"{seed}-reloads")
    names = sorted(without)
    while True:
        time.sleep(every * rng.uniform(0.5, 1.5))
        if time.monotonic() > until:
            return
        for text in (without[rng.choice(names)], full):
            server.config_path.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            tally.add("reloads")
            time.sleep(rng.uniform(0.2, 1.5))


def unload(server, models, every, seed, until, tally):
    """An operator who unloads what is in use."""
    rng = random.Random(f"{seed}-unloads")
    while True:
        time.sleep(every * rng.uniform(0.5, 1.5))
        if time.monotonic() > until:
            return
        status, _, _ = server.call("/models/unload", {"model": rng.choice(models)}, timeout=120)
        tally.add(f"unloads answered with {status}")


def overload(server, clients, every, seed, until, expected, tally):
    """Ten times as many clients for a moment."""
    rng = random.Random(f"{seed}-overload")
    questions = list(expected)

    def burst(number, until_burst):
        own = random.Random(f"{seed}-{number}-{until_burst}")
        while time.monotonic() < until_burst:
            exchange(server, own.choice(questions), expected, tally, until, own)

    while True:
        time.sleep(every * rng.uniform(0.5, 1.5))
        if time.monotonic() > until:
            return
        tally.add("bursts of ten times the load")
        end = min(time.monotonic() + 2, until)
        threads = [threading.Thread(target=burst, args=(n, end)) for n in range(9 * clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
