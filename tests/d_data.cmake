# Data, checkpoints and stagecoach-model.
stagecoach_test(unit_checkpoint
                SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/common/checkpoint/safetensors_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/common/checkpoint/checkpoint_store_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/common/checkpoint/checkpoint_crash_test.cc
                DEPS sc_checkpoint LABELS unit)
stagecoach_test(fuzz_safetensors SOURCES ${CMAKE_SOURCE_DIR}/tests/fuzz/safetensors_fuzz.cc DEPS sc_checkpoint LABELS fuzz)
stagecoach_test(unit_data
                SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/model/data/token_dataset_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/model/data/broken_data_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/model/data/prepare_text_test.cc
                DEPS sc_model_data LABELS unit)
if(WITH_TORCH)
  stagecoach_test(e2e_model_program TORCH SOURCES ${CMAKE_SOURCE_DIR}/tests/e2e/model_program_test.cc
                  DEPS sc_run_loading sc_model sc_model_data sc_checkpoint process_harness nlohmann_json::nlohmann_json
                  LABELS e2e PROGRAMS stagecoach-model)
endif()
# Against the reference implementation in Python; skipped, visibly, where PyPI cannot be reached.
add_executable(safetensors_exchange EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/conformance/safetensors_exchange.cc)
target_link_libraries(safetensors_exchange PRIVATE sc_checkpoint)
set_target_properties(safetensors_exchange PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(checks safetensors_exchange)
add_test(NAME conformance_safetensors_python
         COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/conformance/safetensors_python.py
                 $<TARGET_FILE:safetensors_exchange> ${CMAKE_CURRENT_BINARY_DIR}/safetensors_python)
set_tests_properties(conformance_safetensors_python PROPERTIES LABELS conformance TIMEOUT 300 SKIP_RETURN_CODE 77)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/safetensors_python)
