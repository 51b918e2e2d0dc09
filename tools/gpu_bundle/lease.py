"""Checks and times heddle on this machine's GPUs, as much as a short time allows.

    lease.py [CALL ... | PART ...] [OPTION ...]

A CALL is truth, numbers, sweep, robustness or final (all five when nothing is named), and takes 570 seconds at most.
Its parts run in the order of their worth, each a process with a limit of its own, and never longer than the call has
left. A part that fails, hangs or is missing stops no other. OUT gets, as soon as it is known:

    gpu.log               all that is said          summary.txt              a line for each part
    gpu.jsonl             rows of figures           results-CALL.tar.gz      all of OUT, written anew after each part
    PART.txt              what a part said          report.md, gpus.yaml     the tables and entries (entry.py)

Status: 0 all that ran passed, or there is no GPU; 1 a part failed; 2 a wrong argument; 143 it was told to end.
"""

import argparse
import datetime
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import entry  # noqa: E402
import libraries  # noqa: E402
import plan  # noqa: E402
import processes  # noqa: E402

LEAST = 5  # With fewer seconds left nothing is begun.
RESERVE = 8  # Seconds of a call that are kept for its end: what runs is ended, all is packed.
ARCHIVED_BYTES_MAX = 32 << 20  # A larger file stays where it is.
DRIVER = "libcuda.so.1"


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("names", nargs="*", metavar="CALL or PART")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "out", help="the folder OUT")
    parser.add_argument("--budget", type=float, default=plan.BUDGET, help="seconds of a call")
    parser.add_argument("--limit", type=float, help="seconds of a part, at most")
    parser.add_argument("--list", action="store_true", help="name the calls and their parts")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and what would not and why")
    parser.add_argument("--without-cublaslt", action="store_true", help="measure heddle's own products for all sizes")
    parser.add_argument("--small", action="store_true", help="for the emulated driver, whose times mean nothing")
    options = parser.parse_args()
    options.out = options.out.resolve()
    return parser, options


def chosen(parser, options):
    """[(name of a call, its parts)]."""
    setting = plan.Setting(HERE, options.out, options.small)
    calls = {call: plan.parts_of(call, setting) for call in plan.CALLS}
    known = {part.name: part for parts in calls.values() for part in parts}
    unknown = [name for name in options.names if name not in calls and name not in known]
    if unknown:
        parser.exit(2, f"no call and no part '{unknown[0]}'; --list tells them\n")
    named = [known[name] for name in options.names if name in known]
    whole = [(name, calls[name]) for name in options.names if name in calls]
    return [*whole, *([("parts", named)] if named else [])] or list(calls.items())


