"""Prism's sweeps of rate, objectives and memory, its case of 18 models, activations, and its queue for each GPU."""

import picture
from directions import EIGHT, HEDDLE, HYPERBOLIC, SHAPES, arena, arena_rules, bursty_eight, h100s, percent, requests_of
from harness import WARM, Outcome, Row, arena_log, holds, near, within

SYSTEMS = ("static", "muxserve++", "prism", HEDDLE)
RIVALS = ("static", "muxserve++")


def short(policy):
    return policy.split(":")[0]


def first_tokens_met(sim, trace, cluster, rules, policies=SYSTEMS):
    return {p: percent(run["ttft_attainment"]) for p, run in
            zip(policies, sim.many([(trace, cluster, rules, p, *WARM) for p in policies]))}


def arena_eight(sim, copies):
    """The eight models of the Arena log; as in Prism's code, more load is every request so many times at the same instant."""
    with open(arena(sim, 1)) as file:
        rows = [line.strip().split(",") for line in list(file)[1:]]
    return sim.write_trace(f"arena8at-once{copies}", [(float(at), m, int(i), int(o)) for at, m, i, o in rows for _ in range(copies)])


CASES = {  # name: trace of so many copies, scales of TTFT and TPOT, levels of load.
    "Hyperbolic": (bursty_eight, (20, 22), (4, 5, 6, 7, 8, 9, 10, 12, 14)),
    "Arena": (arena_eight, (10, 3), (4, 8, 12, 14, 16, 18, 20, 22, 24, 28)),
}


def half_memory(sim):
    """Two H100s of which models have half."""
    return sim.file("h100x2-half.yaml", {"hosts": [{
        "count": 1, "name": "h100", "gpu": "H100-80G", "gpus": 2, "usable": "0.5", "cache": "1600GB", "nic": "12GB/s",
        "pcie": "50GB/s", "nvlink": "250GB/s", "host_memory": "94GB/s", "spread": "22.7GB/s", "platform": "h100"}]})


def borne(curve):
    """The last level up to which 99 % of first tokens are in time; 0: none."""
    most = 0
    for level, met in curve:
        if met < 99:
            break
        most = level
    return most


def rate_curves(sim, case, cluster, levels=None):
    make, scales, usual = CASES[case]
    rules = arena_rules(sim, *scales)
    curves = {short(p): [] for p in SYSTEMS}
    for copies in levels or usual:
        for policy, met in first_tokens_met(sim, make(sim, copies), cluster, rules).items():
            curves[short(policy)].append((copies, met))
    return curves


FEWER = {"Hyperbolic": (1, 2, 3, 4, 5, 6), "Arena": (1, 2, 4, 6, 8, 12)}  # Levels of load with half the memory.
SHORT = "half the memory, in rows of their own"


def p2(sim):
    """The highest rate of eight models on two GPUs at which 99 % of first tokens are in time."""
    sim.needs(*SYSTEMS)
    rows, pictures = [], []
    for case, claims in (("Hyperbolic", {"muxserve++": 2.3, "static": 3.5}), ("Arena", {"muxserve++": 3.0, "static": 3.0})):
        for which, cluster, levels in (("", h100s(sim, 2), CASES[case][2]), (", half the memory", half_memory(sim), FEWER[case])):
            curves = rate_curves(sim, case, cluster, levels)
            most = {p: borne(curve) for p, curve in curves.items()}
            rows += rate_rows(f"{case}{which}", claims, most, curves, judged=not which)
            name = f"p2-{case.lower()}{'-half' if which else ''}.svg"
            pictures.append((name, picture.lines(f"First tokens in time, eight models on two GPUs ({case}{which})", curves, "copies of each request", "%", 100),
                             f"Rate sweep, {case}{which}"))
    note = ("Load is in copies of every request at the same instant, as Prism's code makes it. The Hyperbolic-like trace (drawn from published "
            "statistics) has 1.6 requests per second for the eight models, the public Arena log 1.1. Shared traces are not the paper's: compare order.\n\n"
            "That Prism bears a multiple of what the others bear **does not reproduce** with 72 GB of each GPU. In the paper KV is what is short; here "
            "reading the prompts of a burst is, and that takes as long under every policy. With 40 GB, of which weights take 80 %, the order is the "
            "paper's; those rows are not judged, as the paper has no such GPUs. MuxServe++ finds no place for one of the models there.")
    return Outcome(rows, note, pictures)


