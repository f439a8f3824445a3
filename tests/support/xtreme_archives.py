"""Small archives in the form in which the data of XTREME's tasks is published, with sentences of our own."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping

from tasks.xtreme import LANGUAGES
from tasks.xtreme.convert import PUBLISHED_NAMES

NLI_HEADER = '\t'.join(['language', 'gold_label', 'b1', 'b2', 'b3', 'b4', 'sentence1', 'sentence2', 'promptID'])


def zip_of(members: Mapping[str, str | bytes]) -> bytes:
  """A zip archive."""
  archive = io.BytesIO()
  with zipfile.ZipFile(archive, 'w') as opened:
    for name, content in members.items():
      opened.writestr(name, content)
  return archive.getvalue()


def tar_of(members: Mapping[str, str | bytes], compression: str = 'gz') -> bytes:
  """A tar archive."""
  archive = io.BytesIO()
  with tarfile.open(fileobj=archive, mode=f'w:{compression}') as opened:
    for name, content in members.items():
      content = content.encode() if isinstance(content, str) else content
      info = tarfile.TarInfo(name)
      info.size = len(content)
      opened.addfile(info, io.BytesIO(content))
  return archive.getvalue()


def questions(*paragraphs: tuple[str, list[tuple[str, str, str]]]) -> dict:
  """A file of SQuAD's form, from contexts with (id, question, answer)."""
  return {
    'version': '1.1',
    'data': [
      {
        'title': 'Orte',
        'paragraphs': [
          {
            'context': context,
            'qas': [
              {'id': name, 'question': question, 'answers': [{'answer_start': context.index(answer), 'text': answer}]}
              for name, question, answer in asked
            ],
          }
          for context, asked in paragraphs
        ],
      }
    ],
  }


QUESTIONS = questions(
  ('Die Mühle steht seit 1720 am Bach.', [('q1', 'Seit wann steht sie?', '1720'), ('q2', 'Wo?', 'am Bach')]),
  ('Im Mai fiel Schnee.', [('q3', 'Wann?', 'Mai')]),
)


def _nli(language: str) -> str:
  rows = [
    [language, 'neutral', *'abcd', f' Ein Satz ({language}). ', 'Ein "anderer" Satz.', '1'],
    [language, 'contradictory', *'abcd', 'Es regnet.', 'Es ist trocken.', '2'],
    [language, 'entailment', *'abcd', 'Es regnet.', 'Es ist nass.', '3'],
  ]
  return ''.join('\t'.join(row) + '\n' for row in rows)


def _xnli() -> dict[str, bytes]:
  both = NLI_HEADER + '\n' + ''.join(_nli(language) for language in LANGUAGES['xnli'])
  train = 'premise\thypo\tlabel\nIt rains.\tIt is dry.\tcontradictory\nHe sleeps.\tHe rests.\tentailment\n'
  return {
    'XNLI-1.0.zip': zip_of(
      {'XNLI-1.0/xnli.dev.tsv': both, 'XNLI-1.0/xnli.test.tsv': both, '__MACOSX/XNLI-1.0/._xnli.test.tsv': b'\0\1'}
    ),
    'XNLI-MT-1.0.zip': zip_of({'XNLI-MT-1.0/multinli/multinli.train.en.tsv': train}),
  }


def _pawsx() -> dict[str, bytes]:
  table = 'id\tsentence1\tsentence2\tlabel\n1\t "Ja", sagte er .\tEr sagte ja .\t1\n2\tA vor B\tB vor A\t0\n'
  files = {'train': 'train.tsv', 'dev': 'dev_2k.tsv', 'test': 'test_2k.tsv', 'translated': 'translated_train.tsv'}
  return {
    'x-final.tar.gz': tar_of(
      {f'x-final/{language}/{file}': table for language in LANGUAGES['pawsx'] for file in files.values()}
    )
  }


def _panx() -> dict[str, bytes]:
  text = lambda code: f'{code}:Anna\tB-PER\n{code}: \tO\n{code}:a:b\tO\n\n{code}:Rom\tB-LOC\n\n'
  of = lambda code: tar_of({f'./{split}': text(code) for split in ('train', 'dev', 'test', 'extra')})
  codes = (*LANGUAGES['panx'], 'als')
  return {'panx_dataset.zip': zip_of({f'panx_dataset/{code}.tar.gz': of(code) for code in codes})}


