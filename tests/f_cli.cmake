# The command line tool, its link emulator, and the harness that runs programs in tests.
add_library(process_harness STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/support/process_harness.cc)
target_link_libraries(process_harness PUBLIC sc_process GTest::gtest absl::time)

stagecoach_test(unit_cli
                SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/cli/run_view_test.cc ${CMAKE_SOURCE_DIR}/tests/unit/cli/link_clock_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/cli/local_network_test.cc
                DEPS sc_run_view sc_linkem sc_cli process_harness LABELS unit)

stagecoach_test(integration_linkem
                SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/linkem_test.cc
                DEPS sc_linkem LABELS "integration;timing" TIMEOUT 120)
# It measures time.
set_tests_properties(integration_linkem PROPERTIES RUN_SERIAL ON)

add_executable(parent_of_sleeper EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/support/parent_of_sleeper.cc)
target_link_libraries(parent_of_sleeper PRIVATE sc_process)
set_target_properties(parent_of_sleeper PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
stagecoach_test(integration_cli
                SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/cli_process_test.cc
                DEPS process_harness LABELS integration TIMEOUT 120 PROGRAMS stagecoach parent_of_sleeper)
set_property(TEST integration_cli APPEND PROPERTY ENVIRONMENT "STAGECOACH_TESTS=${CMAKE_BINARY_DIR}/tests")

stagecoach_test(integration_plan
                SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/plan_command_test.cc
                DEPS process_harness nlohmann_json::nlohmann_json LABELS integration TIMEOUT 120 PROGRAMS stagecoach)

stagecoach_test(integration_coordinator_client
                SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/coordinator_client_test.cc
                DEPS sc_cli sc_coordinator_service LABELS integration)

if(WITH_TORCH)
  foreach(name train_command readme)
    stagecoach_test(e2e_${name}
                    SOURCES ${CMAKE_SOURCE_DIR}/tests/e2e/${name}_test.cc
                    DEPS process_harness nlohmann_json::nlohmann_json LABELS e2e TIMEOUT 300
                    PROGRAMS stagecoach stagecoach-coordinator stagecoach-worker stagecoach-model)
    set_tests_properties(e2e_${name} PROPERTIES RUN_SERIAL ON)
  endforeach()
endif()
