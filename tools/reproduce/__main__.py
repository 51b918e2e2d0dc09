"""Replays the papers' experiments in the simulator and writes docs/reproduction.md.

    ./dev reproduce [--traces DIR] [--only ID,...] [--no-write]

Exit status 1 when a row that must pass fails. Python's standard library only; the simulator and the probes are
the targets of `reproduction`.
"""

import argparse
import dataclasses
import os
import pathlib
import sys
import textwrap
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import cold_starts
import directions
import must_pass
import warmserve
from harness import ROOT, RunFailed, Simulator, Unavailable


@dataclasses.dataclass
class Experiment:
    id: str
    title: str
    run: object
    must: bool = False
    quorum: float = 1.0  # Of judged rows that have to pass.


EXPERIMENTS = [
    Experiment("OPT", "Optimality of Moore-Hodgson and of the KVPR planner", must_pass.optimality, True),
    Experiment("W10", "Order of the load predictors (WarmServe 5.1)", must_pass.predictors, True),
    Experiment("V1", "Two instances against tensor parallelism (WEAVER, Table 1)", must_pass.v1, True),
    Experiment("H1", "Cold starts, constants held out (HydraServe, Fig. 7)", cold_starts.h1, True),
    Experiment("P9", "Three models on one GPU (Prism, Table 5)", must_pass.p9, True),
    Experiment("S3", "Swap-in of full vLLM engines (SwapServeLLM)", must_pass.s3, True),
    Experiment("S4", "Swap-in of lean engines (SwapServeLLM)", must_pass.s4, True),
    *(Experiment(*entry) for entry in [*warmserve.EXPERIMENTS, *directions.EXPERIMENTS]),
]

HEAD = """# Reproduction

Every experiment of the five papers that a simulator can target, replayed by `heddle simulate` and a few probes of
single policies. `./dev reproduce` writes this page; do not edit it, but the texts in `tools/reproduce`.

A row passes when ours is within the tolerance of the paper's number, or when the direction holds. Rows in bold type
must pass: the command fails when they do not. *Not run* says what was missing.
"""

AFTER = """
## The traces

They are not part of the repository. `./dev reproduce --traces DIR` wants a folder with `real/`, `semi/`, `synth/` and
`inputs/`. Without the option it takes a folder `traces` or `shared/traces` beside or above the checkout, or what
`HEDDLE_TRACES` names.

| source | licence | what it is here |
|---|---|---|
| Azure LLM inference 2023 | CC-BY 4.0, Microsoft | an hour of real requests |
| Azure LLM inference 2024 | CC-BY 4.0, Microsoft | real rates with drawn arrivals |
| Arena log of VTC | Apache-2.0 | real requests |
| Mooncake | Apache-2.0 | an hour of real requests |
| Azure Functions 2019 by way of In-Vitro (the 384 models) | CC-BY 4.0, MIT | real rates with drawn arrivals |
| ServeGen | Apache-2.0, Alibaba | rates |
| BurstGPT | CC-BY 4.0, HPMLL | |
| Prism's traces | | drawn from published statistics |
"""

COLUMNS = 118  # Of prose; tables are as wide as they are.


def wrapped(note):
    """A note's paragraphs in lines; tables as they are, list items one by one."""
    parts = []
    for part in note.split("\n\n"):
        lines = part.split("\n") if part.startswith(("|", "- ")) else [part]
        parts.append("\n".join(line if line.startswith("|") else fold(line) for line in lines))
    return "\n\n".join(parts)


def fold(line):
    return textwrap.fill(line, COLUMNS, break_long_words=False, break_on_hyphens=False, subsequent_indent="  " if line.startswith("- ") else "")


def find_traces(given):
    """The folder of traces, or None; a folder that was named must be there."""
    named = given or os.environ.get("HEDDLE_TRACES")
    if named:
        path = pathlib.Path(named)
        if not (path / "semi").is_dir():
            raise SystemExit(f"reproduce: {path} is not a folder of traces: it has no semi/")
        return path.resolve()
    for above in (ROOT, *ROOT.parents):
        for name in ("traces", "shared/traces"):
            if (above / name / "semi").is_dir():
                return (above / name).resolve()
    return None


def cell(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value).replace("|", "\\|")


