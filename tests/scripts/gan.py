"""Two optimizers: a critic that steps several times for each step of the generator, and alone at first."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--critic", type=int, default=2)
parser.add_argument("--alone", type=int, default=0)
arguments = parser.parse_args()
torch.set_num_threads(1)
generator, critic = nn.Linear(8, 8), nn.Linear(8, 1)
of_critic = torch.optim.Adam(critic.parameters(), 1e-3)
of_generator = torch.optim.SGD(generator.parameters(), 1e-3)


def train_critic() -> None:
    of_critic.zero_grad()
    critic(generator(torch.rand(4, 8)).detach()).mean().backward()
    of_critic.step()


for _ in range(arguments.alone):
    train_critic()
while True:
    for _ in range(arguments.critic):
        train_critic()
    of_generator.zero_grad()
    (-critic(generator(torch.rand(4, 8))).mean()).backward()
    of_generator.step()
