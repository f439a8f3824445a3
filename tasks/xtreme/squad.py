"""SQuAD v1.1 (Rajpurkar et al. 2016): what XQuAD and MLQA are learnt from, and, in English, chosen by."""

from tasks.xtreme.question_answering import Absent, QuestionAnswering

TASK = QuestionAnswering(
  name='squad',
  languages=('en',),
  files={'train': 'squad/train-v1.1.json', 'dev': 'squad/dev-v1.1.json'},
  absent={
    'test': Absent(
      "SQuAD's test set is not public", "--gin.xtreme.evaluate_on=('xquad', 'mlqa'), or --gin.xtreme.split='dev'"
    )
  },
)
