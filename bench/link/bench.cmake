stagecoach_benchmark(bench_link SOURCES ${CMAKE_CURRENT_LIST_DIR}/link_bench.cc ${CMAKE_CURRENT_LIST_DIR}/raw_tcp.cc
                     DEPS sc_worker_link)
