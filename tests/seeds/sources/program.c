/* The command of an image: calls its framework. */
#include <stdio.h>

extern float framework_run(void);

int main(void) {
  printf("%g\n", framework_run());
  return 0;
}
