"""Figures 2 to 5: standard, looped and AlgoFormer transformers, trained, from records.

The trainings are listed in `trainings.py` of the paper. `measuring.py` and `costs.py` say what a
record keeps of each, `comparing.py` how two groups of trainings are compared.
"""
