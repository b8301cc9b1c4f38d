/* Stand-in for the CUDA runtime: its version and its error text stand where the real one has them. */
extern int cuDriverGetVersion(int *version);

const char *cudaGetErrorString(int error) {
  return error == 35 ? "CUDA driver version is insufficient for CUDA runtime version" : "no error";
}
int cudaRuntimeGetVersion(int *version) { *version = CUDA; return 0; }
