"""Recipes open with what they are and how to run them, and their commands are configurations."""

import pytest
from gin_files import ROOT, head_commands, head_comment

from rembert import RemBertConfig, configuration, main
from rembert.jobs import config, pretrain

RECIPES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob('gin/recipes/*.gin'))


@pytest.mark.parametrize('recipe', RECIPES)
def test_recipes_open_with_what_they_are_and_their_commands_are_configurations(recipe, monkeypatch):
  monkeypatch.setattr(config, 'architecture', lambda path: RemBertConfig())  # of a model that is not here
  head = head_comment(recipe)
  assert 'Required:' in head
  assert 'Often changed:' in head
  commands = [command for command in head_commands(recipe) if command[2] == 'rembert.main']
  assert commands
  for command in commands:
    options, bindings = main.parse(command[3:])
    assert recipe in options.gin_file
    configuration.load(options.gin_file, bindings)
    pretrain.configured()
