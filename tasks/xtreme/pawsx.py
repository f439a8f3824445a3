"""PAWS-X (Yang et al. 2019): do two sentences of much the same words say the same, 1, or not, 0?"""

from tasks.xtreme.pairs import PairTask

TASK = PairTask(name='pawsx', languages=('de', 'en', 'es', 'fr', 'ja', 'ko', 'zh'), labels=('0', '1'))
