stagecoach_test(unit_run_spec SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/common/run_spec_test.cc DEPS sc_run_spec LABELS unit)
set(coordinator_unit ${CMAKE_SOURCE_DIR}/tests/unit/coordinator)
stagecoach_test(
  unit_coordinator
  SOURCES ${coordinator_unit}/membership_test.cc ${coordinator_unit}/stage_partition_test.cc
          ${coordinator_unit}/schedule_choice_test.cc ${coordinator_unit}/step_ledger_test.cc
          ${coordinator_unit}/run_machine_test.cc
  DEPS sc_coordinator_domain
  LABELS unit)
