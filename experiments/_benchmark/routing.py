"""Routing against the textbook: the whole vote tensor, one plain einsum for each formula."""

import argparse
import contextlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from _benchmark import device
from _benchmark.measure import measure, normal, provenance, relative_difference, save, with_gradient
from capsjax.functional import squash
from capsjax.routing import (
    LinearVotes,
    Routed,
    WindowVotes,
    attention_routing,
    choose_block_size,
    dynamic_routing,
    em_routing,
    in_blocks,
    inverted_attention_routing,
    pose_patches,
)
from capsjax.routing.kernels import without_kernels

console = Console(width=120)


def textbook_dynamic(votes: jax.Array, num_iterations: int) -> jax.Array:
    logits = jnp.zeros(votes.shape[:-1])
    for iteration in range(num_iterations):
        coupling = jax.nn.softmax(logits, axis=-1)
        poses = squash(jnp.einsum("bij,bijd->bjd", coupling, votes))
        if iteration < num_iterations - 1:
            logits += jnp.einsum("bijd,bjd->bij", votes, poses)
    return poses


def textbook_inverted_attention(votes: jax.Array, num_iterations: int) -> jax.Array:
    poses = jnp.zeros((*votes.shape[:-3], *votes.shape[-2:]))
    for _ in range(num_iterations):
        logits = jnp.einsum("...ijd,...jd->...ij", votes, poses) / math.sqrt(votes.shape[-1])
        coupling = jax.nn.softmax(logits, axis=-1)
        poses = jax.nn.standardize(jnp.einsum("...ij,...ijd->...jd", coupling, votes))
    return poses


def textbook_em(votes: jax.Array, activations: jax.Array, num_iterations: int) -> jax.Array:
    coupling = jnp.full(votes.shape[:-1], 1 / votes.shape[-2])
    for iteration in range(num_iterations):
        weight = coupling * activations[..., None]
        mass = jnp.sum(weight, axis=-2)
        means = jnp.einsum("...ij,...ijd->...jd", weight, votes) / mass[..., None]
        squares = jnp.square(votes - means[..., None, :, :])
        variances = jnp.einsum("...ij,...ijd->...jd", weight, squares) / mass[..., None] + 1e-4
        cost = jnp.sum(0.5 * jnp.log(variances), axis=-1) * mass
        temperature = 0.01 * (1 - 0.95 ** (iteration + 1))
        active = jax.nn.sigmoid(-temperature * cost)
        if iteration < num_iterations - 1:
            log_normal = -0.5 * jnp.sum(
                squares / variances[..., None, :, :]
                + jnp.log(2 * math.pi * variances)[..., None, :, :],
                axis=-1,
            )
            coupling = jax.nn.softmax(jnp.log(active)[..., None, :] + log_normal, axis=-1)
    return jnp.concatenate([means, active[..., None]], axis=-1)


def textbook_attention(transformed: jax.Array, kernel: jax.Array) -> jax.Array:
    logits = jnp.einsum("...mnd,ndmk->...kn", transformed, kernel)
    coupling = jax.nn.softmax(logits, axis=-2)
    return jnp.einsum("...mn,...mnd->...nd", coupling, transformed)


def dense_votes(poses: jax.Array, kernel: jax.Array) -> jax.Array:
    votes = jnp.einsum("...iax,ixjy->...ijay", poses, kernel)
    return votes.reshape(*votes.shape[:-2], -1)


class Row(NamedTuple):
    """One size: arguments and the two versions."""

    description: str
    arguments: tuple[jax.Array, ...]
    textbook: Callable[..., jax.Array]
    capsjax: Callable[..., jax.Array]


def dynamic_row(budget: int, children: int, batch: int = 128) -> Row:
    poses = 0.1 * normal(0, batch, children, 1, 8)
    kernel = 0.1 * normal(1, children, 8, 10, 16)
    block = choose_block_size(4 * children * 10 * 8, shared_bytes=kernel.nbytes, budget=budget)

    def ours(poses: jax.Array, kernel: jax.Array) -> jax.Array:
        return in_blocks(lambda x: dynamic_routing(LinearVotes(x, kernel)).poses, poses, block)

    return Row(
        f"dynamic r = 3, {children}×8 → 10×16, batch {batch}, blocks of {block}",
        (poses, kernel),
        lambda poses, kernel: textbook_dynamic(dense_votes(poses, kernel), 3),
        ours,
    )


