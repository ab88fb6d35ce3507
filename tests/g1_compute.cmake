# The fake run's reference, for every test that drives fake stages.
stagecoach_library(sc_fake_reference SOURCES ${CMAKE_SOURCE_DIR}/tests/support/fake_reference.cc DEPS sc_common sc_codec)
set_target_properties(sc_fake_reference PROPERTIES EXCLUDE_FROM_ALL TRUE)

stagecoach_test(unit_record_reader SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/model/record_reader_test.cc
                DEPS sc_run_config LABELS unit)
