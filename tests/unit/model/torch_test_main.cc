// The settings of a worker hold for every test of the binary.
#include <gtest/gtest.h>

#include "model/stage_model.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  stagecoach::ConfigureTorch(1);
  return RUN_ALL_TESTS();
}
