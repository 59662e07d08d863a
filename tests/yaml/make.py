# SPDX-License-Identifier: Apache-2.0
"""Writes cases.jsonl: YAML texts, and what PyYAML's SafeLoader makes of them (python make.py > cases.jsonl)."""
import json
import math

import yaml

SCALARS = """yes Yes yEs no NO true TRUE tRUE on Off off null Null ~ nULL 0 -0 +0 00 007 08 0o17 0x1F 0xg 0b101 0b2 1_000 _1 1__0 -12 +12
1:30 1:60 190:20:30 1. .5 -.5 +.5 01.5 1.5e3 1.5e+3 1e5 1e-5 1.0E-5 1.5e- 1_0.5_0 .inf -.INF .nan -.nan 1:30.5 .e+3 . - -- 2001-12-14
2001-12-14t21:59:43.10-05:00 "yes" 'no' "1" bf16 5e8 5e+8 5.0e+8 0x 0b 1.2.3 12e03 685.230_15e+03 190:20:30.15 = << !!str_SP_1 !!int_SP_"3"
!!float_SP_3 !!float_SP_"1.5" !!bool_SP_"yes" !!null_SP_"" !!binary_SP_aGk= !foo_SP_1 !_SP_1 1,000 a:b @ %a -1:30 1:5 1:5:3 18446744073709551616
9007199254740993 -9007199254740993 0777 -0777 0x-1 """.split()
SCALARS = [scalar.replace("_SP_", " ") for scalar in SCALARS]

TEXTS = [
    "", "# nothing\n", "---\n", "a: 1\n", "---\na: 1\n...\n", "a: 1\n---\nb: 2\n", "a:\n  b:\n    - 1\n    - {c: d, e: [1, 2]}\n",
    "a: &x {b: 1}\nc: *x\n", "a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", "d:\n  c: 3\n  <<: {c: 1, e: 5}\n",
    "d:\n  <<: [{a: 1, b: 1}, {b: 2, c: 2}]\n", "d:\n  <<: 3\n", "d:\n  <<: [1]\n", "a: *nothing\n", "a: &x [*x]\n", "a: &x 1\nb: &x 2\n",
    "a: 1\na: 2\n", "a: 'it''s'\nb: \"x\\ty\\u00e9\"\n", "a: |\n  one\n  two\nb: >\n  one\n  two\n", "? a\n: 1\n", "? [a]\n: 1\n", "2: a\nyes: b\n~: c\n1.5: d\n",
    "a: !!python/object:os.system {}\n", "a: !!set {x: null}\n", "a: !!set {}\n", "a: !!set\n  ? x\n", "a: !!map {x: 1}\n", "a: !!seq [1]\n", "a: [1, 2\n", "a:\n\t- 1\n", "a: b: c\n", "\ufeffa: 1\n",
    "a: \"\\x00\"\n", "a: é漢😀\n", "- 1\n- a: 2\n  b: 3\n", "plain\n", "a: {b: 1, }\n", "a: []\nb: {}\n", "a:\nb:\n", "<<: {a: 1}\nb: 2\n", "\"<<\": {a: 1}\n",
    "a: &x 1\nb: &y *x\n", "%YAML 1.1\n---\na: 1\n", "a: \x01\n", "a: 1 # b\nc: 'x # y'\n", "a: - 1\n", "[1, 2]: 3\n",
    "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nnum_processes: 8\nmixed_precision: 'no'\n", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
]


def plain(value):
    """As JSON can hold it: what has no place there is text."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(plain(key)): plain(v) for key, v in value.items()}
    if isinstance(value, set):
        return dict.fromkeys(value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "-inf" if value < 0 else "inf"
    json.dumps(value)
    return value


class Loader(yaml.SafeLoader):
    """Dates stay text."""


Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))

for text in [f"a: {scalar}\n" for scalar in SCALARS] + TEXTS:
    case = {"yaml": text}
    try:
        case["json"] = plain(yaml.load(text, Loader))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        case["error"] = type(error).__name__
    print(json.dumps(case))
