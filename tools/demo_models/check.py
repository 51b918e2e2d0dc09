#!/usr/bin/env python3
"""Checks the demo models: are they right, and does everything that can go wrong show?

    python tools/demo_models/check.py [name ...]

Accuracy is the share of the problems in models/<name>/eval.jsonl answered exactly right, greedily,
with the weights upcast to float32 and as they are in bfloat16. Then it breaks the model as a faulty
engine would and counts again:

    page    one 64 KiB page of the weights is zero (tensors in execution order, end to end)
    block   one block of 16 tokens of the prompt's KV cache is another request's
    jump    decoded tokens sit one position too far

Exit status 1 if a model is wrong too often or a fault goes unnoticed.
"""

import argparse
import json
import random
import statistics
import sys
from dataclasses import dataclass

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from pages import pages_of, zeroed
from recipes import RECIPES
from train import MODELS, chat_ids, exact_matches

RIGHT_MIN, BROKEN_MAX = 0.99, 0.60
NOTICED_PAGES_MIN = 0.95  # the share of pages whose loss must push accuracy below BROKEN_MAX
# Blocks of a KV cache are exchanged between requests; short prompts are cut into smaller ones.
BLOCK_TOKENS, BLOCK_TOKENS_SHORT, SHORT_PROMPT_TOKENS = 16, 4, 64


def load(name: str, dtype: torch.dtype):
    """The saved model and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=dtype)
    # Not AutoTokenizer: it puts the pre-tokenizer of the architecture in place of the model's own.
    return model.eval(), PreTrainedTokenizerFast.from_pretrained(MODELS / name)


def problems_of(name: str) -> list[tuple[str, str]]:
    lines = (MODELS / name / "eval.jsonl").read_text().splitlines()
    return [(line["prompt"], line["answer"]) for line in map(json.loads, lines)]


def zeroed_pages(model, tokenizer, problems) -> list[float]:
    """Accuracy without each page of the weights."""
    accuracy = []
    for page in pages_of(model):
        with zeroed(page):
            accuracy.append(exact_matches(model, tokenizer, problems))
    return accuracy


@torch.no_grad()
def right_with_cache(model, cache, logits, prompt, answer) -> bool:
    """Whether the answer is decoded from `cache`; `logits` are those of the prompt's last token."""
    fed = torch.tensor([answer[:-1]])
    positions = torch.arange(len(prompt), len(prompt) + fed.shape[1])[None]
    rest = model(fed, past_key_values=cache, position_ids=positions).logits[0]
    best = torch.cat([logits[-1:], rest]).argmax(-1)
    return best.tolist() == answer


def exchange_block(mine, theirs, tokens: slice) -> None:
    """Overwrites the keys and values of `tokens` in one request's cache with another's."""
    for layer, other in zip(mine.layers, theirs.layers):
        layer.keys[:, :, tokens] = other.keys[:, :, tokens]
        layer.values[:, :, tokens] = other.values[:, :, tokens]


@torch.no_grad()
def exchanged_blocks(model, tokenizer, problems, exchange: bool) -> float:
    """Accuracy when a random whole block of each prompt's KV cache is the next request's."""
    rng, sequences = random.Random("blocks"), chat_ids(tokenizer, problems)
    same_length = {}
    for prompt, answer in sequences:
        same_length.setdefault(len(prompt), []).append((prompt, answer))
    right = count = 0
    for length, group in same_length.items():
        size = BLOCK_TOKENS if length > SHORT_PROMPT_TOKENS else BLOCK_TOKENS_SHORT
        for (prompt, answer), (other, _) in zip(group, group[1:]):
            full = transformers.DynamicCache()  # without a window, so that blocks keep their place
            mine = model(torch.tensor([prompt]), past_key_values=full)
            if exchange:
                theirs = transformers.DynamicCache()
                model(torch.tensor([other]), past_key_values=theirs)
                # A block in which both prompts say the same is the same block.
                blocks = [slice(at, at + size) for at in range(0, length - size + 1, size)]
                blocks = [block for block in blocks if prompt[block] != other[block]]
                if not blocks:
                    continue
                exchange_block(full, theirs, rng.choice(blocks))
            right += right_with_cache(model, full, mine.logits[0], prompt, answer)
            count += 1
    return right / count


