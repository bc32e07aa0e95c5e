# SPDX-License-Identifier: Apache-2.0
"""Loads Hugging Face models into their transformers modules.

    >>> import transformers
    >>> config = transformers.Qwen3Config(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1)
    >>> transformers.Qwen3ForCausalLM(config).save_pretrained("tiny-qwen")
    >>> from nebulaio.huggingface import from_pretrained, load_pretrained
    >>> model = from_pretrained("tiny-qwen")    # all arguments of transformers' from_pretrained
    >>> type(model).__name__
    'Qwen3ForCausalLM'
    >>> model = load_pretrained("tiny-qwen")    # on the best device
    >>> type(model).__name__
    'Qwen3ForCausalLM'

`from_pretrained` loads every model that transformers loads, by transformers' own loading with
NebulaIO as the reader. `load_pretrained` loads a model that needs no conversion, and is
faster: it builds the module while the weights are read. Both need torch and transformers and
import them at the first call.
"""

from __future__ import annotations

from ._assembled import Profile, load_pretrained
from ._assembled import assemble as assemble
from ._pretrained import from_pretrained

__all__ = ["Profile", "from_pretrained", "load_pretrained"]
