"""The parts of the page that experiments/report.py writes."""
