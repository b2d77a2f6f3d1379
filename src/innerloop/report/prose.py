"""Formulas inside sentences: plain text such as Sigma^-1/2 x_q as a reader wants to see it."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

# fmt: off
_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π",
    "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω",
    "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Omega": "Ω",
}
# fmt: on
_SIGNS = {"<=": "≤", ">=": "≥", "->": "→", " - ": " − "}
# Letters on both sides would make it part of another word; digits and signs may follow.
_WORD = re.compile(rf"(?<![A-Za-z])({'|'.join(_GREEK)})(?![a-z])")
_ROOT = re.compile(r"\bsqrt(?: ([\w.]+)|\((\w+)\))")
_RAISED = r"\^(?:\{([^{}]*)\}|\(([^()]*)\)|(-?[0-9A-Za-z*]+(?:/[0-9]+)?))"
# A subscript belongs to a single letter, a bar or a bracket: words_with_underscores are names.
_LOWERED = r"(?:(?<=[\W_\d][A-Za-zα-ωΓ-Ω])|(?<=[|)\]*]))_(?:\{([^{}]*)\}|([0-9A-Za-z*]+))"
_SCRIPT = re.compile(f"{_LOWERED}|{_RAISED}")


def prose(text: str) -> Markup:
    """The text as HTML, with Greek letters, powers, indices, roots and signs in place of ASCII."""
    text = _WORD.sub(lambda match: _GREEK[match[1]], f" {text}")
    for plain, sign in _SIGNS.items():
        text = text.replace(plain, sign)
    text = _ROOT.sub(lambda match: "√" + (match[1] or match[2]), text)
    pieces, end = [Markup()], 0
    for match in _SCRIPT.finditer(text):
        lowered = match[1] or match[2]
        inner = escape((lowered or match[3] or match[4] or match[5]).replace("-", "−"))
        tag = "sub" if lowered else "sup"
        pieces += [escape(text[end : match.start()]), Markup(f"<{tag}>{inner}</{tag}>")]
        end = match.end()
    return Markup().join([*pieces, escape(text[end:])])[1:]
