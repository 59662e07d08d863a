# SPDX-License-Identifier: Apache-2.0
"""torchtitan's own trainer with its own models, as the last release that reads TOML has them."""
