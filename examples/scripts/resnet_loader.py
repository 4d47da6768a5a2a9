"""ResNet-50 of torchvision on JPEG files, which `--prepare` makes: a `DataLoader` with workers and augmentation."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

parser = argparse.ArgumentParser()
parser.add_argument("data", type=Path)
parser.add_argument("--prepare", action="store_true")
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--workers", type=int, default=8)
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--epochs", type=int, default=1000)
args = parser.parse_args()

if args.prepare:
    for number in range(4096):
        folder = args.data / f"class_{number % 64:02}"
        folder.mkdir(parents=True, exist_ok=True)
        coarse = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(number))
        smooth = nn.functional.interpolate(coarse, size=(256, 320), mode="bicubic").clamp(0, 1)[0]
        transforms.functional.to_pil_image(smooth).save(folder / f"{number:04}.jpg", quality=90)
    raise SystemExit

crop, flip = transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()
loader = DataLoader(
    datasets.ImageFolder(args.data, transforms.Compose([crop, flip, transforms.ToTensor()])),
    args.batch_size,
    shuffle=True,
    num_workers=args.workers,
    pin_memory=True,
    drop_last=True,
    persistent_workers=args.workers > 0,
)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
layout = torch.channels_last if args.channels_last else torch.contiguous_format
model = models.resnet50(num_classes=64).to(device, memory_format=layout)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
for epoch in range(args.epochs):
    for images, labels in loader:
        images = images.to(device, non_blocking=True, memory_format=layout)
        with torch.autocast(device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
