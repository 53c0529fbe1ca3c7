"""The command `sesame`: it reads and checks recipes, starts the jobs, tracks them and reports on them.

Read cli.py (the verbs; options.py has what they take), config/ (recipes, clusters and corpora) and jobs/ (the stages of
a verb), then launch/ (Ray), tracking/ (MLflow), reports/ (what is written for people) and terminal/ (what a terminal
shows). figures.py draws, progress.py is how jobs report, version.py knows the name on a package index; recipes/,
corpora/ and clusters/ hold YAML only, clusters/start/ what starts a cluster. sesame.py, beside this folder, is the same
jobs for Python. environment.py knows which variables of a cluster file may be written down.

It is the highest floor: it imports all others, and none imports it. pyproject.toml says which of its folders may import
which package.
"""
