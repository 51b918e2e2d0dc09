"""What torch reaches on the same GPU as gpu_model: pinned copies, reads, products in bfloat16 at 8192 cubed and at a
model's shapes (Llama 3 8B), attention. One JSON object a line, as gpu_model's; the best of some rounds each.

Without torch or a GPU it says so and ends well.
"""

import argparse
import json
import sys
import time

LAYER = {
    "qkv": (6144, 4096),
    "out": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "head": (128256, 4096),
}
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128


def say(what, **figures):
    print(json.dumps({"shape": "torch", "what": what, **figures}), flush=True)
    text = "  ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in figures.items()
    )
    print(f"torch: {what:<34}  {text}", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, torch, options):
        self.torch, self.device = torch, options.device
        self.scale = 1 if options.device == "cuda" else 64  # Sizes of a CPU are smaller, to try the script itself.
        self.wait = torch.cuda.synchronize if options.device == "cuda" else (lambda: None)
        self.until = time.monotonic() + options.budget

    def seconds(self, run, in_a_row=10, rounds=5):
        """Of one call, the best of some rounds, each of some calls in a row: as a CUDA graph where that can be had."""

        def enqueue():
            for _ in range(in_a_row):
                run()

        enqueue()
        again = self.recorded(enqueue) or enqueue
        best = float("inf")
        for round_ in range(rounds + 1):
            self.wait()
            began = time.perf_counter()
            again()
            self.wait()
            if round_ > 0:
                best = min(best, (time.perf_counter() - began) / in_a_row)
        return best

    def recorded(self, enqueue):
        """What replays it, so that the host's share does not count; None on a CPU, or where it cannot be recorded."""
        if self.device != "cuda":
            return None
        self.wait()
        graph = self.torch.cuda.CUDAGraph()
        try:
            with self.torch.cuda.graph(graph):
                enqueue()
        except RuntimeError:
            self.wait()
            return None
        return graph.replay

    def numbers(self, *shape):
        return self.torch.randn(*shape, device=self.device, dtype=self.torch.bfloat16)

    def copies(self):
        torch, count = self.torch, (4 << 30) // self.scale
        host = torch.empty(count, dtype=torch.uint8, pin_memory=self.device == "cuda")
        near = torch.empty(count, dtype=torch.uint8, device=self.device)
        for what, run, times in (
            ("copy in", lambda: near.copy_(host, non_blocking=True), 1),
            ("copy out", lambda: host.copy_(near, non_blocking=True), 1),
        ):
            say(what, gb_s=times * count / self.seconds(run, in_a_row=1) / 1e9)
        values = near.view(torch.float32)
        say("read", gb_s=count / self.seconds(lambda: torch.sum(values), in_a_row=4) / 1e9)
        half = values[: values.numel() // 2]
        other = torch.empty_like(half)
        say("copy within, read and written", gb_s=count / self.seconds(lambda: other.copy_(half), in_a_row=4) / 1e9)

    def product(self, what, tokens, outputs, inputs, copies=1):
        """Weights come from memory: each product takes others than the one before."""
        x = self.numbers(tokens, inputs)
        weights = [self.numbers(outputs, inputs) for _ in range(copies)]
        at = iter(range(1 << 60))
        seconds = self.seconds(lambda: self.torch.nn.functional.linear(x, weights[next(at) % copies]))
        say(
            what,
            us=1e6 * seconds,
            tflop_s=2e-12 * tokens * outputs * inputs / seconds,
            gb_s=2e-9 * outputs * inputs / seconds,
        )

    def products(self):
        side = 8192 // (1 if self.scale == 1 else 16)
        self.product("product 8192 x 8192 x 8192", side, side, side)
        for name, (outputs, inputs) in LAYER.items():
            rows, columns = outputs // self.scale or 1, inputs // self.scale or 1
            copies = max(1, min(16, (1 << 30) // (2 * rows * columns)))
            for tokens in (1, 8, 32, 128, 2048):
                if not (name == "head" and tokens > 128):
                    self.product(f"product {name} of {tokens}", tokens, rows, columns, copies)

    def attention(self):
        attend = self.torch.nn.functional.scaled_dot_product_attention
        tokens = 2048 if self.scale == 1 else 64
        q = self.numbers(1, HEADS, tokens, HEAD_DIM)
        k, v = (self.numbers(1, KV_HEADS, tokens, HEAD_DIM) for _ in range(2))
        seconds = self.seconds(lambda: attend(q, k, v, is_causal=True, enable_gqa=True))
        say(
            "attention of 2048",
            us=1e6 * seconds,
            tflop_s=4e-12 * HEADS * HEAD_DIM * tokens * (tokens + 1) / 2 / seconds,
        )
        for batch in (1, 32, 128):
            context = 1024 if self.scale == 1 else 32
            q = self.numbers(batch, HEADS, 1, HEAD_DIM)
            k, v = (self.numbers(batch, KV_HEADS, context, HEAD_DIM) for _ in range(2))
            seconds = self.seconds(lambda: attend(q, k, v, enable_gqa=True))
            say(
                f"attention of {batch} in decode",
                us=1e6 * seconds,
                gb_s=4e-9 * batch * KV_HEADS * context * HEAD_DIM / seconds,
            )

    def run(self):
        for name in ("copies", "products", "attention"):
            if time.monotonic() > self.until:
                say(name, skipped="the budget is spent")
                continue
            try:
                getattr(self, name)()
            except (RuntimeError, TypeError) as failed:  # Memory, or what this torch does not have.
                say(name, skipped=(str(failed) or type(failed).__name__).splitlines()[0][:200])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu: to try the script itself")
    parser.add_argument("--budget", type=float, default=60, help="seconds after which no further kind is begun")
    options = parser.parse_args()
    try:
        import torch
    except ImportError as missing:
        say("torch", skipped=str(missing))
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        say("torch", skipped="torch finds no GPU")
        return
    say("torch", version=torch.__version__, cuda=str(torch.version.cuda))
    with torch.inference_mode():
        Bench(torch, options).run()


if __name__ == "__main__":
    main()
