"""A GPT-2 of Hugging Face as a learner, and a decoder of innerloop's as one of theirs.

    pip install innerloop[hub]
    python examples/hugging_face.py --folder hugging_face

Any model that maps embedded tokens to hidden states can be asked to learn in context: a linear map
reads x and y in, the body runs, another map reads the prediction out. Here the body is
`transformers.GPT2Model` with fresh weights; `from_pretrained` in its place takes one from disk.
The other way round, a decoder that was trained here is written as a GPT-2 that their tools open.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from innerloop import Prompt
from innerloop.algorithms import LeastSquares, Zero
from innerloop.analysis import estimate_risk, learning_curve, plot_learning_curves
from innerloop.experiments import Experiment
from innerloop.models.gpt2_weights import as_hugging_face
from innerloop.tasks import LinearRegression
from innerloop.training import Prompts, train


class HuggingFaceLearner(nn.Module):
    """x_1, y_1, ..., x_q through any body that takes `inputs_embeds`; read at the last token."""

    def __init__(self, body: nn.Module, d: int, width: int) -> None:
        super().__init__()
        self.read_in, self.body = nn.Linear(d + 1, width), body
        self.read_out = nn.Linear(width, 1)

    def forward(self, prompt: Prompt) -> Tensor:
        """Predictions, [batch, queries]."""
        tokens = prompt.interleave().tokens
        hidden = self.body(inputs_embeds=self.read_in(tokens)).last_hidden_state
        return self.read_out(hidden[:, -1]).view_as(prompt.y_query)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("hugging_face"))
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args(words)
    options.folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    task = LinearRegression.isotropic(2, 6, dtype=torch.float32)

    torch.manual_seed(0)  # their weights are drawn from torch's global generator
    no_words = {"vocab_size": 1, "bos_token_id": None, "eos_token_id": None}
    no_dropout = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    config = GPT2Config(n_positions=13, n_embd=32, n_layer=2, n_head=2, **no_words, **no_dropout)
    learner = HuggingFaceLearner(GPT2Model(config), task.d, config.n_embd)
    optimizer = torch.optim.Adam(learner.parameters(), lr=2e-3)
    train(learner, Prompts(task, 64), optimizer, steps=options.steps, generator=generator)
    learners = {"their GPT-2": learner, "least squares": LeastSquares(), "zero": Zero()}
    for name, each in learners.items():
        print(name, estimate_risk(each, task, samples=2_000, generator=generator))
    curves = {
        name: learning_curve(each, task, samples=1_000, generator=generator)
        for name, each in learners.items()
    }
    plot_learning_curves(curves, title="GPT-2 of Hugging Face").savefig(
        options.folder / "curve.png", dpi=120
    )

    model, positions = "gpt2:layers=2,width=32,heads=2", "positions:batch=64"
    ours = Experiment(model, "linear:d=2,n=6,dtype=float32", positions, steps=options.steps)
    run = ours.run(options.folder / "ours")
    exported = as_hugging_face(run.model.model)
    exported.save_pretrained(options.folder / "exported")
    prompt = task.sample(1_000, generator=generator)
    embedded = run.model.model.read_in(prompt.interleave().tokens)
    hidden = exported(inputs_embeds=embedded).last_hidden_state[:, -1:]
    there, here = run.model.model.read_out(hidden).flatten(), run.model(prompt).flatten()
    print("exported to", options.folder / "exported")
    print(f"largest difference of its predictions: {(there - here).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
