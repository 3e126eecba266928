"""The processor backend: C kernels in a locked runner."""

from modelblaster.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
