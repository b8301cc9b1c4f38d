"""Feeds the readers anything, guided by coverage: `python -m tests.convert.fuzz READER SECONDS [CORPUS]`.

Needs atheris (PyPI). READER is one of tests.convert.readers.READERS. Ends with a message and a saved input where a
reader raises anything but ImgcheckError, takes 10 seconds over one input, or 2 GiB of memory.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["imgcheck"]):
    from imgcheck.errors import ImgcheckError
    from tests.convert.readers import READERS, seeds


def main() -> None:
    name, seconds, *kept = sys.argv[1:]
    reader = READERS[name]

    def one(data: bytes) -> None:
        try:
            reader(data)
        except ImgcheckError:
            return

    with tempfile.TemporaryDirectory() as work:
        corpus = Path(kept[0]) if kept else Path(work) / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds(Path(work))[name]):
            (corpus / f"seed{number}").write_bytes(seed)
        limits = (f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=65536")
        atheris.Setup([sys.argv[0], str(corpus), *limits], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
