/* Stand-in for a framework's library: many loops that a compiler turns into vector code of whatever it may use. */
#define KERNEL(n) \
  __attribute__((noinline)) float kernel_##n(const float *restrict a, const float *restrict b, float *restrict c, long size) { \
    float sum = 0; \
    for (long i = 0; i < size; i++) { c[i] = a[i] * b[i] + c[i] * n##.5f; sum += c[i]; } \
    return sum; \
  } \
  __attribute__((noinline)) void relu_##n(float *restrict a, long size) { \
    for (long i = 0; i < size; i++) a[i] = a[i] > n ? a[i] : n; \
  } \
  __attribute__((noinline)) int count_##n(const int *restrict a, int *restrict b, long size) { \
    int sum = 0; \
    for (long i = 0; i < size; i++) { b[i] = (a[i] << (b[i] & 7)) + n; sum += b[i]; } \
    return sum; \
  }
#define CALL(n) \
  total += kernel_##n(left, right, result, 1024); \
  relu_##n(result, 1024); \
  total += count_##n(numbers, counts, 1024);

KERNEL(1) KERNEL(2) KERNEL(3) KERNEL(4) KERNEL(5) KERNEL(6) KERNEL(7) KERNEL(8) KERNEL(9) KERNEL(10)

static float left[1024], right[1024], result[1024];
static int numbers[1024], counts[1024];

extern int cuInit(unsigned flags);
extern int cudaRuntimeGetVersion(int *version);

float framework_run(void) {
  float total = 0;
#ifdef GPU
  int version = 0;
  cuInit(0);
  cudaRuntimeGetVersion(&version);
  total += version;
#endif
  for (int i = 0; i < 1024; i++) {
    left[i] = i;
    right[i] = 1.0f / (i + 1);
    numbers[i] = i;
  }
  CALL(1) CALL(2) CALL(3) CALL(4) CALL(5) CALL(6) CALL(7) CALL(8) CALL(9) CALL(10)
  return total;
}
