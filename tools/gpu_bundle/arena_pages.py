"""arena_pages.py GPU_MODEL ARGUMENT ...: a load from host memory in huge pages, and from one in small ones.

The kernel decides for all of shared memory (/sys/kernel/mm/transparent_hugepage/shmem_enabled), so that this needs to
be root's; the setting is as it was in the end. Where it cannot be changed that is said, and nothing is measured.
"""

import json
import os
import pathlib
import subprocess
import sys

SETTING = pathlib.Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


def skipped(why):
    print(json.dumps({"what": "arena pages", "skipped": why}))
    return 0


def main():
    if os.environ.get("HEDDLE_CUDA_DRIVER", "libcuda.so.1") != "libcuda.so.1":
        return skipped("for another driver than the machine's own it is left as it is")
    try:
        before = SETTING.read_text().split("[")[1].split("]")[0]
        SETTING.write_text(before)
    except (OSError, IndexError) as failed:
        return skipped(f"{SETTING} cannot be changed: {failed}")
    status = 0
    try:
        for kind in ("advise", "never"):
            SETTING.write_text(kind)
            told = subprocess.run([*sys.argv[1:], "--part", "load"], capture_output=True, text=True)
            sys.stderr.write(told.stderr)
            status = status or told.returncode
            for line in told.stdout.splitlines():
                values = json.loads(line)
                if "what" in values:
                    print(json.dumps(values | {"shmem_enabled": kind}), flush=True)
    finally:
        SETTING.write_text(before)
    return status


if __name__ == "__main__":
    sys.exit(main())
