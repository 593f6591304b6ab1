"""The five papers: their tables and figures by name, PAPER/NAME."""

from _reproduce.experiment import Experiment

from papers import choi2019, gu2021, lin2018, sabour2017, tsai2020

PAPERS = {
    paper.__name__.rpartition(".")[2]: paper
    for paper in (sabour2017, lin2018, choi2019, tsai2020, gu2021)
}
# TABLE_1 of gu2021.py is gu2021/table1.
EXPERIMENTS = {
    f"{paper}/{constant.lower().replace('_', '')}": experiment
    for paper, module in PAPERS.items()
    for constant, experiment in vars(module).items()
    if isinstance(experiment, Experiment)
}
