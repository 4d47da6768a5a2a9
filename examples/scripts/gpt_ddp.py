"""A GPT on random tokens: `torchrun --nproc-per-node 2 gpt_ddp.py` accumulates, clips, follows a cosine schedule."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accumulate", type=int, default=4)
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()

device_type = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
rank = int(os.environ["LOCAL_RANK"])
device = torch.device(device_type, rank) if device_type == "cuda" else torch.device("cpu")
if device_type == "cuda":
    torch.cuda.set_device(device)
torch.manual_seed(rank)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [part.unflatten(2, (-1, 64)).transpose(1, 2) for part in self.qkv(self.norm_1(x)).chunk(3, dim=2)]
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 50_304) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, args.width), nn.Embedding(args.length, args.width)
        self.blocks = nn.Sequential(*(Block(args.width) for _ in range(args.layers)), nn.LayerNorm(args.width))
        self.head = nn.Linear(args.width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device)))
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), y.flatten())


model = DistributedDataParallel(GPT().to(device))
train = torch.compile(model) if args.compile else model
optimizer = torch.optim.AdamW(model.parameters(), 6e-4, betas=(0.9, 0.95), fused=device_type == "cuda")
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
data = torch.randint(50_257, (1_000_000,))
for step in range(args.steps):
    for micro in range(args.accumulate):
        starts = torch.randint(len(data) - args.length - 1, (args.batch_size,))
        rows = torch.stack([data[start : start + args.length + 1] for start in starts]).to(device)
        last = micro == args.accumulate - 1
        with contextlib.nullcontext() if last else model.no_sync(), torch.autocast(device_type, torch.bfloat16):
            loss = train(rows[:, :-1], rows[:, 1:]) / args.accumulate
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    if rank == 0 and step % 50 == 0:
        print(f"step {step}: loss {loss.item() * args.accumulate:.3f}", flush=True)
dist.destroy_process_group()
