# SPDX-License-Identifier: Apache-2.0
"""Requests to the program, as `tidemark call --lines` takes them."""
import json
import subprocess


def ask(program, requests):
    """The answers to requests, in their order; fewer, if the program ended early."""
    text = "".join(json.dumps(request) + "\n" for request in requests)
    said = subprocess.run([program, "call", "--lines"], input=text, capture_output=True, text=True, check=False)
    return [json.loads(line) for line in said.stdout.splitlines()]
