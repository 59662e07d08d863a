# SPDX-License-Identifier: Apache-2.0
"""A published figure and what tidemark says of the same job."""

import json
import subprocess
from typing import NamedTuple

GIB = 1 << 30


class Check(NamedTuple):
    name: str
    predicted: float
    published: float
    bound: float  # of the published value
    rounding: float = 0  # of the published digits
    differs: bool = False  # for a named cause: the bound does not hold

    def error(self):
        """What is wrong, or None."""
        is_within = abs(self.predicted - self.published) <= self.bound * self.published + self.rounding
        return None if is_within != self.differs else f"{self.name} {self.predicted:.2f}, published {self.published:.2f}"


class Fits(NamedTuple):
    """A device on which tidemark says that a job runs, and what a published run of it held: never more."""

    name: str
    smallest: float
    published: float

    def error(self):
        wrong = self.smallest < self.published
        return f"{self.name} is said to run on {self.smallest:.2f}, it held {self.published:.2f}" if wrong else None


class Between(NamedTuple):
    """A figure, and what is published of the least and the most that it can be."""

    name: str
    predicted: float
    least: float
    most: float

    def error(self):
        is_within = self.least <= self.predicted <= self.most
        return None if is_within else f"{self.name}: {self.predicted:.0f} is not within {self.least:.0f} and {self.most:.0f}"


def answer(*words):
    return json.loads(subprocess.run([*words, "--json"], capture_output=True, text=True).stdout)
