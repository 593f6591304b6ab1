"""All tables and figures by name."""

from _reproduce import choi2019, gu2021, lin2018, sabour2017, tsai2020
from _reproduce.experiment import Experiment
from capsjax._nearest import nearest

EXPERIMENTS: dict[str, Experiment] = {
    f"{paper.__name__.rpartition('.')[2]}/{name}": experiment
    for paper in (sabour2017, lin2018, choi2019, tsai2020, gu2021)
    for name, experiment in paper.EXPERIMENTS.items()
}

# Of the papers' tables and figures those that no file here describes yet, and why.
NOT_BUILT = {
    "lin2018/figure7": "training that starts from another run's lower layers is missing",
}


def lookup(name: str) -> Experiment:
    """Raises ValueError for a name that is not built or unknown (the nearest is named)."""
    if name in NOT_BUILT:
        raise ValueError(f"{name} is not built yet: {NOT_BUILT[name]}")
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown name {name!r}: {nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
