#include "observe/memory_picture.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

PlanTensor tensor(const char* name, Region region, const char* tensor_class, int64_t bytes, int32_t storage) {
  PlanTensor out;
  out.name = name;
  out.shape = {bytes / 4};
  out.region = region;
  out.tensor_class = tensor_class;
  out.bytes = bytes;
  out.storage = storage;
  return out;
}

PlanStep step(const char* name, std::vector<int32_t> in, std::vector<int32_t> out) {
  PlanStep made;
  made.name = name;
  made.in = std::move(in);
  made.out = std::move(out);
  return made;
}

//  step      0   1   2   3
//  a  64     [-----]
//  b 128         [-----]         b's view shares its storage
//  c 256             [---]
Plan three_tensors() {
  Plan plan;
  plan.tensors = {tensor("weight", Region::persistent, "parameters", 1024, 0),
                  tensor("tokens", Region::io, "io", 64, 1),
                  tensor("a", Region::transient, "activations", 64, 2),
                  tensor("b", Region::transient, "activations", 128, 3),
                  tensor("b.view", Region::transient, "activations", 128, 3),
                  tensor("c", Region::transient, "gradients", 256, 4)};
  PlanProgram program;
  program.name = "step";
  program.steps = {step("first", {0, 1}, {2}), step("second", {2, -1}, {3}), step("third", {4}, {5}),
                   step("last", {5}, {})};
  program.max_live_bytes = 384;
  program.peak_step = 2;
  plan.programs = {program};
  plan.scratch_bytes = 10;
  return plan;
}

int64_t bytes_of(const MemoryPicture& picture, const std::string& name) {
  for (const MemoryClass& entry : picture.classes)
    if (entry.name == name) return entry.bytes;
  return -1;
}

TEST(MemoryPicture, CountsWhatIsAliveAtThePeak) {
  const MemoryPicture picture = memory_picture(three_tensors(), 2);
  EXPECT_EQ(picture.program, "step");
  EXPECT_EQ(picture.step, "third");
  EXPECT_EQ(picture.live_bytes, 384);
  ASSERT_EQ(picture.live.size(), 2u);
  EXPECT_EQ(picture.live[0].name, "c");
  EXPECT_EQ(picture.live[1].name, "b");
  EXPECT_EQ(bytes_of(picture, "parameters"), 1024);
  EXPECT_EQ(bytes_of(picture, "activations"), 128);
  EXPECT_EQ(bytes_of(picture, "gradients"), 256);
  EXPECT_EQ(bytes_of(picture, "optimizer"), 0);
  EXPECT_EQ(bytes_of(picture, "workspace"), 20);
  EXPECT_EQ(bytes_of(picture, "io"), 64);
}

TEST(MemoryPicture, APlanWithoutProgramsHasNoPeak) {
  const MemoryPicture picture = memory_picture(Plan{}, 1);
  EXPECT_TRUE(picture.step.empty());
  EXPECT_TRUE(picture.live.empty());
}

TEST(BytesText, UsesTheLargestUnitBelow) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(int64_t{5} << 30), "5.00 GiB");
}

}  // namespace
}  // namespace lamina
