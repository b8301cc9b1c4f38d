"""What a job's owner reads, also where the image has been made to say something else."""

HOSTILE = '/usr/bin/a\nexport LD_PRELOAD=/evil.so\n\x1b[2J{line}"\\'


def test_a_path_of_the_image_cannot_change_the_environment_of_the_job(place, capsys):
    image = place.image(path=HOSTILE)
    assert place.preflight(image, "--host", place.host(), "--scheduler", "slurm-task") == 42
    said = capsys.readouterr().out
    assert "LD_PRELOAD" in said
    assert all(line.startswith("print ") for line in said.split("\n")[:-1])
    assert said.replace("\n", "").isprintable()


def test_a_path_of_the_image_cannot_end_the_string_of_a_class_ad(place, capsys):
    place.preflight(place.image(path=HOSTILE), "--host", place.host(), "--scheduler", "htcondor")
    (message,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("HookStatusMessage")]
    text = message.removeprefix('HookStatusMessage = "').removesuffix('"').replace("\\\\", "").replace('\\"', "")
    assert '"' not in text
    assert "\\" not in text


def test_the_reason_is_short(place, capsys):
    place.preflight(place.image(path="/" + "x" * 5000), "--host", place.host(), "--scheduler", "slurm-task")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 20
    assert max(map(len, lines)) < 520


def test_all_is_well_in_one_line(place, capsys):
    assert place.preflight(place.image(), "--host", place.host("skylake_avx512"), "--runtime", "apptainer") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("under apptainer")


def test_what_is_undecided_says_why(place, capsys):
    assert place.preflight(place.image(answer="unknown"), "--host", place.host(), "--runtime", "apptainer") == 3
    assert "CPU002" in capsys.readouterr().out


def test_the_command_decides_what_is_reached(place, capsys):
    image = place.image(path="/opt/tools/unused")
    host = place.host()
    assert place.preflight(image, "--host", host, "--runtime", "apptainer") == 1
    assert place.preflight(image, "--host", host, "--runtime", "apptainer", "--", "/usr/bin/true") == 0
