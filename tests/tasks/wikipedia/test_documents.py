import bz2
from xml.sax.saxutils import escape

import pytest

from rembert.errors import UsageError
from tasks.wikipedia.documents import Document, DocumentCounts, is_held_out, read_documents
from tasks.wikipedia.dumps import ReadCounts, find_dumps

RIVER = "Die '''Donau''' ist ein [[Fluss]] in Europa und mündet in das Schwarze Meer. " * 2
TOWN = 'Die Stadt liegt am Ufer der Donau und hat einen alten Hafen mit vielen Schiffen. ' * 2


def dump(folder, pages, name='dewiki-1-pages-articles.xml.bz2'):
  xml = ''.join(
    f'<page><title>{escape(title)}</title><ns>0</ns><id>{i}</id><revision><text>{escape(text)}</text></revision></page>'
    for i, (title, text) in enumerate(pages)
  )
  namespaces = '<namespaces><namespace key="6">Ablage</namespace></namespaces>'
  path = folder / name
  path.write_bytes(bz2.compress(f'<mediawiki><siteinfo>{namespaces}</siteinfo>{xml}</mediawiki>'.encode()))
  [dumps] = find_dumps(str(path), None).values()
  return dumps


def documents(dumps, split='all', held_out=0.0, **options):
  return list(read_documents(dumps, split=split, held_out=held_out, **options))


def test_an_article_becomes_a_document_of_clean_paragraphs(tmp_path):
  text = (
    f'{{{{Infobox}}}}\n{RIVER}[[Ablage:X.jpg|thumb|a caption]]\n\n== Lauf ==\n{TOWN}\n== Weblinks ==\n* eins zwei drei'
  )
  [document] = documents(dump(tmp_path, [('Donau', text)]))
  assert document == Document(
    'de', 'Donau', f'{RIVER.replace("[[", "").replace("]]", "").replace(chr(39), "").strip()}\n{TOWN.strip()}'
  )


def test_what_becomes_of_each_article_is_counted(tmp_path):
  counts, kept = ReadCounts(), DocumentCounts()
  pages = [
    ('A', RIVER),
    ('B', 'Zu kurz.'),
    ('C', RIVER),
    ('D', TOWN),
    ('E', f'<!-- other -->{TOWN}\n\n[[Ablage:Y.jpg]]'),
  ]
  found = documents(dump(tmp_path, pages), counts=counts, document_counts=kept)
  assert [document.title for document in found] == ['A', 'D']
  assert (kept.articles, kept.documents, kept.duplicates, kept.too_short, kept.other_split) == (5, 2, 2, 1, 0)
  assert kept.cleaning.articles == counts.pages == 5
  assert counts.bytes_read == counts.bytes_total > 0


def test_two_dumps_with_the_same_page_give_it_once(tmp_path):
  dump(tmp_path, [('A', RIVER)], 'dewiki-1.xml.bz2')
  dump(tmp_path, [('A', RIVER), ('B', TOWN)], 'dewiki-2.xml.bz2')
  counts = ReadCounts()
  found = documents(find_dumps(str(tmp_path), None)['de'], counts=counts)
  assert [document.title for document in found] == ['A', 'B']
  assert counts.pages == 3


def test_the_shortest_document_is_a_choice(tmp_path):
  dumps = dump(tmp_path, [('A', 'Ein kurzer Fluss.')])
  assert not documents(dumps)
  assert [document.text for document in documents(dumps, min_characters=10)] == ['Ein kurzer Fluss.']


def test_train_and_validation_part_all_documents_between_them(tmp_path):
  dumps = dump(tmp_path, [(f'A{i}', f'Der Fluss Nummer {i} fließt. {RIVER}') for i in range(300)])
  whole, train, validation = (documents(dumps, split, 0.2) for split in ('all', 'train', 'validation'))
  assert {d.title for d in train} | {d.title for d in validation} == {d.title for d in whole}
  assert not {d.title for d in train} & {d.title for d in validation}
  assert 30 < len(validation) < 90
  assert [d for d in whole if is_held_out(d.text, 0.2)] == validation
  assert not documents(dumps, 'validation', 0.0)
  assert not documents(dumps, 'train', 1.0)


def test_whether_a_document_is_held_out_depends_on_its_text_alone():
  texts = [f'Fluss {i}' for i in range(2000)]
  assert 150 < sum(is_held_out(text, 0.1) for text in texts) < 250
  assert all(is_held_out(text, 0.3) for text in texts if is_held_out(text, 0.1))  # a larger share holds the smaller
  assert is_held_out('Fluss 0', 0.5) == is_held_out('Fluss 0', 0.5)


def test_an_unknown_split_is_refused_at_the_call(tmp_path):
  with pytest.raises(UsageError, match='test'):
    read_documents([], split='test', held_out=0.1)


def test_real_dumps_give_the_same_documents_every_time_and_each_text_once(shared_data):
  dumps = find_dumps(str(shared_data / 'dumps'), ['it'])['it']
  first, second = documents(dumps, 'train', 0.05), documents(dumps, 'train', 0.05)
  assert first == second
  assert len(first) > 400
  assert len({document.text for document in first}) == len(first)
  assert all(len(document.text) >= 100 and document.language == 'it' for document in first)
