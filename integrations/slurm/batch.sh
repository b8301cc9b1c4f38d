#!/bin/sh
#SBATCH --nodes=1
# Checks each node of an allocation once before it starts anything, for sites without a TaskProlog:
#   IMGCHECK_IMAGE=$PWD/app.sif sbatch batch.sh apptainer exec --nv app.sif python train.py
#   IMGCHECK_INCOMPATIBLE=requeue tries other nodes where slurm.conf has RequeueExit=43
IMGCHECK=${IMGCHECK:-/opt/imgcheck/bin/imgcheck}
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 "$IMGCHECK" preflight "$IMGCHECK_IMAGE" \
  ${IMGCHECK_RUNTIME:+"--runtime=$IMGCHECK_RUNTIME"} --scheduler slurm-batch \
  ${IMGCHECK_INCOMPATIBLE:+"--incompatible=$IMGCHECK_INCOMPATIBLE"}
case $? in 42) exit 42 ;; 43) exit 43 ;; esac
exec srun "$@"
