set(baselines_unit ${CMAKE_SOURCE_DIR}/tests/unit/coordinator/planning/baselines)
stagecoach_test(
  unit_planning_baselines
  SOURCES ${baselines_unit}/baseline_planner_test.cc ${baselines_unit}/dtfm_search_test.cc
          ${baselines_unit}/ravnest_genetic_test.cc ${baselines_unit}/share_cuts_test.cc
  DEPS sc_planning_baselines fleet_families
  LABELS unit)
