"""Every gin file opens with what it is and how to run it, and the commands there are configurations."""

import pytest
from gin_files import ROOT, head_commands, head_comment

from rembert import configuration, main

# Included by others, or what these name.
PARTS = ('base.gin', 'ablation_base.gin', 'english_base.gin', 'tfds_wikipedia.gin', 'wikipedia_and_common_crawl.gin')
FILES = sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob('gin/**/*.gin') if file.name not in PARTS)


@pytest.mark.parametrize('gin_file', FILES)
def test_files_say_what_to_set_and_their_commands_are_configurations(gin_file):
  head, commands = head_comment(gin_file), head_commands(gin_file)
  assert 'Required: ' in head
  assert 'Often changed: ' in head
  # The scale of the paper is the default, which no command names.
  assert gin_file == 'gin/scales/full.gin' or any(f'--gin_file={gin_file}' in command for command in commands)
  for command in commands:
    if command[2] == 'rembert.main' and 'runs/mine/config.gin' not in str(command):
      options, bindings = main.parse([word for word in command[3:] if word != '…'])
      configuration.load(options.gin_file, bindings)
      configuration.check_bound()
