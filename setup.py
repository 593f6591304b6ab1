"""What setup.cfg cannot say: the scripts and recipes are installed under one name.

`experiments/` becomes the package `capsjax_experiments`, with `configs/` inside it, which
capsjax/__main__.py runs by name.
"""

import runpy

from setuptools import find_packages, setup

SCRIPTS = "capsjax_experiments"
VERSION = runpy.run_path("capsjax/_version.py")

setup(
    version=VERSION["__version__"],
    url=VERSION["REPOSITORY"],
    project_urls={
        "Source": VERSION["REPOSITORY"],
        "Issues": f"{VERSION['REPOSITORY']}/issues",
        "Changelog": f"{VERSION['REPOSITORY']}/blob/main/CHANGELOG.md",
    },
    packages=[
        *find_packages(include=["capsjax", "capsjax.*"]),
        SCRIPTS,
        *(f"{SCRIPTS}.{name}" for name in find_packages("experiments")),
        f"{SCRIPTS}.configs",
    ],
    package_dir={SCRIPTS: "experiments", f"{SCRIPTS}.configs": "configs"},
    package_data={"": ["py.typed", "*.js", "*.css", "*.html", "*.md", "*.textproto"]},
)