def convolutional_inputs(batch: int, budget: int) -> tuple[jax.Array, jax.Array, int]:
    """Returns poses, kernel, and the examples of a block."""
    poses = normal(0, batch, 16, 16, 32, 4, 4)
    kernel = normal(1, 288, 4, 32, 4) / math.sqrt(4 * 288)
    return poses, kernel, choose_block_size(4 * 7 * 7 * 288 * 32, budget=budget)


def patch_votes(poses: jax.Array, kernel: jax.Array) -> jax.Array:
    return dense_votes(pose_patches(poses, 3, stride=2), kernel)


def inverted_attention_row(budget: int, batch: int = 32) -> Row:
    poses, kernel, block = convolutional_inputs(batch, budget)

    def ours(poses: jax.Array, kernel: jax.Array) -> jax.Array:
        def route(poses: jax.Array) -> jax.Array:
            votes = WindowVotes(poses, kernel, 3, stride=2)
            first = inverted_attention_routing(votes, normalize=jax.nn.standardize).poses
            return inverted_attention_routing(votes, first, normalize=jax.nn.standardize).poses

        return in_blocks(route, poses, block)

    return Row(
        f"inverted attention, 2 iterations, 16×16×32 of 4×4 → 7×7×32, batch {batch}, "
        f"blocks of {block}",
        (poses, kernel),
        lambda poses, kernel: textbook_inverted_attention(patch_votes(poses, kernel), 2),
        ours,
    )


def em_row(budget: int, batch: int = 32) -> Row:
    poses, kernel, block = convolutional_inputs(batch, budget)
    activations = jax.nn.sigmoid(normal(2, batch, 16, 16, 32))
    zeros = jnp.zeros(32)

    def ours(poses: jax.Array, activations: jax.Array, kernel: jax.Array) -> jax.Array:
        def route(children: tuple[jax.Array, jax.Array]) -> jax.Array:
            poses, activations = children
            active = pose_patches(activations, 3, stride=2, pose_axes=0)
            votes = WindowVotes(poses, kernel, 3, stride=2)
            routed = em_routing(votes, active, zeros, zeros, num_iterations=2)
            return jnp.concatenate([routed.poses, routed.activations[..., None]], axis=-1)

        return in_blocks(route, (poses, activations), block)

    def textbook(poses: jax.Array, activations: jax.Array, kernel: jax.Array) -> jax.Array:
        active = pose_patches(activations, 3, stride=2, pose_axes=0)
        return textbook_em(patch_votes(poses, kernel), active, 2)

    return Row(
        f"EM, 2 iterations, 16×16×32 of 4×4 → 7×7×32, batch {batch}, blocks of {block}",
        (poses, activations, kernel),
        textbook,
        ours,
    )


def attention_row(budget: int, batch: int = 100) -> Row:
    maps = normal(0, batch, 14, 14, 8, 16)
    transform = normal(1, 8, 144, 8, 32) / 12  # input channel, patch, output channel, pose
    kernel = normal(2, 8, 32, 8, 8) / 16

    def windows(maps: jax.Array) -> jax.Array:
        taken = pose_patches(maps, 3, stride=2, padding="SAME", pose_axes=1)
        by_channel = jnp.swapaxes(taken.reshape(*taken.shape[:3], 9, 8, 16), -2, -3)
        return by_channel.reshape(*taken.shape[:3], 8, 144)

    def transformed(maps: jax.Array, transform: jax.Array) -> jax.Array:
        return jnp.einsum("...mk,mknd->...mnd", windows(maps), transform)

    route = jax.vmap(attention_routing, in_axes=(-2, 0), out_axes=Routed(-2, -1, None))
    block = choose_block_size(4 * 7 * 7 * 8 * 8 * 32, budget=budget)

    def ours(maps: jax.Array, transform: jax.Array, kernel: jax.Array) -> jax.Array:
        return in_blocks(lambda x: route(transformed(x, transform), kernel).poses, maps, block)

    return Row(
        f"attention, 14×14×8×16 → 7×7×8×32, batch {batch}, blocks of {block}",
        (maps, transform, kernel),
        lambda maps, transform, kernel: textbook_attention(transformed(maps, transform), kernel),
        ours,
    )


