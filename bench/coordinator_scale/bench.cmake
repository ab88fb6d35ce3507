stagecoach_benchmark(bench_worker_sessions SOURCES ${CMAKE_CURRENT_LIST_DIR}/worker_sessions.cc DEPS sc_protos sc_grpc)
