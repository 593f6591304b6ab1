"""Routing against PyTorch: the papers' formulas, one einsum each, on the whole vote tensor."""

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from _benchmark.measure import provenance, relative_difference, save, timed, with_gradient
from _benchmark.routing import CPU_BUDGET, dynamic_row, inverted_attention_row

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("PyTorch is not installed: pip install torch") from error


def dynamic(poses: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """Routes [B, I, 1, X] by agreement in three iterations (Sabour et al. 2017, procedure 1)."""
    votes = torch.einsum("bix,ixjy->bijy", poses[:, :, 0], kernel)
    logits = torch.zeros(votes.shape[:-1])
    for iteration in range(3):
        sums = torch.einsum("bij,bijy->bjy", logits.softmax(-1), votes)
        squares = sums.square().sum(-1, keepdim=True)
        parents = squares / (1 + squares) * sums / squares.sqrt()
        if iteration < 2:
            logits = logits + torch.einsum("bijy,bjy->bij", votes, parents)
    return parents


def inverted_attention(poses: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """Routes 3×3 windows of [B, H, W, C, 4, 4] in two iterations (Tsai et al. 2020, eq. 2 to 4)."""
    windows = poses.unfold(1, 3, 2).unfold(2, 3, 2).permute(0, 1, 2, 6, 7, 3, 4, 5).flatten(3, 5)
    votes = torch.einsum("bhwiax,ixjy->bhwijay", windows, kernel).flatten(-2)
    coupling = torch.full(votes.shape[:-1], 1 / votes.shape[-2])
    for iteration in range(2):
        sums = torch.einsum("bhwij,bhwijd->bhwjd", coupling, votes)
        parents = torch.nn.functional.layer_norm(sums, sums.shape[-1:])
        if iteration < 1:
            coupling = (torch.einsum("bhwijd,bhwjd->bhwij", votes, parents) / 4).softmax(-1)
    return parents


def torch_gradient(f: Callable[..., torch.Tensor], *arguments: torch.Tensor) -> Any:
    """Returns the gradient of the loss of `measure.with_gradient`."""
    arguments = tuple(x.requires_grad_() for x in arguments)
    out = f(*arguments)
    weights = torch.arange(out.numel()).sin().view(out.shape)
    return torch.autograd.grad((weights * out).sum(), arguments)


def run(options: argparse.Namespace) -> None:
    """Times each row in both, in turns, and prints the medians."""
    about = provenance() | {"torch": torch.__version__}
    torch.set_num_threads(about["cores"])
    table = Table("what", "", "PyTorch", "capsjax", "faster", "|Δ|")
    records = []
    for theirs, row in (
        (dynamic, dynamic_row(CPU_BUDGET, 1152, batch=128)),
        (dynamic, dynamic_row(CPU_BUDGET, 1152, batch=16)),
        (inverted_attention, inverted_attention_row(CPU_BUDGET, batch=8)),
    ):
        tensors = [torch.tensor(np.asarray(x)) for x in row.arguments]
        for what, f, ours in (
            ("forward", theirs, row.capsjax),
            ("with gradient", partial(torch_gradient, theirs), with_gradient(row.capsjax, 2)),
        ):
            calls = partial(f, *tensors), partial(jax.jit(ours), *row.arguments)
            numbers = jax.tree.map(lambda x: x.detach().numpy(), calls[0]())
            away = relative_difference(calls[1](), numbers)
            turns = [[timed(call)[0] for call in calls] for _ in range(options.repeats)]
            slow, fast = (median(seconds) for seconds in zip(*turns, strict=True))
            record = {"what": row.description, "pass": what, "pytorch": slow, "capsjax": fast}
            records.append(record | {"relative_difference": away})
            milliseconds = (f"{1e3 * seconds:.3g} ms" for seconds in (slow, fast))
            ratio, away = f"{slow / fast:.1f}×", f"{away:.0e}"
            table.add_row(row.description, what, *milliseconds, ratio, away)
    Console(width=140).print(about, table)
    save(options.output, {"about": about, "rows": records})
