from innerloop.papers.gatmiry2024 import section3, theoremA_1, lemma4_1
