"""Deliberate errors, and the claims that must notice them.

    make mutate                                    everything, with the score
    python -m tests.mutations zhang2023            the mutations whose ids are of one paper
    python -m tests.mutations ahn2023/theorem1     of one claim, automatic ones included

A claim that still holds after a formula behind it was broken could not have failed.
"""
