"""entry.py OUT: makes of a lease's rows (OUT/gpu.jsonl) what the project keeps, so that nothing is typed by hand.

    OUT/gpus.yaml, platforms.yaml   entries for data/perf: what the simulator knows of such a GPU
    OUT/report.md                   the tables of docs/performance.md and bench/results/gpu.md

Of each figure the last one that was measured counts; those of the sweep are told beside the usual ones. What was not
measured is left out, and named.
"""

import json
import pathlib
import re
import sys

# Data sheets: dense 16-bit operations a second, bytes a second, bytes. Efficiencies are parts of these.
SHEETS = {
    "H200": (989.5e12, 4800e9, 141e9),
    "H100 NVL": (835.5e12, 3900e9, 94e9),
    "H100 PCIe": (756e12, 2000e9, 80e9),
    "H100": (989.5e12, 3350e9, 80e9),
    "A100-SXM4-80GB": (312e12, 2039e9, 80e9),
    "A100-SXM4-40GB": (312e12, 1555e9, 40e9),
    "L40S": (362e12, 864e9, 48e9),
}
NAMES = {
    "H100": "H100-80G",
    "A100-SXM4-80GB": "A100-80G",
    "A100-SXM4-40GB": "A100-40G",
}  # As data/perf/gpus.yaml has them.
PRODUCTS = ("qkv", "out", "gate_up", "down")
POINTWISE = ("norm", "silu", "rope")
SHAPE = "llama-3-8b"
BENCH_OPS = re.compile(r"attention +8B .* bf16 +(\d+) x +(\d+) after +(\d+) +([\d.]+) us")


class Rows:
    """The last row of each kind, by (shape, what), and what parts ended how."""

    def __init__(self, lines):
        self.found, self.sweep, self.parts, self.attention = {}, {}, {}, {}
        self.version, self.at, self.blas, self.device = "unknown", "", None, None
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # Cut off in the middle.
            self.take(row)

    def take(self, row):
        if "at" in row:
            self.version, self.at, self.blas = row.get("version", "unknown"), row["at"], row.get("cublaslt")
        elif "status" in row:
            self.parts[row["part"]] = row
        elif "device" in row:
            self.device = row["device"]
        elif "text" in row:
            found = BENCH_OPS.search(row["text"])
            if found and row.get("call") != "sweep":
                batch, fresh, context = map(int, found.groups()[:3])
                self.attention[batch, fresh, context] = 1e-6 * float(found[4])
        elif "what" in row and row.get("call") == "sweep":
            self.sweep.setdefault(row["part"], {})[row["what"]] = row
        elif "what" in row and "skipped" not in row:
            self.found[row.get("shape"), row["what"]] = row

    def get(self, what, figure, shape=SHAPE):
        """None where it was not measured."""
        return self.found.get((shape, what), {}).get(figure)

    def shape(self):
        """The one that most is known of: SHAPE, unless only others were measured."""
        shapes = [shape for shape, what in self.found if what == "model"]
        return SHAPE if SHAPE in shapes or not shapes else shapes[0]


def sheet_of(device):
    """(name of the entry, its data sheet), or (name, None) of a GPU that is not in SHEETS."""
    told = device or "unknown"
    for name, sheet in SHEETS.items():
        if name in told:
            return NAMES.get(name, name.replace(" ", "-")), sheet
    return re.sub(r"[^A-Za-z0-9.-]+", "-", re.sub(r"GPU \d+ \((.*)\)", r"\1", told)).strip("-"), None


def line_through(points):
    """(slope, intercept) of least squares with neither below zero; slope alone of one point."""
    if not points:
        return None
    count, sx, sy = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    spread = count * sum(x * x for x, _ in points) - sx * sx
    if count > 1 and spread > 0:
        slope = (count * sum(x * y for x, y in points) - sx * sy) / spread
        intercept = (sy - slope * sx) / count
        if slope > 0 and intercept >= 0:
            return slope, intercept
    return (sy / sx, 0.0) if sx > 0 else None


class Operations:
    """Of one step, timed operation by operation."""

    def __init__(self, rows, shape, step):
        self.rows, self.shape, self.step = rows, shape, step

    def seconds(self, name):
        """Of all calls; None where it was not timed."""
        us = self.rows.get(f"{self.step}, {name}", "us", self.shape)
        return None if us is None else 1e-6 * us

    def amount(self, name, rate, scale):
        value = self.rows.get(f"{self.step}, {name}", rate, self.shape)
        return None if value is None else scale * value * self.seconds(name)

    def bytes(self, name):
        return self.amount(name, "gb_s", 1e9)

    def flops(self, name):
        return self.amount(name, "tflop_s", 1e12)

    def calls(self, name):
        return self.rows.get(f"{self.step}, {name}", "calls", self.shape)

    def total(self, names):
        """Seconds of several; None where one of them was not timed."""
        seconds = [self.seconds(name) for name in names]
        return None if None in seconds else sum(seconds)


