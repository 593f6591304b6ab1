"""The papers' tables and figures: what they are, how they are run, compared and drawn."""