# What a block of a batch may take: on a CPU, where it is to stay in cache, and no limit.
CPU_BUDGET, NO_BUDGET = 4 * 2**20, 2**60

ROWS: dict[str, Callable[[int], Row]] = {
    "a": lambda budget: dynamic_row(budget, 1152),
    "b": inverted_attention_row,
    "c": em_row,
    "d": attention_row,
    "e": lambda budget: dynamic_row(budget, 4608),
}


# On a device the library is measured twice.
VERSIONS, DEVICE_VERSIONS = ("textbook", "capsjax"), ("textbook", "products", "kernels")
PASSES = ("forward", "forward+backward")


def compare(name: str, repeats: int, versions: Sequence[str] = VERSIONS) -> dict[str, Any]:
    """Measures one row of the table: times, memory, ratios and agreement.

    The textbook comes first in `versions`, what it is compared with last.
    """
    row = ROWS[name](CPU_BUDGET if versions is VERSIONS else NO_BUDGET)
    arguments = row.arguments
    record: dict[str, Any] = {"row": name, "description": row.description}
    for kind in PASSES:
        measurements = {}
        for version in versions:
            function = row.textbook if version == "textbook" else row.capsjax
            if kind != "forward":
                function = with_gradient(function, len(arguments))
            with without_kernels() if version == "products" else contextlib.nullcontext():
                measurements[version] = measure(function, *arguments, repeats=repeats)
        theirs, ours = measurements["textbook"], measurements[versions[-1]]
        record[kind] = {
            "speedup": theirs.seconds / ours.seconds,
            "cpu_speedup": theirs.cpu_seconds / ours.cpu_seconds,
            "memory_ratio": theirs.megabytes / max(ours.megabytes, 1e-3),
            "relative_difference": relative_difference(ours.result, theirs.result),
        }
        for version, measured in measurements.items():
            numbers = measured._asdict().items()
            record[kind] |= {f"{version}_{key}": n for key, n in numbers if key != "result"}
    return record


def run(options: argparse.Namespace) -> None:
    """Runs the rows of the routing table."""
    about = provenance()
    console.print(about)
    report: dict[str, Any] = {"about": about}
    if options.device:
        report["kernels"] = device.check_all()
        console.print(device.table(report["kernels"]))
    versions = DEVICE_VERSIONS if options.device else VERSIONS
    records = report["rows"] = []
    for name in options.rows:
        records.append(compare(name, options.repeats, versions))
        console.print(_table(records[-1:], versions))
    console.print(_table(records, versions, title=about["device"]))
    output = options.output or (Path(device.FILE) if options.device else None)
    save(output, report)
    if output:
        console.print(f"Written to {output}.")
    if options.device and not all(record["agrees"] for record in report["kernels"]):
        raise ValueError("a kernel's numbers are wrong on this device: see the table of kernels")


def _table(
    records: Sequence[dict[str, Any]], versions: Sequence[str], title: str | None = None
) -> Table:
    heads = ("speed-up", "CPU time", "memory", "less", "|Δ|")
    table = Table("row", "what", *versions, *heads, title=title)
    for record in records:
        for kind in PASSES:
            r = record[kind]
            seconds = (f"{1e3 * r[f'{version}_seconds']:.3g} ms" for version in versions)
            memory = " → ".join(f"{r[f'{version}_megabytes']:.0f}" for version in versions)
            table.add_row(
                *(record["row"], kind, *seconds),
                *(f"{r['speedup']:.1f}×", f"{r['cpu_speedup']:.1f}×", f"{memory} MB"),
                *(f"{r['memory_ratio']:.1f}×", f"{r['relative_difference']:.0e}"),
            )
    return table
