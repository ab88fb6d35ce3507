# Finds libtorch inside the torch wheel that scripts/setup.sh installs, without a CUDA toolkit.
#
# Defines Torch::cpu: libtorch_cpu.so and libc10.so only. libtorch.so would pull libtorch_cuda.so; that backend is
# opened at run time instead (`--device cuda`). STAGECOACH_TORCH_HOME (variable or environment) says where it lies.

if(NOT STAGECOACH_TORCH_HOME)
  if(DEFINED ENV{STAGECOACH_TORCH_HOME})
    set(STAGECOACH_TORCH_HOME $ENV{STAGECOACH_TORCH_HOME})
  else()
    set(STAGECOACH_TORCH_HOME /opt/stagecoach/torch-2.11.0)
  endif()
endif()
set(STAGECOACH_TORCH_HOME ${STAGECOACH_TORCH_HOME} CACHE PATH "Folder of the torch wheel's virtual environment")

file(GLOB LIBTORCH_ROOT ${STAGECOACH_TORCH_HOME}/venv/lib/python3*/site-packages/torch)
find_library(LIBTORCH_CPU_LIBRARY torch_cpu PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(LIBTORCH_C10_LIBRARY c10 PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS LIBTORCH_CPU_LIBRARY LIBTORCH_C10_LIBRARY LIBTORCH_ROOT
  REASON_FAILURE_MESSAGE "run scripts/setup.sh --deps-only, or set STAGECOACH_TORCH_HOME")

if(Libtorch_FOUND AND NOT TARGET Torch::cpu)
  add_library(Torch::cpu INTERFACE IMPORTED)
  set_target_properties(Torch::cpu PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${LIBTORCH_ROOT}/include;${LIBTORCH_ROOT}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${LIBTORCH_CPU_LIBRARY};${LIBTORCH_C10_LIBRARY}"
    INTERFACE_LINK_OPTIONS "-Wl,-rpath,${LIBTORCH_ROOT}/lib")
endif()
