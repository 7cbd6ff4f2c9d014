#include "common/long_run.h"

#include <gtest/gtest.h>

#include "train/step.h"
#include "train/tiny_run.h"

namespace lamina {
namespace {

TEST(TrainStep, P7_ALongLoopStaysAsItWas) {
  test::expect_steady([] {
    auto run = std::make_unique<test::TinyRun>(CompileOptions{.batch = 2, .seq = 8});
    auto step = std::make_unique<TrainStep>(run->session(), TrainStepOptions{});
    auto rows = std::make_unique<test::Rows>(test::tiny_rows(2));
    return [run = std::move(run), step = std::move(step), rows = std::move(rows),
            number = std::make_unique<int64_t>(0)] { EXPECT_TRUE(step->step(rows->rows(), ++*number, 1e-3).finite); };
  });
}

}  // namespace
}  // namespace lamina
