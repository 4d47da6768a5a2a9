"""Optimizers that step within the backward pass, one for each weight, and one that is compiled."""

import sys

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
if sys.argv[1] == "backward":
    optimizers = {weight: torch.optim.SGD([weight], 1e-3) for weight in model.parameters()}
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(lambda weight: optimizers[weight].step())
    while True:
        model(torch.rand(4, 8)).sum().backward()
optimizer = torch.optim.Adam(model.parameters())
step = torch.compile(optimizer.step, backend="eager")
while True:
    model(torch.rand(4, 8)).sum().backward()
    step()
    optimizer.zero_grad()