def rate_rows(case, claims, most, curves, judged):
    """How the most loads that systems bear compare."""
    rows = []
    for rival, claim in claims.items():
        what = f"{case}: highest rate, prism over {rival} ({most['prism']} and {most[rival]} copies)"
        ratio = most["prism"] / most[rival] if most[rival] else f"{rival} has {curves[rival][0][1]} % with one"
        rows.append(near(what, claim, ratio, tried=SHORT) if judged else Row(what, claim, ratio, None))
    best = max(most[short(p)] for p in SYSTEMS[:3])
    what, said = f"{case}: highest rate, heddle and the best single one (copies)", f"{most['heddle']} and {best}"
    rows.append(holds(what, "not lower", said, most["heddle"] >= best, tried=SHORT) if judged else Row(what, "", said, None))
    return rows


SCALES = {"Hyperbolic": ((5, 2), (10, 3), (15, 6), (20, 14), (25, 22), (30, 30)),
          "Arena": ((2, 1.5), (5, 2), (7.5, 2.5), (10, 3), (12.5, 3.5), (15, 4))}


def least(curve):
    """The least scale from which on 99 % are met."""
    return next((scale for scale, met in curve if met >= 99), None)


def most_for_prism(sim, case, cluster, levels):
    """The most copies that Prism bears: at these loads it is compared."""
    make, scales, _ = CASES[case]
    rules = arena_rules(sim, *scales)
    return borne([(copies, percent(sim.run(make(sim, copies), cluster, rules, "prism", *WARM)["ttft_attainment"])) for copies in levels])


def scale_curves(sim, case, cluster, copies):
    """Attainment of both objectives by their scale."""
    curves = {kind: {short(p): [] for p in SYSTEMS} for kind in ("ttft", "tpot")}
    for pair in SCALES[case]:
        runs = sim.many([(CASES[case][0](sim, copies), cluster, arena_rules(sim, *pair), p, *WARM) for p in SYSTEMS])
        for policy, run in zip(SYSTEMS, runs):
            for scale, kind in zip(pair, curves):
                curves[kind][short(policy)].append((scale, percent(run[f"{kind}_attainment"])))
    return curves


def scale_rows(case, claims, curves):
    """What is judged with the memory that the paper has."""
    prism, rival, tpot = claims
    half = prism[0] / 2
    at_half = {p: dict(c)[half] for p, c in curves["ttft"].items()}
    reached = {kind: {p: least(c) for p, c in of.items()} for kind, of in curves.items()}
    others = {p: reached["ttft"][p] for p in RIVALS}
    largest = max(curves["ttft"][p][-1][1] for p in RIVALS)
    best = max(at_half[p] for p in RIVALS)
    rows = [within(f"{case}: scale of TTFT at which Prism has 99 %", prism[0], reached["ttft"]["prism"], 0.25, fit=True),
            holds(f"{case}: scale of TTFT for 99 %, baselines", "none reaches it", ", ".join(f"{p} {v or 'none'}" for p, v in others.items()),
                  not any(others.values()), tried=SHORT),
            holds(f"{case}: first tokens in time at the largest scale, best baseline [%]", f"{rival}", f"{largest}", largest < 99, tried=SHORT),
            holds(f"{case}: the same at {half:g} units, Prism against the best baseline", "better", f"{at_half['prism']} against {best}", at_half["prism"] > best),
            near(f"{case}: scale of TPOT at which Prism has 99 %", prism[1], reached["tpot"]["prism"], tried=SHORT)]
    if tpot:
        rows.append(near(f"{case}: scale of TPOT at which static has 99 %", tpot, reached["tpot"]["static"], tried=SHORT))
    rows.append(Row(f"{case}: scales of TTFT and TPOT at which heddle has 99 %", "",
                    f"{reached['ttft']['heddle'] or 'none'} and {reached['tpot']['heddle'] or 'none'}", None))
    return rows


