/* Stand-in for NVIDIA's driver library: its version stands where the real one has it. */
const char profiles[] = "nvidia-application-profiles-" DRIVER "-rc";

int cuInit(unsigned flags) { return flags ? 1 : 100; }
int cuDriverGetVersion(int *version) { *version = CUDA; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetCount(int *count) { *count = 0; return 0; }
