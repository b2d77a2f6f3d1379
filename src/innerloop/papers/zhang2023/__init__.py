"""x"""
from innerloop.papers.zhang2023 import lemma5_1, lemmas5_2_C1_C3, lemmas5_3_C4
from innerloop.papers.zhang2023 import lemmasA3_A5_C5_C7, lemmas5_4_C8
from innerloop.papers.zhang2023 import theorems4_1_4_5
from innerloop.papers.zhang2023 import theorem4_2
from innerloop.papers.zhang2023 import corollary4_3, section4_2_shifts
from innerloop.papers.zhang2023 import eq4_13, appendixD
