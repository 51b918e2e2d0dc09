"""H1: cold starts of HydraServe's Fig. 7. The constants of a platform are fitted on the Llama columns only,
through the simulator; OPT and Falcon are predicted with them."""

import math

import picture
from harness import ROOT, Outcome, Unavailable, between, within

MODELS = ["opt-2.7b", "opt-6.7b", "opt-13b", "llama2-7b", "llama2-13b", "llama3-8b", "falcon-7b"]
# Seconds to the first token, from the artifact's plot scripts. Pipelines are for models above 10 GB: opt-2.7b
# ran with one stage under "four".
PAPER = {
    "v100": {
        "serverless-vllm": [16.781, 23.625, 40.262, 23.164, 38.576, 29.212, 25.428],
        "serverlessllm": [13.097, 17.112, 26.148, 19.088, 26.188, 21.158, 19.095],
        "serverlessllm, cached": [11.094, 11.753, 14.773, 12.108, 15.144, 13.147, 12.098],
        "hydraserve, one stage": [7.918, 9.736, 17.032, 9.915, 17.387, 11.704, 10.233],
        "hydraserve, four stages": [7.930, 8.184, 8.524, 7.655, 8.707, 8.565, 8.298],
    },
    "a10": {
        "serverless-vllm": [10.141, 17.017, None, 16.571, None, 19.334, 16.212],
        "serverlessllm": [10.046, 14.098, None, 14.077, None, 17.073, 14.105],
        "serverlessllm, cached": [7.057, 7.740, None, 8.079, None, 9.089, 8.081],
        "hydraserve, one stage": [4.679, 8.330, None, 8.358, None, 10.253, 8.980],
        "hydraserve, four stages": [4.748, 5.861, None, 5.589, None, 6.307, 6.172],
    },
}
# How each column is run: the policy, and whether the first or the second start of a model counts.
COLUMNS = {
    "serverless-vllm": ("serverless-vllm", 0),
    "serverlessllm": ("serverlessllm", 0),
    "serverlessllm, cached": ("serverlessllm", 1),
    "hydraserve, one stage": ("hydraserve:stages=1,merge=0", 0),
    "hydraserve, four stages": ("hydraserve:stages=4,merge=0", 0),
}
SMALL = {"hydraserve, four stages": {"opt-2.7b"}}
GPUS = {"v100": ("V100", 4, 1.0), "a10": ("A10", 1, 0.92)}

# What is not fitted. The containers, contexts and groups cannot be told apart from libraries by these numbers.
FIXED = {
    "v100": {"container": 2.0, "context": 1.0, "communicator": 0.3, "hop": 2e-3, "group": 1.6},
    "a10": {"container": 1.2, "context": 0.6, "communicator": 0.3, "hop": 2e-3, "group": 1.6},
}
START = {  # Where the search begins [s, s/GB]: the orders of magnitude.
    "v100": {"library": 3.0, "engine": 3.0, "attach": 1.0, "load": 0.3, "cached_load": 0.15},
    "a10": {"library": 3.0, "engine": 1.0, "attach": 0.5, "load": 0.2, "cached_load": 0.15},
}
UNUSED = {"map_page": "40us", "swap": "0.235s", "swap_load": "0.143s/GB", "restart": "40s"}


def platform(values):
    timed = ("container", "context", "library", "engine", "attach", "communicator", "hop", "group")
    entry = {name: f"{values[name] * 1e6:.0f}us" for name in timed}
    entry |= {name: f"{values[name]:.5f}s/GB" for name in ("load", "cached_load")}
    return entry | UNUSED


def perf_folder(sim, values_by_platform):
    """A copy of data/perf with these constants of platforms."""
    return sim.perf_folder({"platforms.yaml": {"platforms": {name: platform(v) for name, v in values_by_platform.items()}}})


def predictions(sim, kind, models, columns, perf):
    """{column: {model: seconds}} for cold starts one after the other on an otherwise idle cluster."""
    gpu, gpus, usable = GPUS[kind]
    cluster = sim.file(f"{kind}.yaml", {"hosts": [{
        "count": 4, "name": kind, "gpu": gpu, "gpus": gpus, "usable": str(usable), "cache": "150GB",
        "nic": "1.66GB/s", "pcie": "12GB/s", "nvlink": "100GB/s", "host_memory": "60GB/s", "platform": kind}]})
    rules = sim.file("h1-models.yaml", {"models": {
        name: {"shape": name, "engine": "vllm-0.6", "batch": 8, "chunk": 4096, "overhead": "1GB", "ttft": "7.5s", "tpot": "1s"}
        for name in MODELS}})
    rows = [(1000 * (2 * i + k), name, 128, 4) for i, name in enumerate(models) for k in (0, 1)]
    trace = sim.write_trace("h1", rows)
    policies = sorted({COLUMNS[column][0] for column in columns})
    runs = sim.many([(trace, cluster, rules, policy, "--perf", perf) for policy in policies], requests=True)
    made = {}
    for column in columns:
        policy, which = COLUMNS[column]
        served = [r for r in runs[policies.index(policy)]["requests"]]
        made[column] = {name: float(served[2 * i + which]["ttft_s"]) for i, name in enumerate(models)}
    return made


