"""A mock gcloud: machines are directories, and commands sent to them by ssh run in this machine's shell.

As a program it plays `gcloud compute tpus …`: it notes what it was called with, knows nodes and queued resources from a
JSON file, and answers as gcloud does where launchers look: NOT_FOUND, states, labels, exit codes of remote commands.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys

FOLDER = 'GCLOUD_STAND_IN'


@dataclasses.dataclass
class GcloudStandIn:
  """What a test does with it.

  Attributes:
    folder: calls.jsonl, state.json, and a home folder for each worker.
  """

  folder: pathlib.Path

  @classmethod
  def install(cls, folder: pathlib.Path, monkeypatch, workers: int = 2) -> 'GcloudStandIn':
    """Puts it before everything else in PATH."""
    stand_in = cls(folder)
    programs = folder / 'bin'
    programs.mkdir(parents=True)
    _write_program(programs / 'gcloud', f'exec {shlex.quote(sys.executable)} -S {shlex.quote(__file__)} "$@"')
    for index in range(workers):
      home = folder / f'worker{index}'
      (home / 'bin').mkdir(parents=True)
      _write_program(home / 'bin' / 'python3', _PYTHON3.format(python=shlex.quote(sys.executable)))
      _write_program(home / 'bin' / 'hostname', f'echo worker{index}')
    stand_in.write({'nodes': {}, 'queued': {}, 'plans': [], 'workers': workers})
    monkeypatch.setenv('PATH', f'{programs}{os.pathsep}{os.environ["PATH"]}')
    monkeypatch.setenv(FOLDER, str(folder))
    return stand_in

  def read(self) -> dict:
    """What exists."""
    return json.loads((self.folder / 'state.json').read_text())

  def write(self, state: dict) -> None:
    """Lets it be so."""
    (self.folder / 'state.json').write_text(json.dumps(state))

  def update(self, **changes) -> None:
    """Lets some of it be otherwise."""
    self.write(self.read() | changes)

  def calls(self, *verbs: str) -> list[list[str]]:
    """What it was called with, from the verb on; all, or those of these verbs."""
    file = self.folder / 'calls.jsonl'
    found = [json.loads(line)[2:] for line in file.read_text().splitlines()] if file.exists() else []
    return [call for call in found if not verbs or call[1] in verbs]

  def take_away(self) -> None:
    """All machines, with their processes and files."""
    for index in range(self.read()['workers']):
      folder = self.home(index) / 'rembert-launch'
      with contextlib.suppress(OSError):
        os.killpg(os.getpgid(int((folder / 'run/pid').read_text())), signal.SIGKILL)
      shutil.rmtree(folder, ignore_errors=True)

  def home(self, worker: int) -> pathlib.Path:
    """Of a worker."""
    return self.folder / f'worker{worker}'


# For `uv venv` it makes an environment whose Python is the one of the tests; its other arguments are recorded.
_PYTHON3 = """\
echo "$*" >> "$HOME/python3_calls"
case "$*" in
  *"uv venv"*)
    for folder; do :; done
    mkdir -p "$folder/bin"
    printf '#!/bin/sh\\nexec {python} "$@"\\n' > "$folder/bin/python"
    chmod +x "$folder/bin/python"
    ;;
