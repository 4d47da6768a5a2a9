"""The carrier of a Slurm cluster: `srun` on the login node starts the agent in an allocation of its own.

One allocation is one connection: everything that a command or the window runs over it happens on its node, and closing
it gives the node back. The texts of srun and slurmstepd are those of Slurm's sources (github.com/SchedMD/slurm:
src/api/allocate.c, src/slurmd/slurmstepd/req.c, src/common/slurm_errno.c), the options those of srun(1) and squeue(1).
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from app.hosts.address import Address
from app.hosts.carriers import Carrier, Failure, for_any_shell, shell_carrier, ssh_carrier
from app.plain import one_line

_MARK = "variantscope-queue"
"""Begins a line of the login node about the queue: job, partition, reason, expected start, place, number of jobs."""
_LOOK_S = 10
"""How often the login node asks squeue for the place of a job that waits."""

_SRUN = ("srun", "--ntasks=1", "--nodes=1", "--export=ALL", "--mpi=none", '--job-name="$name"')
"""Not `--unbuffered`, which gives the task a terminal: srun passes on whole lines, and the agent flushes each."""

_LOGIN_SCRIPT = """\
unset SLURM_LABELIO SLURM_UNBUFFEREDIO SLURM_STDINMODE SLURM_STDOUTMODE SLURM_STDERRMODE SLURM_DEBUG
command -v srun >/dev/null 2>&1 || . /etc/profile >/dev/null 2>&1
command -v srun >/dev/null 2>&1 || {{ echo '{mark} no srun' >&2; exit 127; }}
user=$(id -un) name=variantscope-$$-$(date +%s)
exec 3<&0 </dev/null
own_job() {{ squeue --noheader --user="$user" --name="$name" --format="$1" 2>/dev/null; }}
end() {{
  trap '' HUP INT TERM USR1
  kill -TERM 0
  exit $1
}}
give_up() {{
  trap '' HUP INT TERM USR1
  kill -TERM $srun 2>/dev/null
  scancel --user="$user" --name="$name" >/dev/null 2>&1
  wait $srun
  end 143
}}
stdin_closed() {{
  woken=1
  state=$(own_job %T)
  [ -n "$state" ] || {{ sleep 2; state=$(own_job %T); }}
  case $state in
    PENDING|CONFIGURING) give_up ;;
    '') ! kill -0 $srun 2>/dev/null || give_up ;;
  esac
}}
show_queue() {{
  while :; do
    job=$(own_job '%T|%i|%P|%r|%S')
    case $job in
      '') sleep 1; continue ;;
      PENDING*) ;;
      CONFIGURING*) echo "{mark} configuring" >&2; sleep {look_s}; continue ;;
      *) return ;;
    esac
    job=${{job#*|}}
    partition=${{job#*|}}
    partition=${{partition%%|*}}
    pending=$(squeue --noheader --states=PD --partition="$partition" --priority --sort=-p,i --format=%i 2>/dev/null)
    count=0 place=
    for other in $pending; do
      count=$((count + 1))
      [ "$other" != "${{job%%|*}}" ] || place=$count
    done
    echo "{mark} $job|$place|$count" >&2
    sleep {look_s}
  done
}}
folder=$(mktemp -d) && mkfifo "$folder/orders" || exit 1
trap : USR1
{{ cat <&3 >"$folder/orders"; kill -USR1 $$; }} 2>/dev/null &
exec 3<&- 4<"$folder/orders"
rm -r "$folder"
{srun} sh -c {script} <&4 4<&- &
srun=$!
exec 4<&-
trap give_up HUP INT TERM
trap stdin_closed USR1
show_queue &
while :; do
  woken=
  wait $srun
  status=$?
  [ -n "$woken" ] || end $status
done
"""
"""Runs on the login node. A job that waits does not read stdin: `cat` does, so that its end cancels the job.

It leads its process group, as sshd and `app.hosts.channel` start it: the group ends with it.
"""


def slurm_carrier(address: Address) -> Carrier:
    """Return the carrier of a node that Slurm allocates; without a host, Slurm is that of this machine."""
    if not address.host:
        return replace(
            shell_carrier(address),
            # In a session of its own, for who gives up kills the command's: the script has the job to cancel then.
            prefix=("setsid", "--wait", "sh", "-c"),
            failures=SLURM_FAILURES,
            waiting=describe_wait,
            wrap=lambda script: login_script(address, script),
        )
    return replace(
        ssh_carrier(address, SLURM_FAILURES, describe_wait),
        wrap=lambda script: for_any_shell(login_script(address, script)),
    )


def login_script(address: Address, script: str) -> str:
    """Return the script of the login node, which has srun run the agent's script on the node that it gets."""
    options = [f"--{name}={shlex.quote(value)}" for name, value in address.options]
    # Within an allocation srun makes a step of it, which would wait for the processors of the step that asks.
    words = (*_SRUN, *options, "${SLURM_JOB_ID:+--overlap}")
    return _LOGIN_SCRIPT.format(mark=_MARK, srun=" ".join(words), script=shlex.quote(script), look_s=_LOOK_S)


def describe_wait(line: str) -> str | None:
    """Return what a line of stderr says about the wait for an allocation; None if it says nothing of it."""
    if match := re.fullmatch(r"srun: job (\d+) queued and waiting for resources\s*", line):
        return f"Slurm has queued job {match[1]}; it waits for a node."
    if match := re.fullmatch(r"srun: job (\d+) has been allocated resources\s*", line):
        return f"Slurm has allocated a node to job {match[1]}; the agent starts there."
    mark, _, status = line.strip().partition(" ")
    if mark != _MARK or status == "no srun":
        return None
    if status == "configuring":
        return "Slurm has allocated a node, which is being made ready."
    parts = status.split("|")
    return _describe_place(parts) if len(parts) == 6 else None


def _describe_place(fields: Sequence[str]) -> str:
    job, partition, reason, start, position, count = (one_line(text, 60) for text in fields)
    where = f"place {position} of {count}" if position else "its place is unknown"
    expected = f"; expected to start at {start.replace('T', ' ')} there" if start[:1].isdigit() else ""
    why = f" ({reason})" if reason and reason != "None" else ""
    return f"Job {job} waits in the queue of Slurm's partition {partition}: {where}{why}{expected}."


_STEP = r"\*\*\* (?:JOB|STEP) (?P<job>\d+)\S* ON (?P<node>\S+) CANCELLED AT \S+"
_DENIED = r"Unable to (?:allocate resources|create step for job \d+): "
_ASK = "in the address"

SLURM_FAILURES = (
    Failure(
        rf"{_STEP} DUE TO TIME LIMIT",
        f"Job {{job}} on {{node}} reached its time limit, and Slurm ended it: ask for more by time=MINUTES {_ASK}.",
    ),
    Failure(
        rf"{_STEP} DUE TO PREEMPTION",
        "Job {job} on {node} was preempted: Slurm gave its node to a job of higher priority. Run again, or in a"
        " partition or QOS whose jobs are not preempted.",
    ),
    Failure(
        rf"{_STEP} DUE TO NODE FAILURE",
        "Node {node} failed, and Slurm ended job {job}: run again; nodelist= in the address names another node.",
    ),
    Failure(
        r"error: Node failure on (?P<node>\S+)",
        "Node {node} failed, and Slurm ended the job: run again; nodelist= in the address names another node.",
    ),
    Failure(
        rf"{_STEP} DUE TO JOB REQUEUE", "Slurm put job {job} on {node} back into its queue, and so ended it: run again."
    ),
    Failure(
        r"Detected \d+ oom[-_]kill event|error: .*: Out Of Memory\s*$",
        f"The job had no memory left, and Slurm killed what ran in it: ask for more {_ASK}, as mem=32G.",
    ),
    Failure(rf"{_STEP}", "Job {job} on {node} was cancelled by scancel or an administrator."),
    Failure(
        r"Job has been cancelled|Job allocation (?:\d+ )?has been revoked|Force Terminated",
        "The job was cancelled by scancel or an administrator before it ran.",
    ),
    Failure(
        rf"^{_MARK} no srun",
        "{label} has no srun: name a login node of the cluster, or have your shell there find srun without a login.",
    ),
    Failure(
        rf"{_DENIED}Requested (?:node|partition) configuration (?:is )?not available",
        "The cluster of {label} has no node with such GPUs, processors and memory in that partition;"
        " `sinfo -o '%P %G %c %m'` there shows what it has.",
    ),
    Failure(
        rf"{_DENIED}.*\(gres\) specification|Invalid (?:--gres|--gpus|generic resource)|Invalid TRES specification",
        "The cluster of {label} knows no such GPUs; `sinfo -o '%P %G'` there shows what gres= may ask for.",
    ),
    Failure(
        rf"{_DENIED}(?:Invalid partition name|No partition specified)|[Ii]nvalid partition specified",
        "The cluster of {label} has no such partition, or no default one; `sinfo -s` there lists them for partition=.",
    ),
    Failure(
        rf"{_DENIED}Invalid account",
        "You have no such account on {label}, or not in that partition; `sacctmgr show associations user=$USER` there"
        " lists yours for account=.",
    ),
    Failure(
        rf"{_DENIED}(?P<why>.*(?:time limit|QOS policy).*?)\.?\s*$",
        "Slurm on {label} does not accept the job: {why}; ask for less time, or fewer GPUs or jobs.",
    ),
    Failure(
        rf"{_DENIED}.*Unable to contact slurm controller",
        "Slurm on {label} does not answer; try again later, or ask the cluster's administrator.",
    ),
    Failure(rf"{_DENIED}(?P<why>.*?)\.?\s*$", "Slurm on {label} does not accept the job: {why}."),
    Failure(
        r"srun: (?:error: |fatal: )?(?P<why>Invalid .*|unrecognized option .*|.*invalid option .*?)\.?\s*$",
        f"srun on {{label}} does not accept an option {_ASK}: {{why}}.",
    ),
)
"""What Slurm's errors mean, the first that fits counts."""
