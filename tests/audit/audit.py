"""Compares the lock with known vulnerabilities: `make audit`.

pip-audit ends with 0 and "no known vulnerabilities" where its service knows none of the packages, as behind a mirror.
Here that is reported as it is: nothing was audited.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence

HERE = pathlib.Path(__file__).parent
LOCK = HERE.parent.parent / 'requirements.txt'
_MINUTES = 5


def exceptions(file: pathlib.Path = HERE / 'exceptions.txt') -> list[str]:
  """Ids that are accepted; each must be followed by its reason."""
  lines = [line.split(maxsplit=1) for line in file.read_text().splitlines() if line.strip() and line[0] != '#']
  if without_reason := [line[0] for line in lines if len(line) < 2]:
    raise SystemExit(f'{file.name}: no reason is given for {", ".join(without_reason)}')
  return [line[0] for line in lines]


def verdict(returncode: int, output: str, errors: str) -> tuple[int, str]:
  """Exit code, and what to say, of what pip-audit said."""
  try:
    packages = json.loads(output)['dependencies']
  except (ValueError, KeyError, TypeError):
    reason = (errors.strip().splitlines() or [f'exit code {returncode}'])[-1]
    return 0, f'AUDIT SKIPPED, nothing was audited: {reason}'
  audited = [package for package in packages if 'vulns' in package]
  if not audited:
    return 0, f'AUDIT SKIPPED, nothing was audited: the service knows none of {len(packages)} packages'
  found = [(package, each) for package in audited for each in package['vulns']]
  lines = [
    f'{package["name"]} {package["version"]}: {each["id"]}, fixed in {", ".join(each["fix_versions"]) or "no version"}'
    for package, each in found
  ]
  skipped = [package['name'] for package in packages if 'vulns' not in package]
  lines.append(f'{len(audited)} packages audited, {len(found)} known vulnerabilities')
  if skipped:
    lines.append(f'NOT AUDITED, unknown to the service: {", ".join(skipped)}')
  return (1 if found else 0), '\n'.join(lines)


def main(command: Sequence[str]) -> int:
  """Runs `command`, which is pip-audit, on the lock."""
  ignored = [f'--ignore-vuln={each}' for each in exceptions()]
  flags = ['--no-deps', '--disable-pip', '--format=json', '--progress-spinner=off', f'--requirement={LOCK}', *ignored]
  try:
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60 * _MINUTES, check=False)
  except subprocess.TimeoutExpired:
    code, text = 0, f'AUDIT SKIPPED, nothing was audited: no answer within {_MINUTES} minutes'
  else:
    code, text = verdict(done.returncode, done.stdout, done.stderr)
  print(text)
  return code


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
