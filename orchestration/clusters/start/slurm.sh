#!/bin/bash
# Training under Slurm: starts a Ray cluster for this job on all its machines, and ends it with the job. Run it in the
# checkout:
#   sbatch --nodes=8 orchestration/clusters/start/slurm.sh run bert_base --cluster 64xa100 --data TEXT --output-dir DIR
# The arguments after the name of the script are a command of `sesame`; its cluster file has `ray_address: auto`. Five
# minutes before its time limit, the job writes a checkpoint, is requeued and resumes. All machines see this directory,
# TEXT and DIR. Ray's ports are open to the network of the machines, and require a token that only this job has.
#SBATCH --job-name=sesame
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?is set by sbatch}"
export PATH="$PWD/.venv/bin:$PATH"
export RAY_AUTH_MODE=token RAY_worker_niceness=0 RAY_USAGE_STATS_ENABLED=0 RAY_TMPDIR="/tmp/sesame-$SLURM_JOB_ID"
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}" # since Slurm 22.05, the default of srun is one core per step
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))') # steps inherit it from the environment
export RAY_AUTH_TOKEN

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
rays=()
ray_on() { # NODE ARGUMENTS: start Ray on one machine, as a step that lasts until the job ends
    local node=$1
    shift
    srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" \
        ray start --block --disable-usage-stats --dashboard-agent-listen-port=0 "$@" &
    rays+=("$!")
}
end() {
    kill "${rays[@]}" 2>/dev/null || true
    wait "${rays[@]}" 2>/dev/null || true
}
trap end EXIT

addresses=$(srun --overlap --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" hostname --all-ip-addresses)
head=
for address in $addresses; do # the first address that other machines can reach: not loopback, not IPv6
    case $address in 127.* | *:*) ;; *) head=$address && break ;; esac
done
[ "$head" ] || { echo "slurm.sh: ${nodes[0]} has no IPv4 address that others reach" >&2; exit 4; }
export RAY_ADDRESS="$head:$((20000 + SLURM_JOB_ID % 10000))"
ray_on "${nodes[0]}" --head --node-ip-address="$head" --port="${RAY_ADDRESS##*:}" --include-dashboard=false
are_there() { # whether Ray has at least this number of machines
    timeout 60 python -c "import ray, sys; ray.init(logging_level='ERROR')
sys.exit(sum(node['Alive'] for node in ray.nodes()) < $1)" &>/dev/null
}
for ((number = 1; number <= ${#nodes[@]}; number++)); do # the head first, because the others connect to it
    for ((second = 0; second < 300; second += 5)); do
        are_there "$number" && break
        sleep 5
    done
    are_there "$number" || { echo "slurm.sh: Ray does not start on ${nodes[number - 1]}" >&2; exit 4; }
    if ((number < ${#nodes[@]})); then ray_on "${nodes[number]}" --address="$RAY_ADDRESS"; fi
done

sesame "$@" &
training=$! asked=
trap 'asked=yes; kill -TERM "$training" 2>/dev/null || true' TERM
code=0
wait "$training" || code=$?
if [ "$asked" ]; then # the signal ended `wait`, but the training is still writing a checkpoint
    code=0
    wait "$training" || code=$?
fi
if [ "$code" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
