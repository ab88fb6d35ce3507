find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME architecture_source_rules
         COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/architecture/source_rules.py --table ${CMAKE_SOURCE_DIR})
add_test(NAME architecture_source_rules_selftest
         COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/architecture/source_rules_selftest.py)
set_tests_properties(architecture_source_rules architecture_source_rules_selftest PROPERTIES LABELS architecture TIMEOUT 60)
add_test(NAME architecture_format COMMAND ${CMAKE_SOURCE_DIR}/tests/architecture/format_check.sh)
add_test(NAME architecture_tidy COMMAND ${CMAKE_SOURCE_DIR}/tests/architecture/tidy_check.sh ${CMAKE_BINARY_DIR})
set_tests_properties(architecture_format architecture_tidy PROPERTIES LABELS architecture TIMEOUT 600)
