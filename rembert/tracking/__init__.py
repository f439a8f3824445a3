"""How a run is watched: console, metrics, goodput, profiles, watchdog. Nothing here changes what is computed."""
