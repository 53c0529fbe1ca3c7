"""The command `sesame`: reads and checks recipes, starts jobs, tracks them and reports results.

Read cli/ (a file for each verb), config/ (recipes, clusters and corpora) and jobs/ (the stages of a verb), then launch/
(Ray), tracking/ (MLflow), planning/ (cost estimates), reports/ (tables, cards) and terminal/ (output). figures.py draws
plots, progress.py defines progress events, version.py returns the version, environment.py handles the variables of a
cluster file. recipes/, corpora/, clusters/ and tasks/ contain YAML only; clusters/start/ has scripts that start a
cluster. sesame.py, beside this directory, is the Python interface to the same jobs.

This package imports all others, and none imports it. pyproject.toml lists the packages that each of its directories may
import.
"""
