if(WITH_TORCH)
  stagecoach_benchmark(engine_overhead TORCH
                       SOURCES ${CMAKE_SOURCE_DIR}/bench/engine_overhead/engine_overhead.cc
                               ${CMAKE_SOURCE_DIR}/worker/main/stage_compute.cc
                       DEPS sc_worker_torch sc_worker_domain sc_averaging)
endif()
