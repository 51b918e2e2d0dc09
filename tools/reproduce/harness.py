"""What the experiments share: running the simulator and the probes, and rows of results."""

import concurrent.futures
import csv
import dataclasses
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

STUCK = 3  # Status where a policy left requests unserved and came to a stop; its numbers hold.
WARM = ("--initial", "warm")  # Weights lie in host memory at first, whatever the policy.
LONGEST_RUN = 90  # Seconds; the largest takes a tenth of that.
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Unavailable(Exception):
    """Something outside the repository that an experiment needs is not there; says what."""


class RunFailed(Exception):
    """A run of the simulator or a probe did not end well; says which policy and how, and no paths."""


@dataclasses.dataclass
class Row:
    """One number of a paper beside ours."""

    what: str
    paper: object  # A number, or words.
    ours: object
    passed: bool | None  # None: not judged.
    tolerance: str = ""
    held_out: bool = False
    fit: bool = False  # Ours was made to meet the paper's number, or is an input: shown, not judged.
    runs: tuple = ()  # JSON of the runs that ours is of, whose P99 of first tokens and GPU-seconds stand beside it.
    tried: object = None  # Asked where the row fails: what else was tried, and what came of it.

    def __post_init__(self):
        if self.fit:
            self.passed = None
        if isinstance(self.runs, dict):
            self.runs = (self.runs,)

    @property
    def ratio(self):
        if isinstance(self.paper, (int, float)) and isinstance(self.ours, (int, float)) and self.paper:
            return self.ours / self.paper
        return None


def within(what, paper, ours, tolerance, **more):
    """A row that passes when ours is within `tolerance` (a part) of the paper's number."""
    passed = abs(ours - paper) <= tolerance * abs(paper)
    return Row(what, paper, ours, passed, f"± {tolerance:.0%}", **more)


def between(what, paper, ours, least, most, **more):
    """A row that passes when ours lies in a range."""
    return Row(what, paper, ours, least <= ours <= most, f"{least:g} to {most:g}", **more)


def holds(what, claim, ours, passed, **more):
    """A row about a direction or an order."""
    return Row(what, claim, ours, bool(passed), "direction", **more)


def percent(value):
    return round(100 * value, 2)


def near(what, paper, ours, **more):
    """A row of tolerance class R: within a factor of two."""
    return Row(what, paper, ours, paper / 2 <= ours <= paper * 2, "factor 2", **more)


@dataclasses.dataclass
class Outcome:
    """An experiment's rows, pictures, and what a reader must know."""

    rows: list
    note: str = ""
    pictures: list = dataclasses.field(default_factory=list)  # (file name, SVG text, caption)
    columns: tuple = ("paper", "ours")  # Heads of the two numbers.
    tried: str = ""  # What was tried for rows that fail; the command fills it in.


def arena_log():
    """The public Chatbot Arena log's first six minutes, as dictionaries."""
    with open(ROOT / "tests/traces/arena_27model.csv") as file:
        return list(csv.DictReader(file))


class Simulator:
    """Runs `heddle simulate` and the probes; remembers what it ran."""

    def __init__(self, build, traces, work, jobs=2):
        self.binary = build / "tests/sim/simulate"
        self.probes = build / "tools/reproduce"
        self.trace_folder = traces
        self.work = work
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.remembered = {}
        self.commands = {}
        work.mkdir(parents=True, exist_ok=True)
        listed = subprocess.run([self.binary, "simulate", "--help"], capture_output=True, text=True, check=True).stdout
        after = listed.split("Policies (", 1)[1]
        self.policies = {line.split()[0] for line in after.splitlines()[1:] if line.startswith("  ") and line[2] != " "}

    def trace(self, name):
        """The path of a trace, by its name below the folder of traces."""
        if self.trace_folder is None:
            raise Unavailable("the traces (--traces DIR)")
        path = self.trace_folder / name
        if not path.exists():
            raise Unavailable(f"the trace {name} below {self.trace_folder}")
        return path

    def rows_of(self, name):
        """A trace's rows as dictionaries."""
        path = self.trace(name)
        opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
        with opened as file:
            return list(csv.DictReader(file))

    def file(self, name, content):
        """Writes a file that a run needs, once per content. Structures become JSON, which YAML includes."""
        text = content if isinstance(content, str) else json.dumps(content, indent=1)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        path = self.work / f"{digest}-{name}"
        if not path.exists():
            path.write_text(text)
        return path

    def perf_folder(self, files):
        """A copy of data/perf in which these files are others."""
        digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:10]
        folder = self.work / f"perf-{digest}"
        if not folder.exists():
            folder.mkdir()
            for source in (ROOT / "data/perf").glob("*.yaml"):
                shutil.copy(source, folder / source.name)
            for name, content in files.items():
                (folder / name).write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return folder

    def write_trace(self, name, rows):
        """A trace of (arrival in seconds, model, input tokens, output tokens)."""
        lines = [f"{at:.6f},{model},{int(i)},{int(o)}" for at, model, i, o in sorted(rows)]
        return self.file(name + ".csv", "arrival_s,model,input_tokens,output_tokens\n" + "\n".join(lines) + "\n")

    def needs(self, *policies):
        missing = [p for p in policies if p.split(":")[0] not in self.policies]
        if missing:
            raise Unavailable(f"the policy {', '.join(missing)}")

    def _run(self, key):
        trace, cluster, models, policy, options, requests = key
        self.needs(policy)
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
        rows = self.work / f"run-{digest}.csv"
        command = [self.binary, "simulate", "-t", trace, "-c", cluster, "-m", models, "-p", policy, "--json", "-"]
        command += ["--perf", ROOT / "data/perf"] if "--perf" not in options else []
        command += list(options) + (["--csv", rows] if requests else [])
        text = " ".join(map(str, command))
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LONGEST_RUN)
        except subprocess.TimeoutExpired as late:
            print(f"\nno end after {LONGEST_RUN} s: {text}", file=sys.stderr)
            raise RunFailed(f"policy {policy} did not come to an end within {LONGEST_RUN} s") from late
        if done.returncode not in (0, STUCK):
            print(f"\n{text}\n{done.stderr}", file=sys.stderr)
            raise RunFailed(f"policy {policy}: the simulator ended with status {done.returncode}")
        if done.returncode == STUCK:
            print(f"\n{text}\n{done.stderr}", file=sys.stderr)
        result = json.loads(done.stdout)["runs"][0]
        if requests:
            with open(rows) as file:
                result["requests"] = list(csv.DictReader(file))
            os.unlink(rows)
        return result

    def run(self, trace, cluster, models, policy, *options, requests=False):
        """One run's JSON; with `requests`, its rows too."""
        key = (str(trace), str(cluster), str(models), policy, tuple(map(str, options)), requests)
        if key not in self.remembered:
            self.remembered[key] = self._run(key)
        return self.remembered[key]

    def many(self, calls, **more):
        """Several runs at once, in their order; each call is the arguments of run()."""
        futures = [self.pool.submit(self.run, *call, **more) for call in calls]
        return [future.result() for future in futures]

    def probe(self, name, *arguments, stdin=None):
        done = subprocess.run([self.probes / name, *map(str, arguments)], input=stdin, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            raise RunFailed(f"{name} ended with status {done.returncode}")
        return done.stdout
