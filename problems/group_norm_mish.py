"""Group norm and mish over images: statistics over several axes at once, then a map of three transcendental steps."""

import torch
from torch import nn

batch = 8
channels = 64
groups = 8
height = width = 64


class Model(nn.Module):
    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.mish(self.norm(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs() -> list[int]:
    return [groups, channels]
