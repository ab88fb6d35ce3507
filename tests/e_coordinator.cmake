stagecoach_test(unit_run_spec SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/common/run_spec_test.cc DEPS sc_run_spec LABELS unit)
