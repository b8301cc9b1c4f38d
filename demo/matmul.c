/* A program of the demo image: multiplies two matrices and prints the trace. It brings its own start and needs no
 * library, so that the image stays small enough to be kept in the repository. */
#define SIZE 64

static float left[SIZE][SIZE], right[SIZE][SIZE], product[SIZE][SIZE];

static long system_call(long number, long first, const void *second, long third) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third)
                   : "rcx", "r11", "memory");
  return result;
}

static void fill(void) {
  for (int row = 0; row < SIZE; row++)
    for (int column = 0; column < SIZE; column++) {
      left[row][column] = row + column;
      right[row][column] = row == column;
    }
}

static void multiply(void) {
  for (int row = 0; row < SIZE; row++)
    for (int middle = 0; middle < SIZE; middle++)
      for (int column = 0; column < SIZE; column++)
        product[row][column] += left[row][middle] * right[middle][column];
}

static void print(unsigned number) {
  char text[16], *end = text + sizeof text, *begin = end;
  *--begin = '\n';
  do
    *--begin = '0' + number % 10;
  while (number /= 10);
  system_call(1, 1, begin, end - begin);
}

__attribute__((noreturn, force_align_arg_pointer)) void _start(void) {
  float trace = 0;
  fill();
  multiply();
  for (int row = 0; row < SIZE; row++) trace += product[row][row];
  print(trace);
  system_call(60, 0, 0, 0);
  __builtin_unreachable();
}
