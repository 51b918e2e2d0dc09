"""guidellm's command. Of torch it uses what hands out rows of data, for which a dozen lines stand here: with the libraries
that it needs, torch takes 5 GB. Its workers import this file as well."""

import importlib.machinery
import sys
import types


class IterableDataset:
    def __class_getitem__(cls, _):
        return cls


class DataLoader:
    """One row at a time, in this process."""

    def __class_getitem__(cls, _):
        return cls

    def __init__(self, dataset, collate_fn, **_):
        self.dataset, self.collate_fn = dataset, collate_fn

    def __iter__(self):
        return (self.collate_fn([row]) for row in self.dataset)


class Generator:
    """Of random numbers, for a loader that shuffles; this one does not."""

    def manual_seed(self, seed):
        pass


def stand_in(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members, __path__=[], __spec__=importlib.machinery.ModuleSpec(name, None))
    sys.modules[name] = module
    return module


data = stand_in("torch.utils.data", get_worker_info=lambda: None, IterableDataset=IterableDataset)
stand_in("torch.utils.data.dataset", IterableDataset=IterableDataset)
stand_in("torch.utils.data.dataloader", DataLoader=DataLoader)
stand_in(
    "torch",
    utils=stand_in("torch.utils", data=data),
    nn=stand_in("torch.nn", Module=type("Module", (), {})),
    Generator=Generator,
    Tensor=type("Tensor", (), {}),
    __version__="0",  # To which transformers and datasets say that it is too old for them.
)

if __name__ == "__main__":
    from guidellm.__main__ import cli

    cli()
