"""Joins the processes of a run, and notices when one is lost.

They are those of a TPU pod, a Slurm job, or anything that sets three environment variables.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from typing import Annotated, Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

from rembert.errors import RunError, UsageError, first_line
from rembert.runtime import ADDRESS, COUNT, INDEX
from rembert.runtime.hardware import has_tpu
from rembert.runtime.signals import EXIT_STOPPED
from rembert.validation import Range, check_fields

_FIX = f'set {ADDRESS}=HOST:PORT, {COUNT} and {INDEX} on every host, or none of them to run on this host only'


@dataclasses.dataclass(frozen=True)
class HostsConfig:
  """Timeouts of the hosts of a run.

  Attributes:
    join_seconds: timeout, in seconds, for all hosts to join at the start.
    lost_after_seconds: timeout, in seconds, after which a silent host counts as lost, and the others end with exit code
      75. The end of a process is noticed at once.
  """

  join_seconds: Annotated[int, Range(5)] = 300
  lost_after_seconds: Annotated[int, Range(5)] = 60

  def __post_init__(self):
    check_fields(self, 'hosts')


def join(config: HostsConfig) -> None:
  """Joins the other processes, if there are any. Call this before any use of a device.

  Raises:
    UsageError: the environment describes the cluster incompletely.
    RunError: not all processes joined in time.
  """
  # JAX's own service would take over SIGTERM from `rembert.runtime.signals`.
  jax.config.update('jax_enable_preemption_service', False)
  explicit = _explicit()
  if explicit is None and not _is_part_of_a_cluster():
    return
  try:
    jax.distributed.initialize(
      **(explicit or {}),
      initialization_timeout=config.join_seconds,
      heartbeat_timeout_seconds=config.lost_after_seconds,
      # A host that is done waits for the others until a lost one would be noticed.
      shutdown_timeout_seconds=2 * config.lost_after_seconds,
    )
  except ValueError as error:
    raise UsageError(
      f'the cluster cannot be detected from the environment: {error}', where='the environment', fix=_FIX
    ) from error
  except RuntimeError as error:
    address = explicit['coordinator_address'] if explicit else 'the first host'
    raise RunError(
      f'not all hosts joined within {config.join_seconds} s: {first_line(error)}',
      where=f'{address}, hosts.join_seconds',
      fix=['start the same command on every host', f'is {address} reachable from {socket.gethostname()}?'],
    ) from error


def _explicit() -> dict | None:
  """Arguments of `jax.distributed.initialize` from the environment; None if JAX has to detect them."""
  given = {name: os.environ[name] for name in (ADDRESS, COUNT, INDEX) if os.environ.get(name)}
  if len(given) < 3:
    # With Slurm and Open MPI, an address alone is enough.
    if given and not _is_part_of_a_cluster():
      raise UsageError('incomplete cluster configuration', where=', '.join(given), fix=_FIX)
    return None
  try:
    count, index = int(given[COUNT]), int(given[INDEX])
  except ValueError:
    count, index = 0, 0
  if not 0 <= index < count:
    raise UsageError(
      f'{INDEX}={given[INDEX]} is out of range for {COUNT}={given[COUNT]}',
      where=f'{INDEX}, {COUNT}',
      fix='count from 0',
    )
  return {'coordinator_address': given[ADDRESS], 'num_processes': count, 'process_id': index}


def _is_part_of_a_cluster() -> bool:
  """Whether JAX can detect the other processes."""
  if any(int(os.environ.get(name) or 1) > 1 for name in ('SLURM_NTASKS', 'OMPI_COMM_WORLD_SIZE')):
    return True
  settings: Any = jax.config  # its attributes are defined at run time
  is_tpu_wanted = (settings.jax_platforms or 'tpu').split(',')[0] == 'tpu'
  # A Cloud TPU VM is one host of a slice or all of it, by its metadata, or the environment on Kubernetes.
  is_slice = has_tpu() or ',' in os.environ.get('TPU_WORKER_HOSTNAMES', '')
  return is_tpu_wanted and is_slice


def leave(exit_code: int) -> None:
  """Ends the process; after an error, without waiting for the other hosts, which end too."""
  if jax.distributed.is_initialized() and exit_code not in (0, 75):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
  sys.exit(exit_code)


# --- lost hosts -------------------------------------------------------------------------------------------------------

_MESSAGE_BYTES = 512
_CONNECT_SECONDS = 20
_HEARD_WITHIN_SECONDS = 5


def _all_gather_text(text: str) -> list[str]:
  """The texts of all processes, in order. A collective."""
  room = np.zeros(_MESSAGE_BYTES, np.uint8)
  data = text.encode()[:_MESSAGE_BYTES]
  room[: len(data)] = np.frombuffer(data, np.uint8)
  gathered = multihost_utils.process_allgather(room).reshape(-1, _MESSAGE_BYTES)
  return [bytes(row).rstrip(b'\0').decode(errors='replace') for row in gathered]


class Peers:
  """Detects a lost host at once, with its name and the reason. A collective: all processes create it together.

  JAX notices a lost process too, but after a timeout, and ends the others with a stack trace and a number. Here each
  process holds a connection to the first one. The kernel closes it when the process ends for any reason, or after
  `lost_after_seconds` when its machine no longer answers; this does not depend on Python threads of that process.
  `names` are `host (process 3)`, by index.
  """

  def __init__(self, *, lost_after_seconds: int):
    self.names = [f'{name} (process {index})' for index, name in enumerate(_all_gather_text(socket.gethostname()))]
    self._lost_after = lost_after_seconds
    self._lock = threading.Lock()
    self._connections: dict[int, socket.socket] = {}
    self._departed: set[int] = set()
    self._is_over = False
    if jax.process_count() == 1:
      return
    _delay_aborts()
    if jax.process_index() == 0:
      self._listen()
    else:
      self._connect(json.loads(_all_gather_text('')[0]))

  def _listen(self) -> None:
    token = secrets.token_hex(16)
    server = socket.create_server(('', 0), backlog=len(self.names))
    host = os.environ.get(ADDRESS, '').rpartition(':')[0] or socket.gethostbyname(socket.gethostname())
    _all_gather_text(json.dumps({'host': host, 'port': server.getsockname()[1], 'token': token}))

    def accept() -> None:
      while len(self._connections) < len(self.names) - 1:
        connection, _ = server.accept()
        connection.settimeout(_CONNECT_SECONDS)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
          hello = json.loads(connection.makefile().readline())
          if secrets.compare_digest(hello['token'], token):
            self._watch(int(hello['process']), connection)
            continue
        connection.close()
      server.close()

    threading.Thread(target=accept, name='peers', daemon=True).start()

  def _connect(self, server: dict) -> None:
    try:
      connection = socket.create_connection((server['host'], server['port']), timeout=_CONNECT_SECONDS)
      hello = {'process': jax.process_index(), 'token': server['token']}
      connection.sendall(json.dumps(hello).encode() + b'\n')
    except OSError as error:
      print(
        f'rembert: {self.names[jax.process_index()]} cannot reach {self.names[0]} at {server["host"]}:{server["port"]} '
        f'({error}): a lost host will only be detected by JAX, after {self._lost_after} s and without its name',
        file=sys.stderr,
      )
      return
    self._watch(0, connection)

  def _watch(self, peer: int, connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle, interval, timeout = self._lost_after // 3, max(1, self._lost_after // 9), self._lost_after * 1000
    options = {'TCP_KEEPIDLE': idle, 'TCP_KEEPINTVL': interval, 'TCP_KEEPCNT': 6, 'TCP_USER_TIMEOUT': timeout}
    for name, value in options.items():
      if hasattr(socket, name):  # Linux
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    self._connections[peer] = connection
    threading.Thread(target=self._read, args=(peer, connection), name=f'peer-{peer}', daemon=True).start()

  def _read(self, peer: int, connection: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
      for line in connection.makefile():
        message = json.loads(line)
        if 'departed' in message:
          self._departed.add(peer)
        elif 'lost' in message:
          self._end(message['lost'], message['exit_code'])
    if peer not in self._departed:
      self._end(f'{self.names[peer]} has failed', EXIT_STOPPED)

  def _end(self, message: str, exit_code: int) -> None:
    """Ends this process because of another; the first process informs all others before."""
    if self._was_over():
      return
    if jax.process_index() == 0:
      self._send({'lost': message, 'exit_code': exit_code})
    fix = '\n  fix    run the same command again on all hosts: it resumes from the last complete checkpoint'
    _exit_at_once(message + (fix if exit_code == EXIT_STOPPED else ''), exit_code)

  def _send(self, message: dict) -> None:
    for connection in self._connections.values():
      with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b'\n')

  def depart(self) -> None:
    """Tells the others that this process ends normally, so that they continue."""
    self._was_over()
    self._send({'departed': True})

  def _was_over(self) -> bool:
    with self._lock:
      was_over, self._is_over = self._is_over, True
    return was_over

  def await_loss(self) -> None:
    """After a failed collective: waits for the monitor threads to end this process and name the lost host.

    The collective may fail before they detect the loss.
    """
    if self._connections:
      time.sleep(_HEARD_WITHIN_SECONDS)

  def fail(self, message: str, exit_code: int) -> None:
    """Tells the others that this process ends with an error; they end with the same exit code."""
    if not self._was_over():
      self._send({'lost': f'{self.names[jax.process_index()]} ended: {message}', 'exit_code': exit_code})


def _exit_at_once(message: str, exit_code: int) -> NoReturn:
  """Ends the process; its other threads may be waiting for a lost host."""
  print(f'rembert: {message}', file=sys.stderr, flush=True)
  sys.stdout.flush()
  os._exit(exit_code)


def _delay_aborts() -> None:
  """Delays SIGABRT by six seconds.

  JAX aborts when the coordinator process disappears, before a Python thread could report which host failed. The handler
  is libc's `sleep`, which is async-signal-safe; it receives the number of the signal, 6, as its argument.
  """
  libc = ctypes.CDLL(None)
  libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
  libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))
