# For experiments, and to prepare text (python -m tasks.corpus, tasks.token_store). In the project's directory:
#
#   docker build --file=launch/docker/cpu.Dockerfile --tag=rembert:cpu .
#   docker run --rm --volume=rembert_runs:/opt/rembert/runs rembert:cpu \
#     python -m rembert.main --gin_file=gin/pretrain_smoke.gin
#
FROM python:3.12-slim

# tini: the first process of a container gets no SIGTERM without a handler, and its orphans are not reaped.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends tini \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid=1000 rembert

# The lock file first, in its own layer, since it changes less often than the code. --no-deps: see CONTRIBUTING.md.
COPY requirements.txt /opt/rembert/
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --requirement=/opt/rembert/requirements.txt
# The client with which Orbax deletes in a bucket.
RUN pip install --no-cache-dir --disable-pip-version-check --constraint=/opt/rembert/requirements.txt \
  'google-cloud-storage>=2.18'

# Code runs in this directory, next to the gin files.
COPY gin /opt/rembert/gin
COPY launch /opt/rembert/launch
COPY tasks /opt/rembert/tasks
COPY rembert /opt/rembert/rembert
WORKDIR /opt/rembert
# A volume gets the owner of the directory that it is mounted on.
RUN install --directory --owner=rembert /opt/rembert/runs
ENV PYTHONPATH=/opt/rembert PYTHONUNBUFFERED=1 JAX_PLATFORMS=cpu

USER rembert
ENTRYPOINT ["tini", "--"]
CMD ["python", "-m", "rembert.main", "--help"]
