if(WITH_TORCH)
  set(model_tests ${CMAKE_SOURCE_DIR}/tests/unit/model)
  # Gradients, cuts, subspace, optimizers, and the oracle against plain loops.
  stagecoach_test(unit_model TORCH
                  SOURCES ${model_tests}/torch_test_main.cc ${model_tests}/gradient_check_test.cc
                          ${model_tests}/stage_model_test.cc ${model_tests}/stage_optimizer_test.cc
                          ${model_tests}/subspace_test.cc ${model_tests}/oracle_test.cc
                          ${model_tests}/oracle_rounds_test.cc
                  DEPS sc_model LABELS unit torch TIMEOUT 240)
endif()
