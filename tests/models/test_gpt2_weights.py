"""The decoder is GPT-2: equal to Hugging Face's at the same weights, forward and backward."""

import pytest
import torch
from torch import nn

from innerloop.models import BlockShape, Decoder, InContext
from innerloop.models.gpt2_weights import as_hugging_face, from_garg, load_body
from innerloop.sequence import TokenSequence
from innerloop.tasks import LinearRegression
from tests.samples import seeded

transformers = pytest.importorskip("transformers")


def decoder(layers=2, width=16, heads=4, length=12, seed=0):
    return Decoder(
        5, 1, BlockShape(width, heads), layers=layers, length=length, generator=seeded(seed)
    )


def sequence(model, length=9, batch=3):
    tokens = torch.randn(batch, length, 5, generator=seeded(1))
    positions = torch.arange(0, length, 2)
    return TokenSequence(tokens, positions, torch.randn(batch, len(positions), 1))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(2, 16, 4, 12), (12, 256, 8, 81)])
def test_forward_and_gradients_are_those_of_hugging_face(size):
    layers, width, heads, length = size
    ours = decoder(layers, width, heads, length).eval()
    theirs = as_hugging_face(ours)
    batch = sequence(ours, length)
    read_in, read_out = ours.read_in, ours.read_out
    hidden = theirs(inputs_embeds=read_in(batch.tokens)).last_hidden_state
    their_answer = read_out(hidden[:, batch.readout])
    our_answer = ours(batch)
    torch.testing.assert_close(our_answer, their_answer, rtol=1e-5, atol=1e-5)
    (their_answer - batch.targets).square().mean().backward()
    gradients = decoder(layers, width, heads, length)
    load_body(
        gradients, {name: p.grad for name, p in theirs.named_parameters() if "wte" not in name}
    )
    ours.zero_grad()
    (ours(batch) - batch.targets).square().mean().backward()
    expected = dict(gradients.named_parameters())
    for name, parameter in ours.named_parameters():
        if not name.startswith(("read_in", "read_out")):  # these are the same in both
            scale = expected[name].abs().max().item()
            torch.testing.assert_close(
                parameter.grad, expected[name].detach(), rtol=0, atol=1e-5 * scale
            )


def test_weights_go_there_and_back():
    ours, other = decoder(seed=0), decoder(seed=1)
    load_body(other, as_hugging_face(ours).state_dict())
    other.read_in, other.read_out = ours.read_in, ours.read_out
    batch = sequence(ours)
    assert torch.equal(other(batch), ours(batch))


def test_only_what_gpt2_is_can_be_exported():
    shape = BlockShape(8, 2, norm="none")
    plain = Decoder(5, 1, shape, layers=1, length=9, generator=seeded())
    with pytest.raises(ValueError, match="only GPT-2's own layers"):
        as_hugging_face(plain)
    without = Decoder(5, 1, BlockShape(8, 2), layers=1, length=None, generator=seeded())
    with pytest.raises(ValueError, match="made without any"):
        as_hugging_face(without)


class Garg(nn.Module):
    """The layout that their trained models have on disk."""

    def __init__(self, d, width, layers, heads, points):
        super().__init__()
        config = transformers.GPT2Config(
            n_positions=2 * points, n_embd=width, n_layer=layers, n_head=heads, vocab_size=7
        )
        self._read_in = nn.Linear(d, width)
        self._backbone = transformers.GPT2Model(config).eval()
        self._read_out = nn.Linear(width, 1)

    def forward(self, x, y):
        wide = torch.cat([y[:, :, None], torch.zeros_like(x[:, :, 1:])], dim=2)
        tokens = torch.stack([x, wide], dim=2).flatten(1, 2)
        hidden = self._backbone(inputs_embeds=self._read_in(tokens)).last_hidden_state
        return self._read_out(hidden)[:, ::2, 0]


@pytest.fixture
def published(tmp_path):
    torch.manual_seed(0)
    model = Garg(d=4, width=16, layers=2, heads=2, points=11)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    path = tmp_path / "state.pt"
    torch.save({"model_state_dict": model.state_dict(), "train_step": 500_000}, path)
    return model, path


def test_a_published_model_answers_as_it_did(published):
    theirs, path = published
    ours = from_garg(path, heads=2)
    assert isinstance(ours, InContext)
    prompt = LinearRegression.isotropic(4, 9, dtype=torch.float32).sample(5, generator=seeded())
    x = torch.cat([prompt.x, prompt.x_query], dim=1)
    y = torch.cat([prompt.y, torch.zeros_like(prompt.y_query)], dim=1)
    torch.testing.assert_close(ours.learning_curve(prompt), theirs(x, y), rtol=1e-4, atol=1e-5)


class Harmful:
    def __reduce__(self):
        return print, ("executed",)


def test_nothing_but_tensors_is_read_from_a_file(tmp_path, capsys):
    path = tmp_path / "state.pt"
    torch.save({"model_state_dict": Harmful()}, path)
    with pytest.raises(ValueError, match="holds more than tensors"):
        from_garg(path, heads=2)
    assert "executed" not in capsys.readouterr().out


def test_a_state_of_another_layout_is_refused_by_name(tmp_path, published):
    _, path = published
    state = torch.load(path, weights_only=True)["model_state_dict"]
    other = tmp_path / "other.pt"
    torch.save({"weight": torch.zeros(3)}, other)
    with pytest.raises(ValueError, match=r"it has no '_read_in\.weight'"):
        from_garg(other, heads=2)
    del state["_backbone.h.1.ln_2.bias"]
    torch.save(state, other)
    with pytest.raises(ValueError, match=r"the weights have no _backbone\.h\.1\.ln_2\.bias"):
        from_garg(other, heads=2)