def p3(sim):
    """Attainment by the scale of objectives, at the most load that Prism bears."""
    sim.needs(*SYSTEMS)
    rows, pictures = [], []
    for case, claims in (("Hyperbolic", ((20, 22), 84.79, 26)), ("Arena", ((10, 3), 67.22, None))):
        copies = most_for_prism(sim, case, h100s(sim, 2), CASES[case][2])
        curves = scale_curves(sim, case, h100s(sim, 2), copies)
        rows += scale_rows(case, claims, curves)
        for kind in curves:
            pictures.append((f"p3-{case.lower()}-{kind}.svg", picture.lines(f"{kind.upper()} in time by the objectives' scale ({case}, {copies} copies)", curves[kind],
                                                                          "times the unit", "%", 100), f"{kind.upper()} by scale, {case}"))
        fewer = most_for_prism(sim, case, half_memory(sim), FEWER[case])
        there = scale_curves(sim, case, half_memory(sim), fewer)
        largest = {p: there["ttft"][p][-1][1] for p in RIVALS}
        rows.append(Row(f"{case}, half the memory, {fewer} copies: first tokens in time at the largest scale, best baseline [%]", claims[1], max(largest.values()), None))
        rows.append(Row(f"{case}, half the memory, {fewer} copies: scale of TTFT and TPOT at which Prism has 99 %", f"{claims[0][0]} and {claims[0][1]}",
                        f"{least(there['ttft']['prism']) or 'none'} and {least(there['tpot']['prism']) or 'none'}", None))
    note = ("Both objectives are scaled together, on two GPUs, at the most load that Prism bears there at the paper's scales (P2): its row of TTFT "
            "is a fit by that. The rates of the paper are not stated. As in P2 the baselines are much closer than in the paper, since KV is not "
            "short. Neither is the pace as slow as on the Hyperbolic trace of the paper, where Prism needs 22 units of TPOT: here queues form before "
            "batches are so large.")
    return Outcome(rows, note, pictures)


# The 18 models of Prism's second case: rank in the log, and the units of TTFT and TPOT (ms).
EIGHTEEN = [(5, 38.7, 6.94), (10, 32.2, 6.71), (4, 31.4, 6.11), (17, 51.0, 10.82), (2, 32.5, 6.99), (10, 39.3, 6.85), (23, 46.7, 12.60), (2, 41.9, 6.94),
            (10, 34.5, 7.52), (14, 60.6, 6.20), (19, 45.5, 10.21), (14, 50.2, 5.78), (18, 35.7, 7.62), (14, 35.3, 5.67), (21, 42.3, 8.50), (2, 21.1, 5.00),
            (6, 30.6, 5.44), (19, 48.4, 8.66)]


def size_of(tpot):
    """A step of those engines takes 0.345 ms a layer."""
    return "8b" if tpot >= 10 else "3b" if tpot >= 8 else "1b"


LABELS = [f"n{k:02}-{size_of(tpot)}" for k, (_, _, tpot) in enumerate(EIGHTEEN)]


def eighteen_rules(sim, ttft_scale, tpot_scale):
    return sim.file("eighteen.yaml", {"models": {
        label: {"shape": SHAPES[size_of(tpot)], "engine": "sglang", "batch": 256, "chunk": 2048, "overhead": "1GB",
                "ttft": f"{ttft * ttft_scale * 1000:.0f}us", "tpot": f"{tpot * tpot_scale * 1000:.0f}us"}
        for label, (_, ttft, tpot) in zip(LABELS, EIGHTEEN)}})


def arena_eighteen(sim, copies):
    """Models take ranks of the log; those of one rank are 10 s apart, the less popular ones earlier."""
    log, counts, seen, rows = arena_log(), {}, {}, []
    for row in log:
        counts[row["model"]] = counts.get(row["model"], 0) + 1
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    for label, (rank, _, _) in zip(LABELS, EIGHTEEN):
        index = seen[rank] = seen.get(rank, -1) + 1
        name = ranked[min(rank, len(ranked)) - 1]
        shift = index * (-10 if rank in (14, 19) else 10)
        rows += [((float(r["arrival_s"]) + shift) % 360, label, int(r["input_tokens"]), int(r["output_tokens"])) for r in log if r["model"] == name] * copies
    return sim.write_trace(f"arena18x{copies}", rows)


