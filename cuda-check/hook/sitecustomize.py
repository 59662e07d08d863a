# SPDX-License-Identifier: Apache-2.0
"""Loaded by Python at its start because its folder is on PYTHONPATH: starts tidemark's hook, then runs the
sitecustomize that it stands before."""
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _chain():
    """The sitecustomize that would have been loaded without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p or ".") != _here])
    if spec and spec.loader:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("TIDEMARK_RUN"):
    import tidemark_hook
    tidemark_hook.start(os.environ["TIDEMARK_RUN"])
_chain()