class Lease:
    """One run of this program."""

    def __init__(self, options):
        self.options = options
        options.out.mkdir(parents=True, exist_ok=True)
        self.keeper = processes.Keeper(options.out)
        self.environment = os.environ | {"HEDDLE_SOURCE_DIR": str(HERE), "HEDDLE_BINARY": str(HERE / "bin/heddle")}
        self.environment.setdefault("HEDDLE_CUDA_DRIVER", DRIVER)
        self.blas = self.why_no_blas = None
        self.sanitizer = None
        self.failed = False
        self.stop = threading.Event()  # Set by the word to end; nothing is begun from then on.

    def told_to_end(self, _number, _frame):
        self.stop.set()

    def prepare(self):
        """Finds what programs need of this machine, and says what it found."""
        if self.options.without_cublaslt:
            self.environment["HEDDLE_CUBLASLT"] = "none"
        found, told = libraries.find_cublaslt(self.environment)
        if found:
            self.blas, self.environment["HEDDLE_CUBLASLT"] = found, found
            self.keeper.say(f"cuBLASLt: {found}, version {told}")
        else:
            self.why_no_blas = told
            self.keeper.say(f"cuBLASLt: none, {told}")

    def reason_against(self, part):
        """Why it cannot run here; None where it can."""
        if part.why_not:
            return part.why_not
        program = part.command[0]
        if program == plan.SANITIZER:
            if self.sanitizer is None:
                self.sanitizer = libraries.find_sanitizer(HERE, self.environment)
            return None if self.sanitizer[0] else self.sanitizer[1]
        for each in (program, *(word for word in part.command[1:] if word.startswith(("bin/", "bench/", "tests/")))):
            here = shutil.which(each) if "/" not in each else (HERE / each).exists()
            if not here:
                return f"{each} is not here"
        return None

    def fault_of(self, part):
        """Why it fails before it has begun; None where it does not."""
        if part.blas and not self.blas and not self.options.without_cublaslt:
            return f"no cuBLASLt ({self.why_no_blas}); --without-cublaslt measures without"
        return None

    def conclude(self, call, part, status, seconds, why, **more):
        """Says how it ended, in the log, in the rows and in the summary, where it replaces an earlier line."""
        self.failed |= status in ("failed", "hung")
        self.keeper.row(call=call, part=part.name, status=status, seconds=round(seconds, 2), why=why, **more)
        line = f"{part.name}: {status} after {seconds:.0f} s" if seconds else f"{part.name}: {status}"
        line += f", {why}" if why else ""
        self.keeper.say(line)
        path = self.options.out / "summary.txt"
        before = path.read_text().splitlines() if path.exists() else []
        kept = [each for each in before if not each.startswith(f"{part.name}: ")]
        path.write_text("\n".join([*kept, line]) + "\n")

    def run(self, call, part, limit):
        command = [self.sanitizer[0] if word == plan.SANITIZER else word for word in part.command]
        stamp = {"call": call, "part": part.name}
        told = processes.Told(self.keeper, self.options.out / f"{part.name}.txt", stamp)
        settings = " ".join(f"{key}={value}" for key, value in part.environment.items())
        self.keeper.say(f"\n== {part.name}, at most {limit:.0f} s: {settings} {' '.join(map(str, command))}")
        began = time.monotonic()
        try:
            environment = self.environment | part.environment
            status, seconds = processes.run(command, limit, environment, HERE, told, self.stop)
        except processes.CutOff:
            self.conclude(call, part, "cut off", time.monotonic() - began, "this program was told to end")
            raise
        except OSError as failed:
            self.conclude(call, part, "failed", 0, str(failed))
            return
        more = {"tests": told.counts, "failures": told.failures} if told.counts or told.failures else {}
        more |= {"environment": part.environment} if part.environment else {}
        if status is None:
            self.conclude(call, part, "hung", seconds, f"it took longer than {limit:.0f} s: {told.last}", **more)
        elif status != 0:
            why = ", ".join(told.failures) or told.last
            self.conclude(call, part, "failed", seconds, f"status {status}: {why}", **more)
        elif why := told.skipped():
            self.conclude(call, part, "skipped", seconds, why, **more)
        else:
            self.conclude(call, part, "passed", seconds, "", **more)
        if status != 0:
            self.keep_kernel_log(part)

    def keep_kernel_log(self, part):
        """What the kernel has to say of a failure: Xid errors of the driver are there."""
        try:
            told = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", timeout=5)
            lines = (told.stdout or told.stderr).splitlines()[-80:]
            (self.options.out / f"{part.name}.dmesg.txt").write_text("\n".join(lines) + "\n")
        except (OSError, subprocess.TimeoutExpired):
            pass

    def call(self, name, parts):
        began = time.monotonic()
        at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        tuned = {key: value for key, value in self.environment.items() if key.startswith("HEDDLE_TUNE_")}
        version = (HERE / "version").read_text().strip() if (HERE / "version").exists() else "unknown"
        self.keeper.say(f"\n==== {name} of heddle {version}, {at}, {self.options.budget:.0f} s")
        self.keeper.row(call=name, at=at, version=version, cublaslt=self.blas, environment=tuned)
        try:
            for part in parts:
                self.one(name, part, began)
                self.archive(name)
        finally:
            self.tell_entries()
            self.archive(name)

    def one(self, call, part, began):
        if self.stop.is_set():
            raise processes.CutOff
        left = self.options.budget - RESERVE - (time.monotonic() - began)
        limit = min(part.limit, self.options.limit or part.limit)
        if reason := self.reason_against(part):
            self.conclude(call, part, "skipped", 0, reason)
        elif fault := self.fault_of(part):
            self.conclude(call, part, "failed", 0, fault)
        elif left < LEAST:
            self.conclude(call, part, "skipped", 0, f"the call's {self.options.budget:.0f} s are spent")
        else:
            self.run(call, part, min(limit, left))

    def tell_entries(self):
        try:
            entry.write(self.options.out)
        except (OSError, ValueError, KeyError) as failed:  # The rows are there, to be told elsewhere.
            self.keeper.say(f"entry.py: {failed!r}")

    def archive(self, call):
        """All of OUT that is not too large, under another name until it is whole."""
        target = self.options.out / f"results-{call}.tar.gz"
        partial = target.with_suffix(".partial")
        with tarfile.open(partial, "w:gz", compresslevel=6) as archive:
            for path in sorted(self.options.out.rglob("*")):
                inside = path.relative_to(self.options.out)
                if path.name.startswith("results-") or not path.is_file():
                    continue
                if path.stat().st_size <= ARCHIVED_BYTES_MAX:
                    archive.add(path, arcname=f"results-{call}/{inside}")
        os.replace(partial, target)

    def dry_run(self, calls):
        for name, parts in calls:
            print(f"{name}, {self.options.budget:.0f} s:")
            at = 0
            for part in parts:
                limit = min(part.limit, self.options.limit or part.limit)
                reason = self.reason_against(part) or self.fault_of(part)
                late = (
                    ""
                    if at + LEAST <= self.options.budget - RESERVE
                    else ", if those before it take less than they may"
                )
                print(f"  {part.name:<24} {limit:>4.0f} s, from {at:>4.0f} s on  {reason or 'runs' + late}")
                at += 0 if reason else limit


def main():
    parser, options = arguments()
    calls = chosen(parser, options)
    if options.list:
        for name, parts in calls:
            print(f"{name}: {' '.join(part.name for part in parts)}")
        return 0
    if (
        os.environ.get("HEDDLE_CUDA_DRIVER", DRIVER) == DRIVER
        and not os.path.exists("/dev/nvidiactl")
        and not options.dry_run
    ):
        print("skipped: there is no NVIDIA GPU here (no /dev/nvidiactl)")
        return 0
    lease = Lease(options)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lease.told_to_end)
    try:
        lease.prepare()
        if options.dry_run:
            lease.dry_run(calls)
            return 0
        for name, parts in calls:
            lease.call(name, parts)
    except processes.CutOff:
        return 143
    print("\n" + (options.out / "summary.txt").read_text(), end="")
    return 1 if lease.failed else 0


if __name__ == "__main__":
    sys.exit(main())
