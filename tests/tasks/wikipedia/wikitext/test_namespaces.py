from tasks.wikipedia.wikitext.namespaces import category_namespaces, file_namespaces, link_namespaces


def test_namespace_names_are_case_folded_and_files_are_no_categories():
  for names in (file_namespaces(), category_namespaces()):
    assert all(name == name.casefold() == name.strip() and name for name in names)
  assert not file_namespaces() & category_namespaces()
  assert {'file', 'image', 'datei', 'файл', 'ไฟล์', 'ملف', 'चित्र', 'ファイル', 'picha'} <= file_namespaces()
  assert {'category', 'kategorie', 'категория', 'หมวดหมู่', 'تصنيف', 'श्रेणी', 'jamii'} <= category_namespaces()


def test_a_wikis_own_names_stand_beside_those_of_all_editions():
  assert link_namespaces().files == file_namespaces()
  own = link_namespaces({-2: 'Ton', 6: 'Ablage', 14: 'Sachgruppe', 0: '', 10: 'Vorlage'})
  assert own.files == file_namespaces() | {'ton', 'ablage'}
  assert own.categories == category_namespaces() | {'sachgruppe'}
