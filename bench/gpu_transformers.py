"""The shapes of bench/gpu_model by `transformers` on the same GPU: random weights in bfloat16, prefill
and decode with its static cache, eager and, where it works, compiled. gpu_model runs it in the end;
one JSON object a line, as gpu_model's.

Without torch, `transformers` or a GPU it says so and ends well.
"""

import argparse
import json
import statistics
import sys
import time


def say(shape, what, **figures):
    print(json.dumps({"shape": shape, "what": what, **figures}), flush=True)
    text = "  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                     for key, value in figures.items())
    print(f"{what:<34}  {text}", file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", required=True)
    for name in ("hidden", "layers", "heads", "kv-heads", "intermediate", "vocab", "context", "prompt", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")], required=True)
    parser.add_argument("--device", default="cuda", help="cpu: to try the script itself")
    return parser.parse_args()


def make_model(args):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(
        hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads, intermediate_size=args.intermediate, vocab_size=args.vocab,
        max_position_embeddings=max(args.context, args.prompt) + 4 * args.steps + 64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(before)
    return model.eval()


class Timer:
    def __init__(self, torch, device):
        self.wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def seconds(self, run):
        self.wait()
        began = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - began


def prefill(args, model, timer, torch):
    ids = torch.randint(args.vocab, (1, args.prompt), device=args.device)
    seconds = [timer.seconds(lambda: model(ids, use_cache=True, logits_to_keep=1)) for _ in range(4)]
    took = statistics.median(seconds[1:])
    say(args.shape, f"transformers: prefill of {args.prompt}", ms=1e3 * took, tokens_per_s=args.prompt / took)


def make_cache(args, model, batch, torch):
    from transformers import StaticCache
    length = args.context + 2 * args.steps + 8
    try:
        return StaticCache(config=model.config, max_cache_len=length)
    except TypeError:  # Before 4.56.
        return StaticCache(config=model.config, max_batch_size=batch, max_cache_len=length,
                           device=args.device, dtype=torch.bfloat16)


def decode(args, model, timer, torch, batch, compiled):
    cache = make_cache(args, model, batch, torch)
    ids = torch.randint(args.vocab, (batch, args.context), device=args.device)
    for first in range(0, args.context, 256):  # Little at once: logits of a whole prompt are large.
        part = ids[:, first:first + 256]
        places = torch.arange(first, first + part.shape[1], device=args.device)
        model(part, past_key_values=cache, cache_position=places, use_cache=True, logits_to_keep=1)
    step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True) if compiled else model.forward
    token = ids[:, :1].contiguous()
    place = torch.tensor([args.context], device=args.device)

    def one():
        logits = step(token, past_key_values=cache, cache_position=place, use_cache=True).logits
        token.copy_(logits[:, -1:].argmax(-1))
        place.add_(1)

    for _ in range(min(6, args.steps)):
        one()
    took = timer.seconds(lambda: [one() for _ in range(args.steps)]) / args.steps
    say(args.shape, f"transformers: decode of {batch}" + (", compiled" if compiled else ""),
        ms=1e3 * took, tokens_per_s=batch / took)


def main():
    args = parse()
    try:
        import torch
        import transformers
    except ImportError as missing:
        say(args.shape, "transformers", skipped=str(missing))
        return
    if args.device == "cuda" and not torch.cuda.is_available():
        say(args.shape, "transformers", skipped="torch finds no GPU")
        return
    say(args.shape, "transformers", version=transformers.__version__, torch=torch.__version__)
    torch.manual_seed(1)
    with torch.inference_mode():
        model = make_model(args)
        timer = Timer(torch, args.device)
        prefill(args, model, timer, torch)
        for compiled in ((False, True) if args.device == "cuda" else (False,)):
            for batch in args.batches:
                try:
                    decode(args, model, timer, torch, batch, compiled)
                except Exception as failed:  # Memory, or what compiling does not support.
                    first = (str(failed) or type(failed).__name__).splitlines()[0]
                    say(args.shape, f"transformers: decode of {batch}" + (", compiled" if compiled else ""),
                        skipped=first[:200])


if __name__ == "__main__":
    main()
