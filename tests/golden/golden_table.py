"""What the scripts that make tiny models against `transformers` share."""

import collections.abc

import torch
import transformers


def make_all(make: collections.abc.Callable[[str], str], names: collections.abc.Iterable[str]) -> None:
    """Makes each, on one thread so that it is the same anywhere, and prints its row of the table of models."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in names:
        print(make(name), flush=True)