CONLLU = """\
# text = Im Haus wohnt niemand.
1-2\tIm\t_\t_\t_\t_\t_\t_\t_\t_
1\tin\tin\tADP\t_\t_\t3\tcase\t_\t_
2\tdem\tder\tDET\t_\t_\t3\tdet\t_\t_
3\tHaus\tHaus\tNOUN\t_\t_\t4\tobl\t_\t_
4\twohnt\twohnen\tVERB\t_\t_\t0\troot\t_\t_
4.1\tirgendwer\t_\tPRON\t_\t_\t_\t_\t4:nsubj\t_
5\tnie mand\tniemand\tPRON\t_\t_\t4\tnsubj\t_\t_
6\t.\t.\tPUNCT\t_\t_\t4\tpunct\t_\t_

# sent_id = 2
1\tJa\tja\tINTJ\t_\t_\t0\troot\t_\t_

"""


def _udpos() -> dict[str, bytes]:
  members = {}
  for code in LANGUAGES['udpos']:
    splits = (
      ('test',) if code in ('th', 'tl', 'yo') else ('train', 'test') if code == 'kk' else ('train', 'dev', 'test')
    )
    for split in splits:
      members[f'ud-treebanks-v2.5/UD_{code}-Eins/{code}_eins-ud-{split}.conllu'] = CONLLU
  members['ud-treebanks-v2.5/UD_Swiss_German-UZH/gsw_uzh-ud-test.conllu'] = CONLLU
  members['ud-treebanks-v2.5/UD_de-Eins/README.md'] = 'ein Baum'
  return {'ud-treebanks-v2.5.tgz': tar_of(members)}


def _mlqa() -> dict[str, bytes]:
  text = json.dumps(QUESTIONS)
  codes = LANGUAGES['mlqa']
  members = {
    f'MLQA_V1/{s}/{s}-context-{a}-question-{b}.json': text for s in ('dev', 'test') for a in codes for b in codes
  }
  return {'MLQA_V1.zip': zip_of(members)}


def _tydiqa() -> dict[str, bytes]:
  context, names = 'Die Mühle steht seit 1720 am Bach.', PUBLISHED_NAMES['tydiqa']
  of = lambda name: questions((context, [(f'{name}-77-0', 'Seit wann?', '1720')]))
  both = {
    'version': 'TyDiQA-GoldP-1.1-for-SQuAD-1.1',
    'data': [of(name)['data'][0] for name in names],
  }
  return {
    'tydiqa-goldp-v1.1-train.json': json.dumps(both).encode(),
    'tydiqa-goldp-v1.1-dev.tgz': tar_of(
      {f'tydiqa-goldp-v1.1-dev/tydiqa-goldp-dev-{name}.json': json.dumps(of(name)) for name in names}
    ),
  }


def _tatoeba() -> dict[str, bytes]:
  files = {}
  for code, language in PUBLISHED_NAMES['tatoeba'].items():
    files[f'tatoeba.{code}-eng.{code}'] = f'drei ({language})\neins\nzwei\n'.encode()
    files[f'tatoeba.{code}-eng.eng'] = b'three\none\ntwo\n'
  return files


def _bucc() -> dict[str, bytes]:
  files = {}
  for language in LANGUAGES['bucc2018']:
    for part in ('sample', 'training'):
      stem = f'bucc2018/{language}-en/{language}-en.{part}'
      members = {
        f'{stem}.{language}': f'{language}-1\teins\n{language}-2\tzwei\n',
        f'{stem}.en': 'en-1\ttwo\nen-2\tone\n',
        f'{stem}.gold': f'{language}-1\ten-2\n',
      }
      files[f'bucc2018-{language}-en.{part}-gold.tar.bz2'] = tar_of(members, 'bz2')
  return files


def published(task: str) -> dict[str, bytes]:
  """The files of a task, by name."""
  text = json.dumps(QUESTIONS).encode()
  make = {
    'xnli': _xnli,
    'pawsx': _pawsx,
    'panx': _panx,
    'udpos': _udpos,
    'squad': lambda: {'train-v1.1.json': text, 'dev-v1.1.json': text},
    'xquad': lambda: {f'xquad.{language}.json': text for language in LANGUAGES['xquad']},
    'mlqa': _mlqa,
    'tydiqa': _tydiqa,
    'tatoeba': _tatoeba,
    'bucc2018': _bucc,
  }
  return make[task]()
