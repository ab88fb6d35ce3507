find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME architecture_source_rules
         COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/architecture/source_rules.py --table ${CMAKE_SOURCE_DIR})
add_test(NAME architecture_source_rules_selftest
         COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/architecture/source_rules_selftest.py)
set_tests_properties(architecture_source_rules architecture_source_rules_selftest PROPERTIES LABELS architecture TIMEOUT 60)
