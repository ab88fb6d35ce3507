# Number codecs, frame codec, links.
stagecoach_test(conformance_peer_link SOURCES ${CMAKE_SOURCE_DIR}/tests/conformance/peer_link_test.cc
                DEPS sc_worker_link LABELS conformance)
