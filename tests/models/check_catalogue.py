#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks models/catalogue/*.json and models/gpus.json.

Each config must give the published number of parameters. The formulas are written from the layers
of each model type, apart from the descriptions in models/architectures, so that an error in either
shows. All counts are numbers of parameters, shared ones once.

Each GPU must agree with its architecture and with the rule by which contexts are estimated.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "models" / "catalogue"
GPUS = ROOT / "models" / "gpus.json"
MIB = 1 << 20

# Model types whose output head is the embedding unless the config says otherwise.
TIED_BY_DEFAULT = {"gemma2", "gpt2"}

# Keys that name files, tokens or generation, or only initial values: no memory rule reads them.
NOISE = {"_name_or_path", "transformers_version", "auto_map", "bos_token_id", "eos_token_id",
         "initializer_range", "initializer_factor", "rms_norm_eps",
         "layer_norm_eps", "layer_norm_epsilon", "task_specific_params", "ignore_index",
         "logit_scale_init_value"}
READ = {"cohere2_moe": {"rms_norm_eps"}}  # but for these: whether it is there says which norm
KEYS = {"name", "title", "source", "also", "parameters", "parameters_source", "assumed", "config", "preprocessor"}

# What of an entry may be written from memory and confirmed by nothing that is published: an answer says so.
ASSUMED = ["config", "torch_dtype"]
UNCONFIRMED = "counted from the configuration, which was written from memory"
# A number that is published, or a copy of the configuration: the words by which an entry says so.
CONFIRMED = ["published", "metadata", "model card", "parameters of ", "total_size of", "as loaded", "the page",
             "the configuration as ", "the configuration is that of ", "the vocabulary as copies", "sizes as ",
             "layers, heads and width of", "conversion script"]
ROUNDED = re.compile(r"published as ([\d.]+) (million|billion)")
VARIANT = re.compile(r"counted; the configuration is that of (\S+?)(?: but for ([\w, ]+))?$")

# Most threads that one SM holds, by compute capability times 10 (CUDA programming guide).
THREADS_PER_SM = {60: 2048, 70: 2048, 75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 103: 2048,
                  120: 1536}
CONTEXT_BYTES_PER_THREAD = 2048
KERNEL_BYTES = 96 * MIB
GPU_KEYS = {"name", "title", "bytes", "board_mib", "capability", "sms", "threads_per_sm",
            "context_bytes", "context_source", "source"}


def linear(inputs, outputs, bias):
    return inputs * outputs + (outputs if bias else 0)


def is_tied(config):
    return config.get("tie_word_embeddings", config["model_type"] in TIED_BY_DEFAULT)


def embedding_and_head(config, hidden):
    return config["vocab_size"] * hidden * (1 if is_tied(config) else 2)


def gated_decoder(config, qkv_bias, out_bias, mlp_bias, norms, qk_norm=False):
    """Llama and its kin: gated MLP, grouped-query attention, `norms` norms a layer and one last."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    attention = linear(hidden, heads * head_dim, qkv_bias)
    attention += 2 * linear(hidden, kv_heads * head_dim, qkv_bias)
    attention += linear(heads * head_dim, hidden, out_bias) + (2 * head_dim if qk_norm else 0)
    mlp = 2 * linear(hidden, inner, mlp_bias) + linear(inner, hidden, mlp_bias)
    layer = attention + mlp + norms * hidden
    return embedding_and_head(config, hidden) + config["num_hidden_layers"] * layer + hidden


def llama(config):
    bias = config.get("attention_bias", False)
    return gated_decoder(config, bias, bias, config.get("mlp_bias", False), norms=2)


def mistral(config):
    return gated_decoder(config, False, False, False, norms=2)


def qwen2(config):
    return gated_decoder(config, True, False, False, norms=2)


def qwen3(config):
    bias = config.get("attention_bias", False)
    return gated_decoder({"head_dim": 128, **config}, bias, bias, False, norms=2, qk_norm=True)


def gemma2(config):
    bias = config.get("attention_bias", False)
    return gated_decoder({"head_dim": 256, **config}, bias, bias, False, norms=4)


def phi3(config):
    """Query, key and value are one matrix, gate and up another: the same numbers as apart."""
    return gated_decoder(config, False, False, False, norms=2)


def gpt2(config):
    hidden, inner = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"]
    attention = linear(hidden, 3 * hidden, True) + linear(hidden, hidden, True)
    mlp = linear(hidden, inner, True) + linear(inner, hidden, True)
    layer = attention + mlp + 2 * (2 * hidden)
    embeddings = embedding_and_head(config, hidden) + config["n_positions"] * hidden
    return embeddings + config["n_layer"] * layer + 2 * hidden


def encoder_layers(config):
    """Pre-norm transformer layers with biases everywhere: the towers of CLIP and SigLIP."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    mlp = linear(hidden, inner, True) + linear(inner, hidden, True)
    layer = 4 * linear(hidden, hidden, True) + mlp + 2 * (2 * hidden)
    return config["num_hidden_layers"] * layer


