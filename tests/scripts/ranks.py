"""Two processes by torchrun, with gloo."""

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
while True:
    optimizer.zero_grad()
    model(torch.rand(4, 8)).mean().backward()
    optimizer.step()
