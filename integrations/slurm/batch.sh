#!/bin/sh
#SBATCH --nodes=1
# Checks each node of an allocation once before it starts anything, for sites without a TaskProlog:
#   IMGCHECK_IMAGE=$PWD/app.sif sbatch batch.sh apptainer exec --nv app.sif python train.py
#   IMGCHECK_INCOMPATIBLE=requeue tries other nodes where slurm.conf has RequeueExit=43
IMGCHECK=${IMGCHECK:-/opt/imgcheck/bin/imgcheck}
# On each node other statuses become 0: srun tells the highest, and that of a node without imgcheck hides a refusal.
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
  /bin/sh -c '"$@"; case $? in 42) exit 42 ;; 43) exit 43 ;; *) exit 0 ;; esac' sh "$IMGCHECK" preflight "$IMGCHECK_IMAGE" \
  ${IMGCHECK_RUNTIME:+"--runtime=$IMGCHECK_RUNTIME"} --scheduler slurm-batch \
  ${IMGCHECK_INCOMPATIBLE:+"--incompatible=$IMGCHECK_INCOMPATIBLE"}
case $? in 42) exit 42 ;; 43) exit 43 ;; esac
exec srun "$@"
