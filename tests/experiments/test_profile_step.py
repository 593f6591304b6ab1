"""The script runs on a tiny CapsNet: what it measures is for people to read."""

import _cli
import profile_step
import pytest

ARGUMENTS = ("--config=configs/digits.py", "--config.model.width=0.03125", "--repeats=1")


@pytest.mark.slow  # compiles ten programs
def test_the_parts_and_the_whole(capsys):
    _cli.run(profile_step.parser(), profile_step.main, [*ARGUMENTS, "--batch_size=2"])
    table = capsys.readouterr().out
    shown = {row.split("|")[1].strip(" *") for row in table.splitlines() if row.startswith("|")}
    assert {"first convolution", "decoder", "optimizer", "training step"} <= shown


def test_a_network_of_other_parts_is_refused(fails):
    message = fails(profile_step, *ARGUMENTS, "--config.model.name=gu2021_convnet_avg")
    assert "--config: gu2021_convnet_avg does not have the parts" in message
