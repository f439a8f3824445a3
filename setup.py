"""Packaging of `rembert`. Versions that work together are pinned in requirements.txt; here are the bounds."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
# The one place that says the version; read, since an import would want what is yet to be installed.
VERSION = re.search(r"^__version__ = '(.+)'$", (ROOT / 'rembert' / '__init__.py').read_text(), re.MULTILINE)[1]

REQUIREMENTS = [
  'absl-py>=2.1',
  'array-record>=0.8,<0.9',  # rows of token stores
  'etils[epath]>=1.9',
  'flax>=0.12.8,<0.13',
  'fsspec>=2025.1',  # tables and text in any storage, compressed or not
  'gin-config>=0.5,<0.6',
  'grain>=0.2.12,<0.3',
  'huggingface_hub>=2.4,<3',  # models by id; the metadata of model cards; transformers 5 wants <3
  'jax>=0.10.2,<0.13',
  'jinja2>=3.1,<4',  # the page of reports, model cards
  'matplotlib>=3.9,<4',
  'mwparserfromhell>=0.7,<0.8',  # wikitext parser
  'numpy>=2.0,<3',
  'optax>=0.2.5,<0.3',
  'orbax-checkpoint>=0.12,<0.13',
  'markupsafe>=2.1,<4',  # text in Jinja2's pages; released with it
  'packaging>=24',  # compares versions, for rembert.doctor
  'pandas>=3,<4',  # tables of reports
  'protobuf>=6,<7',  # apache-beam stops at 6; see sentencepiece
  'pyarrow>=20',  # tables and text in Parquet, and zstd
  'rich>=14,<16',
  'safetensors>=0.5,<1',  # Hugging Face's format of weights
  'scipy>=1.15,<2',  # tests of significance, rank correlations, fits, singular values
  'sentencepiece==0.2.2',  # 0.2.1 crashes, 0.2.3 needs protobuf 7
  'seqio==0.0.20',
  't5==0.9.4',
  'tensorboardX>=2.6.2,<3',  # event files without importing TensorFlow
  'tensorflow>=2.21,<2.22',
  'tensorflow-datasets>=4.9.8,<5',
  'tensorflow-text>=2.21,<2.22',
  'tokenizers>=0.21,<0.24',  # Hugging Face's format of tokenizers
]

EXTRAS = {
  'tpu': ['jax[tpu]'],
  'cuda': ['jax[cuda12]'],
  # Orbax asks google-cloud-storage before it deletes a checkpoint in a bucket; gcsfs is what etils reads buckets with
  # where there is no TensorFlow.
  'gcs': ['gcsfs>=2025.1', 'google-cloud-storage>=2.18'],
  'prepare': ['apache-beam>=2.77,<3', 'dask[distributed]>=2026.8,<2027'],  # Dask: a cluster of one's own
  'wandb': ['wandb>=0.19,<1'],
  'dev': [
    'hypothesis>=6.100',
    'import-linter==2.17',
    'pytest>=8.3,<10',
    'pytest-xdist>=3.6,<4',
    'mypy==2.4.1',
    'ruff==0.17.5',
    'transformers>=5,<6',
  ],
}


# gin/ is no package (an __init__.py there would hide gin-config from anyone who stands in the repository root); an
# installed copy carries it as data, as `rembert/gin_files/gin`, so that 'gin/…' in an include means the same there.
PACKAGES = find_packages(include=['rembert', 'rembert.*', 'tasks', 'tasks.*', 'launch', 'launch.*'])

setup(
  name='rembert',
  version=VERSION,
  description='RemBERT in JAX: multilingual pre-training with decoupled embeddings',
  long_description=(ROOT / 'README.md').read_text(encoding='utf-8') if (ROOT / 'README.md').exists() else '',
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  python_requires='>=3.11',
  classifiers=[f'Programming Language :: Python :: {version}' for version in ('3.11', '3.12', '3.13')],
  packages=[*PACKAGES, 'rembert.gin_files.gin'],
  package_dir={'rembert.gin_files.gin': 'gin'},
  package_data={
    'rembert.gin_files.gin': ['**/*.gin'],
    'rembert': ['paper.json'],
    'rembert.convert': ['model_card.md.j2'],
    'rembert.report': ['page.html.j2', 'style.css'],
    'tasks.wikipedia': ['*.json', 'sample/*'],
    'tasks.xtreme': ['*.json'],
    'launch': ['docker/*.Dockerfile', '*.sbatch', '*.sh'],
  },
  install_requires=REQUIREMENTS,
  extras_require=EXTRAS,
)
