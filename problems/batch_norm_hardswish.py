"""Batch norm as in inference and hardswish over images: per-channel constants broadcast over an inner plane."""

import torch
from torch import nn

batch = 8
channels = 96
height = width = 64


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.norm.bias, std=0.5)
        nn.init.normal_(self.norm.running_mean, std=0.5)
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.hardswish(self.norm(x))


def get_inputs() -> list[torch.Tensor]:
    return [2 * torch.randn(batch, channels, height, width)]


def get_init_inputs() -> list[int]:
    return [channels]
