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
import prism
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
    Experiment("S3", "Swap-in of full vLLM engines (SwapServeLLM)", must_pass.s3),
    Experiment("S4", "Swap-in of lean engines (SwapServeLLM)", must_pass.s4),
    *(Experiment(*entry) for entry in [*warmserve.EXPERIMENTS, *directions.EXPERIMENTS, *prism.EXPERIMENTS, directions.UNIFIED]),
]

HEAD = """# Reproduction

Experiments of five papers, replayed by `heddle simulate` and a few probes of single policies: those for which the
papers state enough, not all that they have. `./dev reproduce` writes this page; do not edit it, but the texts in
`tools/reproduce`.

| in a row | it means |
|---|---|
| pass | ours is within the tolerance of the paper's number, or the direction holds |
| FAIL | it is not; below the table stands what else was tried |
| fit | ours was made to meet this number, or it is an input of ours: not counted |
| P99, GPU-s | the 99th percentile of times to the first token [s], and GPU-seconds, of the runs that ours is of |

Experiments in bold type must pass: the command fails when they do not. *Not run* says what was missing. Every policy
of an experiment begins in the same state, with the same requests before those that count: weights in the store alone
for HydraServe's, in host memory of every server (`--initial warm`) for the others.
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
    return "fit" if row.fit else "" if row.passed is None else "pass" if row.passed else "FAIL"


def table(rows, columns):
    """Rows of numbers, with the cost of the runs behind them where rows name these."""
    costs = any(row.runs for row in rows)
    heads = ["", *columns, "ratio", "tolerance", "", *(["P99", "GPU-s"] if costs else [])]
    lines = [f"| {' | '.join(heads)} |".replace("|  |", "| |").replace("|  |", "| |"), "|" + "---|" * len(heads)]
    for row in rows:
        what = row.what + (" (held out)" if row.held_out else "")
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        cells = [what, cell(row.paper), cell(row.ours), ratio, row.tolerance, verdict(row)]
        if costs:
            cells.append(" / ".join(f"{run['ttft_s']['p99']:.3g}" for run in row.runs))
            cells.append(" / ".join(f"{run['gpu_seconds']:.0f}" for run in row.runs))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def attempts(rows):
    """What else was tried where a row fails."""
    lines = []
    for row in rows:
        if row.passed is False:
            tried = row.tried() if callable(row.tried) else row.tried
            lines.append(f"- {row.what}: " + (f"tried {tried}." if tried else "nothing else was tried."))
    return "Rows that fail, and what else was tried:\n\n" + "\n".join(lines) if lines else ""


def judge(experiment, outcome):
    """(what to say, whether it passed); None: nothing to judge."""
    judged = [row for row in outcome.rows if row.passed is not None]
    good = sum(row.passed for row in judged)
    fits = sum(row.fit for row in outcome.rows)
    said = f"{good} of {len(judged)}" + (f", and {fits} fit{'s' if fits > 1 else ''}" if fits else "")
    return said, good >= experiment.quorum * len(judged) if judged else None


def run_all(experiments, sim):
    results = []
    for experiment in experiments:
        start = time.monotonic()
        print(f"{experiment.id:5} {experiment.title} ... ", end="", flush=True, file=sys.stderr)
        try:
            outcome = experiment.run(sim)
            said, passed = judge(experiment, outcome)
            outcome.tried = attempts(outcome.rows)
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
        mark = "pass" if passed else "FAIL" if passed is False else "fits only" if "fit" in said else "not run"
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
        text += table(outcome.rows, outcome.columns) + "\n"
        if outcome.tried:
            text += f"\n{wrapped(outcome.tried)}\n"
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
