# The worker: control session, stage runner, node; whole pipelines in one process.
add_library(scripted_fleet STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/support/scripted_fleet.cc)
target_link_libraries(scripted_fleet PUBLIC sc_worker_node sc_checkpoint GTest::gtest)

stagecoach_test(unit_worker_main
                SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/worker/control/coordinator_session_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/worker/main/stage_meter_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/worker/main/stage_setup_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/worker/main/worker_options_test.cc
                        ${CMAKE_SOURCE_DIR}/worker/main/worker_options.cc
                DEPS scripted_fleet CLI11::CLI11 LABELS unit)

stagecoach_test(integration_worker
                SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/worker_control_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/integration/worker_pipeline_test.cc
                DEPS scripted_fleet in_process_link sc_fake_reference LABELS integration TIMEOUT 180)

stagecoach_test(integration_worker_program
                SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/worker_program_test.cc
                DEPS process_harness LABELS integration PROGRAMS stagecoach-worker)

# End to end: the built programs, as a user runs them.
if(WITH_TORCH)
  foreach(name train_oracle train_clusters train_faults train_replan)
    stagecoach_test(e2e_${name}
                    SOURCES ${CMAKE_SOURCE_DIR}/tests/e2e/${name}_test.cc ${CMAKE_SOURCE_DIR}/tests/e2e/train_run.cc
                    DEPS process_harness nlohmann_json::nlohmann_json LABELS e2e TIMEOUT 600
                    PROGRAMS stagecoach stagecoach-coordinator stagecoach-worker stagecoach-model)
    set_tests_properties(e2e_${name} PROPERTIES RUN_SERIAL ON)
  endforeach()
endif()
