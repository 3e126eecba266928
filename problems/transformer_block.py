"""A pre-norm transformer block: library products and attention with norms and maps between them."""

import torch
from torch import nn

batch = 4
tokens = 128
features = 256
heads = 8


class Model(nn.Module):
    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(features)
        self.projection = nn.Linear(features, 3 * features)
        self.output = nn.Linear(features, features)
        self.norm2 = nn.LayerNorm(features)
        self.widen = nn.Linear(features, 4 * features)
        self.narrow = nn.Linear(4 * features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm2(x))))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, features = x.shape
        shape = (batch, tokens, 3, self.heads, features // self.heads)
        query, key, value = self.projection(x).view(shape).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(attended.transpose(1, 2).reshape(batch, tokens, features))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch, tokens, features)]


def get_init_inputs() -> list[int]:
    return [features, heads]
