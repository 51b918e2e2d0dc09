"""What a lease of a GPU is used for: five calls, each with its parts in the order of their worth."""

import dataclasses
import pathlib
import sys

PYTHON = sys.executable or "python3"
SANITIZER = "SANITIZER"  # Stands for compute-sanitizer, wherever it is.
BUDGET = 570  # Seconds of a call.
SLOW = "it takes minutes on the emulated driver"
WGMMA = {"HEDDLE_TUNE_WGMMA_ATTENTION": "1"}
CALLS = ("truth", "numbers", "sweep", "robustness", "final")
TINY = ["--shape", "tiny", "--memory", "48MiB", "--batches", "1", "--steps", "1", "--rounds", "1"]

# What is tried beside the usual value, with the parts of gpu_model and the batches that show it.
TRIED = [
    ("THIN_BEFORE_BLAS", (0, 16, 32), "decode", "4,16,32"),
    ("PIECE_MIB", (8, 64, 128), "load", "1"),
    ("SKINNY_BEFORE_BLAS", (64,), "decode", "16,32,64"),
    ("SKINNY_BLOCKS", (1, 4), "decode", "16,32,64"),
    ("NARROW_BLOCKS", (2, 8), "decode", "1,32"),
    ("WIDE_BLOCKS", (1, 4), "prefill", "1"),
    ("WIDE_ROWS", (128,), "prefill", "1"),
    ("WGMMA_ATTENTION", (1,), "prefill", "1"),
    ("SPLIT_STEPS", (1, 4), "decode", "1,32"),
    ("NORM_THREADS", (256,), "decode", "1,32"),
    ("ROW_THREADS", (128,), "prefill,decode", "1,32"),
    ("BLAS_WORKSPACE_MIB", (128,), "prefill", "1"),
    ("UNMAP_MIB", (256,), "evict", "1"),
    ("NORM_TOKENS", (0, 8), "decode", "1,4"),
    ("PIECES", (1,), "load", "1"),
]


@dataclasses.dataclass
class Part:
    """A process of its own, with its limit in seconds."""

    name: str
    limit: int
    command: list
    blas: bool = False  # Without cuBLASLt it would measure what nobody asked for.
    environment: dict = dataclasses.field(default_factory=dict)
    why_not: str = ""  # Why it does not run, if so.


@dataclasses.dataclass
class Setting:
    """What the plan is made for. `small`: for the emulated driver, whose times mean nothing."""

    here: pathlib.Path
    out: pathlib.Path
    small: bool = False

    def model(self, name, limit, parts, shape="llama-3-8b", batches=None, environment=None, tiny="tiny"):
        """A run of gpu_model, which knows its own budget. `tiny`: its shape where `small`."""
        what = ["--shape", tiny, *TINY[2:]] if self.small else ["--shape", shape, *(["--batches", batches] if batches else [])]
        command = ["bin/gpu_model", *what, "--part", parts, "--budget", str(limit - 5), "--python", PYTHON]
        return Part(name, limit, command, blas=True, environment=environment or {})

    def bench(self, name, limit, program, *arguments, blas=False, environment=None):
        command = [f"bin/{program}", *(["small"] if self.small else arguments)]
        return Part(name, limit, command, blas=blas, environment=environment or {})

    def tests(self, name, limit, program, select="*", small=None, environment=None):
        chosen = small if self.small and small else select
        return Part(name, limit, [f"bin/{program}", f"--gtest_filter={chosen}"], environment=environment or {})

    def script(self, name, limit, path, *arguments):
        return Part(name, limit, [PYTHON, path, *arguments])


def truth(of):
    """Does it run, and is what it says right?"""
    return [
        of.script("machine", 30, "machine.py"),
        of.tests("device", 60, "device_gpu_test"),
        of.tests("ops", 150, "ops_cuda_test", small="RmsNormTest.*:SiluMulTest.*:LinearTest.Add*"),
        of.tests("ops_wgmma", 40, "ops_cuda_test", "*AttentionTest.*", "AttentionTest.APart*", WGMMA),
        of.tests("engine", 120, "engine_test", select="*GpuTest.*", small="*GpuTest.Greedy*/llama_*_f*"),
        of.bench("bench_device", 90, "cuda_device"),
        of.model("first_numbers", 90, "load,decode", batches="1"),
        of.tests("own_products", 60, "ops_cuda_test", "LinearTest.*:LinearBlocksTest.*", "LinearTest.Add*", {"HEDDLE_CUBLASLT": "none"}),
        of.script("torch_ceilings", 90, "bench/gpu_ceilings.py"),
    ]


