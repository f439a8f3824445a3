"""Google Cloud: machines that are asked for, told what to run, and given back."""
