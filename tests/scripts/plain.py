"""PyTorch by hand: a loader, accumulation, autocast, a GradScaler that meets an infinite gradient, evaluation."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--scale", action="store_true")
parser.add_argument("--evaluate", type=int, default=0)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--no-effect", action="store_true")
arguments = parser.parse_args()
torch.set_num_threads(1)


class Net(nn.Sequential):
    def eval(self):  # not PyTorch's own, as models of Transformers have it
        return self.train(False)


model = Net(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu", backoff_factor=0.9999, enabled=arguments.scale)  # else the scale soon is 0
data = TensorDataset(torch.rand(4096, 32), torch.randint(0, 4, (4096,)))
loader = DataLoader(data, arguments.batch_size, drop_last=True, num_workers=arguments.workers)
step = calls = 0
while True:
    for x, y in loader:
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.amp):
            loss = nn.functional.cross_entropy(model(x), y) / arguments.accumulate
        if arguments.scale and step % 3 == 2:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        calls += 1
        if calls % arguments.accumulate:
            continue
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        step += 1
        if arguments.evaluate and step % arguments.evaluate == 0:
            model.eval()
            with torch.no_grad():
                for _ in range(20):
                    model(data.tensors[0])
            model.train()
