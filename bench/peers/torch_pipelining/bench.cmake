if(WITH_TORCH)
  stagecoach_benchmark(dump_microbatches SOURCES ${CMAKE_SOURCE_DIR}/bench/peers/torch_pipelining/dump_microbatches.cc
                       DEPS sc_model_data)
endif()
stagecoach_benchmark(wan_link SOURCES ${CMAKE_SOURCE_DIR}/bench/peers/wan_link.cc)
