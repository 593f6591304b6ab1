"""All tables and figures by name."""

from _reproduce import choi2019, gu2021, lin2018, sabour2017, tsai2020
from _reproduce.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    f"{paper.__name__.rpartition('.')[2]}/{name}": experiment
    for paper in (sabour2017, lin2018, choi2019, tsai2020, gu2021)
    for name, experiment in paper.EXPERIMENTS.items()
}
