#!/bin/sh
# LSF PRE_EXEC: ends a job whose image cannot run on this host before it starts. LSF discards what is printed here, so
# the reason is posted to the job (bread JOBID shows it).
#   lsb.applications or lsb.queues: PRE_EXEC = /opt/imgcheck/lsf/pre_exec.sh (see lsb.applications beside this file)
#   job: the application's PRE_EXEC names the image, or bsub -env "all, IMGCHECK_IMAGE=/shared/app.sif"
IMGCHECK=${IMGCHECK:-/opt/imgcheck/bin/imgcheck}
image=${IMGCHECK_IMAGE:-$LSB_CONTAINER_IMAGE}
# A name that begins with "-" would be an option of imgcheck.
case $image in "" | -*) exit 0 ;; esac
said=$("$IMGCHECK" preflight "$image" --scheduler lsf ${IMGCHECK_RUNTIME:+"--runtime=$IMGCHECK_RUNTIME"} \
  ${IMGCHECK_INCOMPATIBLE:+"--incompatible=$IMGCHECK_INCOMPATIBLE"} 2>&1)
status=$?
# A job that fits needs no message, and a master host that does not answer shall not hold the others.
case $said in
  "imgcheck: compatible: "*) ;;
  *) timeout -s KILL 10 "${LSF_BINDIR:-/nonexistent}/bpost" -d "$(printf %s "$said" | head -c 500)" "$LSB_JOBID" \
    >/dev/null 2>&1 ;;
esac
# 99 ends the job, 43 sends it elsewhere; any other failure would queue it again and again.
case $status in 99 | 43) exit "$status" ;; *) exit 0 ;; esac
