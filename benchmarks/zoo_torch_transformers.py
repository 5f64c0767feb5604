"""The architectures of transformers that `zoo_torch` tries: two layers deep, random weights.

The configuration of each is its own default with the sizes of `SMALL` in it, in nested
configurations (of the text, of the pictures) too; `OWN` has what a few need besides. Some sizes
contradict others of an architecture: the first of `VARIANTS`, and the first of the inputs, with
which PyTorch runs the model are taken.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.zoo_torch_models import Maker

SMALL = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embedding_size": 32,
    "embed_dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 4, "n_head": 4,
    "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "n_inner": 64, "d_ff": 64, "ffn_dim": 64,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "hidden_dim": 64, "d_kv": 8, "head_dim": 8,
    "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64, "pad_token_id": 0,
    "image_size": 32, "patch_size": 8, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "projection_dim": 16,
    "use_cache": False, "rotary_dim": 4, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "max_source_positions": 32, "entity_vocab_size": 99,
    "use_timm_backbone": False,
}  # fmt: skip
LARGEST = 30_000_000  # parameters: such have many layers that no configuration removes

_HEADS = ("head_dim", "num_key_value_heads")
_WIDTHS = (
    *("hidden_size", "d_model", "dim", "embed_dim", "num_attention_heads", "num_heads"),
    *("intermediate_size", "hidden_dim", "image_size", "patch_size", "projection_dim", *_HEADS),
    *("encoder_attention_heads", "decoder_attention_heads", "max_position_embeddings"),
)
VARIANTS = ((), _HEADS[:1], _HEADS[1:], _HEADS, _WIDTHS)  # keys that are left out

PARTS = re.compile(r"_(text|vision|audio|text_model|vision_model|encoder|decoder)$")  # of others

_SERIES = {"prediction_length": 8, "context_length": 16, "num_time_features": 1}
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
OWN: dict[str, dict[str, Any]] = {
    "autoformer": _SERIES,
    "informer": _SERIES,
    "time_series_transformer": _SERIES,
    "convnext": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
    "convnextv2": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
    "swin": {
        "hidden_size": 32,
        "embed_dim": 16,
        "depths": [1, 1],
        "num_heads": [2, 4],
        "window_size": 2,
    },
    "swinv2": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 2},
    "donut-swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 2},
    "maskformer-swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 2},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 8},
    "funnel": {"block_sizes": [1, 1]},
    "prophetnet": {"num_encoder_layers": 2, "num_decoder_layers": 2},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
    "mgp-str": {"image_size": [32, 128], "patch_size": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "local"], "hash_seed": 0},
    "layoutlmv3": {"input_size": 32, "coordinate_size": 5, "shape_size": 6},
    "lilt": {"hidden_size": 48, "channel_shrink_ratio": 2},
    "timesfm": {"context_length": 32, "horizon_length": 8, "patch_length": 8, "freq_size": 3},
    "patchtst": {"context_length": 32, "num_input_channels": 2},
    "patchtsmixer": {"context_length": 32, "num_input_channels": 2},
    "qwen2_vl": {"text_config": {"rope_parameters": _MROPE}},
    "qwen2_5_vl": {"text_config": {"rope_parameters": _MROPE}},
}


def small(config_class: Any, without: tuple[str, ...], depth: int = 0) -> dict[str, Any]:
    """The arguments of a small configuration, nested ones as dicts."""
    known = config_class()
    found: dict[str, Any] = {
        key: value
        for key, value in SMALL.items()
        if key not in without and isinstance(getattr(known, key, ""), int)
    }
    for key in getattr(config_class, "sub_configs", {}):
        nested = type(getattr(known, key, None))
        if hasattr(nested, "model_type") and depth < 2:
            found[key] = small(nested, without, depth + 1)
            if "model_type" in nested.__dict__:
                found[key]["model_type"] = nested.model_type
    return found


def merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with others values, nested ones joined."""
    nested = {k: merged(base[k], v) for k, v in own.items() if isinstance(base.get(k), dict)}
    return {**base, **own, **nested}


def _first(config: Any, names: tuple[str, ...], default: Any) -> Any:
    """The first of some numbers that a configuration, or one nested in it, has."""
    parts = [getattr(config, key, None) for key in getattr(config, "sub_configs", {})]
    for part in (config, *parts):
        for name in names:
            value = getattr(part, name, None)
            value = value[0] if isinstance(value, (list, tuple)) and value else value
            if isinstance(value, int):
                return value
    return default


