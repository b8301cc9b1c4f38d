/* Stand-in for a framework's library: many loops that a compiler turns into vector code of whatever it may use. */
#define KERNEL(n) \
  __attribute__((noinline)) void scale_##n(const float *restrict a, const float *restrict b, float *restrict c, long size) { \
    for (long i = 0; i < (size & -64); i++) c[i] = a[i] * b[i] + c[i] * n##.5f; \
  } \
  __attribute__((noinline)) void mix_##n(const int *restrict a, int *restrict b, long size) { \
    for (long i = 0; i < (size & -64); i++) b[i] = (a[i] ^ b[i]) + n; \
  }
#define CALL(n) \
  scale_##n(left, right, result, 1024); \
  mix_##n(numbers, counts, 1024);

/* As many as a framework has, against the few that any C library holds. */
#define KERNELS_10(n) KERNEL(n##0) KERNEL(n##1) KERNEL(n##2) KERNEL(n##3) KERNEL(n##4) KERNEL(n##5) KERNEL(n##6) KERNEL(n##7) KERNEL(n##8) KERNEL(n##9)
#define KERNELS_100(n) KERNELS_10(n##0) KERNELS_10(n##1) KERNELS_10(n##2) KERNELS_10(n##3) KERNELS_10(n##4) KERNELS_10(n##5) KERNELS_10(n##6) KERNELS_10(n##7) KERNELS_10(n##8) KERNELS_10(n##9)
#define CALLS_10(n) CALL(n##0) CALL(n##1) CALL(n##2) CALL(n##3) CALL(n##4) CALL(n##5) CALL(n##6) CALL(n##7) CALL(n##8) CALL(n##9)
#define CALLS_100(n) CALLS_10(n##0) CALLS_10(n##1) CALLS_10(n##2) CALLS_10(n##3) CALLS_10(n##4) CALLS_10(n##5) CALLS_10(n##6) CALLS_10(n##7) CALLS_10(n##8) CALLS_10(n##9)

KERNELS_100(1) KERNELS_100(2) KERNELS_100(3) KERNELS_100(4) KERNELS_100(5) KERNELS_100(6)

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
  CALLS_100(1) CALLS_100(2) CALLS_100(3) CALLS_100(4) CALLS_100(5) CALLS_100(6)
  return total + result[7] + counts[7];
}
