# Averaging between clusters: the pure rules, and exchanges over real streams.
stagecoach_test(unit_averaging
                SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/common/averaging/shard_map_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/common/averaging/outer_optimizer_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/common/averaging/averaging_codec_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/common/averaging/exchange_plan_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/common/averaging/round_exchange_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/common/averaging/shard_hash_test.cc
                        ${CMAKE_SOURCE_DIR}/tests/unit/common/averaging/uplink_pacer_test.cc
                DEPS sc_averaging LABELS unit)

stagecoach_test(sim_averaging_rounds
                SOURCES ${CMAKE_SOURCE_DIR}/tests/sim/averaging_round_test.cc ${CMAKE_SOURCE_DIR}/tests/support/sim_averaging.cc
                DEPS sc_averaging LABELS sim)

stagecoach_test(integration_averaging_links SOURCES ${CMAKE_SOURCE_DIR}/tests/integration/averaging_links_test.cc
                DEPS sc_worker_average in_process_link LABELS integration)
