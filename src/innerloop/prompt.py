"""A prompt: labelled examples and queries, always batched."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.sequence import TokenSequence
from innerloop.tensor_tree import put_together, register, require_floating


@dataclass(frozen=True)
class Prompt:
    """n labelled examples (x_i, y_i) and queries whose labels are to be predicted.

    Covariates with a leading axis of 1 are shared by all prompts of the batch, as the tokens of a
    dictionary are. The examples' labels may be noisy; whether the queries' are is the task's to
    say. Where a query's label is not known, it is NaN; nothing but a loss reads it.
    """

    x: Float[Tensor, "#batch n d"]
    y: Float[Tensor, "batch n"]
    x_query: Float[Tensor, "#batch queries d"]
    y_query: Float[Tensor, "batch queries"]
    y_clean: Float[Tensor, "batch n"] | None = None
    """The examples' labels without their noise, where the queries' carry none. None: `y` is of the
    same kind as `y_query`, both clean or both as observed. Only a loss reads it."""

    def __post_init__(self) -> None:
        named = ("x", "y", "x_query", "y_query", *(["y_clean"] if self.y_clean is not None else []))
        require_floating(self, named)
        if self.x.ndim != 3:
            raise ValueError(f"x must have shape [batch, n, d], got {list(self.x.shape)}")
        if self.y.ndim != 2:
            raise ValueError(f"y must have shape [batch, n], got {list(self.y.shape)}")
        if self.y_query.ndim != 2:
            raise ValueError(
                f"y_query must have shape [batch, queries], got {list(self.y_query.shape)}"
            )
        (batch, n), queries, d = self.y.shape, self.y_query.shape[1], self.x.shape[2]
        shared = " (or 1 in place of the batch, where all prompts share them)"
        expected = {
            "x": ([batch, n, d], "y", shared),
            "x_query": ([batch, queries, d], "y_query", shared),
            "y_query": ([batch, queries], "y", ""),
        }
        if self.y_clean is not None:
            expected["y_clean"] = ([batch, n], "y", "")
        for name, (shape, other, note) in expected.items():
            got = list(getattr(self, name).shape)
            if got != shape and not (note and got == [1, *shape[1:]]):
                raise ValueError(
                    f"{name} must have shape {shape}{note} to go with {other} of shape "
                    f"{list(getattr(self, other).shape)}, got {got}"
                )
        if queries < 1:
            raise ValueError("x_query must hold at least one query, got none")
        for name in ("x", "y", "x_query"):
            finite = getattr(self, name).isfinite()
            if not finite.all():
                index = (~finite).nonzero()[0].tolist()
                raise ValueError(
                    f"{name} must be finite, got {getattr(self, name)[tuple(index)]} at index "
                    f"{index}"
                )

    @property
    def n(self) -> int:
        return self.x.shape[1]

    @property
    def d(self) -> int:
        return self.x.shape[2]

    @property
    def queries(self) -> int:
        return self.x_query.shape[1]

    @property
    def targets(self) -> Float[Tensor, "batch queries"]:
        """What a learner is to predict: the queries' labels."""
        return self.y_query

    @property
    def dtype(self) -> torch.dtype:
        return self.y.dtype

    @property
    def answer_shape(self) -> list[int]:
        """Of what a learner is to return: that of the targets, [batch, queries]."""
        return list(self.y_query.shape)

    def loss(self, answers: Float[Tensor, "*more batch queries"]) -> Float[Tensor, ""]:
        """The squared error, averaged over everything."""
        return (answers - self.y_query).square().mean()

    def errors(self, answers: Float[Tensor, "*more batch queries"]) -> Float[Tensor, "*more batch"]:
        """The squared error of every prompt, averaged over its queries."""
        return (answers - self.y_query).square().mean(-1)

    def __len__(self) -> int:
        return self.y.shape[0]

    def moments(self) -> tuple[Float[Tensor, "#batch d d"], Float[Tensor, "batch d"]]:
        """S = (1/n) sum_i x_i x_i^T and m = (1/n) sum_i y_i x_i; zero if n = 0.

        Kept for as long as x and y are not changed: training on a fixed sample asks at every step.
        """
        if self.x.requires_grad or self.y.requires_grad:
            return self._moments()
        try:
            version = (self.x._version, self.y._version)
        except RuntimeError:  # inference tensors do not count their changes
            return self._moments()
        kept = self.__dict__.get("_kept_moments")
        if kept is None or kept[0] != version:
            kept = (version, self._moments())
            self.__dict__["_kept_moments"] = kept
        return kept[1]

    def _moments(self) -> tuple[Tensor, Tensor]:
        count = max(self.n, 1)
        m = (self.y.unsqueeze(1) @ self.x).squeeze(1)
        return self.x.mT @ self.x / count, m / count

    def gram(self) -> Float[Tensor, "batch token token"]:
        """G = (1/n) sum_i z_i z_i^T of the context tokens z_i = (x_i, y_i); zero if n = 0."""
        # By blocks: putting the tokens together first would copy them all, three times the cost.
        s, m = self.moments()
        labels = self.y.unsqueeze(1) @ self.y.unsqueeze(2) / max(self.n, 1)  # [batch, 1, 1]
        top = torch.cat([s.expand(len(self), -1, -1), m.unsqueeze(2)], dim=2)
        bottom = torch.cat([m.unsqueeze(1), labels], dim=2)
        return torch.cat([top, bottom], dim=1)

    def token_matrix(self) -> Float[Tensor, "batch token tokens"]:
        """Z_0 of Ahn 2023, Eq. 1: tokens are columns, queries last with 0 in their label slot."""
        x = torch.cat([self._own(self.x), self._own(self.x_query)], dim=1)
        y = torch.cat([self.y, torch.zeros_like(self.y_query)], dim=1)
        return torch.cat([x.mT, y.unsqueeze(1)], dim=1)

    def interleave(self) -> TokenSequence:
        """x_1, y_1, x_2, y_2, ..., x_q as one sequence; every x is read out against its label.

        A covariate is the token (x, 0) and a label the token (0, y), both of width d + 1. Queries
        do not see each other: each of them has a sequence of its own, those of a prompt in a row.
        """
        if self.queries > 1:
            return self.each_query().interleave()
        batch, n, d = len(self), self.n, self.d
        tokens = self.x.new_zeros(batch, 2 * n + 1, d + 1)
        tokens[:, 0:-1:2, :d] = self.x
        tokens[:, 1::2, d] = self.y
        tokens[:, -1, :d] = self.x_query[:, 0]
        readout = torch.arange(0, 2 * n + 1, 2, device=tokens.device)
        return TokenSequence(tokens, readout, self.curve_targets().unsqueeze(-1))

    def curve_targets(self) -> Float[Tensor, "batch counts"]:
        """The labels of x_1, ..., x_n and of the last query: clean in all places, or in none."""
        labels = self.y if self.y_clean is None else self.y_clean
        return torch.cat([labels, self.y_query[:, -1:]], dim=1)

    def each_query(self) -> Prompt:
        """batch * queries prompts with one query each; those of one prompt stand in a row."""
        q = self.queries

        def repeated(t: Tensor) -> Tensor:
            return t.repeat_interleave(q, dim=0)

        x = self.x if len(self.x) == 1 else repeated(self.x)
        return self._with(
            x=x,
            y=repeated(self.y),
            x_query=self._own(self.x_query).reshape(-1, 1, self.d),
            y_query=self.y_query.reshape(-1, 1),
            y_clean=None if self.y_clean is None else repeated(self.y_clean),
        )

    def part(self, which: slice) -> Prompt:
        """Some of the prompts of the batch."""

        def some(t: Tensor) -> Tensor:
            return t if len(t) == 1 < len(self) else t[which]

        return self._with(
            x=some(self.x),
            y=self.y[which],
            x_query=some(self.x_query),
            y_query=self.y_query[which],
            y_clean=None if self.y_clean is None else self.y_clean[which],
        )

    def prefix(self, k: int) -> Prompt:
        """The same queries after only the first k examples."""
        if not 0 <= k <= self.n:
            raise ValueError(f"k must be between 0 and n = {self.n}, got {k}")
        clean = None if self.y_clean is None else self.y_clean[:, :k]
        return self._with(x=self.x[:, :k], y=self.y[:, :k], y_clean=clean)

    def next_example(self, k: int) -> Prompt:
        """The first k examples, and example k + 1 as the query; the last query, if k = n.

        The last: the first queries of a dictionary are its examples.
        """
        start = self.prefix(k)
        x_query = self.x[:, k : k + 1] if k < self.n else self.x_query[:, -1:]
        return start._with(x_query=x_query, y_query=self.curve_targets()[:, k : k + 1])

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Prompt:
        given = (self.x, self.y, self.x_query, self.y_query)
        x, y, x_query, y_query = (tensor.to(device, dtype) for tensor in given)
        clean = None if self.y_clean is None else self.y_clean.to(device, dtype)
        return Prompt(x, y, x_query, y_query, clean)

    def _with(self, **changed: Tensor | None) -> Prompt:
        """Parts of what was checked already: a second look would cost a pass over all of it, and
        under vmap values cannot be looked at."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        return put_together(Prompt, kept | changed)

    def _own(self, covariates: Tensor) -> Tensor:
        """Covariates with the batch written out, also where it is shared."""
        return covariates.expand(len(self), -1, -1)


register(Prompt, [field.name for field in fields(Prompt)])
