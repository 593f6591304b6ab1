"""Where the time of a CapsNet training step goes: each part alone, beside the whole.

  python experiments/profile_step.py --config=configs/sabour2017_mnist.py --batch_size=32

Each part is compiled and run by itself, forward and backward, on arrays of the real shapes; the
best of several runs counts. The parts need not add up to the step: XLA may overlap or fuse them.
"""

import argparse
import resource
import time
from functools import partial

import _cli


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = _cli.parser(__doc__)
    _cli.add_config(parser)
    parser.add_argument("--batch_size", type=int, help="default: the config's")
    _cli.add_data_dir(parser)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each part; default: 5")
    return parser


def main(args: argparse.Namespace) -> None:
    """Measures and prints a Markdown table."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from _benchmark.measure import provenance
    from flax import nnx

    from capsjax.data import tasks
    from capsjax.models.capsnet import CapsNet
    from capsjax.training.build import build, build_model
    from capsjax.training.parallel import on_devices, replicate
    from capsjax.training.step import DeviceSource

    config = _cli.config_of(args)
    batch_size = args.batch_size or config.training.batch_size
    config.training.batch_size = batch_size
    task = tasks.create(**config.data, data_dir=args.data_dir)
    devices = jax.devices()[:1]
    setup = build(config, task, devices)
    model, optimizer, state = build_model(setup.config), setup.optimizer, setup.init_state(0)
    if not isinstance(model, CapsNet) or model.decoder is None:
        raise ValueError(
            f"--config: {config.model.name} does not have the parts that are timed here; expected "
            "a CapsNet with a decoder, such as configs/sabour2017_mnist.py"
        )

    def best(run) -> float:
        """Seconds of the fastest of `repeats` calls, after one that compiles."""
        jax.block_until_ready(run())
        times = []
        for _ in range(args.repeats):
            began = time.perf_counter()
            jax.block_until_ready(run())
            times.append(time.perf_counter() - began)
        return min(times)

    def forward_backward(module, *inputs):
        """The time of `module(*inputs)` and its gradients for parameters and inputs."""
        structure, variables = nnx.split(module)

        @jax.jit
        def run(variables, cotangent, *inputs):
            def call(variables, *inputs):
                out = nnx.merge(structure, variables)(*inputs)
                return getattr(out, "poses", out)

            _, pullback = jax.vjp(call, variables, *inputs)
            return pullback(cotangent)

        out = jax.eval_shape(lambda: module(*inputs))
        cotangent = jnp.ones(getattr(out, "poses", out).shape)
        return best(lambda: run(variables, cotangent, *inputs))

    key = jax.random.key(0)
    images = jax.random.uniform(key, (batch_size, *task.input_shape))
    features = nnx.relu(model.conv(images))
    children = model.primary(features).reshape(batch_size, -1, model.primary.pose_size)
    poses = model.classes(children).poses
    mask = jax.nn.one_hot(jnp.arange(batch_size) % task.num_classes, task.num_classes)

    dispatch = on_devices(setup.run_steps, devices, (None, None, None, None))
    source = DeviceSource.whole(task.train)
    arguments = replicate((state, source, key), devices)
    sample = partial(
        jax.jit(task.sample, static_argnums=3),
        key,
        task.train.images,
        task.train.labels,
        batch_size,
    )
    grads = jax.tree.map(jnp.ones_like, state.params)

    parts = {
        "first convolution": forward_backward(model.conv, images),
        "primary capsules (convolution, squash)": forward_backward(model.primary, features),
        "class capsules (votes, routing)": forward_backward(model.classes, children),
        "decoder": forward_backward(model.decoder, poses, mask),
        "optimizer": best(partial(jax.jit(optimizer.update), grads, state.opt_state, state.params)),
        "drawing the batch": best(sample),
        "host: an empty dispatch, per 10 steps": best(lambda: dispatch(*arguments, np.int32(0)))
        / 10,
    }
    whole = best(lambda: dispatch(*arguments, np.int32(1)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    print(f"{config.model.name} on {task.name}, batch {batch_size}; {provenance()}\n")
    print("| part | seconds | of the step |\n| --- | ---: | ---: |")
    for name, seconds in (*parts.items(), ("sum of the parts", sum(parts.values()))):
        print(f"| {name} | {seconds:.4f} | {seconds / whole:.1%} |")
    print(f"| **training step** | **{whole:.4f}** | {batch_size / whole:,.0f} images/s |")
    print(f"\npeak resident memory of the process: {peak:.2f} GiB")


if __name__ == "__main__":
    _cli.run(parser(), main)
