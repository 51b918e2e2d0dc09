#!/usr/bin/env python3
"""Compares what the built CUDA kernels take of a GPU with the checked-in table, or writes the table.

    tools/kernel_resources.py BUILD            # what cmake/heddle_cuda.cmake left there, against the table
    tools/kernel_resources.py BUILD --write    # the table made anew

A kernel that takes more registers or shared memory has fewer blocks on a multiprocessor, one that spills goes through
memory: neither shows in a test. The table is of one nvcc, which it names; with another one nothing is compared. No
kernel may spill, whatever the nvcc. Exit status 1: they differ, or one spills; 77: there is nothing to compare.
"""

import argparse
import pathlib
import re
import sys

TABLE = pathlib.Path(__file__).resolve().parent.parent / "src/ops/cuda/kernels/resources.txt"
HEAD = """\
# What each kernel takes, by ptxas: registers of a thread, static shared memory of a block [bytes], and what it spills
# to memory [bytes stored + loaded]. Made by tools/kernel_resources.py, which the test cuda.kernel_resources runs.
"""
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


def parse(text):
    """{(kernel, architecture): (registers, shared, spilled)} of ptxas -v's words."""
    found = {}
    current = None
    spilled = 0
    for line in text.splitlines():
        if match := ENTRY.search(line):
            current, spilled = match.groups(), 0
        elif current and (match := SPILL.search(line)):
            spilled = int(match[1]) + int(match[2])
        elif current and (match := USED.search(line)):
            shared = SHARED.search(line)
            found[current] = (int(match[1]), int(shared[1]) if shared else 0, spilled)
            current = None
    return found


def render(found, compiler):
    lines = [HEAD, f"nvcc {compiler}\n"]
    for (kernel, architecture), (registers, shared, spilled) in sorted(found.items()):
        lines.append(f"{kernel} {architecture} {registers} registers {shared} shared {spilled} spilled\n")
    return "".join(lines)


def differences(old, new):
    before = {tuple(line.split()[:2]): line for line in old.splitlines() if line.startswith("heddle_")}
    after = {tuple(line.split()[:2]): line for line in new.splitlines() if line.startswith("heddle_")}
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield f"  table: {before.get(key, 'nothing')}\n  built: {after.get(key, 'nothing')}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("--write", action="store_true")
    options = arguments.parse_args()
    reports = sorted(options.build.glob("src/ops/heddle_ops_*.fatbin.ptxas"))
    version = options.build / "nvcc_version.txt"
    if not reports or not version.exists():
        print("no kernels were built")
        return 77
    found = {}
    for report in reports:
        found.update(parse(report.read_text()))
    if spilling := sorted(f"  {kernel} {architecture}: {spilled} bytes"
                          for (kernel, architecture), (_, _, spilled) in found.items() if spilled):
        print("these kernels spill registers to memory: smaller tiles, or a stage apart\n" + "\n".join(spilling))
        return 1
    compiler = version.read_text().strip()
    table = render(found, compiler)
    if options.write:
        TABLE.write_text(table)
        return 0
    checked_in = TABLE.read_text()
    if f"nvcc {compiler}\n" not in checked_in:
        print(f"the table is not of nvcc {compiler}")
        return 77
    wrong = list(differences(checked_in, table))
    if wrong:
        print(f"{TABLE.name} is not what was built; where that is meant: tools/kernel_resources.py BUILD --write")
        print("\n".join(wrong))
        return 1
    print(f"{len(found)} kernels as the table has them, none spills")
    return 0


if __name__ == "__main__":
    sys.exit(main())
