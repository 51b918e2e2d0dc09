"""The weights of a model as pages: all tensors end to end in the order in which they are used."""

import contextlib

import torch

PAGE_BYTES = 64 * 1024
PAGE_WEIGHTS = PAGE_BYTES // 2  # bfloat16

LAYER_ORDER = ["input_layernorm", "q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "o_proj"]
LAYER_ORDER += ["post_attention_layernorm", "gate_proj", "up_proj", "down_proj"]

# A page is the parts of tensors that it covers, each a flat view.
Page = list[torch.Tensor]


def execution_order(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Embedding, layers, final norm, and the head unless it is the embedding."""
    def place(name: str):
        if "layers." not in name:
            return (0 if "embed_tokens" in name else 2 if "norm" in name else 3,)
        parts = name.split(".")
        return (1, int(parts[2]), LAYER_ORDER.index(parts[-2]), parts[-1] == "bias")

    named = dict(model.named_parameters())  # lists tied tensors once
    return [named[name] for name in sorted(named, key=place)]


def pages_of(model: torch.nn.Module) -> list[Page]:
    """The pages of `model`; the last may be shorter. Views: writing to them changes the model."""
    pages, room = [], 0
    for parameter in execution_order(model):
        flat = parameter.data.view(-1)
        while len(flat):
            if room == 0:
                pages.append([])
                room = PAGE_WEIGHTS
            pages[-1].append(flat[:room])
            taken = len(pages[-1][-1])
            flat, room = flat[taken:], room - taken
    return pages


@contextlib.contextmanager
def zeroed(page: Page):
    """Zeroes a page for the time of a `with` block."""
    kept = [part.clone() for part in page]
    for part in page:
        part.zero_()
    try:
        yield
    finally:
        for part, old in zip(page, kept):
            part.copy_(old)
