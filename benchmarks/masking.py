"""Masking batches on one core: which tokens to predict, and what the model sees in their place.

A run masks some hundred batches. Beside this project's ways: the same masks of single pieces drawn row by row, with
NumPy's own counter-based generator; and Hugging Face's collator, which chooses each token by a coin of its own (so the
number of predictions varies) and keeps no promise of what a row will show when it is read again.
"""

import dataclasses
import functools
import pathlib

import numpy as np

from benchmarks.turns import Contestant
from rembert.data.masking import MaskingConfig, SpecialIds, mask_rows

VOCABULARY = 250_300
SPECIAL = SpecialIds()


@dataclasses.dataclass(frozen=True)
class Setting:
  """The shape of a batch, and how many of them make a run."""

  rows: int
  length: int
  batches: int

  @property
  def description(self) -> str:
    """One line."""
    slots = MaskingConfig().slots(self.length)
    return f'{self.batches} batches of {self.rows} × {self.length}, {slots} masked a row · V {VOCABULARY:,}'


SETTINGS = {'small': Setting(rows=32, length=64, batches=800), 'base': Setting(rows=64, length=512, batches=100)}

ONE_BY_ONE, WORDS, SPANS = 'this project', '… whole words', '… spans of 1 to 3 words'
LOOP, HUGGING_FACE = 'row by row', 'Hugging Face, NumPy'


def random_rows(setting: Setting) -> np.ndarray:
  """Two documents a row, int32 [B, S]."""
  ids_BxS = np.random.default_rng(0).integers(SPECIAL.first_piece, VOCABULARY, (setting.rows, setting.length))
  middle = setting.length // 2
  ids_BxS[:, [0, middle]], ids_BxS[:, [middle - 1, -1]] = SPECIAL.cls, SPECIAL.sep
  return ids_BxS.astype(np.int32)


# --- contestants: each returns a function that masks all batches ------------------------------------------------------


def prepare_ours(setting: Setting, config: MaskingConfig):
  """What pre-training calls; words have 1.7 pieces on average."""
  ids_BxS = random_rows(setting)
  begins_word_V = np.random.default_rng(1).random(VOCABULARY) < 0.6

  def run() -> None:
    for step in range(setting.batches):
      mask_rows(
        ids_BxS,
        seed=0,
        stream=0,
        step=step,
        first_row=0,
        special=SPECIAL,
        vocab_size=VOCABULARY,
        config=config,
        begins_word_V=begins_word_V,
      )

  return run


def prepare_loop(setting: Setting):
  """A generator, a permutation and a few small arrays for every row."""
  ids_BxS, config = random_rows(setting), MaskingConfig()
  slots = config.slots(setting.length)

  def masked(ids_S: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    length = np.count_nonzero(ids_S != SPECIAL.pad)
    candidates = np.flatnonzero((ids_S != SPECIAL.pad) & (ids_S != SPECIAL.cls) & (ids_S != SPECIAL.sep))
    count = min(slots, len(candidates), max(1, round(length * config.rate)))
    chosen = np.sort(random.permutation(candidates)[:count])
    kind, replacements = random.random(count), random.integers(SPECIAL.first_piece, VOCABULARY, count)
    is_replaced = kind < config.mask_share + config.random_share
    shown_S = ids_S.copy()
    shown_S[chosen] = np.where(
      kind < config.mask_share, SPECIAL.mask, np.where(is_replaced, replacements, ids_S[chosen])
    )
    positions, targets, weights = np.zeros(slots, np.int32), np.zeros(slots, np.int32), np.zeros(slots, np.float32)
    positions[:count], targets[:count], weights[:count] = chosen, ids_S[chosen], 1
    return shown_S, positions, targets, weights

  def run() -> None:
    for step in range(setting.batches):
      rows = [
        masked(ids_S, np.random.Generator(np.random.Philox(key=(0, 0), counter=(0, step, row, 0))))
        for row, ids_S in enumerate(ids_BxS)
      ]
      for field in zip(*rows, strict=True):
        np.stack(field)

  return run


def prepare_hugging_face(setting: Setting):
  """`DataCollatorForLanguageModeling`, given the special tokens' places, which it would else look up in Python."""
  from transformers import DataCollatorForLanguageModeling

  class Tokenizer:
    """All that the collator asks of one."""

    mask_token, mask_token_id = '[MASK]', SPECIAL.mask

    def __len__(self) -> int:
      return VOCABULARY

  collator = DataCollatorForLanguageModeling(Tokenizer(), return_tensors='np')
  ids_BxS = random_rows(setting)

  def run() -> None:
    for _ in range(setting.batches):
      collator.numpy_mask_tokens(ids_BxS.copy(), (ids_BxS == SPECIAL.cls) | (ids_BxS == SPECIAL.sep))

  return run


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and ratios are taken to it."""
  del scratch
  setting = SETTINGS[setting_name]
  rows = setting.batches * setting.rows
  contestant = functools.partial(Contestant, work={'tokens': rows * setting.length, 'rows': rows}, one_core=True)
  return [
    contestant(ONE_BY_ONE, prepare_ours, (setting, MaskingConfig())),
    contestant(WORDS, prepare_ours, (setting, MaskingConfig(whole_word=True))),
    contestant(SPANS, prepare_ours, (setting, MaskingConfig(whole_word=True, ngram=3))),
    contestant(LOOP, prepare_loop, (setting,)),
    contestant(HUGGING_FACE, prepare_hugging_face, (setting,)),
  ]