def numbers(of):
    """How fast is it, and what of a step takes the time?"""
    parts = "load,evict,prefill,first_token,decode,busy,switch,hand_over,map,elastic"
    return [
        of.model("model_8b", 300, parts),
        of.model("operations_8b", 80, "operations"),
        of.model("operations_q4_k", 60, "operations", shape="llama-3-8b-q4_k"),
        *(
            dataclasses.replace(
                of.model(f"prefill_{kind}", 40, "prefill", shape=f"llama-3-8b-{kind}"), why_not=SLOW if of.small else ""
            )
            for kind in ("fp8", "w8a8")
        ),
        of.model("operations_experts", 60, "operations", shape="qwen3-30b-a3b-q4_k", tiny="tiny-experts"),
        of.bench("bench_linear", 90, "cuda_linear", blas=True),
        of.bench("bench_ops", 90, "cuda_ops"),
        Part("bench_loop", 40, ["bin/gpu_loop", "--kernels", "all"], why_not=SLOW if of.small else ""),
        of.bench("bench_guests", 60, "gpu_guests"),
        of.bench("bench_exchange", 60, "gpu_exchange"),
        profile(of),
    ]


def profile(of):
    """NVIDIA's profiler over the kernels of one prefill and one decode step."""
    wanted = "gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum"
    watched = of.model("", 90, "operations", batches="1").command + ["--rounds", "1"]
    return Part("profile", 90, ["ncu", "--csv", "--metrics", wanted, "--launch-count", "1200", *watched], blas=True)


def sweep(of):
    """Which of the numbers that were chosen blind should be another one? And kernels of the folders images-*."""
    parts = [of.model("usual", 60, "load,evict,prefill,decode", batches="1,4,16,32,64")]
    for folder in sorted(of.here.glob("images-*")):
        parts.append(
            of.model(folder.name, 60, "prefill,decode", batches="1,32", environment={"HEDDLE_CUDA_IMAGES": str(folder)})
        )
    for name, environment in (("prompts_mma", {}), ("prompts_wgmma", WGMMA)):
        parts.append(of.bench(name, 30, "cuda_ops", "prompts", environment=environment))
    for name, values, shown, batches in TRIED[:2] if of.small else TRIED:
        for value in values[:1] if of.small else values:
            environment = {f"HEDDLE_TUNE_{name}": str(value)}
            parts.append(of.model(f"{name.lower()}_{value}", 40, shown, batches=batches, environment=environment))
    parts.append(
        of.script(
            "small_pages",
            60,
            "arena_pages.py",
            *parts[0].command[:1],
            *(TINY if of.small else ["--shape", "llama-3-8b"]),
        )
    )
    return parts


def robustness(of):
    """Does it hold?"""
    few = ["--rounds", "1"] if of.small else []
    log = ["--kill-every", "15", "--keep-log", str(of.out / "soak_server.txt")]
    watched = "bin/ops_cuda_test"
    chosen = "--gtest_filter=*Attention*:*Linear*:*Sample*:*Norm*"
    return [
        of.script("serve", 90, "serve_check.py", *few),
        of.script("memory", 90, "memory_check.py", *few),
        dataclasses.replace(
            of.script("soak", 120, "tests/soak/soak.py", "--gpu", "--minutes", "1", *log),
            why_not=SLOW if of.small else "",
        ),
        dataclasses.replace(
            of.script("calibrate", 300, "calibrate.py", "--out", str(of.out / "calibration")),
            why_not=SLOW if of.small else "",
        ),
        Part("memcheck", 120, [SANITIZER, "--tool", "memcheck", "--error-exitcode", "9", watched, chosen]),
        Part("racecheck", 120, [SANITIZER, "--tool", "racecheck", "--error-exitcode", "9", watched, chosen]),
    ]


def final(of):
    """The figures that are kept, with what the sweep found in the environment; larger, and beside others."""
    return [
        of.model("final_8b", 240, "load,prefill,first_token,decode,switch,hand_over,map,elastic"),
        of.model("final_operations", 80, "operations"),
        of.model("final_14b", 200, "load,prefill,first_token,decode", shape="qwen2.5-14b"),
        of.script("final_ceilings", 60, "bench/gpu_ceilings.py"),
        of.model("transformers", 200, "transformers"),
    ]


def parts_of(call, setting):
    """Of one of CALLS."""
    return {"truth": truth, "numbers": numbers, "sweep": sweep, "robustness": robustness, "final": final}[call](setting)
