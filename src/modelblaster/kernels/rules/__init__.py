"""What each operator means, in one place each: tables of rules by ATen overload, joined in `kernels.operators`."""