def tensors(config: Any) -> dict[str, list[Any]]:
    """What arguments of `forward` can be: their names, and tensors to try in turn."""
    import torch

    size = getattr(config, "image_size", None)
    height, width = size if isinstance(size, (list, tuple)) and len(size) == 2 else (None, None)
    height = height or _first(config, ("image_size", "input_size"), 32)
    channels = _first(config, ("num_channels", "in_channels"), 3)
    frames = _first(config, ("num_frames", "frames_per_clip"), 2)
    bins = _first(
        config, ("num_mel_bins", "feature_size", "input_feat_per_channel", "input_dim"), 80
    )
    time = 2 * _first(config, ("max_source_positions",), 32)
    past = _first(config, ("context_length",), 32)
    channels_in = _first(config, ("num_input_channels",), 2)
    picture = torch.randn(1, channels, height, width or height)
    words = torch.randint(3, 99, (1, 7))
    words[0, -1] = SMALL["pad_token_id"]
    video = torch.randn(1, frames, channels, height, height)
    series = torch.randn(1, past + 7)
    return {
        "input_ids": [words.repeat(2, 1), words],
        "decoder_input_ids": [torch.randint(3, 99, (2, 5)), torch.randint(3, 99, (1, 5))],
        "pixel_values": [picture, video],
        "pixel_values_videos": [video],
        "input_values": [torch.randn(1, 2000), torch.randn(1, 1, 2000), torch.randn(1, 1024, 128)],
        "input_features": [torch.randn(1, bins, time), torch.randn(1, time, bins)],
        "attention_mask": [torch.ones(1, 7, dtype=torch.int64)],
        "bbox": [torch.randint(0, 16, (1, 7, 4)).sort(-1).values, torch.rand(1, 7, 4)],
        "past_values": [torch.randn(1, past, channels_in), series],
        "past_time_features": [torch.randn(1, past + 7, 1)],
        "past_observed_mask": [torch.ones(1, past + 7)],
        "future_values": [torch.randn(1, 8)],
        "future_time_features": [torch.randn(1, 8, 1)],
        "visual_feats": [torch.randn(1, 4, _first(config, ("visual_feat_dim",), 2048))],
        "visual_pos": [torch.rand(1, 4, 4)],
        "inputs": [torch.randn(1, 9, _first(config, ("d_model",), 32))],
        "states": [torch.randn(1, 3, _first(config, ("state_dim",), 17))],
        "actions": [torch.randn(1, 3, _first(config, ("act_dim",), 4))],
        "rewards": [torch.randn(1, 3, 1)],
        "returns_to_go": [torch.randn(1, 3, 1)],
        "timesteps": [torch.arange(3)[None]],
        "prompt_pixel_values": [picture],
        "prompt_masks": [picture],
    }


ALTERNATIVES: tuple[tuple[str, ...], ...] = (
    (),
    ("decoder_input_ids",),
    ("input_ids", "pixel_values"),
    ("input_ids", "bbox"),
    ("input_ids", "bbox", "pixel_values"),
    ("input_ids", "pixel_values", "attention_mask"),
    ("input_ids", "bbox", "decoder_input_ids"),
    ("input_ids", "input_features"),
    ("past_values", "past_time_features", "past_observed_mask", "future_values",
     "future_time_features"),
    ("states", "actions", "rewards", "returns_to_go", "timesteps"),
)  # fmt: skip


def inputs_of(model: Any, config: Any) -> dict[str, Any]:
    """The first inputs with which PyTorch runs a model.

    Raises:
        Exception: that of PyTorch for the main input alone.
    """
    import torch

    takes = inspect.signature(model.forward).parameters
    main = model.main_input_name
    needed = [k for k, p in takes.items() if p.default is p.empty and p.kind == 1]
    known = tensors(config)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        needed.append("decoder_input_ids")
    reason = None
    for more in ALTERNATIVES:
        names = dict.fromkeys([main, *needed, *more] if isinstance(main, str) else [*main, *needed])
        if not all(name in takes and name in known for name in names):
            continue
        for turn in (0, 1):
            inputs = {name: known[name][min(turn, len(known[name]) - 1)] for name in names}
            try:
                with torch.no_grad():
                    model(**inputs)
                return inputs
            except Exception as error:
                reason = reason or error
    raise reason or NotImplementedError(f"takes {main}, and {needed}")


def _maker(kind: str, config_class: Any) -> Maker:
    def make() -> Any:
        import torch
        import transformers

        reason = None
        for without in VARIANTS:
            torch.manual_seed(0)
            try:
                config = config_class(**merged(small(config_class, without), OWN.get(kind, {})))
                with torch.device("meta"):
                    model = transformers.AutoModel.from_config(config)
                size = sum(p.numel() for p in model.parameters())
                if size > LARGEST:
                    raise ValueError(f"{size / 1e6:.0f} million parameters")
                model = transformers.AutoModel.from_config(config).eval()
                return model, (), inputs_of(model, config)
            except ImportError:
                raise
            except Exception as error:
                reason = reason or error
        raise reason or ValueError("no configuration")

    return make


def transformers_models() -> Iterator[tuple[str, Maker]]:
    """Every architecture that `AutoModel` knows, but not parts of others."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    transformers.logging.set_verbosity_error()
    for kind in sorted(CONFIG_MAPPING):
        try:
            config_class = CONFIG_MAPPING[kind]
            if config_class not in MODEL_MAPPING:
                continue
        except Exception:
            continue
        if not PARTS.search(kind):
            yield f"transformers/{kind}", _maker(kind, config_class)
