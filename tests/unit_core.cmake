stagecoach_test(unit_core
  SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/common/schedule_rules_test.cc
          ${CMAKE_SOURCE_DIR}/tests/unit/common/cluster_rules_test.cc
          ${CMAKE_SOURCE_DIR}/tests/unit/common/hash_test.cc
          ${CMAKE_SOURCE_DIR}/tests/unit/common/host_memory_test.cc
          ${CMAKE_SOURCE_DIR}/tests/unit/common/log_test.cc
          ${CMAKE_SOURCE_DIR}/tests/unit/common/event_loop_test.cc
          ${CMAKE_SOURCE_DIR}/tests/unit/worker/domain/stage_core_test.cc
          ${CMAKE_SOURCE_DIR}/tests/unit/worker/domain/stage_core_rounds_test.cc
  DEPS sc_worker_domain LABELS unit)
