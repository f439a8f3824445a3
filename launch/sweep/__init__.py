"""Many models pre-trained, fine-tuned, judged and analysed by one command; see `python -m launch.sweep --help`."""
