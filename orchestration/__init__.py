"""The command `sesame`: it reads and checks recipes, starts the jobs, tracks them and reports on them.

Read cli/ (the verbs and their options), config/ (recipes, clusters and corpora) and jobs/ (the stages of a verb), then
planning/ (estimates), launch/ (Ray), tracking/ (MLflow), reports/ (tables and pages) and terminal/ (output). figures.py
draws, progress.py defines how jobs report progress, environment.py sets the variables of a cluster file, and version.py
has the name on a package index. recipes/, corpora/, tasks/ and clusters/ have YAML files only; clusters/start/ has
scripts that start a cluster. sesame.py, beside this directory, is the Python interface to the same jobs.

This package imports all others, and none of them imports it. pyproject.toml defines which of its directories may import
which library.
"""