def fit(rows):
    """{key of gpus.yaml: number}: the terms of sim::gpu_time (src/sim/perf_model.h), as far as they were measured."""
    shape = rows.shape()
    model = rows.found.get((shape, "model"))
    name, sheet = sheet_of(rows.device)
    if model is None:
        return name, {}
    read, gemm = rows.get("ceilings", "read_gb_s", shape), rows.get("ceilings", "gemm_tflop_s", shape)
    flops, bandwidth, memory = sheet or (1e12 * (gemm or 0), 1e9 * (read or 0), None)
    if not flops or not bandwidth:
        return name, {}
    terms = {"flops": flops, "bandwidth": bandwidth, "memory": memory}
    one = Operations(rows, shape, "decode of 1")
    prompt = Operations(rows, shape, f"prefill of {model['prompt']:.0f}")
    terms |= weights_of(one, bandwidth, model)
    terms |= compute_of(prompt, terms, model)
    terms |= attention_of(rows, shape, terms, model)
    terms |= prefill_of(rows, prompt, flops, model)
    if (seconds := one.total(POINTWISE)) is not None:
        terms["pointwise_overhead"] = seconds / model["layers"]
    if (seconds := prompt.total(POINTWISE)) is not None:
        moved = (
            10 * model["hidden"]
            + 2 * (model["heads"] + model["kv_heads"]) * model["head_dim"]
            + 3 * model["intermediate"]
        )
        beside = seconds - model["layers"] * terms.get("pointwise_overhead", 0)
        terms["pointwise"] = 2 * model["prompt"] * moved * model["layers"] / max(beside, 1e-12) / bandwidth
    return name, {key: value for key, value in terms.items() if value is not None}


def weights_of(one, bandwidth, model):
    """Of products of one token: what a byte takes, and a launch. t = bytes / (Bw em) + o / 4 each."""
    points = [
        (one.bytes(name) / one.calls(name), one.seconds(name) / one.calls(name))
        for name in PRODUCTS
        if one.seconds(name)
    ]
    if not (found := line_through(points)):
        return {}
    return {"weights": 1 / (found[0] * bandwidth), "linear_overhead": len(PRODUCTS) * found[1]}


def compute_of(prompt, terms, model):
    """Of a prompt's products: T_lin = (t_c^1.5 + t_m^1.5)^(2/3) + o."""
    seconds = prompt.total(PRODUCTS)
    if seconds is None:
        return {}
    seconds -= model["layers"] * terms.get("linear_overhead", 0)
    least = sum(prompt.bytes(name) for name in PRODUCTS) / terms["bandwidth"] / terms.get("weights", 1)
    computing = max(seconds**1.5 - least**1.5, 1e-18) ** (2 / 3)
    return {"compute": sum(prompt.flops(name) for name in PRODUCTS) / computing / terms["flops"]}


def attention_of(rows, shape, terms, model):
    """Of decode steps of several sizes: a layer's attention takes a + bytes / (Bw ekv)."""
    points = []
    for _, what in [key for key in rows.found if key[0] == shape]:
        if found := re.fullmatch(r"(decode of \d+), attention", what):
            step = Operations(rows, shape, found[1])
            points.append((step.bytes("attention") / model["layers"], step.seconds("attention") / model["layers"]))
    found = line_through(points)
    return {"kv": 1 / (found[0] * terms["bandwidth"]), "decode_overhead": found[1]} if found else {}


def prefill_of(rows, prompt, flops, model):
    """Parts of F on a prompt's attention to itself, and to what is cached: t = 4 nq hd (c p / e1 + c^2 / 2 / e2) / F."""
    terms = {}
    heads = 4 * model["heads"] * model["head_dim"]
    if seconds := prompt.seconds("attention"):
        terms["prefill_self"] = heads * model["layers"] * model["prompt"] ** 2 / 2 / seconds / flops
    cached = rows.attention.get((1, 2048, 8192))
    alone = rows.attention.get((1, 2048, 0))
    if cached and alone and cached > alone:
        terms["prefill_cached"] = 4 * 32 * 128 * 2048 * 8192 / (cached - alone) / flops
    if (least := rows.attention.get((1, 16, 0))) is not None:
        terms["prefill_overhead"] = least
    return terms


KEYS = (
    "flops",
    "bandwidth",
    "memory",
    "compute",
    "weights",
    "kv",
    "pointwise",
    "linear_overhead",
    "pointwise_overhead",
    "decode_overhead",
    "prefill_overhead",
    "prefill_self",
    "prefill_cached",
)


