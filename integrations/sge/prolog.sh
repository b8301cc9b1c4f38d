#!/bin/sh
# Grid Engine prolog: puts a job whose image cannot run on this host into its error state before it starts.
#   queue_conf or sge_conf: prolog /opt/imgcheck/sge/prolog.sh
#   job: qsub -v IMGCHECK_IMAGE=/shared/app.sif,IMGCHECK_RUNTIME=apptainer-nv; IMGCHECK_INCOMPATIBLE=requeue tries again
IMGCHECK=${IMGCHECK:-/opt/imgcheck/bin/imgcheck}
# A name that begins with "-" would be an option of imgcheck.
case $IMGCHECK_IMAGE in "" | -*) exit 0 ;; esac
"$IMGCHECK" preflight "$IMGCHECK_IMAGE" --scheduler sge ${IMGCHECK_RUNTIME:+"--runtime=$IMGCHECK_RUNTIME"} \
  ${IMGCHECK_INCOMPATIBLE:+"--incompatible=$IMGCHECK_INCOMPATIBLE"}
# Anything but 0, 99 and 100 would close the queue on this host.
case $? in 99) exit 99 ;; 100) exit 100 ;; *) exit 0 ;; esac