esac
"""


def _write_program(file: pathlib.Path, text: str) -> None:
  file.write_text(f'#!/bin/sh\n{text}\n')
  file.chmod(0o755)


# --- the program ------------------------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
  """Plays gcloud."""
  stand_in = GcloudStandIn(pathlib.Path(os.environ[FOLDER]))
  with open(stand_in.folder / 'calls.jsonl', 'a') as calls:
    calls.write(json.dumps(argv) + '\n')
  kind, verb = argv[2:4]
  positional = [argument for argument in argv[4:] if not argument.startswith('--')]
  flags = dict(argument[2:].partition('=')[::2] for argument in argv[4:] if argument.startswith('--'))
  state = stand_in.read()
  if failure := state.get('failures', {}).get(verb):
    print(failure, file=sys.stderr)
    return 1
  if verb == 'ssh':
    return _ssh(stand_in, state, flags)
  if verb == 'scp':
    return _scp(stand_in, state, positional, flags)
  return {'tpu-vm': _node, 'queued-resources': _queued}[kind](stand_in, state, verb, positional[0], flags)


def _labels(flags: dict) -> dict:
  return dict(pair.split('=') for pair in flags['labels'].split(','))


def _not_found(command: str, name: str) -> int:
  print(f"ERROR: (gcloud.compute.tpus.{command}) NOT_FOUND: Resource '{name}' was not found", file=sys.stderr)
  return 1


def _node(stand_in: GcloudStandIn, state: dict, verb: str, name: str, flags: dict) -> int:
  if verb == 'create':
    state['nodes'][name] = {'state': 'READY', 'labels': _labels(flags), 'acceleratorType': flags['accelerator-type']}
  elif name not in state['nodes']:
    return _not_found(f'tpu-vm.{verb}', name)
  elif verb == 'describe':
    print(json.dumps(state['nodes'][name]))
  elif verb == 'delete':
    del state['nodes'][name]
  stand_in.write(state)
  return 0


def _queued(stand_in: GcloudStandIn, state: dict, verb: str, name: str, flags: dict) -> int:
  """Each request goes through the next of `plans`: a state for each time that it is asked for; the last one stays, and
  `STATE until FILE` as long as there is no such file."""
  if verb == 'create':
    plan = state['plans'].pop(0) if state['plans'] else ['ACTIVE']
    state['queued'][name] = {'labels': _labels(flags), 'plan': plan}
  elif name not in state['queued']:
    return _not_found(f'queued-resources.{verb}', name)
  elif verb == 'describe':
    request = state['queued'][name]
    now, _, file = request['plan'][0].partition(' until ')
    if len(request['plan']) > 1 and (not file or pathlib.Path(file).exists()):
      del request['plan'][0]
    data = {'failedData': {'error': {'message': 'no such type in this zone'}}} if now == 'FAILED' else {}
    node = {'nodeId': name, 'node': {'labels': request['labels']}}
    print(json.dumps({'state': {'state': now, **data}, 'tpu': {'nodeSpec': [node]}}))
    if now == 'SUSPENDED':
      stand_in.take_away()
    node_state = 'READY' if now == 'ACTIVE' else 'PREEMPTED'
    state['nodes'][name] = {
      'state': node_state,
      'labels': request['labels'],
      'queuedResource': f'queuedResources/{name}',
    }
  elif verb == 'delete':
    del state['queued'][name]
    state['nodes'].pop(name, None)
  stand_in.write(state)
  return 0


def _chosen(state: dict, flags: dict) -> list[int]:
  worker = flags.get('worker', '0')
  return list(range(state['workers'])) if worker == 'all' else [int(worker)]


def _ssh(stand_in: GcloudStandIn, state: dict, flags: dict) -> int:
  codes = []
  for index in _chosen(state, flags):
    home = stand_in.home(index)
    environment = os.environ | {'HOME': str(home), 'PATH': f'{home / "bin"}{os.pathsep}{os.environ["PATH"]}'}
    # As gcloud does it: cut at blanks, and joined again by ssh; the remote shell reads the line.
    line = ' '.join(flags['command'].split(' '))
    codes.append(subprocess.run(['bash', '-c', line], cwd=home, env=environment, check=False).returncode)
    if codes[-1]:
      print(f'##### Command execution on worker {index} failed with exit status {codes[-1]}.', file=sys.stderr)
  return next((code for code in codes if code), 0)


def _scp(stand_in: GcloudStandIn, state: dict, paths: list[str], flags: dict) -> int:
  *sources, target = paths
  for index in _chosen(state, flags):
    here = [str(stand_in.home(index) / path.partition(':')[2]) if ':' in path else path for path in (*sources, target)]
    subprocess.run(['cp', '-r', *here], check=True)
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
