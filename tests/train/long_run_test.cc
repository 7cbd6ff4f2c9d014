#include "common/long_run.h"

#include <gtest/gtest.h>

#include "train/step.h"
#include "train/tiny_run.h"

namespace lamina {
namespace {

TEST(TrainStep, P7_ALongLoopStaysAsItWas) {
  test::TinyRun run({.batch = 2, .seq = 8});
  TrainStep step(run.session(), {});
  test::Rows rows(test::tiny_rows(2));
  int64_t number = 0;
  test::expect_steady([&] { EXPECT_TRUE(step.step(rows.rows(), ++number, 1e-3).finite); });
}

}  // namespace
}  // namespace lamina