def pairs(kind, made, held_out):
    """(column, model, paper, ours) of the columns' models that are Llamas, or are not."""
    for column, by_model in made.items():
        for name, ours in by_model.items():
            paper = PAPER[kind][column][MODELS.index(name)]
            if paper is not None and name.startswith("llama") != held_out:
                yield column, name, paper, ours


def fit(sim, kind, columns):
    """Least squares of the logarithm, one constant after the other, on the Llama columns."""
    llamas = [m for m in MODELS if m.startswith("llama") and PAPER[kind]["serverlessllm"][MODELS.index(m)]]
    values = FIXED[kind] | START[kind]

    def error(candidate):
        made = predictions(sim, kind, llamas, columns, perf_folder(sim, {kind: candidate}))
        return sum(math.log(ours / paper) ** 2 for _, _, paper, ours in pairs(kind, made, False))

    best = error(values)
    step = {name: value / 2 for name, value in START[kind].items()}
    for _ in range(9):
        for name in step:
            for sign in (1, -1):
                while True:
                    candidate = values | {name: round(max(0.0, values[name] + sign * step[name]), 5)}
                    found = error(candidate) if candidate != values else best
                    if found >= best - 1e-9:
                        break
                    values, best = candidate, found
            step[name] /= 2
    return values


def published(kind):
    """The constants of data/perf/platforms.yaml, as far as they are fitted here."""
    text = (ROOT / "data/perf/platforms.yaml").read_text()
    body = text.split(f"\n  {kind}:", 1)[1].split("}", 1)[0].replace("{", "").replace("\n", " ")
    made = {}
    for item in body.split(","):
        name, value = (part.strip() for part in item.split(":"))
        scale = 1e-3 if value.endswith("ms") else 1e-6 if value.endswith("us") else 1
        made[name] = float(value.rstrip("/GBsmu")) * scale
    return made


def h1(sim):
    columns = [c for c, (policy, _) in COLUMNS.items() if policy.split(":")[0] in sim.policies]
    missing = [c for c in COLUMNS if c not in columns]
    if missing:
        raise Unavailable("the policy hydraserve")
    rows, groups, notes, speedups = [], {c: [] for c in columns}, [], {}
    for kind in PAPER:
        values = fit(sim, kind, columns)
        models = [m for i, m in enumerate(MODELS) if PAPER[kind]["serverlessllm"][i] is not None]
        made = predictions(sim, kind, models, columns, perf_folder(sim, {kind: values}))
        for rival, least, most in (("serverless-vllm", 2.12, 4.72), ("serverlessllm", 1.65, 3.07)):
            gains = [(made[rival][m] / made["hydraserve, four stages"][m], m) for m in models]
            speedups.setdefault(rival, (least, most, []))[2].extend(gains)
        worst = max(abs(ours / paper - 1) for _, _, paper, ours in pairs(kind, made, False))
        for column, name, paper, ours in pairs(kind, made, True):
            rows.append(within(f"{kind.upper()}, {column}, {name}: TTFT [s]", paper, ours, 0.12, held_out=True))
            groups[column].append((paper, ours, True))
        groups_in = pairs(kind, made, False)
        for column, _, paper, ours in groups_in:
            groups[column].append((paper, ours, False))
        there = published(kind)
        fitted = ", ".join(f"{name} {values[name]:.3g}" for name in START[kind])
        notes.append(f"{kind.upper()}: fitted on {'three' if kind == 'v100' else 'two'} Llama columns: {fitted} "
                     f"[s, s/GB]; worst Llama row {worst:.0%} off.")
        drift = max(abs(there[name] - values[name]) / max(0.5, values[name]) for name in START[kind])
        rows.append(between(f"{kind.upper()}: data/perf has these constants (largest difference)", 0, drift, 0, 0.1))
    for rival, (least, most, gains) in speedups.items():
        for which, paper, (gain, model) in (("least", least, min(gains)), ("most", most, max(gains))):
            rows.append(within(f"four stages over {rival}, {which} ({model})", paper, gain, 0.12, fit=model.startswith("llama")))
    chart = picture.scatter("Cold starts: filled = fitted, hollow = held out", groups, "paper [s]", "ours [s]")
    note = ("\n".join(f"- {n}" for n in notes) + "\n\n"
            "The sum of container, context and library is what counts. The time to form a pipeline (1.6 s for four stages, on both platforms) "
            "is not separable from it on the Llama rows and is assumed. From 1.5 to 1.9 s all rows pass; elsewhere OPT-2.7B is up to 19 % off "
            "on one of the two. Up to four stages are allowed. The policy takes two where these suffice for its objective, while the paper "
            "forces four.")
    return Outcome(rows, note, [("h1.svg", chart, "Fig. 7, paper against simulator")])
