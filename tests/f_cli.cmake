# The command line tool, its link emulator, and the harness that runs programs in tests.
add_library(process_harness STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/support/process_harness.cc)
target_link_libraries(process_harness PUBLIC sc_process GTest::gtest absl::time)

stagecoach_test(integration_linkem
                SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/linkem_test.cc
                DEPS sc_linkem LABELS integration TIMEOUT 120)
# It measures time.
set_tests_properties(integration_linkem PROPERTIES RUN_SERIAL ON)
