"""Small images with real programs, built for this CPU or that."""

from pathlib import Path

from tests.images import ImageBuilder
from tests.tools import compile_c

_SOURCE = """
#include <stdio.h>
#define KERNEL(n) __attribute__((noinline)) void kernel_##n(float *a, const float *b) { \\
  for (int i = 0; i < 4096; i++) a[i] = a[i] * b[i] + n##.5f; }
KERNEL(1) KERNEL(2) KERNEL(3) KERNEL(4) KERNEL(5) KERNEL(6) KERNEL(7) KERNEL(8)
static float a[4096], b[4096];
int main(void) {
  kernel_1(a, b); kernel_2(a, b); kernel_3(a, b); kernel_4(a, b);
  kernel_5(a, b); kernel_6(a, b); kernel_7(a, b); kernel_8(a, b);
  printf("%f\\n", a[7]);
  return 0;
}
"""


def program(march: str) -> Path:
    """A static program whose loops were compiled for `march`."""
    return compile_c(_SOURCE, "-O3", "-static", f"-march={march}", "-mprefer-vector-width=512", out="solver")


def layout(directory: Path, march: str) -> Path:
    """An OCI layout, tag `latest`, whose command is the program."""
    image = ImageBuilder(entrypoint=("/opt/app/solver",))
    return image.layer({"opt/app/solver": program(march)}, "COPY solver /opt/app/solver").write(directory)
