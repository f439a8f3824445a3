"""How many examples each file of XTREME has, as far as it is known for certain.

From the paper's Table 11 (XTREME's Table 2) and from the splits' own publications: XNLI, PAWS-X, WikiANN by Rahimi et
al. 2019, SQuAD v1.1, XQuAD, MLQA, TyDi QA GoldP v1.1, Tatoeba v1 of LASER, BUCC 2018.

Table 11 itself is not always what the files are: its 34,726 for SQuAD's dev set are answers, of 10,570 questions; its
634 and 323–2,719 for TyDi QA fit no file of GoldP v1.1; PAN-X has 100 test sentences in jv, my and yo, not 1,000; and
BUCC's 1,896–14,330 pairs are some fewer than the 1,899–14,435 of the published training sets.
"""

from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.bucc2018 import LANGUAGES as BUCC_LANGUAGES
from tasks.xtreme.tatoeba import LANGUAGES as TATOEBA_LANGUAGES

# Languages that XTREME judges each task in (`TASK2LANGS` of its evaluate.py).
LANGUAGES: dict[str, tuple[str, ...]] = {
  **{name: task.languages for name, task in TASKS.items()},
  'tatoeba': TATOEBA_LANGUAGES,
  'bucc2018': BUCC_LANGUAGES,
}

_HUNDRED = ('jv', 'my', 'yo')
_THOUSAND = ('af', 'bn', 'hi', 'kk', 'ml', 'mr', 'ms', 'sw', 'ta', 'te', 'tl', 'ur')


def _panx(language: str) -> int:
  return 100 if language in _HUNDRED else 1000 if language in _THOUSAND else 10000


# By task and split. Of Universal Dependencies, the languages whose treebanks nobody counts differently.
_COUNTS: dict[tuple[str, str], dict[str, int]] = {
  ('xnli', 'train'): {'en': 392_702},
  ('xnli', 'dev'): dict.fromkeys(LANGUAGES['xnli'], 2_490),
  ('xnli', 'test'): dict.fromkeys(LANGUAGES['xnli'], 5_010),
  ('pawsx', 'train'): {'en': 49_401},
  ('pawsx', 'dev'): dict.fromkeys(LANGUAGES['pawsx'], 2_000),
  ('pawsx', 'test'): dict.fromkeys(LANGUAGES['pawsx'], 2_000),
  ('panx', 'train'): {'en': 20_000},
  ('panx', 'dev'): {language: _panx(language) for language in LANGUAGES['panx']},
  ('panx', 'test'): {language: _panx(language) for language in LANGUAGES['panx']},
  ('udpos', 'train'): {'en': 21_253},
  ('udpos', 'dev'): {'en': 3_974},
  ('udpos', 'test'): {
    **{'en': 5_440, 'af': 425, 'bg': 1_116, 'eu': 1_799, 'fa': 600, 'he': 491, 'hu': 449, 'mr': 47, 'ta': 120},
    **{'te': 146, 'th': 1_000, 'tl': 55, 'ur': 535, 'vi': 800, 'yo': 100},
  },
  ('squad', 'train'): {'en': 87_599},
  ('squad', 'dev'): {'en': 10_570},
  ('xquad', 'test'): dict.fromkeys(LANGUAGES['xquad'], 1_190),
  ('mlqa', 'dev'): {'en': 1_148, 'ar': 517, 'de': 512, 'es': 500, 'hi': 507, 'vi': 511, 'zh': 504},
  ('mlqa', 'test'): {'en': 11_590, 'ar': 5_335, 'de': 4_517, 'es': 5_253, 'hi': 4_918, 'vi': 5_495, 'zh': 5_137},
  ('tydiqa', 'train'): {'en': 3_696},
  ('tydiqa', 'test'): {
    **{'en': 440, 'ar': 921, 'bn': 113, 'fi': 782, 'id': 565, 'ko': 276, 'ru': 812, 'sw': 499, 'te': 669},
  },
  ('tatoeba', 'test'): dict.fromkeys(TATOEBA_LANGUAGES, 1_000)
  | {'jv': 205, 'ka': 746, 'kk': 575, 'ml': 687, 'sw': 390, 'ta': 307, 'te': 234, 'th': 548},
  ('bucc2018', 'dev'): {'de': 1_038, 'fr': 929, 'ru': 2_374, 'zh': 257},  # pairs
  ('bucc2018', 'test'): {'de': 9_580, 'fr': 9_086, 'ru': 14_435, 'zh': 1_899},
}


def expected_count(task: str, split: str, language: str) -> int | None:
  """Examples of a file; None where it is not known for certain."""
  return _COUNTS.get((task, split), {}).get(language)