def bursty_eighteen(sim, copies):
    """The same models on half an hour of the Hyperbolic-like trace: those most asked for are the largest."""
    rows, counts = requests_of(sim, HYPERBOLIC, 1800), {}
    for _, model, _, _ in rows:
        counts[model] = counts.get(model, 0) + 1
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    names = dict(zip(ranked, sorted(LABELS, key=lambda label: -int(label.split("-")[1][:-1]))))
    return sim.write_trace(f"bursty18x{copies}", [(at, names[m], i, o) for at, m, i, o in rows for _ in range(copies) if m in names])


def p4(sim):
    """GPUs for 99 % of first tokens of 18 models in time, at the most load that Prism bears on the paper's number."""
    sim.needs(*SYSTEMS, "muxserve")
    rows, pictures = [], []
    for case, make, scales, paper in (("Hyperbolic", bursty_eighteen, (20, 22), 4), ("Arena", arena_eighteen, (10, 3), 5)):
        rules = eighteen_rules(sim, *scales)
        of = lambda policy, gpus, copies: sim.run(make(sim, copies), h100s(sim, gpus), rules, policy, *WARM)
        met = lambda policy, gpus, copies: percent(of(policy, gpus, copies)["ttft_attainment"])
        copies, step = 1, 16
        while step:  # Bisection: more copies are never easier.
            if copies + step <= 64 and met("prism", paper, copies + step) >= 99:
                copies += step
            else:
                step //= 2
        curve = {short(p): [] for p in SYSTEMS}
        for gpus in (1, 2, 3, 4, 5, 6, 8):
            for policy in SYSTEMS:
                curve[short(policy)].append((gpus, met(policy, gpus, copies)))
        needed = {p: next((gpus for gpus, value in line if value >= 99), None) for p, line in curve.items()}
        needed["muxserve"] = 8 if met("muxserve", 8, copies) >= 99 else None
        rows.append(near(f"{case}: GPUs for 99 %, prism", paper, needed["prism"], fit=True, runs=of("prism", needed["prism"], copies)))

        def fewer(case=case, rules=rules, make=make, copies=copies):
            half = max(1, copies // 2)
            there = {short(p): next((g for g in range(1, 9) if percent(sim.run(make(sim, half), h100s(sim, g), rules, p, *WARM)["ttft_attainment"]) >= 99), "none")
                     for p in ("static", "muxserve++", "prism", HEDDLE)}
            return f"{half} instead of {copies} copies: " + ", ".join(f"{p} {v}" for p, v in there.items())

        for rival in ("static", "muxserve", "muxserve++"):
            rows.append(holds(f"{case}: GPUs for 99 %, {rival}", "more than 8", str(needed[rival] or "more than 8"), needed[rival] is None,
                              runs=of(rival, needed[rival] or 8, copies), tried=fewer))
        rows.append(holds(f"{case}: prism", "fewer GPUs than every baseline", ", ".join(f"{p} {n or '> 8'}" for p, n in needed.items() if p != "heddle"),
                          all(needed["prism"] < (needed[p] or 9) for p in ("static", "muxserve", "muxserve++")), tried=fewer))
        rows.append(holds(f"{case}: heddle", "no more GPUs than prism", str(needed["heddle"] or "more than 8"), (needed["heddle"] or 9) <= needed["prism"],
                          runs=of(HEDDLE, needed["heddle"] or 8, copies), tried=fewer))
        rows.append(Row(f"{case}: first tokens in time on 8 GPUs [%]", "", ", ".join(f"{p} {line[-1][1]}" for p, line in curve.items()), None))
        pictures.append((f"p4-{case.lower()}.svg", picture.lines(f"First tokens in time, 18 models ({case}, {copies} copies)", curve, "GPUs", "%", 100), f"18 models, {case}"))
    note = ("Ranks and units of the objectives are those of Prism's public code. Sizes of the 18 models follow from the units of TPOT (0.345 ms a layer): three of 8B, "
            "two of 3B, thirteen of 1B. Load is in copies at the same instant, the most that Prism bears on as many GPUs as in the paper; the paper's is not "
            "stated. Of the Arena log the first six minutes are public here, with 22 of its models. All weights fit on two GPUs. So a policy that "
            "never moves anything has as much KV to give as Prism. On the Arena log all but heddle are within half a point of 99 % with 8 GPUs: those "
            "passes say little.")
    return Outcome(rows, note, pictures)


def p5(sim):
    """Activations from host memory through all GPUs of a server."""
    sim.needs("prism")
    rows = []
    for shape, tp, weights, paper in (("llama3-8b", 1, 16.1, 0.7), ("qwen2.5-14b", 1, 29.6, 1.3), ("llama2-70b", 8, 138, 1.5)):
        # So little room that only one of two models is there: the other one's first request waits for its activation.
        cluster = sim.file("p5.yaml", {"hosts": [{
            "count": 1, "name": "h100", "gpu": "H100-80G", "gpus": tp, "usable": f"{(weights / tp + 4) / 80:.4f}", "cache": "1600GB", "nic": "12GB/s",
            "pcie": "50GB/s", "nvlink": "250GB/s", "host_memory": "94GB/s", "spread": "22.7GB/s", "platform": "h100"}]})
        rules = sim.file("p5-models.yaml", {"models": {"*": {"shape": shape, "engine": "sglang", "tp": tp, "batch": 256, "chunk": 2048, "overhead": "1GB",
                                                             "ttft": "1s", "tpot": "100ms"}}})
        run = sim.run(sim.write_trace("p5", [(0, "m", 64, 2)]), cluster, rules, "prism", *WARM, requests=True)
        rows.append(within(f"{shape}, {tp} GPU{'s' if tp > 1 else ''}: first token after activation [s]", paper, float(run["requests"][0]["ttft_s"]), 0.15, fit=True))
    note = ("All three are inputs: 22.7 GB/s through all GPUs of a server were read off the first two rows, 94 GB/s of host memory off the third. The rows check the way through the "
            "policy and the loads. The naive load that the paper compares with (7.1 s for 14B) is copied from pageable memory; no policy here does so.")
    return Outcome(rows, note)


def p6(sim):
    """Throughput of one Llama3-8B by the size of its KV."""
    sim.needs("dedicated")
    log = [(int(r["input_tokens"]), int(r["output_tokens"])) for r in arena_log()]
    lengths = {"261 in, 261 out": [(261, 261)], "749 in, 232 out": [(749, 232)], "1024 in, 1024 out": [(1024, 1024)], "Arena log": log}
    sizes = (5, 7.5, 10, 12.5, 15, 20, 30)
    rules = sim.file("p6.yaml", {"models": {"m": {"shape": "llama3-8b", "engine": "sglang", "batch": 512, "chunk": 2048, "overhead": "1GB", "ttft": "1s", "tpot": "1s"}}})
    curves, rows = {}, []
    for name, of in lengths.items():
        trace = sim.write_trace("p6", [(0.001 * k, "m", *of[k % len(of)]) for k in range(1500)])
        runs = sim.many([(trace, cluster, rules, "dedicated", *WARM) for cluster in (with_kv(sim, size) for size in sizes)])
        curves[name] = [(size, run["counts"]["tokens"] / run["span_s"]) for size, run in zip(sizes, runs)]
        made = dict(curves[name])
        rows.append(near(f"{name}: gained in tokens per second from 5 to 15 GB of KV", 1.0, round(made[15] / made[5] - 1, 3), tried=lambda: p6_longer(sim, rules)))
    note = ("1500 requests come at once. The paper has more than 1, its lengths are not stated. Where KV holds enough sequences the steps are bound by arithmetic and "
            "prompts, and more of it gains little: the longer a sequence, the more is gained.")
    return Outcome(rows, note, [("p6.svg", picture.lines("Llama3-8B on one H100", curves, "GB of KV", "tokens/s"), "Throughput by KV")])


def with_kv(sim, size):
    """One H100 that has so many GB for KV of a Llama3-8B."""
    return sim.file("p6-cluster.yaml", {"hosts": [{
        "count": 1, "name": "h100", "gpu": "H100-80G", "gpus": 1, "usable": f"{(16.06 + 1 + size) / 80:.5f}", "cache": "1000GB", "nic": "12GB/s",
        "pcie": "50GB/s", "nvlink": "250GB/s", "host_memory": "94GB/s", "platform": "h100"}]})


def p6_longer(sim, rules):
    """What longer sequences gain."""
    said = []
    for length in (1536, 2048):
        trace = sim.write_trace("p6-long", [(0.001 * k, "m", length, length) for k in range(600)])
        rate = [run["counts"]["tokens"] / run["span_s"] for run in (sim.run(trace, with_kv(sim, size), rules, "dedicated", *WARM) for size in (5, 15))]
        said.append(f"{length} tokens in and out ({rate[1] / rate[0] - 1:.2f})")
    return " and ".join(said)


QUEUES = {"by arrival": "prism:queue=0", "by deadline": "prism"}


def two_models(sim, trace, strict, relaxed, speed):
    """{queue: (strict in time, relaxed in time) in %} on one H100, and the runs."""
    rules = sim.file("p7.yaml", {"models": {
        name: {"shape": "llama3-8b", "engine": "sglang", "batch": 256, "chunk": 2048, "overhead": "1GB", "ttft": ttft, "tpot": "1s"}
        for name, ttft in ((strict, "500ms"), (relaxed, "20s"))}})
    runs = dict(zip(QUEUES, sim.many([(trace, h100s(sim, 1), rules, policy, "--speed", speed, *WARM) for policy in QUEUES.values()])))
    met = {}
    for name, run in runs.items():
        of = {m["name"]: percent(m["ttft_met"] / m["requests"]) for m in run["models"]}
        met[name] = (of[strict], of[relaxed])
    return met, runs


def p7(sim):
    """Two models of unlike objectives on one GPU: queue by deadline (Moore-Hodgson) against queue by arrival."""
    sim.needs("prism")
    real = sim.trace("real/azure2023_conv_code.csv.gz")
    rows, curves = [], {}
    for strict, relaxed, speeds in (("azure-conv", "azure-code", (0.6, 0.8, 1.0, 1.2, 1.4)), ("azure-code", "azure-conv", (0.4, 0.6, 0.8, 1.0, 1.2))):
        found = {speed: two_models(sim, real, strict, relaxed, speed) for speed in speeds}
        gains = {speed: met["by deadline"][0] - met["by arrival"][0] for speed, (met, _) in found.items()}
        best = min(speeds, key=lambda s: abs(gains[s] - 40))
        met, runs = found[best]
        rows.append(near(f"{strict} strict, at {best:g} times the trace's rate: gained in time [points]", 40, round(gains[best], 2),
                         runs=(runs["by deadline"], runs["by arrival"]), fit=True))
        rows.append(holds(f"{strict} strict: least and most gained over all rates [points]", "tens of points", f"{min(gains.values()):.1f} and {max(gains.values()):.1f}",
                          max(gains.values()) >= 20 and min(gains.values()) >= 0))
        change = {speed: met["by deadline"][1] - met["by arrival"][1] for speed, (met, _) in found.items()}
        rows.append(holds(f"{relaxed} relaxed, at the same rate: change [points]", "unchanged", f"{change[best]:+.2f}", abs(change[best]) <= 2,
                          runs=(runs["by deadline"], runs["by arrival"])))
        worst = min(change.values())
        rows.append(holds(f"{relaxed} relaxed: worst change over all rates [points]", "not worse", f"{worst:+.2f}", worst >= -2))
        for queue in QUEUES:
            curves[f"{strict.split('-')[1]}, {queue}"] = [(s, found[s][0][queue][0]) for s in speeds]
    note = ("The traffic is 35 minutes of Azure's two services (2023): chats, and code whose prompts are longer and come in bursts. Both models are a Llama3-8B "
            "on one H100. First tokens are due after 0.5 s of the strict one and after 20 s of the other. The paper states neither its traffic nor its objectives. So the rate whose gain is nearest to 40 "
            "points is a fit, and what is judged is that the relaxed model pays nothing for it. The simulator has no flag for heddle's queue, which goes by deadline, so that heddle is not in this table.")
    return Outcome(rows, note, [("p7.svg", picture.lines("First tokens of the strict model in time", curves, "times the trace's rate", "%", 100), "Queue by deadline against by arrival")])


EXPERIMENTS = [
    ("P2", "Rates that eight models bear on two GPUs (Prism)", p2, False, 0.8),
    ("P3", "Attainment by the scale of objectives (Prism)", p3, False, 0.8),
    ("P4", "GPUs needed by 18 models (Prism)", p4, False, 0.8),
    ("P5", "Activation by model size (Prism)", p5, False, 0.8),
    ("P6", "Throughput by the size of KV (Prism)", p6, False, 0.8),
    ("P7", "Two models of unlike objectives on one GPU (Prism)", p7, False, 0.8),
]
