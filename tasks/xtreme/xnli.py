"""XNLI (Conneau et al. 2018): does a sentence follow from another, contradict it, or neither? Trained on MultiNLI."""

from tasks.xtreme.pairs import PairTask

TASK = PairTask(
  name='xnli',
  languages=('ar', 'bg', 'de', 'el', 'en', 'es', 'fr', 'hi', 'ru', 'sw', 'th', 'tr', 'ur', 'vi', 'zh'),
  labels=('contradiction', 'entailment', 'neutral'),  # in the order of XTREME's processor
)
