"""XQuAD (Artetxe et al. 2020): 1,190 questions of SQuAD's dev set, translated by people into ten languages."""

from tasks.xtreme.question_answering import Absent, QuestionAnswering

_FROM_SQUAD = "XQuAD has a test set only: learn from SQuAD and choose by its dev set, --gin.xtreme.task='squad'"

TASK = QuestionAnswering(
  name='xquad',
  languages=('en', 'es', 'de', 'el', 'ru', 'tr', 'ar', 'vi', 'th', 'zh', 'hi'),
  files={'test': 'xquad/xquad.{language}.json'},
  absent={
    'train': Absent('XQuAD has no training set', _FROM_SQUAD),
    'dev': Absent('XQuAD has no development set', _FROM_SQUAD),
  },
)
