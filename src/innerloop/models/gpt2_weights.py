"""GPT-2's weights by the names that others use: Hugging Face's, and the layout of Garg et al.

    name there                      name here                      shape there
    wpe.weight                      positions.table                [length, width]
    h.I.ln_1.*, h.I.ln_2.*          stack.blocks.I.*_norm.*        [width]
    h.I.attn.c_attn.weight          ...query_key_value.weight      [width, 3 width], transposed here
    h.I.attn.c_proj.weight          ...merge.weight                [width, width], transposed here
    h.I.mlp.c_fc.weight             ...into_hidden.weight          [width, hidden], transposed here
    h.I.mlp.c_proj.weight           ...out_of_hidden.weight        [hidden, width], transposed here
    ln_f.*                          final_norm.*                   [width]

and biases likewise. Garg et al. (2022) have these under `_backbone.`, a `_read_in` of x that reads
a label as (y, 0, ..., 0), and a `_read_out`; only tensors are ever read from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from innerloop.models.blocks import BlockShape, Positions
from innerloop.models.decoder import Decoder
from innerloop.models.in_context import InContext

if TYPE_CHECKING:
    from transformers import GPT2Model

PARTS = {
    "ln_1": "attention_norm",
    "attn.c_attn": "query_key_value",
    "attn.c_proj": "merge",
    "ln_2": "feed_forward_norm",
    "mlp.c_fc": "into_hidden",
    "mlp.c_proj": "out_of_hidden",
}
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def hugging_face_names(layers: int) -> dict[str, str]:
    """Their name of every weight of the body of a decoder, by ours."""
    kinds = ("weight", "bias")
    names = {"positions.table": "wpe.weight"}
    names |= {f"final_norm.{kind}": f"ln_f.{kind}" for kind in kinds}
    for i in range(layers):
        for theirs, ours in PARTS.items():
            names |= {f"stack.blocks.{i}.{ours}.{kind}": f"h.{i}.{theirs}.{kind}" for kind in kinds}
    return names


def load_body(decoder: Decoder, state: Mapping[str, Tensor], prefix: str = "") -> None:
    """Sets positions, layers and the final norm from a state dict in Hugging Face's names.

    Tensors that are no weights, such as masks, are passed over; one that is missing or has another
    shape is refused by its name.
    """
    own = decoder.state_dict()
    for ours, theirs in hugging_face_names(len(decoder.stack.blocks)).items():
        own[ours] = _fitting(state, prefix + theirs, own[ours], theirs.endswith(TRANSPOSED))
    decoder.load_state_dict(own)


def as_hugging_face(decoder: Decoder) -> GPT2Model:
    """The body of a decoder as a `transformers.GPT2Model`, to be given `inputs_embeds`.

    Its output is what the decoder's `read_out` reads.
    """
    from transformers import GPT2Config, GPT2Model

    shape, layers = decoder.shape, len(decoder.stack.blocks)
    gpt2 = BlockShape(shape.width, shape.heads, shape.hidden, dropout=shape.dropout)
    for block in decoder.stack.blocks:
        if block.shape != gpt2:
            raise ValueError(f"only GPT-2's own layers can be exported, got {block.shape}")
    if not decoder.causal:
        raise ValueError("GPT-2 is causal, and this decoder was made with causal=False")
    if not isinstance(decoder.positions, Positions):
        raise ValueError("GPT-2 has positions, and this decoder was made without any")
    if decoder.positions.from_end:
        raise ValueError("GPT-2 counts positions from the start, and this decoder from the end")
    own = decoder.state_dict()
    config = GPT2Config(
        vocab_size=1,
        bos_token_id=None,
        eos_token_id=None,
        n_positions=len(own["positions.table"]),
        n_embd=shape.width,
        n_layer=layers,
        n_head=shape.heads,
        n_inner=shape.hidden_width,
        resid_pdrop=shape.dropout,
        embd_pdrop=0.0,
        attn_pdrop=shape.dropout,
    )
    model: Any = GPT2Model(config)
    model = model.to(decoder.read_out.weight.dtype)
    state = model.state_dict()
    for ours, theirs in hugging_face_names(layers).items():
        state[theirs] = own[ours].mT if theirs.endswith(TRANSPOSED) else own[ours]
    model.load_state_dict(state)
    return model.eval()


def from_garg(path: Path | str, *, heads: int) -> InContext:
    """A model that was trained with the code of Garg et al. (2022), from its state.pt.

    The number of heads is the one size that the weights do not tell. Tensors only are read: a file
    that holds anything else is refused and nothing of it is executed.
    """
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise ValueError(f"{path} holds more than tensors, and is not read") from error
    state = content.get("model_state_dict", content) if isinstance(content, dict) else {}
    try:
        read_in, read_out = state["_read_in.weight"], state["_read_out.weight"]
        positions = state["_backbone.wpe.weight"]
        hidden = state["_backbone.h.0.mlp.c_fc.bias"]
    except KeyError as error:
        raise ValueError(f"{path} is no state of that layout: it has no {error}") from error
    layers = len({key.split(".")[2] for key in state if key.startswith("_backbone.h.")})
    (width, d), outputs = read_in.shape, len(read_out)
    shape = BlockShape(width, heads, len(hidden))
    decoder = Decoder(
        d + 1,
        outputs,
        shape,
        layers=layers,
        length=len(positions),
        generator=torch.Generator().manual_seed(0),
        dtype=read_in.dtype,
    )
    load_body(decoder, state, "_backbone.")
    with torch.no_grad():
        # Their label is (y, 0, ..., 0), ours a coordinate of its own: it has their first column.
        decoder.read_in.weight.copy_(torch.cat([read_in, read_in[:, :1]], dim=1))
        decoder.read_in.bias.copy_(state["_read_in.bias"])
    _set(decoder.read_out, state, "_read_out.")
    return InContext(decoder).eval()


def _set(part: nn.Linear, state: Mapping[str, Tensor], prefix: str) -> None:
    own = part.state_dict()
    part.load_state_dict({k: _fitting(state, prefix + k, v, False) for k, v in own.items()})


def _fitting(state: Mapping[str, Tensor], name: str, like: Tensor, transposed: bool) -> Tensor:
    if name not in state:
        raise ValueError(f"the weights have no {name}")
    tensor = state[name].mT if transposed else state[name]
    if tensor.shape != like.shape:
        raise ValueError(
            f"{name} must have the shape {list(like.mT.shape if transposed else like.shape)}, got "
            f"{list(state[name].shape)}"
        )
    return tensor.to(like.dtype)
