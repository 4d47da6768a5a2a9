"""Optimizers that step within the backward pass or their base class's step, that are compiled, or made anew for each
fold; none at all; loaders read ahead."""

import sys
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


class Derived(torch.optim.Adam):
    def step(self, closure: None = None) -> None:
        super().step(closure)


class Named(IterableDataset):
    def __iter__(self) -> Iterator[tuple[list[str], torch.Tensor]]:
        while True:
            yield ["a name"] * 4, torch.rand(4, 8)


torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
if sys.argv[1] == "backward":
    optimizers = {weight: torch.optim.SGD([weight], 1e-3) for weight in model.parameters()}
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(lambda weight: optimizers[weight].step())
    while True:
        model(torch.rand(4, 8)).sum().backward()
if sys.argv[1] == "folds":
    while True:
        optimizer = torch.optim.Adam(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        for _ in range(200):
            model(torch.rand(4, 8)).sum().backward()
            optimizer.step()
            schedule.step()
for _, x in DataLoader(Named(), batch_size=None) if sys.argv[1] == "by hand" else ():
    checkpoint(model, x.requires_grad_(), use_reentrant=True).sum().backward()  # by two backward passes
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 1e-3 * weight.grad  # noqa: PLW2901 - as people write it
            weight.grad = None
optimizer = torch.optim.Adam(model.parameters())
if sys.argv[1] == "ahead":
    optimizer = Derived(model.parameters())
    training, validation = torch.rand(400, 5, 8), TensorDataset(torch.rand(200, 8))
    while True:
        pairs = torch.randint(400, (400, 2)).numpy()  # of series of five moments; a batch has eight
        batches = iter(DataLoader(training, 8, sampler=pairs, collate_fn=pad_sequence))
        batch = next(batches)
        while batch is not None:
            ahead = next(batches, None)
            model(batch).sum().backward()
            optimizer.step()
            batch = ahead
        torch.save(model.state_dict(), "weights.pt")
        with torch.no_grad():
            for (x,) in DataLoader(validation, 8):
                model(x)
step = torch.compile(optimizer.step, backend="eager")
while True:
    model(torch.rand(4, 8)).sum().backward()
    step()
    optimizer.zero_grad()
