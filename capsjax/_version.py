__version__ = "0.1.0"

# Where the source is published: setup.py, CITATION.cff and the notebooks' badges name it.
REPOSITORY = "https://github.com/capsjax/capsjax"
