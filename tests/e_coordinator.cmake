stagecoach_test(unit_run_spec SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/common/run_spec_test.cc
                ${CMAKE_SOURCE_DIR}/tests/unit/common/run_spec_record_test.cc
                DEPS sc_run_spec LABELS unit)
set(coordinator_unit ${CMAKE_SOURCE_DIR}/tests/unit/coordinator)
stagecoach_test(
  unit_coordinator
  SOURCES ${coordinator_unit}/membership_test.cc ${coordinator_unit}/stage_partition_test.cc
          ${coordinator_unit}/schedule_choice_test.cc ${coordinator_unit}/step_ledger_test.cc
          ${coordinator_unit}/run_machine_test.cc ${coordinator_unit}/round_machine_test.cc
          ${coordinator_unit}/run_ledger_test.cc ${coordinator_unit}/division_choice_test.cc ${coordinator_unit}/speed_watch_test.cc
          ${coordinator_unit}/replanning_test.cc ${coordinator_unit}/run_machine_replan_test.cc
  DEPS sc_coordinator_domain
  LABELS unit)
stagecoach_test(
  unit_planning_files
  SOURCES ${coordinator_unit}/fleet_file_test.cc ${coordinator_unit}/run_model_test.cc
  DEPS sc_planning_files
  LABELS unit)
stagecoach_test(
  unit_simulation
  SOURCES ${coordinator_unit}/pipeline_simulation_test.cc
  DEPS sc_simulation
  LABELS unit)
stagecoach_test(
  unit_coordinator_service
  SOURCES ${coordinator_unit}/run_journal_test.cc ${coordinator_unit}/plan_builder_test.cc
          ${coordinator_unit}/run_state_text_test.cc ${coordinator_unit}/cluster_choice_test.cc
  DEPS sc_coordinator_service
  LABELS unit)
stagecoach_test(
  integration_coordinator
  SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/coordinator_service_test.cc
  DEPS sc_coordinator_service
  LABELS integration)
