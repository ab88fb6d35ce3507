# Fleets by family, size and seed: for tests and benchmarks of planning.
add_library(fleet_families STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/support/fleet_families.cc)
target_link_libraries(fleet_families PUBLIC sc_planning)

stagecoach_test(
  unit_fleet_families
  SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/coordinator/planning/fleet_families_test.cc
          ${CMAKE_SOURCE_DIR}/tests/unit/common/rng_draws_test.cc
  DEPS fleet_families
  LABELS unit)
stagecoach_test(
  unit_planner
  SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/coordinator/planning/planner_test.cc
  DEPS fleet_families
  LABELS unit)
