"""GPU code in binaries: CUDA fatbins, cubins and PTX, HIP bundles, CUDA runtime and driver libraries."""
