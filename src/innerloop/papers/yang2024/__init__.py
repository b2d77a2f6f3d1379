"""x"""
from innerloop.papers.yang2024 import section2_transformer, lemmas1_to_4, lemmas5_6, lemmas7_to_9, lemma10_eq17, proposition1, theorem1, theorem2, section3_1_rates, section3_2_best, section3_3_heads, figure3, figure2a, figure4
