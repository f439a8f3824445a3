"""TyDiQA-GoldP (Clark et al. 2020): learnt in English from 3,696 questions, judged in nine languages.

Its development files are what XTREME judges on (the benchmark's own test set is not public), so nothing is left to
choose by. XTREME's preprocessing writes a training file of each language; its recipe reads the English one.
"""

from tasks.xtreme.question_answering import Absent, QuestionAnswering

TASK = QuestionAnswering(
  name='tydiqa',
  languages=('en', 'ar', 'bn', 'fi', 'id', 'ko', 'ru', 'sw', 'te'),
  files={
    'train': 'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{language}.train.json',
    'test': 'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{language}.dev.json',
  },
  absent={
    'dev': Absent(
      "TyDiQA has no development set beside what is judged: XTREME's test files are its dev files",
      "--gin.xtreme.split='test'; take the last checkpoint, or choose by SQuAD's dev set",
    )
  },
)
