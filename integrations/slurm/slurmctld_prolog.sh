#!/bin/sh
# Slurm PrologSlurmctld: sends a batch job back to the queue when its image does not fit the nodes it was given. The
# controller cannot probe them: each kind of node is described by a file made there with `imgcheck probe -o`.
#   slurm.conf: PrologSlurmctld=/opt/imgcheck/slurm/slurmctld_prolog.sh
#   job:        sbatch --comment=imgcheck:/shared/app.sif
# Slurm cannot be told to cancel a batch job from here, and may choose the same nodes again: use it where nodes of
# several kinds share a partition. Jobs of srun and salloc are cancelled.
IMGCHECK=${IMGCHECK:-/opt/imgcheck/bin/imgcheck}
HOSTS=${HOSTS:-/etc/imgcheck/hosts}
first=${SLURM_JOB_NODELIST%%,*}     # node[01-04] and node1,node2 are of one kind: the first name's file is theirs
case $SLURM_JOB_COMMENT in
  imgcheck:/*)
    "$IMGCHECK" preflight "${SLURM_JOB_COMMENT#imgcheck:}" --scheduler slurmctld --on-missing pass \
      --host "$HOSTS/${first%%\[*}.json"
    case $? in 42 | 43) exit 1 ;; esac
    ;;
esac
exit 0
