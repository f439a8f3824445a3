"""XNLI and PAWS-X: a file a language and split, labels of test aside."""

import pytest
from xtreme_archives import NLI_HEADER, tar_of, zip_of

from rembert.errors import UsageError
from tasks.xtreme.statistics import LANGUAGES


def test_xnli_is_split_by_language(convert):
  files = convert('xnli')
  languages = LANGUAGES['xnli']
  assert set(files) == {
    'xnli/train-en.tsv',
    *(f'xnli/{split}-{language}.tsv' for split in ('dev', 'test') for language in languages),
    *(f'labels/xnli/test-{language}.tsv' for language in languages),
  }
  assert files['xnli/dev-sw.tsv'] == (
    'Ein Satz (sw).\t"Ein ""anderer"" Satz."\tneutral\r\n'
    'Es regnet.\tEs ist trocken.\tcontradiction\r\n'
    'Es regnet.\tEs ist nass.\tentailment\r\n'
  )
  assert files['xnli/test-sw.tsv'].splitlines()[1] == 'Es regnet.\tEs ist trocken.'
  assert files['labels/xnli/test-sw.tsv'] == 'neutral\ncontradiction\nentailment\n'
  assert files['xnli/train-en.tsv'] == 'It rains.\tIt is dry.\tcontradiction\r\nHe sleeps.\tHe rests.\tentailment\r\n'


def test_an_unknown_label_of_xnli_is_told_with_its_line(convert):
  row = '\t'.join(['de', 'hidden', *'abcd', 'Satz', 'Satz'])
  table = f'{NLI_HEADER}\n{row}\n'
  with pytest.raises(UsageError, match="unknown label 'hidden'") as error:
    convert('xnli', {'XNLI-1.0.zip': zip_of({'XNLI-1.0/xnli.dev.tsv': table})})
  assert error.value.where.endswith('XNLI-1.0.zip:XNLI-1.0/xnli.dev.tsv:2')


def test_pawsx_is_trained_on_in_english_alone(convert):
  files = convert('pawsx')
  languages = LANGUAGES['pawsx']
  assert set(files) == {
    'pawsx/train-en.tsv',
    *(f'pawsx/{split}-{language}.tsv' for split in ('dev', 'test') for language in languages),
    *(f'labels/pawsx/test-{language}.tsv' for language in languages),
  }
  assert files['pawsx/dev-ja.tsv'] == '"""Ja"", sagte er ."\tEr sagte ja .\t1\r\nA vor B\tB vor A\t0\r\n'
  assert files['labels/pawsx/test-ja.tsv'] == '1\n0\n'


def test_an_unknown_label_of_pawsx_is_told_with_its_line(convert):
  table = 'id\tsentence1\tsentence2\tlabel\n1\ta\tb\t1\n2\ta\tb\t2\n'
  with pytest.raises(UsageError, match="unknown label '2'") as error:
    convert('pawsx', {'x-final.tar.gz': tar_of({'x-final/de/dev_2k.tsv': table})})
  assert error.value.where.endswith('x-final/de/dev_2k.tsv:3')


def test_an_empty_sentence_of_pawsx_stays(convert):
  table = 'id\tsentence1\tsentence2\tlabel\n1\t\tb\t1\n'
  files = convert('pawsx', {'x-final.tar.gz': tar_of({'x-final/de/dev_2k.tsv': table})})
  assert files['pawsx/dev-de.tsv'] == '\tb\t1\r\n'
