"""The tables at the start of a run: exact counts, the paper's next to them, within the width of a terminal."""

import dataclasses
import io

import pytest
import rich.console

from rembert.jobs.summary import show_parameters
from rembert.model.config import RemBertConfig
from rembert.paper import PaperFigures
from rembert.tracking.console import Console

# Table 5: 23 layers in pre-training, 12 in fine-tuning.
DEEP = RemBertConfig(
  vocab_size=120_000,
  input_embedding_size=128,
  output_embedding_size=128,
  hidden_size=768,
  num_hidden_layers=23,
  num_attention_heads=12,
  intermediate_size=3072,
)
TABLE_5 = PaperFigures(table=5, row='layers23to12', kept_layers=12, counting='ablation')


def shown(config: RemBertConfig, paper: PaperFigures, width: int = 80) -> list[str]:
  """What the terminal shows, line by line."""
  screen = io.StringIO()
  show_parameters(Console(console=rich.console.Console(file=screen, width=width)), config, paper)
  return [line.strip() for line in screen.getvalue().splitlines() if line.strip()]


def row(lines: list[str], label: str) -> list[str]:
  """The figures of the one row that begins with the label."""
  [line] = [line for line in lines if line.startswith(label)]
  return line.removeprefix(label).split()


@pytest.mark.parametrize('width', [80, 120])
def test_the_papers_figures_stand_below_the_exact_ones(width):
  lines = shown(DEEP, TABLE_5, width)
  assert row(lines, 'total  ') == ['194,715,456', '101,170,176']
  assert row(lines, "by the paper's counting rule") == ['193,906,176', '100,579,584']
  assert row(lines, 'in the paper (Table 5, 11 additional layers)') == ['193M', '100M']
  assert row(lines, 'total compared with the paper') == ['+0.89%', '+1.17%']
  assert not [line for line in lines if 'differ from' in line]


def test_layers_that_fine_tuning_drops_are_missing_in_its_column():
  assert row(shown(DEEP, TABLE_5), 'Transformer layers, 12 of 23 kept') == ['163,021,056', '85,054,464']


def test_without_a_row_of_the_paper_it_is_not_mentioned():
  lines = shown(DEEP, PaperFigures())
  assert lines[-1].startswith('total ')
  assert row(lines, 'Transformer layers') == ['163,021,056', '163,021,056']
  assert 'paper' not in ' '.join(lines)


def test_another_model_under_the_papers_figures_is_called_another():
  lines = shown(dataclasses.replace(DEEP, output_embedding_size=256), TABLE_5)
  assert row(lines, 'in the paper (Table 5, 11 additional layers)') == ['193M', '100M']
  assert row(lines, 'total compared with the paper') == ['+8.90%', '+1.17%']
  assert lines[-1] == "warning: the counts differ from the paper's by more than 3%"


def test_a_shallower_model_keeps_all_the_layers_that_it_has():
  lines = shown(dataclasses.replace(DEEP, num_hidden_layers=6), TABLE_5)
  assert row(lines, 'Transformer layers') == ['42,527,232', '42,527,232']
  assert lines[-1].startswith('warning: the counts differ')


def test_a_model_of_another_scale_is_not_compared_with_the_papers_figures():
  lines = shown(DEEP, dataclasses.replace(TABLE_5, scale='mini'))
  assert row(lines, "by the paper's counting rule") == ['193,906,176', '100,579,584']
  assert not [line for line in lines if line.startswith(('in the paper', 'total compared'))]
  assert lines[-1].startswith('Table 5, 11 additional layers, at scale mini')
