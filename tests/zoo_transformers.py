"""Families of Hugging Face transformers, a small network of each, built from its configuration: nothing is downloaded.

name → (task, settings): the task chooses the head and the inputs.
"""

import functools

import torch
from torch import Tensor, nn

from common import generator

#: Most text families share these names, or map them to their own.
TEXT = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 32,
    "max_position_embeddings": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = TEXT | {"num_key_value_heads": 1, "head_dim": 8}
BOTH_SIDES = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": 32, "max_position_embeddings": 40, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {
    "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "vocab_size": 32,
    "decoder_start_token_id": 0,
}  # fmt: skip
IMAGE = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 16,
    "patch_size": 8,
}  # fmt: skip
SOUND = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 32,
    "conv_dim": (8, 8), "conv_kernel": (4, 4), "conv_stride": (4, 4), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8, "mask_time_prob": 0.0,
}  # fmt: skip
STAGES = {"depths": [1, 1], "hidden_sizes": [8, 16], "num_stages": 2, "embedding_size": 8}

FAMILIES = {
    "albert": ("text", TEXT | {"embedding_size": 8}),
    "bert": ("text", TEXT),
    "big_bird": ("text", TEXT | {"attention_type": "original_full"}),
    "camembert": ("text", TEXT),
    "canine": ("text", TEXT | {"num_hash_buckets": 16, "num_hash_functions": 2, "downsampling_rate": 4,
        "local_transformer_stride": 4, "upsampling_kernel_size": 4}),
    "convbert": ("text", TEXT | {"embedding_size": 16, "conv_kernel_size": 3}),
    "deberta": ("text", TEXT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}),
    "deberta-v2": ("text", TEXT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 4}),
    "distilbert": ("text", {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 16, "vocab_size": 32,
        "max_position_embeddings": 40}),
    "electra": ("text", TEXT | {"embedding_size": 8}),
    "esm": ("text", TEXT | {"mask_token_id": 3}),
    "fnet": ("text", TEXT),
    "funnel": ("text", {"block_sizes": [1, 1], "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16,
        "vocab_size": 32}),
    "ibert": ("text", TEXT),
    "layoutlm": ("text", TEXT | {"max_2d_position_embeddings": 16}),
    "longformer": ("text", TEXT | {"attention_window": 4}),
    "mobilebert": ("text", TEXT | {"embedding_size": 8, "intra_bottleneck_size": 8, "num_feedforward_networks": 1}),
    "modernbert": ("text", TEXT | {"global_attn_every_n_layers": 2, "local_attention": 4}),
    "mpnet": ("text", TEXT),
    "nystromformer": ("text", TEXT | {"num_landmarks": 2, "segment_means_seq_len": 8}),
    "rembert": ("text", TEXT | {"input_embedding_size": 8}),
    "roberta": ("text", TEXT),
    "roformer": ("text", TEXT | {"embedding_size": 16}),
    "squeezebert": ("text", TEXT | {"embedding_size": 16, "q_groups": 2, "k_groups": 2, "v_groups": 2,
        "post_attention_groups": 1, "intermediate_groups": 2, "output_groups": 2}),
    "xlm-roberta": ("text", TEXT),
    "xlnet": ("text", {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 16, "vocab_size": 32}),
    "bloom": ("words", {"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": 32}),
    "falcon": ("words", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 32}),
    "gemma": ("words", GROUPED),
    "gemma2": ("words", GROUPED | {"layer_types": ["sliding_attention", "full_attention"]}),
    "gpt2": ("words", {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 32, "n_positions": 40}),
    "gpt_neo": ("words", {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "attention_types": [[["global",
        "local"], 1]], "vocab_size": 32, "max_position_embeddings": 40}),
    "gpt_neox": ("words", TEXT),
    "gptj": ("words", {"n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4, "vocab_size": 32, "n_positions": 40}),
    "llama": ("words", GROUPED),
    "mamba": ("words", {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "vocab_size": 32}),
    "mistral": ("words", GROUPED),
    "mixtral": ("words", GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2}),
    "mpt": ("words", {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 32, "max_seq_len": 40}),
    "olmo": ("words", GROUPED),
    "opt": ("words", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 16,
        "word_embed_proj_dim": 16, "vocab_size": 32, "max_position_embeddings": 40}),
    "phi": ("words", TEXT),
    "phi3": ("words", GROUPED),
    "qwen2": ("words", GROUPED),
    "qwen3": ("words", GROUPED),
    "stablelm": ("words", GROUPED),
    "bart": ("pair", BOTH_SIDES),
    "blenderbot": ("pair", BOTH_SIDES),
    "marian": ("pair", BOTH_SIDES),
    "mbart": ("pair", BOTH_SIDES),
    "mt5": ("pair", T5),
    "pegasus": ("pair", BOTH_SIDES),
    "t5": ("pair", T5),
    "beit": ("image", IMAGE | {"use_relative_position_bias": True}),
    "bit": ("image", STAGES | {"num_groups": 4}),
    "convnext": ("image", STAGES),
    "deit": ("image", IMAGE | {"architectures": ["DeiTForImageClassification"]}),
    "dinov2": ("image", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 1,
        "image_size": 16, "patch_size": 8}),
    "efficientnet": ("image", {"in_channels": [32, 8], "out_channels": [8, 8], "kernel_sizes": [3, 3], "strides": [1,
        2], "num_block_repeats": [1, 1], "expand_ratios": [1, 2], "hidden_dim": 1280, "width_coefficient": 1.0,
        "depth_coefficient": 1.0}),
    "mobilenet_v2": ("image", {"depth_multiplier": 0.1, "image_size": 32, "finegrained_output": False}),
    "mobilevit": ("image", {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16],
        "num_attention_heads": 2, "image_size": 32, "patch_size": 2}),
    "poolformer": ("image", {"depths": [1, 1], "hidden_sizes": [8, 16], "num_encoder_blocks": 2, "patch_sizes": [3,
        3], "strides": [2, 2], "padding": [1, 1]}),
    "pvt": ("image", {"depths": [1, 1], "hidden_sizes": [8, 16], "num_encoder_blocks": 2, "patch_sizes": [4, 2],
        "strides": [4, 2], "sequence_reduction_ratios": [2, 1], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
        "image_size": 16}),
    "regnet": ("image", STAGES | {"groups_width": 4, "layer_type": "y"}),
    "resnet": ("image", STAGES),
    "segformer": ("pixels", {"depths": [1, 1], "hidden_sizes": [8, 16], "num_encoder_blocks": 2, "sr_ratios": [2, 1],
        "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
        "decoder_hidden_size": 8}),
    "swin": ("image", {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [1, 2],
        "window_size": 4}),
    "swinv2": ("image", {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [1, 2],
        "window_size": 4}),
    "vit": ("image", IMAGE),
    "audio-spectrogram-transformer": ("spectrogram", {"hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 16, "patch_size": 4, "frequency_stride": 4, "time_stride": 4,
        "max_length": 16, "num_mel_bins": 8}),
    "hubert": ("sound", SOUND),
    "sew": ("sound", SOUND | {"squeeze_factor": 2}),
    "unispeech": ("sound", SOUND | {"num_codevectors_per_group": 4, "codevector_dim": 8, "proj_codevector_dim": 8}),
    "wav2vec2": ("sound", SOUND | {"num_codevectors_per_group": 4, "codevector_dim": 8, "proj_codevector_dim": 8}),
    "wavlm": ("sound", SOUND | {"num_buckets": 8, "max_bucket_distance": 16}),
    "whisper": ("speech", BOTH_SIDES | {"num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 8,
        "begin_suppress_tokens": None, "suppress_tokens": None}),
    "clip": ("caption", {"text_config": TEXT, "vision_config": IMAGE, "projection_dim": 8}),
}  # fmt: skip
HEADS = {
    "text": "AutoModelForSequenceClassification",
    "words": "AutoModelForCausalLM",
    "pair": "AutoModelForSeq2SeqLM",
    "image": "AutoModelForImageClassification",
    "pixels": "AutoModelForSemanticSegmentation",
    "spectrogram": "AutoModelForAudioClassification",
    "sound": "AutoModelForCTC",
    "speech": "AutoModelForSpeechSeq2Seq",
    "caption": "AutoModel",
}


