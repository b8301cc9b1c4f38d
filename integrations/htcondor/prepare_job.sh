#!/bin/sh
# HTCondor prepare-job hook: holds a job whose image cannot run on this machine, with the reason in condor_q -hold.
#   IMGCHECK_HOOK_PREPARE_JOB = /opt/imgcheck/htcondor/prepare_job.sh
#   STARTER_DEFAULT_JOB_HOOK_KEYWORD = IMGCHECK
#   job: container_image = /shared/app.sif; or My.ImgcheckImage = "/shared/app.json", My.ImgcheckRuntime = "docker",
#        My.ImgcheckIncompatible = "requeue"
IMGCHECK=${IMGCHECK:-/opt/imgcheck/bin/imgcheck}
ad=$(cat)
# The ad comes in the old syntax: the case of a name does not count, and in a string only quotes are escaped (HTCondor
# manual, "HTCondor's ClassAd Mechanism").
attribute() { printf '%s\n' "$ad" | sed -n '/^'"$1"' = ".*"$/I{s/^[^"]*"\(.*\)"$/\1/;s/\\"/"/g;p;q}'; }
for name in ImgcheckImage ContainerImage SingularityImage; do
  image=$(attribute $name)
  [ -z "$image" ] || break
done
# A name that begins with "-" would be an option of imgcheck.
case $image in "" | -* | docker://*) exit 0 ;; esac
runtime=$(attribute ImgcheckRuntime)
incompatible=$(attribute ImgcheckIncompatible)
"$IMGCHECK" preflight "$image" --scheduler htcondor ${runtime:+"--runtime=$runtime"} \
  ${incompatible:+"--incompatible=$incompatible"}
exit 0
