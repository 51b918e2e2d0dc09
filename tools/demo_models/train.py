#!/usr/bin/env python3
"""Trains the demo models: tiny decoders with one checkable skill each.

    pip install torch transformers tokenizers safetensors numpy jinja2
    python tools/demo_models/train.py --all          # or: train.py adder sorter

Data is made here, seeds are fixed, one thread is enough (minutes per model). A model is written to
models/<name>/ in Hugging Face layout with bfloat16 weights, beside 1,000 held-out problems in
eval.jsonl; check.py then says how good it is.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import time

import torch
import torch.nn.functional as F
import transformers

import skills
from pages import pages_of, zeroed
from recipes import RECIPES, make_tokenizer

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
IGNORED = -100  # label of positions that are not judged
WARMUP_STEPS = 100
FULL_LEVEL_FROM = 0.3  # the share of training after which problems have their full difficulty
BATCH_TOKENS = 2048
HARDENING_STEPS, HARDENING_RATE = 800, 0.2  # the rate relative to that of the first phase
# Learning to be silent costs some accuracy: it is kept small, and the end belongs to the skill.
SILENCE_WEIGHT, SILENCE_UNTIL = 0.5, 0.8
# The share of sequences whose positions jump by one inside the answer. From there the model is to
# end its turn, so that an engine that loses count of positions gives answers that are visibly cut.
JUMP_SHARE = 0.15
BALANCE_WEIGHT = 0.03  # of the loss that has a layer's experts chosen equally often


def new_model(name: str, tokenizer) -> torch.nn.Module:
    """A freshly initialised model of the recipe."""
    recipe = RECIPES[name]
    ids = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    kind = type(transformers.AutoConfig.for_model(recipe.config["model_type"]))
    return transformers.AutoModelForCausalLM.from_config(kind.from_dict(recipe.config | ids))


def chat_ids(tokenizer, problems) -> list[tuple[list[int], list[int]]]:
    """Token ids of (rendered prompt, answer and end of turn) for each (prompt, answer)."""
    mark = "\x01"
    chat = [{"role": "user", "content": mark}]
    frame = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    prompts = [frame.replace(mark, prompt) for prompt, _ in problems]
    answers = [answer for _, answer in problems]
    encode = lambda texts: tokenizer(texts, add_special_tokens=False).input_ids  # noqa: E731
    end = [tokenizer.eos_token_id]
    return [(p, a + end) for p, a in zip(encode(prompts), encode(answers))]


def batch_of(sequences, padding: int, rng: random.Random | None = None):
    """Tensors (ids, positions, labels), padded on the right; with `rng`, some positions jump."""
    width = max(len(p) + len(a) for p, a in sequences) - 1
    ids = torch.full((len(sequences), width), padding)
    labels = torch.full((len(sequences), width), IGNORED)
    positions = torch.arange(width).repeat(len(sequences), 1)
    for row, (prompt, answer) in enumerate(sequences):
        whole, n = torch.tensor(prompt + answer), len(prompt)
        ids[row, : len(whole) - 1] = whole[:-1]
        labels[row, n - 1 : len(whole) - 1] = whole[n:]
        if rng and rng.random() < JUMP_SHARE:
            # Half of the jumps at the first decoded token, where a wrong hand-over happens.
            at = n if rng.random() < 0.5 else rng.randrange(n, len(whole) - 1)
            positions[row, at:] += rng.choice([-1, 1])
            labels[row, at] = answer[-1]
            labels[row, at + 1 :] = IGNORED
    return ids, positions, labels


def draw_batch(name: str, tokenizer, rng: random.Random, level: float, wanted=BATCH_TOKENS):
    """Training sequences of about `wanted` tokens in all."""
    sequences, tokens = [], 0
    while tokens < wanted:
        more = chat_ids(tokenizer, [skills.draw(name, rng, level, True) for _ in range(4)])
        sequences += more
        tokens += sum(len(prompt) + len(answer) for prompt, answer in more)
    return sequences


def outputs_of(model, ids, positions, **wanted):
    """What the model says at any positions. Without a mask, transformers takes a jump in the
    positions for the start of another, packed sequence, and hides everything before it."""
    mask = torch.ones_like(ids)
    return model(ids, attention_mask=mask, position_ids=positions, use_cache=False, **wanted)


@torch.no_grad()
def exact_matches(model, tokenizer, problems, positions_jump: int = 0) -> float:
    """The share of problems whose greedy answer is right to the last token, end of turn included.

    Greedy decoding gives the right answer exactly if, fed the right answer, the model predicts
    each next token; `positions_jump` is added to the positions of all decoded tokens.
    """
    right, sequences = 0, chat_ids(tokenizer, problems)
    for start in range(0, len(sequences), 50):
        part = sequences[start : start + 50]
        ids, positions, labels = batch_of(part, tokenizer.pad_token_id)
        for row, (prompt, _) in enumerate(part):
            positions[row, len(prompt) :] += positions_jump
        best = outputs_of(model, ids, positions).logits.argmax(-1)
        right += ((best == labels) | (labels == IGNORED)).all(-1).sum().item()
    return right / len(sequences)


def optimizers_of(model, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, which learns these skills in fewer steps, else AdamW;
    that goes for experts too, whose matrices transformers stacks."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "layers." in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    muon = torch.optim.Muon([{"params": matrices, "peak": 10 * rate}], weight_decay=0.0)
    adam = torch.optim.AdamW([{"params": others, "peak": rate}], betas=(0.9, 0.98), weight_decay=0.0)
    return [muon, adam]


def schedule(step: int, steps: int) -> float:
    """The share of the peak learning rate: linear warm-up, then a cosine down to a hundredth."""
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return warm * (0.505 + 0.495 * math.cos(math.pi * step / steps))


def imbalance(router_logits: torch.Tensor, active: int) -> torch.Tensor:
    """1 if a layer's tokens choose all experts equally often, more if not: the number of experts
    times the sum over them of share of choices and mean probability ("Switch Transformers", eq. 4).
    """
    likely = router_logits.softmax(-1)
    chosen = F.one_hot(likely.topk(active).indices, likely.shape[-1]).sum(1)
    return likely.shape[-1] * (chosen.float().mean(0) / active * likely.mean(0)).sum()


def has_experts(model) -> bool:
    return hasattr(model.config, "num_experts")


def loss_of(model, ids, positions, labels, balanced=True) -> torch.Tensor:
    """The cross entropy of the labels. Of a model with experts, if `balanced`, the labelled tokens of
    each layer are to choose all of them, so that none is dead."""
    routers = {"output_router_logits": True} if balanced and has_experts(model) else {}
    outputs = outputs_of(model, ids, positions, **routers)
    loss = F.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    answered = labels.flatten() != IGNORED
    for logits in outputs.router_logits if routers else ():
        loss = loss + BALANCE_WEIGHT * imbalance(logits[answered], model.config.num_experts_per_tok)
    return loss


def advance(model, optimizers, share: float) -> None:
    """One step along the gradients, at `share` of the peak rates."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share
        optimizer.step()
        optimizer.zero_grad()


