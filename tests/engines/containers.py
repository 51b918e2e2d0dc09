#!/usr/bin/env python3
"""Stands in for podman in tests: its words, with plain processes instead of containers.

An image is a program; what is known of containers lies in $HEDDLE_TEST_CONTAINERS, and every call is noted in its file `calls`.
A container whose image is "missing" cannot be run.
"""

import os
import signal
import subprocess
import sys
import time

ROOT = os.environ["HEDDLE_TEST_CONTAINERS"]


def path(name, kind):
    return os.path.join(ROOT, f"{name}.{kind}")


def pid_of(name):
    try:
        with open(path(name, "pid")) as file:
            return int(file.read())
    except FileNotFoundError:
        sys.exit(f"Error: no container with name {name}")


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run(arguments):
    name, env = None, dict(os.environ)
    while arguments[0].startswith("-"):
        flag = arguments.pop(0)
        if flag == "--name":
            name = arguments.pop(0)
        elif flag == "-e":
            key, _, value = arguments.pop(0).partition("=")
            env[key] = value
    if arguments[0] == "missing":
        sys.exit("Error: missing: image not known")
    with open(path(name, "log"), "wb") as log:
        process = subprocess.Popen(arguments, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    with open(path(name, "pid"), "w") as file:
        file.write(str(process.pid))
    print("0123456789ab")


def end(name, number, patience):
    pid = pid_of(name)
    deadline = time.monotonic() + patience
    if runs(pid):
        os.killpg(pid, number)
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.005)
    if runs(pid):
        os.killpg(pid, signal.SIGKILL)


def remove(name):
    if os.path.exists(path(name, "pid")):
        end(name, signal.SIGKILL, 10)
        for kind in ("pid", "log"):
            os.unlink(path(name, kind))


def follow(name):
    pid = pid_of(name)
    with open(path(name, "log"), "rb") as log:
        while True:
            alive = runs(pid)
            sys.stdout.buffer.write(log.read())
            sys.stdout.flush()
            if not alive:
                return
            time.sleep(0.01)


def wait(name):
    pid = pid_of(name)
    while runs(pid):
        time.sleep(0.01)
    print(0)


def main():
    with open(os.path.join(ROOT, "calls"), "a") as calls:
        calls.write(" ".join(sys.argv[1:3]) + "\n")
    verb, name = sys.argv[1], sys.argv[-1]
    if verb == "run":
        run(sys.argv[2:])
    elif verb == "inspect":
        print(pid_of(name) if runs(pid_of(name)) else 0)
    elif verb in ("pause", "unpause"):
        os.killpg(pid_of(name), signal.SIGSTOP if verb == "pause" else signal.SIGCONT)
    elif verb == "stop":
        end(name, signal.SIGTERM, float(sys.argv[sys.argv.index("-t") + 1]))
    elif verb == "rm":
        remove(name)
    elif verb == "logs":
        follow(name)
    elif verb == "wait":
        wait(name)
    else:
        sys.exit(f"Error: unknown command {verb}")


if __name__ == "__main__":
    main()
