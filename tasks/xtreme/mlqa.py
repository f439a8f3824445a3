"""MLQA (Lewis et al. 2020): questions on texts of seven Wikipedias, 4,517 to 11,590 a language.

XTREME judges question and text of one language, seven of the 49 pairs, on the test files. The dev files keep their
answers in XTREME's download; nothing in XTREME reads them.
"""

from tasks.metrics.mlqa import mlqa
from tasks.xtreme.question_answering import Absent, QuestionAnswering

TASK = QuestionAnswering(
  name='mlqa',
  languages=('en', 'es', 'de', 'ar', 'hi', 'vi', 'zh'),
  files={
    'test': 'mlqa/MLQA_V1/test/test-context-{language}-question-{language}.json',
    'dev': 'mlqa/MLQA_V1/dev/dev-context-{language}-question-{language}.json',
  },
  absent={'train': Absent('MLQA has no training set', "learn from SQuAD, --gin.xtreme.task='squad'")},
  metric=mlqa,
)