def make(name: str) -> nn.Module:
    """The network, with the weights that torch's generator gives."""
    import transformers

    task, settings = FAMILIES[name]
    config = transformers.AutoConfig.for_model(name, **settings)
    return getattr(transformers, HEADS[task]).from_config(config)


def inputs(name: str) -> dict[str, Tensor]:
    """Three rows of what its task takes."""
    g, task = generator(1), FAMILIES[name][0]
    words = torch.randint(4, 30, (3, 8), generator=g)
    if task in ("text", "words"):
        return {"input_ids": words}
    if task == "pair":
        return {"input_ids": words, "decoder_input_ids": words[:, :5]}
    if task in ("image", "pixels"):
        size = FAMILIES[name][1].get("image_size", 16)
        return {"pixel_values": torch.randn(3, 3, size, size, generator=g)}
    if task == "spectrogram":
        return {"input_values": torch.randn(3, 16, 8, generator=g)}
    if task == "sound":
        return {"input_values": torch.randn(3, 128, generator=g)}
    if task == "speech":
        return {"input_features": torch.randn(3, 8, 16, generator=g), "decoder_input_ids": words[:, :5]}
    return {"input_ids": words, "pixel_values": torch.randn(3, 3, 16, 16, generator=g)}


ZOO = {name: (functools.partial(make, name), functools.partial(inputs, name)) for name in FAMILIES}
