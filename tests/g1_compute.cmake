# The fake run's reference, for every test that drives fake stages.
stagecoach_library(sc_fake_reference SOURCES ${CMAKE_SOURCE_DIR}/tests/support/fake_reference.cc DEPS sc_common sc_codec)
set_target_properties(sc_fake_reference PROPERTIES EXCLUDE_FROM_ALL TRUE)

stagecoach_test(unit_record_reader SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/model/record_reader_test.cc
                DEPS sc_run_config LABELS unit)

stagecoach_test(unit_fake_executor
                SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/worker/compute/fake_stage_executor_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/support/local_pipeline.cc
                        ${CMAKE_SOURCE_DIR}/worker/main/stage_compute.cc
                DEPS sc_worker_compute sc_worker_domain sc_averaging sc_fake_reference LABELS unit)

if(WITH_TORCH)
  # Whole pipelines in one process without links, against the single-process reference.
  stagecoach_test(oracle_pipeline
                  SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/model/torch_test_main.cc
                          ${CMAKE_SOURCE_DIR}/tests/integration/stage_in_process_oracle_test.cc
                          ${CMAKE_SOURCE_DIR}/tests/unit/worker/compute/torch_probe_test.cc
                          ${CMAKE_SOURCE_DIR}/tests/support/local_pipeline.cc
                          ${CMAKE_SOURCE_DIR}/worker/main/stage_compute.cc
                  DEPS sc_worker_torch sc_worker_domain sc_averaging LABELS integration torch TIMEOUT 600)
endif()
