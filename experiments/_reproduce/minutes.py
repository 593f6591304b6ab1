"""Measured minutes of each name: one process on one core of a CPU.

Each was run after the names above it, whose trainings it shares where it can. A name or scale that
is not here was not timed.
"""

SMOKE = {
    "sabour2017/mnist": 0.7,
    "sabour2017/multimnist": 0.7,
    "sabour2017/affnist": 0.8,
    "sabour2017/perturbation": 0.3,
    "lin2018/figure2": 1.0,
    "lin2018/figure3": 0.3,
    "lin2018/manifold": 0.7,
    "lin2018/figure7": 1.7,
    "choi2019/table1": 2.3,
    "choi2019/table2": 0.6,
    "choi2019/table3": 0.4,
    "choi2019/figure3": 0.3,
    "choi2019/figure4": 0.2,
    "tsai2020/table1": 1.3,
    "tsai2020/figure4": 1.2,
    "tsai2020/figure5": 0.9,
    "gu2021/table1": 0.9,
    "gu2021/table2": 1.1,
    "gu2021/table3": 0.6,
    "gu2021/table4": 0.9,
    "gu2021/table5": 0.7,
    "gu2021/figure3": 0.8,
    "gu2021/figure4": 0.4,
}
SMALL = {
    "sabour2017/mnist": 6,
    "sabour2017/perturbation": 0.3,
    "lin2018/figure2": 25,
    "lin2018/figure3": 20,
    "choi2019/table3": 11,
    "choi2019/figure3": 0.4,
    "choi2019/figure4": 3.8,
    "tsai2020/figure4": 40,
    "gu2021/table1": 69,
    "gu2021/table2": 81,
    "gu2021/table4": 63,
    "gu2021/table5": 8,
    "gu2021/figure4": 0.8,
}
MINUTES = {"smoke": SMOKE, "small": SMALL, "full": {}}
