"""All tables and figures by name."""

from _reproduce import choi2019, gu2021, lin2018, sabour2017, tsai2020
from _reproduce.experiment import Experiment
from capsjax._names import nearest

EXPERIMENTS: dict[str, Experiment] = {
    f"{paper.__name__.rpartition('.')[2]}/{name}": experiment
    for paper in (sabour2017, lin2018, choi2019, tsai2020, gu2021)
    for name, experiment in paper.EXPERIMENTS.items()
}


def lookup(name: str) -> Experiment:
    """Raises ValueError for an unknown name (the nearest is named)."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown name {name!r}: {nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
