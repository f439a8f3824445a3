# To try things, and to prepare text (python -m tasks.corpus, tasks.token_store). From the project's folder:
#
#   docker build --file=launch/docker/cpu.Dockerfile --tag=rembert:cpu .
#   docker run --rm --volume=rembert_runs:/opt/rembert/runs rembert:cpu \
#     python -m rembert.main --gin_file=gin/pretrain_smoke.gin
#
FROM python:3.12-slim

# tini: as the first process of a container a program gets no SIGTERM before it asks for it, nor are its orphans reaped.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends tini \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid=1000 rembert

# The lock first, in a layer of its own: it changes less often than the code. --no-deps: see CONTRIBUTING.md.
COPY requirements.txt /opt/rembert/
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --requirement=/opt/rembert/requirements.txt
# What Orbax asks before it deletes in a bucket.
RUN pip install --no-cache-dir --disable-pip-version-check --constraint=/opt/rembert/requirements.txt \
  'google-cloud-storage>=2.18'

# Code is run where it lies, gin files beside it.
COPY gin /opt/rembert/gin
COPY launch /opt/rembert/launch
COPY tasks /opt/rembert/tasks
COPY rembert /opt/rembert/rembert
WORKDIR /opt/rembert
# A volume takes over the owner of the folder that it is mounted on.
RUN install --directory --owner=rembert /opt/rembert/runs
ENV PYTHONPATH=/opt/rembert PYTHONUNBUFFERED=1 JAX_PLATFORMS=cpu

USER rembert
ENTRYPOINT ["tini", "--"]
CMD ["python", "-m", "rembert.main", "--help"]
