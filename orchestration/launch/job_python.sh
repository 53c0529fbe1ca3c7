# Run `python -m sesame` with the arguments, in a job of Ray, with a Python that has the packages of Sesame.
#
# Ray starts the command of a job with the PATH of the shell in which the node was started. If that was
# `.venv/bin/ray start`, `python` on this PATH is another Python. So the Python of Ray's own workers is tried first: the
# parent of the parent of this shell is the raylet, whose command line names it. SESAME_PYTHON takes precedence.
raylet=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$PPID/status" 2>/dev/null)
# Ray puts the path in double quotes if it contains a space
of_ray=$(tr '\0' '\n' 2>/dev/null <"/proc/$raylet/cmdline" |
    sed -n 's/^--python_worker_command=\("\([^"]*\)"\|\([^" ]*\)\) .*/\2\3/p')
tried=""
for python in "$SESAME_PYTHON" "$of_ray" python python3; do
    path=$(command -v "$python" 2>/dev/null) || continue
    case " $tried" in *" $path,"*) continue ;; esac
    if "$path" -c 'import sys; from importlib.util import find_spec; sys.exit(any(not find_spec(name) for name in ("ray", "torch", "typer")))' 2>/dev/null; then
        echo "job: $path, $("$path" -c 'import platform; print("Python", platform.python_version())')" >&2
        exec "$path" -m sesame "$@"
    fi
    tried="$tried $path,"
done
echo "sesame: this node has no Python with the packages of Sesame: tried${tried%,}; install Sesame there, start Ray from" \
    "its environment (.venv/bin/ray start), or set SESAME_PYTHON on the node" >&2
exit 4
