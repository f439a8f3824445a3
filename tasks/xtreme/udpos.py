"""UDPOS: parts of speech in the treebanks of Universal Dependencies 2.5.

The tags are the seventeen of Universal Dependencies and no others: XTREME's converter drops the lines of empty nodes
and gives a fused word (`im`, `du`) the tag of one of its parts, so that no `_` is left. XTREME's own model has one
label more, an `O` that its reader adds to every list of tags and that no word has.
"""

from tasks.xtreme.words import WordTask

TASK = WordTask(
  name='udpos',
  languages=(
    *('af', 'ar', 'bg', 'de', 'el', 'en', 'es', 'et', 'eu', 'fa', 'fi', 'fr', 'he', 'hi', 'hu', 'id', 'it'),
    *('ja', 'kk', 'ko', 'mr', 'nl', 'pt', 'ru', 'ta', 'te', 'th', 'tl', 'tr', 'ur', 'vi', 'yo', 'zh'),
  ),
  labels=(
    *('ADJ', 'ADP', 'ADV', 'AUX', 'CCONJ', 'DET', 'INTJ', 'NOUN', 'NUM'),
    *('PART', 'PRON', 'PROPN', 'PUNCT', 'SCONJ', 'SYM', 'VERB', 'X'),
  ),
)
