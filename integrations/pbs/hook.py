"""PBS hook: deletes a job whose image cannot run on this node before it starts there, or sends it back to the queue.

    qmgr -c "create hook imgcheck event=execjob_begin,alarm=120,fail_action=none"
    qmgr -c "import hook imgcheck application/x-python default hook.py"

A job names its image: qsub -v IMGCHECK_IMAGE=/shared/app.sif,IMGCHECK_RUNTIME=apptainer-nv; with
IMGCHECK_INCOMPATIBLE=requeue it tries another node. The hook runs as root: it reads profiles and analyses no image.
"""

import subprocess

import pbs

IMGCHECK = "/opt/imgcheck/bin/imgcheck"
IMAGES = ("/", "oci:", "oci-archive:", "docker-archive:", "dir:", "sif:")
"""What an image here begins with: what the user names is passed to root's command, where "-" begins an option."""
OPTIONS = (("IMGCHECK_RUNTIME", "--runtime"), ("IMGCHECK_INCOMPATIBLE", "--incompatible"))


def preflight(variables):
    """Exit status and words of imgcheck; 0 where there is nothing to check or it cannot be done."""
    image = variables.get("IMGCHECK_IMAGE") or ""
    if not image.startswith(IMAGES):
        return 0, ""
    command = [IMGCHECK, "preflight", image, "--scheduler", "pbs", "--on-missing", "pass", "--timeout", "60"]
    for name, option in OPTIONS:
        if variables.get(name):
            command.append(f"{option}={variables.get(name)}")
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=90)
    except Exception:  # an exception in a hook would queue the job again
        return 0, ""
    return done.returncode, done.stdout.strip()


event = pbs.event()
status, said = preflight(event.job.Variable_List or {})
if status == 42:
    event.job.delete()
    event.reject(said)
elif status == 43:
    event.reject(said)
else:
    event.accept()
