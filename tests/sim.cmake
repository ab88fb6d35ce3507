# 10,000 cases take seconds; sanitizers take their time.
set(sim_seconds 60)
if(STAGECOACH_SANITIZE)
  set(sim_seconds 300)
endif()
stagecoach_test(sim_pipeline_cases
  SOURCES ${CMAKE_SOURCE_DIR}/tests/sim/pipeline_cases_test.cc ${CMAKE_SOURCE_DIR}/tests/support/sim_pipeline.cc
  DEPS sc_worker_domain LABELS sim TIMEOUT ${sim_seconds})
stagecoach_test(sim_simulated_schedule
  SOURCES ${CMAKE_SOURCE_DIR}/tests/sim/simulated_schedule_test.cc ${CMAKE_SOURCE_DIR}/tests/support/sim_pipeline.cc
  DEPS sc_worker_domain sc_simulation LABELS sim TIMEOUT ${sim_seconds})
