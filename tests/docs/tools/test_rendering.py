from docs.tools.rendering import rounded, table, with_tables


def test_figures_are_cut_to_the_digits_that_are_shown():
  assert rounded({'a': [1.23456, 12], 'b': None}) == {'a': [1.235, 12], 'b': None}


def test_tables_are_replaced_and_the_text_around_them_stays():
  page = 'before\n<!-- table: a -->\nold\n<!-- end -->\nafter <!-- table: b --> that is another\n'
  made = table(['x', 'y'], [['1', '2']])
  assert made == '| x | y |\n|---|--:|\n| 1 | 2 |'
  assert with_tables(page, {'a': made}) == page.replace('old', made)