def number(key, value):
    if key == "bandwidth":
        return f"{value / 1e9:.0f}GB/s"
    if key == "memory":
        return f"{value / 1e9:.0f}GB"
    if key.endswith("overhead"):
        return f"{1e6 * value:.3g}us"
    return f"{value / 1e12:.4g}e12" if key == "flops" else f"{value:.3f}"


def gpus_yaml(rows):
    name, terms = fit(rows)
    missing = [key for key in KEYS if key not in terms]
    text = f"# {rows.device}, heddle {rows.version}, {rows.at}; by tools/gpu_bundle/entry.py.\n"
    text += f"# Not measured: {', '.join([*missing, 'all_reduce', 'co_running', 'poll'])}.\n"
    if not terms:
        return text + "gpus: {}\n"
    told = ", ".join(f"{key}: {number(key, terms[key])}" for key in KEYS if key in terms)
    return f"{text}gpus:\n  {name}: {{{told}}}\n"


def platforms_yaml(rows):
    shape = rows.shape()
    name, _ = sheet_of(rows.device)
    terms = []
    if rate := rows.get("load", "gb_s", shape):
        terms.append(f"load: {1 / rate:.4f}s/GB")
    maps = [
        (int(found[1]), row)
        for (of, what), row in rows.found.items()
        if of == shape and (found := re.fullmatch(r"map of (\d+)", what))
    ]
    if maps:
        row = max(maps, key=lambda each: each[0])[1]
        terms.append(f"map_page: {(row['map_us_per_page'] + row['unmap_us_per_page']) / 2:.3g}us")
    return f"platforms:\n  {name.lower()}: {{{', '.join(terms)}}}\n" if terms else "platforms: {}\n"


def table(head, rows):
    return "\n".join(
        [
            "| " + " | ".join(head) + " |",
            "|" + " --- |" * len(head),
            *("| " + " | ".join(map(str, row)) + " |" for row in rows),
        ]
    )


# Claims of docs/performance.md: how they read, the row's name, its figures, what was asked for.
CLAIMS = [
    ("a load, against one copy of pinned memory", "load", "{gb_s:.1f} GB/s, {of_ceiling:.2f}", "0.95"),
    ("a load onto another model's pages", "evict, then load", "{ms:.0f} ms, of it {unmap_ms:.1f} unmapping", ""),
    (
        "first token of a model that is loaded for it, against copy and prefill",
        "first token of *",
        "{ms:.0f} ms, {of_both:.2f}",
        "at most 1.15",
    ),
    ("prefill, against the ceilings", "prefill of * by *", "{tokens_per_s:.0f} tokens/s, {of_ceiling:.2f}", "0.80"),
    (
        "decode ahead, against the ceilings",
        "decode of *, ahead",
        "{tokens_per_s:.0f} tokens/s, {ms:.2f} ms, {of_ceiling:.2f}",
        "0.85",
    ),
    (
        "decode while another model is loaded",
        "decode of * while loading",
        "{slower:.2f} times a quiet step; the load {load_of_ceiling:.2f} of the copy",
        "",
    ),
    ("a switch to a model that is there", "switch to a model that is there", "{added_ms:.2f} ms more", "1 ms"),
    (
        "KV handed over, the longest step meanwhile",
        "KV handed over and back",
        "{largest_of_median:.2f} times the median",
        "1.1",
    ),
    ("KV on pages here and there", "elastic KV, decode of *", "{lost:.3f} of a step lost", "0.01"),
]


def claims(rows, shape):
    made = []
    for claim, pattern, text, asked in CLAIMS:
        matching = re.compile(re.escape(pattern).replace(r"\*", r"(\d+)"))
        for (of, what), row in rows.found.items():
            if of == shape and (found := matching.fullmatch(what)):
                sizes = " by ".join(found.groups())
                told = f"{claim}{', ' + sizes if sizes else ''}"
                conditions = f"{shape}, {rows.device}, cuBLASLt {'there' if rows.blas else 'absent'}"
                command = f"`gpu_model --shape {shape}`"
                made.append((told, text.format(**row), asked, conditions, command, f"{rows.at[5:10]}, {rows.version}"))
    return made


