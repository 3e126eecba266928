"""A two-layer LSTM and a linear head: a recurrence that stays whole, several outputs, small work in each step."""

import torch
from torch import nn

batch = 16
steps = 64
features = 64
hidden = 128
layers = 2
classes = 32


class Model(nn.Module):
    def __init__(self, features: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(
        self, x: torch.Tensor, state: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        sequence, (state, cell) = self.lstm(x, (state, cell))
        return self.head(sequence), state, cell


def get_inputs() -> list[torch.Tensor]:
    start = (layers, batch, hidden)
    return [torch.randn(batch, steps, features), torch.randn(start), torch.randn(start)]


def get_init_inputs() -> list[int]:
    return [features, hidden, layers, classes]