@dataclass(frozen=True)
class Findings:
    """What was measured of one model: shares of right answers, except for `parameters` and `size`."""

    parameters: int
    size: int  # bytes of the safetensors files
    f32: float
    bf16: float
    cached: float  # prompt prefilled into a cache, answer decoded from it; nothing broken
    pages: list[float]  # for each page that is zeroed
    exchanged: float
    jumped: float

    @property
    def noticed(self) -> float:
        return sum(each < BROKEN_MAX for each in self.pages) / len(self.pages)

    @property
    def passed(self) -> bool:
        return (
            min(self.f32, self.bf16, self.cached) >= RIGHT_MIN
            and self.noticed >= NOTICED_PAGES_MIN
            and max(statistics.median(self.pages), self.exchanged, self.jumped) < BROKEN_MAX
        )

    def table(self) -> str:
        """Markdown, for people and for the model's README."""
        pages = sorted(self.pages)
        return f"""\
| check | right |
| --- | --- |
| 1,000 held-out problems, float32 | {self.f32:.1%} |
| the same, bfloat16 | {self.bf16:.1%} |
| answer decoded from the prompt's KV cache | {self.cached:.1%} |
| one 64 KiB page of weights zeroed, median of {len(pages)} pages | {statistics.median(pages):.0%} |
| the same, the two pages that matter least | {pages[-1]:.0%}, {pages[-2]:.0%} |
| one KV block is another request's | {self.exchanged:.0%} |
| decoded tokens one position off | {self.jumped:.0%} |
"""


def findings_of(name: str) -> Findings:
    problems = problems_of(name)
    model, tokenizer = load(name, torch.float32)
    some, more = problems[:100], problems[:300]
    return Findings(
        parameters=model.num_parameters(),
        size=sum(file.stat().st_size for file in (MODELS / name).glob("*.safetensors")),
        f32=exact_matches(model, tokenizer, problems),
        bf16=exact_matches(load(name, torch.bfloat16)[0], tokenizer, problems),
        cached=exchanged_blocks(model, tokenizer, more, exchange=False),
        pages=zeroed_pages(model, tokenizer, some),
        exchanged=exchanged_blocks(model, tokenizer, more, exchange=True),
        jumped=max(exact_matches(model, tokenizer, some, jump) for jump in (-1, 1)),
    )


def readme(name: str, findings: Findings) -> str:
    """models/<name>/README.md."""
    prompt, answer = problems_of(name)[0]
    return f"""\
# {name}

{RECIPES[name].about}

{RECIPES[name].config["architectures"][0]}, {findings.parameters:,} parameters, bfloat16, \
{findings.size / 1e6:.2f} MB. A problem and its answer:

```
{prompt}
```
```
{answer}
```

{findings.table()}
Measured by `tools/demo_models/check.py`; `eval.jsonl` has the problems.
"""


def check(name: str, write: bool) -> bool:
    """Prints what was found about one model; whether that is good enough."""
    findings = findings_of(name)
    print(f"{name} {'passes' if findings.passed else 'FAILS'}, pages noticed {findings.noticed:.0%}\n")
    print(findings.table())
    print("by page:", *(f"{each:.2f}" for each in findings.pages), "\n", flush=True)
    if write and findings.passed:
        (MODELS / name / "README.md").write_text(readme(name, findings))
    return findings.passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="models to check; all by default")
    parser.add_argument("--write", action="store_true", help="write models/<name>/README.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return 0 if all([check(name, arguments.write) for name in arguments.names or RECIPES]) else 1


if __name__ == "__main__":
    sys.exit(main())
