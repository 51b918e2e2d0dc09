"""The weights of a model as pages: all tensors end to end in the order in which they are used."""

import contextlib

import torch

PAGE_BYTES = 64 * 1024
PAGE_WEIGHTS = PAGE_BYTES // 2  # bfloat16

LAYER_ORDER = ["input_layernorm", "q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "o_proj"]
LAYER_ORDER += ["post_attention_layernorm", "gate_proj", "up_proj", "down_proj"]
LAYER_ORDER += ["gate", "experts"]  # a router, and then gate and up of each expert before all downs

# A page is the parts of parameters that it covers.
Page = list[tuple[torch.nn.Parameter, slice]]


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
    """The pages of `model`; the last may be shorter."""
    pages, room = [], 0
    for parameter in execution_order(model):
        at = 0
        while at < parameter.numel():
            if room == 0:
                pages.append([])
                room = PAGE_WEIGHTS
            taken = min(room, parameter.numel() - at)
            pages[-1].append((parameter, slice(at, at + taken)))
            at, room = at + taken, room - taken
    return pages


@contextlib.contextmanager
def zeroed(page: Page):
    """Zeroes a page for the time of a `with` block, and with it the gradients it got there."""
    kept = [parameter.data.view(-1)[part].clone() for parameter, part in page]
    for parameter, part in page:
        parameter.data.view(-1)[part] = 0
    try:
        yield
    finally:
        for (parameter, part), old in zip(page, kept):
            parameter.data.view(-1)[part] = old
            if parameter.grad is not None:
                parameter.grad.view(-1)[part] = 0
