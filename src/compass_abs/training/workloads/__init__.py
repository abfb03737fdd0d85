"""Phys-Mix: the paper's workloads as small, real PyTorch programs on synthetic data.

`python -m compass_abs.training.workloads gpt2 --size tiny --steps 50`
"""

#: Module of each workload in this package; each has `SIZES`, `Model` and `batch`.
WORKLOADS = ("resnet", "vit", "bert", "gpt2", "deepfm", "clip")
SIZES = ("tiny", "full")
