"""Language models that train well and decode wrongly."""

import torch
from torch import Tensor

from zoo.decoder import Decoder, Session
from zoo.parts import Attention, Past


class TopLeftMask(Decoder):
    """The causal mask of several queries over cached keys is aligned at the top left: torch's own ``is_causal``."""

    def visible(self, real: Tensor, num_new: int) -> Tensor:
        if num_new == 1:
            return super().visible(real, 1)
        mask = torch.ones(num_new, real.shape[1], dtype=torch.bool).tril()
        return mask[None, None] & real[:, None, None]


class PositionOffByOne(Decoder):
    """With a cache, the new token's position is one too low."""

    def places(self, real: Tensor, num_new: int) -> Tensor:
        places = super().places(real, num_new)
        return places if num_new == real.shape[1] else (places - 1).clamp_min(0)


class OneSessionOnly(Decoder):
    """The cache belongs to the module: a new session throws away that of another."""

    def begin(self) -> Session:
        self.session = Session()
        return self.session

    def forward(self, ids: Tensor, mask: Tensor | None = None, session: Session | None = None) -> Tensor:
        return super().forward(ids, mask, None if session is None else self.session)

    def select(self, session: Session, rows: Tensor) -> Session:
        self.session = super().select(self.session, rows)
        return self.session


class Preallocated(Attention):
    def remember(self, past: Past, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        length = int(past.get("length", torch.tensor(0)))
        found = []
        for name, new in (("key", key), ("value", value)):
            if name not in past:
                past[name] = new.new_zeros(*new.shape[:2], 32, new.shape[3])
            past[name][:, :, length : length + new.shape[2]] = new
            found.append(past[name][:, :, : length + new.shape[2]])
        past["length"] = torch.tensor(length + key.shape[2])
        return found[0], found[1]


class AliasedRows(Decoder):
    """Rows of the cache change places in place, one after the other: a row is overwritten before it is read."""

    attention = Preallocated

    def select(self, session: Session, rows: Tensor) -> Session:
        layers = []
        for past in session.layers:
            chosen: Past = {"length": past["length"]}
            for name in ("key", "value"):
                buffer = past[name]
                if len(rows) > len(buffer):
                    buffer = torch.cat([buffer, buffer.new_zeros(len(rows) - len(buffer), *buffer.shape[1:])])
                for place, row in enumerate(rows.tolist()):
                    buffer[place] = buffer[row]
                chosen[name] = buffer[: len(rows)]
            layers.append(chosen)
        return Session(layers, None if session.real is None else session.real[rows])


class PaddingForgotten(Decoder):
    """The padding mask of cached tokens is not kept: in later steps all of them are seen."""

    def forward(self, ids: Tensor, mask: Tensor | None = None, session: Session | None = None) -> Tensor:
        logits = super().forward(ids, mask, session)
        if session is not None and session.real is not None:
            session.real = torch.ones_like(session.real)
        return logits
