"""Whether the kernels give right numbers on the device that is here."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from rich.table import Table

from _benchmark.measure import normal, relative_difference
from capsjax.routing.kernels import attend, distance, forms, moments, without_kernels
from capsjax.routing.kernels.derivatives import differentiate
from capsjax.routing.kernels.terms import AXES, TERMS, WEIGHTS, Sizes, shape_of

FILE = "device.json"
TOLERANCE = 1e-4  # of the largest number, in float32
# N, I, J, A, X, Y: of every kind of kernel, in several blocks where there are blocks.
SIZES = {
    "vectors 8 → 16": Sizes((130,), 130, 10, 1, 8, 16),
    "vectors 16 → 16": Sizes((7,), 20, 3, 1, 16, 16),
    "matrices 4×4": Sizes((300,), 40, 32, 4, 4, 4),
    "matrices 2×3 → 2×2": Sizes((2, 3), 3, 5, 2, 3, 2),
    "matrices 6×6": Sizes((20,), 9, 41, 6, 6, 6),
    "matrices 8×8": Sizes((20,), 9, 16, 8, 8, 8),
}


def operands_for(sizes: Sizes) -> dict[str, jax.Array]:
    """Returns a random operand for every letter of capsjax/routing/kernels/terms.py."""
    operands = {}
    for seed, letter in enumerate(AXES):
        lead = () if letter in WEIGHTS else sizes.batch
        operands[letter] = normal(seed, *lead, *shape_of(letter, sizes))
    operands |= {letter: jnp.abs(operands[letter]) for letter in "cw"}
    return operands | {letter: operands[letter] / sizes.columns**0.5 for letter in WEIGHTS}


def _with_gradients(function: Callable[..., Any], letters: str) -> Callable[..., Any]:
    def compute(operands: Mapping[str, jax.Array]) -> Any:
        results, pull = jax.vjp(function, *(operands[letter] for letter in letters))
        return results, pull(jax.tree.map(jnp.cos, results))

    return compute


# All that kernels compute.
COMPUTED = {
    "an iteration by agreement and its gradients": _with_gradients(attend, "pkq"),
    "moments and their gradients": _with_gradients(moments, "cpk"),
    "distances and their gradients": _with_gradients(distance, "pkmw"),
    **{f"∂{scalar}/∂{wrt}": partial(differentiate, scalar, wrt) for scalar, wrt in TERMS},
}


def check_all() -> list[dict[str, Any]]:
    """Compares every kernel with the plain products, which need no kernel; a record for each."""
    here = jax.devices()[0]
    platform = {"gpu": "cuda"}.get(here.platform, here.platform)
    capability = tuple(map(int, getattr(here, "compute_capability", "0").split(".")))
    target = forms.Target(platform, capability=capability)
    records = []
    for votes, sizes in SIZES.items():
        operands = operands_for(sizes)
        form = forms.choose(target, sizes, jnp.float32).name
        for name, compute in COMPUTED.items():
            with jax.default_matmul_precision("highest"):
                # Each a new function, since a compiled one keeps its form.
                ours = jax.jit(partial(compute))(operands)
                with without_kernels():
                    plain = jax.jit(partial(compute))(operands)
            away = relative_difference(ours, plain)
            record = {"votes": votes, "what": name, "form": form, "relative_difference": away}
            records.append(record | {"agrees": away <= TOLERANCE})  # NaN does not
    return records


def table(records: list[dict[str, Any]]) -> Table:
    """Returns a line for each kind of votes, and for all that is wrong."""
    shown = Table("votes", "form", "checked", "farthest", "|Δ|", "")
    if all(record["form"] != "kernel" for record in records):
        shown.caption = "No kernel runs on this device: none was checked."
    for votes in SIZES:
        own = [record for record in records if record["votes"] == votes]
        wrong = [record for record in own if not record["agrees"]]
        for r in wrong or [max(own, key=lambda record: record["relative_difference"])]:
            said = "agrees" if r["agrees"] else "[bold red]WRONG[/]"
            away = f"{r['relative_difference']:.0e}"
            shown.add_row(votes, r["form"], str(len(own)), r["what"], away, said)
    return shown
