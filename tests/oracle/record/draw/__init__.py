# SPDX-License-Identifier: Apache-2.0
"""Random cases: what a person could have chosen."""
