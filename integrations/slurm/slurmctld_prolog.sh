#!/bin/sh
# Slurm PrologSlurmctld: sends a batch job back to the queue when its image does not fit the nodes it was given. The
# controller cannot probe them: $HOSTS holds a file of each, made there with `imgcheck probe -o %h.json`, or one of each
# kind of node, made of those with `imgcheck hosts --write`.
#   slurm.conf: PrologSlurmctld=/opt/imgcheck/slurm/slurmctld_prolog.sh
#   job:        sbatch --comment=imgcheck:/shared/app.sif
# Slurm cannot be told to cancel a batch job from here, and may choose the same nodes again: use it where nodes of
# several kinds share a partition. Jobs of srun and salloc are cancelled. What was found is in the system log.
IMGCHECK=${IMGCHECK:-/opt/imgcheck/bin/imgcheck}
HOSTS=${HOSTS:-/etc/imgcheck/hosts}
case $SLURM_JOB_COMMENT in imgcheck:/*) image=${SLURM_JOB_COMMENT#imgcheck:} ;; *) exit 0 ;; esac
say() {
  echo "$1"
  /usr/bin/logger -t imgcheck "job $SLURM_JOB_ID: $1" 2>/dev/null
}
# One file of each kind among the nodes, and lines on nodes without one or on why there is none.
found=$("$IMGCHECK" hosts "$HOSTS" --nodes "$SLURM_JOB_NODELIST" 2>&1)
while IFS= read -r line; do
  case $line in
    /*.json) said=$("$IMGCHECK" preflight "$image" --scheduler slurmctld --on-missing pass --host "$line" 2>&1) ;;
    *) say "$line"; continue ;;
  esac
  status=$?
  say "$said"
  case $status in 42 | 43) exit 1 ;; esac
done <<END
$found
END
exit 0
