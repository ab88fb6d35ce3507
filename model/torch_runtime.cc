// Settings of libtorch that must be equal everywhere, and the CUDA backend that is opened at run time.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <cstdlib>
#include <string>

#include "model/stage_model.h"

namespace stagecoach {

void ConfigureTorch(int threads) {
  // One code path of MKL on every x86 machine; read by MKL at its first call.
  setenv("MKL_CBWR", "AVX2", /*overwrite=*/1);
  // cuBLAS gives the same bits only with a workspace of fixed size.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/1);
  at::set_num_threads(threads);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Deterministic mode would also fill every new tensor with NaN: a pass over memory that changes nothing here.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

std::string LoadCudaBackend() {
  // The library lies beside libtorch_cpu.so; the program does not link it, so that machines without CUDA can run it.
  Dl_info info{};
  std::string library = "libtorch_cuda.so";
  if (dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) != 0 && info.dli_fname != nullptr) {
    const std::string path = info.dli_fname;
    const size_t slash = path.rfind('/');
    if (slash != std::string::npos) library = path.substr(0, slash + 1) + library;
  }
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* error = dlerror();
    return "cannot open " + library + ": " + (error == nullptr ? "unknown error" : error) +
           "; install the CUDA build of torch that scripts/setup.sh names, or use --device cpu";
  }
  if (!at::hasCUDA()) {
    return library + " was opened but no CUDA device answers; check the driver with nvidia-smi, or use --device cpu";
  }
  return "";
}

std::string TorchVersion() { return TORCH_VERSION; }
std::string TorchCpuCapability() { return at::get_cpu_capability(); }

}  // namespace stagecoach
