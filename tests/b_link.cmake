# Number codecs, frame codec, links.
add_library(in_process_link STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/support/in_process_link.cc)
target_link_libraries(in_process_link PUBLIC sc_worker_link)
stagecoach_test(unit_number_codec SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/common/number_codec_test.cc
                DEPS sc_codec LABELS unit)
stagecoach_test(unit_tensor
                SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/worker/tensor/host_buffer_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/worker/tensor/frame_codec_test.cc
                DEPS sc_worker_tensor LABELS unit)
stagecoach_test(conformance_peer_link SOURCES ${CMAKE_SOURCE_DIR}/tests/conformance/peer_link_test.cc
                DEPS in_process_link LABELS conformance)
stagecoach_test(integration_link_faults SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/link_faults_test.cc
                DEPS in_process_link LABELS integration)
stagecoach_test(integration_link_probe SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/link_probe_test.cc
                DEPS in_process_link sc_linkem LABELS "integration;timing")
# It measures time.
set_tests_properties(integration_link_probe PROPERTIES RUN_SERIAL ON)

# The fuzz target with a deterministic driver. With clang it can also be linked with -fsanitize=fuzzer instead.
add_executable(fuzz_frame_codec EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/fuzz/frame_codec_fuzz.cc
               ${CMAKE_SOURCE_DIR}/tests/fuzz/mutation_loop.cc)
target_include_directories(fuzz_frame_codec PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(fuzz_frame_codec PRIVATE sc_worker_tensor)
set_target_properties(fuzz_frame_codec PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(checks fuzz_frame_codec)
add_test(NAME fuzz_frame_codec COMMAND fuzz_frame_codec)
set_tests_properties(fuzz_frame_codec PROPERTIES TIMEOUT 60 LABELS fuzz)
