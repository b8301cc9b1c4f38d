/* load FILE [KERNEL]: has the driver load a module and, with KERNEL, runs that on one number and looks at the result.
   The kernel multiplies the number by its second argument. The last line says what went wrong: the driver's function,
   the code and its name. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef int Result;
Result cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
Result cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
Result cuMemAlloc_v2(unsigned long long *, size_t), cuMemcpyHtoD_v2(unsigned long long, const void *, size_t);
Result cuMemcpyDtoH_v2(void *, unsigned long long, size_t), cuGetErrorName(Result, const char **);
Result cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **);

#define TRY(call)                                            \
  do {                                                       \
    Result end = call;                                       \
    const char *name = "?";                                  \
    if (end) {                                               \
      cuGetErrorName(end, &name);                            \
      printf("%s: %d %s\n", #call, end, name ? name : "?");  \
      return 1;                                              \
    }                                                        \
  } while (0)

static char *contents(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) return NULL;
  long size = ftell(file);
  char *data = calloc(1, size + 16);  /* PTX ends with a NUL */
  rewind(file);
  return data && fread(data, 1, size, file) == (size_t)size ? data : NULL;
}

int main(int count, char **words) {
  char *image = count > 1 ? contents(words[1]) : NULL;
  float value = 2, factor = 3;
  unsigned long long memory;
  void *context, *module, *function, *parameters[] = {&memory, &factor};
  int device;
  if (!image) return fputs("no such module\n", stderr), 2;
  TRY(cuInit(0));
  TRY(cuDeviceGet(&device, 0));
  TRY(cuDevicePrimaryCtxRetain(&context, device));
  TRY(cuCtxSetCurrent(context));
  TRY(cuModuleLoadData(&module, image));
  if (count == 2) return puts("loaded"), 0;
  TRY(cuModuleGetFunction(&function, module, words[2]));
  TRY(cuMemAlloc_v2(&memory, sizeof value));
  TRY(cuMemcpyHtoD_v2(memory, &value, sizeof value));
  TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  TRY(cuMemcpyDtoH_v2(&value, memory, sizeof value));
  if (value != 6) return printf("%g instead of 6\n", value), 1;
  return puts("right"), 0;
}
