#!/bin/sh
# Slurm TaskProlog: stops a job whose image cannot run on this node, before its program starts.
#   slurm.conf: TaskProlog=/opt/imgcheck/slurm/task_prolog.sh
#   job:        export IMGCHECK_IMAGE=$PWD/app.sif, and if need be IMGCHECK_RUNTIME=apptainer-nv;
#               IMGCHECK_INCOMPATIBLE=requeue tries another node where slurm.conf has RequeueExit=43
IMGCHECK=${IMGCHECK:-/opt/imgcheck/bin/imgcheck}
# A name that begins with "-" would be an option of imgcheck.
case $IMGCHECK_IMAGE in "" | -*) exit 0 ;; esac
"$IMGCHECK" preflight "$IMGCHECK_IMAGE" --scheduler slurm-task ${IMGCHECK_RUNTIME:+"--runtime=$IMGCHECK_RUNTIME"} \
  ${IMGCHECK_INCOMPATIBLE:+"--incompatible=$IMGCHECK_INCOMPATIBLE"}
# Only these two say that the image does not fit: a missing or broken imgcheck must not cost a job.
case $? in 42) exit 42 ;; 43) exit 43 ;; *) exit 0 ;; esac
