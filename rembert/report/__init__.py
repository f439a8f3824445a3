"""Reports: tables and plots from the results of runs."""
