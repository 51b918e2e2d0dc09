"""What this machine is: rows for programs on standard output, NVIDIA's own words on standard error."""

import json
import os
import pathlib
import platform
import resource
import subprocess
import sys

QUERY = (
    "name",
    "driver_version",
    "memory.total",
    "memory.used",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "clocks.max.sm",
    "power.limit",
)
LIBRARIES = (
    "nvidia-smi -q",
    "nvidia-smi topo -m",
    "lscpu",
    "ls -l /dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm",
    "dmesg",
)
TORCH = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"


def row(what, **values):
    print(json.dumps({"what": what, **values}), flush=True)


def said(command, lines=None):
    """What a program says; what is wrong with it where it does not run."""
    try:
        told = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20)
        text = told.stdout if told.returncode == 0 else told.stdout + told.stderr
        return "\n".join(text.splitlines()[-lines:] if lines else text.splitlines())
    except (OSError, subprocess.TimeoutExpired) as failed:
        return str(failed)


def text_of(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return None


def gpus():
    told = said(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"])
    for index, line in enumerate(told.splitlines()):
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(QUERY):
            row("gpu", index=index, **dict(zip(QUERY, values)))


def main():
    gpus()
    memory = dict(line.split(":") for line in (text_of("/proc/meminfo") or "").splitlines())
    row(
        "host",
        kernel=platform.release(),
        cores=len(os.sched_getaffinity(0)),
        memory_kib=int(memory.get("MemTotal", "0 kB").split()[0]),
        huge_pages=memory.get("HugePages_Total", "").strip(),
        shmem_enabled=text_of("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        torch=said([sys.executable, "-c", TORCH], lines=1),
        heddle=said([os.environ.get("HEDDLE_BINARY", "heddle"), "version"]),
    )
    for command in LIBRARIES:
        print(f"\n$ {command}\n{said(command.split(), lines=80 if command == 'dmesg' else None)}", file=sys.stderr)


if __name__ == "__main__":
    main()
