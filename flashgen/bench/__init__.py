"""Our kernels and their peers, measured side by side."""
