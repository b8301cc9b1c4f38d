#!/bin/sh
# Slurm Prolog: leaves in the node's system log whether the job's image fits, and never fails. Any status but 0 would
# drain the node and hold the job, whatever the cause; what stops jobs is the TaskProlog.
#   slurm.conf: Prolog=/opt/imgcheck/slurm/prolog.sh
#   job:        sbatch --comment=imgcheck:/shared/app.sif (a Prolog does not see the job's environment)
# It runs as root: it reads a profile beside the image and analyses nothing.
IMGCHECK=${IMGCHECK:-/opt/imgcheck/bin/imgcheck}
case $SLURM_JOB_COMMENT in
  imgcheck:/*)
    said=$("$IMGCHECK" preflight "${SLURM_JOB_COMMENT#imgcheck:}" --scheduler slurm-prolog --on-missing pass 2>&1)
    /usr/bin/logger -t imgcheck "job $SLURM_JOB_ID: $said" 2>/dev/null
    ;;
esac
exit 0