def verdict(row):
    return "" if row.passed is None else "pass" if row.passed else "FAIL"


def table(rows):
    lines = ["| | paper | ours | ratio | tolerance | |", "|---|---|---|---|---|---|"]
    for row in rows:
        what = row.what + (" (held out)" if row.held_out else "")
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"| {what} | {cell(row.paper)} | {cell(row.ours)} | {ratio} | {row.tolerance} | {verdict(row)} |")
    return "\n".join(lines)


def judge(experiment, outcome):
    """(what to say, whether it passed); None: nothing to judge."""
    judged = [row for row in outcome.rows if row.passed is not None]
    good = sum(row.passed for row in judged)
    said = f"{good} of {len(judged)}"
    return said, bool(judged) and good >= experiment.quorum * len(judged)


def run_all(experiments, sim):
    results = []
    for experiment in experiments:
        start = time.monotonic()
        print(f"{experiment.id:5} {experiment.title} ... ", end="", flush=True, file=sys.stderr)
        try:
            outcome = experiment.run(sim)
            said, passed = judge(experiment, outcome)
        except Unavailable as missing:
            outcome, said, passed = None, f"not run: needs {missing}", None
        except RunFailed as error:
            outcome, said, passed = None, f"failed: {error}", False
        except Exception:  # One broken experiment must not hide the others.
            traceback.print_exc()
            outcome, said, passed = None, "failed: the experiment itself is broken", False
        took = time.monotonic() - start
        print(f"{said} ({took:.1f} s)", file=sys.stderr)
        results.append((experiment, outcome, said, passed, took))
    return results


def document(results):
    parts = [HEAD, "| | experiment | rows in tolerance | |\n|---|---|---|---|"]
    for experiment, _, said, passed, _ in results:
        mark = "not run" if passed is None else "pass" if passed else "FAIL"
        bold = "**" if experiment.must else ""
        parts.append(f"| {bold}{experiment.id}{bold} | {experiment.title} | {said} | {bold}{mark}{bold} |")
    text = "\n".join(parts) + "\n"
    for experiment, outcome, said, _, _ in results:
        text += f"\n## {experiment.id}: {experiment.title}\n\n"
        if outcome is None:
            text += said[0].upper() + said[1:] + ".\n"
            continue
        for name, _, caption in outcome.pictures:
            text += f"![{caption}](reproduction/{name})\n\n"
        text += table(outcome.rows) + "\n"
        if outcome.note:
            text += f"\n{wrapped(outcome.note)}\n"
    return text + AFTER


def main():
    parser = argparse.ArgumentParser(prog="./dev reproduce", description=__doc__.splitlines()[0])
    parser.add_argument("--traces", help="folder of traces")
    parser.add_argument("--only", help="experiments, with commas between them; nothing is written")
    parser.add_argument("--build", default=str(ROOT / "build/release"), help="folder of the build")
    parser.add_argument("--jobs", type=int, default=2, help="simulations at once")
    parser.add_argument("--no-write", action="store_true", help="leave docs/ as it is")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [e.id for e in EXPERIMENTS]
    unknown = set(wanted) - {e.id for e in EXPERIMENTS}
    if unknown:
        parser.error(f"no experiment {', '.join(sorted(unknown))}; there are: {', '.join(e.id for e in EXPERIMENTS)}")
    sim = Simulator(pathlib.Path(options.build), find_traces(options.traces), ROOT / "build/reproduce", options.jobs)
    if sim.trace_folder is None:
        print("reproduce: no traces found: experiments that need them are not run (--traces DIR, or HEDDLE_TRACES)", file=sys.stderr)
    results = run_all([e for e in EXPERIMENTS if e.id in wanted], sim)
    if not options.no_write and not options.only:
        pictures = ROOT / "docs/reproduction"
        pictures.mkdir(exist_ok=True)
        for _, outcome, *_ in results:
            for name, svg, _ in outcome.pictures if outcome else ():
                (pictures / name).write_text(svg)
        (ROOT / "docs/reproduction.md").write_text(document(results))
        print("wrote docs/reproduction.md", file=sys.stderr)
    elif options.only:
        print(document(results))
    bad = [e.id for e, _, _, passed, _ in results if e.must and not passed]
    if bad:
        print(f"reproduce: must pass and do not: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
