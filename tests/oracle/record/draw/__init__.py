"""Random cases: what a person could have chosen."""
