"""PAN-X, also WikiAnn (Pan et al. 2017): names of places, organisations and persons in sentences of Wikipedia."""

from tasks.xtreme.words import WordTask

TASK = WordTask(
  name='panx',
  languages=(
    *('ar', 'he', 'vi', 'id', 'jv', 'ms', 'tl', 'eu', 'ml', 'ta', 'te', 'af', 'nl', 'en', 'de', 'el', 'bn', 'hi'),
    *('mr', 'ur', 'fa', 'fr', 'it', 'pt', 'es', 'bg', 'ru', 'ja', 'ka', 'ko', 'th', 'sw', 'yo', 'my', 'zh', 'kk'),
    *('tr', 'et', 'fi', 'hu'),
  ),
  labels=('B-LOC', 'B-ORG', 'B-PER', 'I-LOC', 'I-ORG', 'I-PER', 'O'),
)