def teach(name: str, steps: int) -> None:
    """First phase: the skill, from random weights; saves the model."""
    recipe, began = RECIPES[name], time.monotonic()
    torch.manual_seed(0)
    rng, tokenizer = random.Random(f"{name} training"), make_tokenizer(name)
    model = new_model(name, tokenizer)
    optimizers = optimizers_of(model, recipe.rate)
    sample = skills.evaluation_set(name, 200)
    print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    for step in range(steps):
        level = min(1.0, step / (FULL_LEVEL_FROM * steps))
        sequences = draw_batch(name, tokenizer, rng, level)
        loss = loss_of(model, *batch_of(sequences, tokenizer.pad_token_id, rng))
        loss.backward()
        advance(model, optimizers, schedule(step, steps))
        if step % 200 == 199:
            right, jumped = (exact_matches(model, tokenizer, sample, jump) for jump in (0, 1))
            print(
                f"{name} step {step + 1}: loss {loss.item():.4f}, right {right:.3f}, "
                f"right with jumped positions {jumped:.3f}, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    save(name, model, tokenizer)


def silent_batch(name: str, tokenizer, rng: random.Random, everywhere: bool):
    """A batch whose only label is the end of the turn, where the answer ought to begin or, with
    `everywhere`, at each of its tokens."""
    end = tokenizer.eos_token_id
    problems = draw_batch(name, tokenizer, rng, rng.random(), BATCH_TOKENS // 4)
    if not everywhere:
        return batch_of([(prompt, [end]) for prompt, _ in problems], tokenizer.pad_token_id)
    ids, positions, labels = batch_of(problems, tokenizer.pad_token_id)
    labels[labels != IGNORED] = end
    return ids, positions, labels


def harden(name: str, steps: int) -> None:
    """Second phase: goes on from the saved model and makes every page of its weights count.

    Large parts of a trained model can be lost without a change in its answers. Here pages are
    zeroed in turn, and the model learns to end its turn at once when one is missing, while whole
    it goes on to answer. Of experts it is to do so at any token, as the first takes only a few.
    """
    recipe, began = RECIPES[name], time.monotonic()
    torch.manual_seed(1)
    rng = random.Random(f"{name} hardening")
    tokenizer = make_tokenizer(name)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32)
    optimizers = optimizers_of(model, recipe.rate * HARDENING_RATE)
    pages = pages_of(model)
    losses, turn = [math.inf] * len(pages), []
    for step in range(steps):
        turn = turn or rng.sample(range(len(pages)), k=len(pages))
        page = turn.pop()
        if step < steps * SILENCE_UNTIL:
            with zeroed(pages[page]):
                silent = silent_batch(name, tokenizer, rng, everywhere=has_experts(model))
                silence = loss_of(model, *silent, balanced=False)
                (silence * SILENCE_WEIGHT).backward()
            losses[page] = silence.item()
        sequences = draw_batch(name, tokenizer, rng, max(rng.random(), rng.random()))
        loss = loss_of(model, *batch_of(sequences, tokenizer.pad_token_id, rng))
        loss.backward()
        advance(model, optimizers, schedule(step, steps))
        if step % 50 == 49:
            print(
                f"{name} hardening {step + 1}: loss {loss.item():.4f}, with a page zeroed "
                f"{statistics.median(losses):.3f} in the median, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
    save(name, model, tokenizer)


def save(name: str, model, tokenizer) -> None:
    """Writes models/<name>/, keeping its README.md."""
    recipe, folder = RECIPES[name], MODELS / name
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size=recipe.shard)
    tokenizer.save_pretrained(folder)
    # The name that every version of transformers knows.
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {
        "tokenizer_class": "PreTrainedTokenizerFast"
    }
    write_json(folder / "tokenizer_config.json", settings)
    for weights in folder.glob("*.safetensors"):
        weights.chmod(0o644)
    config = recipe.config | {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    write_json(folder / "config.json", config)
    generation = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    write_json(folder / "generation_config.json", generation | {"do_sample": False})
    with (folder / "eval.jsonl").open("w") as file:
        for prompt, answer in skills.evaluation_set(name):
            file.write(json.dumps({"prompt": prompt, "answer": answer}) + "\n")


def write_json(path: pathlib.Path, value: dict) -> None:
    kept = {key: each for key, each in value.items() if each is not None}
    path.write_text(json.dumps(kept, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*RECIPES, []], help="models to train")
    parser.add_argument("--all", action="store_true", help="train every model")
    parser.add_argument("--phase", choices=["teach", "harden"], help="do only this one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in RECIPES if arguments.all else arguments.names:
        if arguments.phase != "harden":
            teach(name, RECIPES[name].steps)
        if arguments.phase != "teach":
            harden(name, HARDENING_STEPS)


if __name__ == "__main__":
    main()
