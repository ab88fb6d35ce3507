stagecoach_benchmark(bench_averaging SOURCES ${CMAKE_CURRENT_LIST_DIR}/averaging_bench.cc DEPS sc_worker_average)
