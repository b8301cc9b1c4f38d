"""Small roots with real ELF files, made by gcc: libraries and programs that do nothing but be linked."""

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from imgcheck.documents.image import ImageProfile
from imgcheck.profile.build import build_profile
from imgcheck.progress import SILENT
from imgcheck.sources.open import open_image

INTERPRETER = "/lib64/ld-linux-x86-64.so.2"
_LIBC = "/lib/x86_64-linux-gnu/libc.so.6"


class Root:
    """A directory that becomes the file system of a container."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "etc").mkdir(parents=True)
        for file in (INTERPRETER, _LIBC, "/usr/bin/env"):
            self._copy(file)

    def _copy(self, file: str) -> None:
        place = self.at(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(file).resolve(), place)

    def at(self, path: str) -> Path:
        return self.path / path.lstrip("/")

    def write(self, path: str, text: str) -> None:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_text(text)

    def link(self, path: str, target: str) -> None:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).symlink_to(target)

    def library(
        self,
        path: str,
        needs: Iterable[str] = (),
        flags: Sequence[str] = (),
        soname: str | None = None,
        versions: Sequence[str] = (),
        compiler: str = "gcc",
    ) -> None:
        """A library at `path` whose soname is its file name unless given ("" for none)."""
        name = Path(path).name
        soname = name if soname is None else soname
        symbol = "f_" + "".join(c if c.isalnum() else "_" for c in (soname or name))
        extra = [f"-Wl,-soname,{soname}"] if soname else []
        if versions:
            script = self.at(path).with_suffix(".map")
            self.write(str(script.relative_to(self.path)), "".join(_node(symbol, v, i) for i, v in enumerate(versions)))
            extra.append(f"-Wl,--version-script={script}")
        aliases = "".join(_alias(symbol, version, version == versions[-1]) for version in versions)
        code = aliases or f"void {symbol}(void){{}}"
        self._compile(compiler, path, code, ["-shared", "-fPIC", "-nostdlib", *extra, *flags], needs)

    def program(self, path: str, needs: Iterable[str] = (), flags: Sequence[str] = (), code: str = "") -> None:
        self._compile("gcc", path, code or "int main(void){return 0;}", list(flags), needs)

    def _compile(self, compiler: str, path: str, code: str, flags: list[str], needs: Iterable[str]) -> None:
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        libraries = ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", *(str(self.at(need)) for need in needs)]
        subprocess.run(
            [compiler, "-x", "c", "-", "-o", str(place), *flags, "-x", "none", *libraries],
            input=code, text=True, check=True, capture_output=True,
        )  # fmt: skip

    def profile(self) -> ImageProfile:
        """What imgcheck makes of it."""
        with open_image(f"dir:{self.path}") as image:
            return build_profile(image, SILENT)

    def ldconfig(self) -> None:
        subprocess.run(["/sbin/ldconfig", "-r", str(self.path)], check=True, capture_output=True)


def _alias(symbol: str, version: str, default: bool) -> str:
    own = f"{symbol}_{version}"
    return f'__asm__(".symver {own},{symbol}@{"@" if default else ""}{version}");void {own}(void){{}}'


def _node(symbol: str, version: str, index: int) -> str:
    return f"{version} {{ global: {symbol if index == 0 else 'none_' + str(index)}; }};\n"
