"""Entry of the torch process: it locks its files away before it loads anything, then becomes the worker.

Arguments: the socket for descriptors, the pool library, threads, and the paths that it may read.
"""

from __future__ import annotations

import ctypes
import os
import sys


def main(words: list[str]) -> None:
    """Lock, load torch, serve until the parent closes the pipe."""
    descriptor, library, threads, *readable = words
    # What libraries print must not stand between the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    locks = ctypes.CDLL(library)
    paths = [path.encode() for path in readable]
    locks.mb_lock_files((ctypes.c_char_p * len(paths))(*paths), len(paths))
    from modelblaster.backends.cpu.torch_worker import serve

    serve(int(descriptor), library, int(threads), answers, locks.mb_lock_calls)


if __name__ == "__main__":
    main(sys.argv[1:])
