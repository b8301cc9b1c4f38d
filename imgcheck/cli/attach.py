"""`imgcheck attach`: an image's profile, or its Node Feature Discovery spec, kept beside it in the registry."""

from collections.abc import Sequence

from imgcheck.cli import OK, note, options
from imgcheck.cli.reference import profile_of
from imgcheck.knowledge import Knowledge
from imgcheck.report.text import safe

_EXAMPLES = """
imgcheck attach registry.example/team/app:1.2
imgcheck image registry.example/team/app:1.2 --trust-attached --host-probe
imgcheck attach registry.example/team/app:1.2 --nfd
"""


def run(arguments: Sequence[str]) -> int:
    from imgcheck.attach.push import attach

    parser = options.parser("attach", "Pushes what is known of an image to its registry, as its referrer.", _EXAMPLES)
    parser.add_argument("reference", metavar="REF", help="NAME[:TAG][@DIGEST] of an image in a registry")
    parser.add_argument("--nfd", action="store_true", help="attach a spec for `nfd compat validate-node` instead")
    options.add_source_options(parser)
    options.add_cache_options(parser)
    options.add_rules_option(parser)
    options.add_quiet_option(parser)
    parsed = parser.parse_args(arguments)
    options.refuse_unless_registry(parsed.reference)
    knowledge = Knowledge(tuple(parsed.rules))
    profile = profile_of(parsed, knowledge)
    if parsed.nfd:
        from imgcheck.attach.nfd import artifact_of, spec_of

        spec = spec_of(profile, knowledge)
        for limit in spec.limits:
            note(limit)
        artifact = artifact_of(spec)
    else:
        from imgcheck.attach.profile import artifact_of as profile_artifact

        artifact = profile_artifact(profile)
    place = attach(parsed.reference, profile.manifest_digest, artifact, options.source_options(parsed, knowledge))
    print(safe(place))
    return OK
