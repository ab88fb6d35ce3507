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
                DEPS scripted_fleet sc_fake_reference LABELS integration TIMEOUT 180)
