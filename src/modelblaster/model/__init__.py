"""From a problem to a faster whole program: its slots, the bench they are judged on, assembly and last proof."""