def patches(config):
    return (config["image_size"] // config["patch_size"]) ** 2


def text_embeddings(config):
    return (config["vocab_size"] + config["max_position_embeddings"]) * config["hidden_size"]


def clip_vision(config):
    """A class embedding, patches without bias, a position for each; norms before and after."""
    hidden = config["hidden_size"]
    patch = linear(3 * config["patch_size"] ** 2, hidden, False)
    embeddings = hidden + patch + (patches(config) + 1) * hidden
    return embeddings + encoder_layers(config) + 2 * (2 * hidden)


def clip(config):
    text, vision, width = config["text_config"], config["vision_config"], config["projection_dim"]
    text_tower = text_embeddings(text) + encoder_layers(text) + 2 * text["hidden_size"]
    projections = linear(text["hidden_size"] + vision["hidden_size"], width, False)
    return text_tower + clip_vision(vision) + projections + 1  # logit_scale


def siglip_vision(config):
    """Patches with bias, no class embedding; the head is a probe, an attention, a norm, an MLP."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    patch = linear(3 * config["patch_size"] ** 2, hidden, True)
    head = hidden + 4 * linear(hidden, hidden, True) + 2 * hidden
    head += linear(hidden, inner, True) + linear(inner, hidden, True)
    tower = patch + patches(config) * hidden + encoder_layers(config) + 2 * hidden
    return tower + (head if config.get("vision_use_head", True) else 0)


def siglip(config):
    text, vision = config["text_config"], config["vision_config"]
    head = linear(text["hidden_size"], text.get("projection_size", text["hidden_size"]), True)
    text_tower = text_embeddings(text) + encoder_layers(text) + 2 * text["hidden_size"] + head
    return text_tower + siglip_vision(vision) + 2  # logit_scale, logit_bias


def projector(config):
    """Two linear layers from vision features (of several layers side by side) to the text width."""
    layers = config.get("vision_feature_layer")
    features = config["vision_config"]["hidden_size"]
    features *= len(layers) if isinstance(layers, list) else 1
    width = config["text_config"]["hidden_size"]
    bias = config.get("multimodal_projector_bias", True)
    return linear(features, width, bias) + linear(width, width, bias)


def llava(config):
    """The head is tied as the whole model's config says, where it says so."""
    text = dict(config["text_config"])
    if "tie_word_embeddings" in config:
        text["tie_word_embeddings"] = config["tie_word_embeddings"]
    parts = count(config["vision_config"]), count(text)
    return None if None in parts else sum(parts) + projector(config)


def llava_next(config):
    whole = llava(config)
    return whole and whole + config["text_config"]["hidden_size"]  # image_newline


FORMULAS = {"llama": llama, "mistral": mistral, "qwen2": qwen2, "qwen3": qwen3, "gemma2": gemma2,
            "phi3": phi3, "gpt2": gpt2, "clip": clip, "clip_vision_model": clip_vision,
            "siglip": siglip, "siglip_vision_model": siglip_vision, "llava": llava,
            "llava_next": llava_next}


def count(config):
    """None for a type without a formula here: tests/unit/test_catalogue.c counts what its description gives, and the
    recorded runs of tests/oracle what the library itself does."""
    formula = FORMULAS.get(config.get("model_type"))
    return formula(config) if formula else None


def configs_within(config):
    yield config
    for part in ("text_config", "vision_config", "qformer_config"):
        if part in config:
            yield from configs_within(config[part])


def variant_fault(entry, of, keys):
    """Whether the configuration is that of another entry, which is confirmed, but for some keys."""
    other = json.loads((CATALOGUE / f"{of}.json").read_text(encoding="utf-8"))
    if "config" in other.get("assumed", []):
        return f"{of} is itself assumed"
    apart = {"architectures", "torch_dtype", *(keys or "").split(", ")}
    mine, its = entry["config"], other["config"]
    differ = sorted(key for key in {*mine, *its} - apart if mine.get(key) != its.get(key))
    return f"its configuration is not that of {of}: {differ}" if differ else None


def evidence_faults(entry):
    """What says that the configuration is right: a published number of parameters, a copy of it, or nothing, which
    "assumed" then says."""
    source, assumed, found = entry["parameters_source"], entry.get("assumed"), []
    if assumed is not None and (not assumed or assumed != [part for part in ASSUMED if part in assumed]):
        found.append(f"assumed is {assumed}; may list {ASSUMED}")
    assumed = assumed or []
    if ("config" in assumed) != (source == UNCONFIRMED):
        found.append(f'"assumed" has config where parameters_source is "{UNCONFIRMED}", and only there')
    if "torch_dtype" in assumed and "dtype" not in json.dumps(entry["config"]):
        found.append("a type is assumed that the configuration does not name")
    if "config" not in assumed and not any(words in source for words in CONFIRMED):
        found.append(f"nothing confirms the configuration: {source}")
    rounded, variant = ROUNDED.search(source), VARIANT.match(source)
    if rounded:
        digits = len(rounded[1].partition(".")[2])
        said = entry["parameters"] / {"million": 1e6, "billion": 1e9}[rounded[2]]
        if round(said, digits) != float(rounded[1]):
            found.append(f"{said:.3f} {rounded[2]} parameters, published as {rounded[1]}")
    if variant:
        found.append(variant_fault(entry, *variant.groups()))
    return [fault for fault in found if fault]


def faults(path):
    """What is wrong with one file, as sentences."""
    entry = json.loads(path.read_text(encoding="utf-8"))
    found = []
    if entry.get("name") != path.stem or not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", path.stem):
        found.append(f"name {entry.get('name')!r} is not that of the file")
    unknown, missing = set(entry) - KEYS, KEYS - {"preprocessor", "also", "assumed"} - set(entry)
    if unknown or missing:
        found.append(f"keys unknown: {sorted(unknown)}, missing: {sorted(missing)}")
        return found
    if not entry["source"].startswith("huggingface.co/"):
        found.append("source is not a model page")
    if not entry["parameters_source"] or not entry["title"]:
        found.append("parameters_source and title must say something")
    if "preprocessor" in entry and "vision_config" not in entry["config"]:
        found.append("preprocessor belongs to models that see")
    for config in configs_within(entry["config"]):
        noise = NOISE & set(config) - READ.get(config.get("model_type"), set())
        if noise:
            found.append(f"keys that no memory rule reads: {sorted(noise)}")
    found += evidence_faults(entry)
    counted = count(entry["config"])
    if counted is not None and counted != entry["parameters"]:
        found.append(f"the config gives {counted} parameters, published are {entry['parameters']}")
    return found


def gpu_faults(gpu):
    """What is wrong with one entry of gpus.json, as sentences."""
    unknown, missing = set(gpu) - GPU_KEYS - {"bytes_precision", "usual", "also"}, GPU_KEYS - set(gpu)
    if unknown or missing:
        return [f"keys unknown: {sorted(unknown)}, missing: {sorted(missing)}"]
    found = []
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", gpu["name"]) or not gpu["source"]:
        found.append("name is not in lower case, or there is no source")
    if not 0.95 * gpu["board_mib"] * MIB < gpu["bytes"] < gpu["board_mib"] * MIB:
        found.append(f"{gpu['bytes']} bytes do not fit a board of {gpu['board_mib']} MiB")
    if gpu["threads_per_sm"] != THREADS_PER_SM.get(gpu["capability"]):
        found.append(f"threads_per_sm is not that of capability {gpu['capability']}")
    resident = gpu["sms"] * gpu["threads_per_sm"]
    rule = CONTEXT_BYTES_PER_THREAD * resident + KERNEL_BYTES
    slack = 0 if gpu["context_source"].startswith("estimated") else 21 * MIB
    if abs(gpu["context_bytes"] - rule) > slack:
        found.append(f"context_bytes {gpu['context_bytes']} is not {rule}, give or take {slack}")
    return found


def checked():
    """Name and faults of everything there is to check."""
    paths = sorted(CATALOGUE.glob("*.json"))
    yield "catalogue", [] if paths else ["no models"]
    for path in paths:
        try:
            yield path.name, faults(path)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            yield path.name, [f"{type(error).__name__}: {error}"]
    gpus = json.loads(GPUS.read_text(encoding="utf-8"))["gpus"]
    for gpu in gpus:
        yield f"gpus.json: {gpu.get('name')}", gpu_faults(gpu)
    names = [gpu.get("name") for gpu in gpus]
    yield "gpus.json", [] if len(set(names)) == len(names) else ["a name occurs twice"]


def main():
    passed = failed = 0
    for name, found in checked():
        for fault in found:
            print(f"{name}: {fault}")
        passed, failed = passed + (not found), failed + bool(found)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