def beside_torch(rows, shape):
    """What both measured: [(what, ours, torch's, ours / torch's)]."""
    found = rows.found
    prompt, model = rows.get("model", "prompt", shape) or 0, found.get((shape, "model"), {})
    pairs = [
        (
            "copy from pinned memory [GB/s]",
            rows.get("ceilings", "copy_gb_s", shape),
            rows.get("copy in", "gb_s", "torch"),
        ),
        ("device read [GB/s]", rows.get("ceilings", "read_gb_s", shape), rows.get("read", "gb_s", "torch")),
        (
            "product of 8192 cubed [TFLOP/s]",
            rows.get("product, square", "tflop_s", shape),
            rows.get("product 8192 x 8192 x 8192", "tflop_s", "torch"),
        ),
        (
            "attention of a prompt [TFLOP/s]",
            rows.get(f"prefill of {prompt:.0f}, attention", "tflop_s", shape),
            rows.get(f"attention of {prompt:.0f}", "tflop_s", "torch"),
        ),
    ]
    for batch in (1, 32, 128):
        ours = rows.get(f"decode of {batch}, attention", "gb_s", shape)
        pairs.append(
            (
                f"attention of {batch} in decode [GB/s]",
                ours,
                rows.get(f"attention of {batch} in decode", "gb_s", "torch"),
            )
        )
        for name in (*PRODUCTS, "head"):
            theirs = rows.get(f"product {name} of {batch}", "us", "torch")
            mine, calls = rows.get(f"decode of {batch}, {name}", "us", shape), rows.get(
                f"decode of {batch}, {name}", "calls", shape
            )
            if mine and theirs:  # Times: what is greater is worse.
                pairs.append((f"{name}, {batch} tokens [calls a second]", 1e6 * calls / mine, 1e6 / theirs))
    for what in [key[1] for key in found if key[0] == shape and key[1].startswith("transformers: ")]:
        mine = {"prefill": "prefill of {0} by {0}", "decode": "decode of {0}, ahead"}
        kind, size = re.match(r"transformers: (\w+) of (\d+)", what).groups()
        pairs.append(
            (
                f"{what} [tokens/s]",
                rows.get(mine[kind].format(size), "tokens_per_s", shape),
                rows.get(what, "tokens_per_s", shape),
            )
        )
    return [
        (what, f"{ours:.4g}", f"{theirs:.4g}", f"{ours / theirs:.2f}")
        for what, ours, theirs in pairs
        if ours and theirs and model
    ]


def swept(rows):
    """Of each setting the figures that it is about, against the usual ones."""
    usual = rows.sweep.get("usual", {})
    made = []
    for part, found in rows.sweep.items():
        for what, row in found.items():
            before = usual.get(what, {}).get("ms")
            if part != "usual" and before and row.get("ms") and not what.endswith(("enqueued", "replayed")):
                made.append((part, what, f"{before:.4g}", f"{row['ms']:.4g}", f"{before / row['ms']:.3f}"))
    return made


def operations(rows, shape):
    made = []
    for (of, what), row in rows.found.items():
        if of == shape and "share" in row:
            rates = [f"{row[key]:.4g}" for key in ("gb_s", "tflop_s")]
            made.append(
                (
                    what,
                    f"{row['calls']:.0f}",
                    f"{row['us']:.1f}",
                    f"{row['share']:.2f}",
                    *rates,
                    f"{row['of_ceiling']:.2f}",
                )
            )
    return made


def report(rows):
    shapes = [rows.shape(), *(shape for shape, what in rows.found if what == "model" and shape != rows.shape())]
    parts = [(name, row["status"], f"{row['seconds']:.0f} s", row.get("why", "")) for name, row in rows.parts.items()]
    sections = [f"# {rows.device or 'no GPU'}, heddle {rows.version}, {rows.at}\n\ncuBLASLt: {rows.blas or 'none'}."]
    sections.append(
        "## Claims\n\n"
        + table(
            ("claim", "figure", "asked for", "conditions", "command", "date, commit"),
            [row for shape in shapes for row in claims(rows, shape)],
        )
    )
    sections.append(
        "## Ours / torch\n\n" + table(("what", "ours", "torch", "ours / torch"), beside_torch(rows, rows.shape()))
    )
    sections.append(
        "## Operations\n\n"
        + table(
            ("step, operation", "calls", "µs", "share", "GB/s", "TFLOP/s", "of ceiling"), operations(rows, rows.shape())
        )
    )
    sections.append("## Sweep\n\n" + table(("setting", "figure", "usual ms", "ms", "faster"), swept(rows)))
    sections.append("## Parts\n\n" + table(("part", "status", "took", "why"), parts))
    return "\n\n".join(sections) + "\n"


def write(out):
    """The three files, of OUT's rows."""
    path = out / "gpu.jsonl"
    rows = Rows(path.read_text(errors="replace").splitlines() if path.exists() else [])
    for name, text in (
        ("gpus.yaml", gpus_yaml(rows)),
        ("platforms.yaml", platforms_yaml(rows)),
        ("report.md", report(rows)),
    ):
        (out / name).write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "gpu.jsonl").exists():
        sys.exit("entry.py OUT: a folder with a lease's gpu.jsonl")
    write(pathlib.Path(sys.argv[1]))
    print(pathlib.Path(sys.argv[1], "report.md").read_text(), end="")
