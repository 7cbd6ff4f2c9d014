#include "migrate/optimizer_state.h"

#include "migrate/converted.h"

namespace lamina {
namespace {

// Moments under MindSpore's names beside the weights of Tiny.
std::string put_mindspore_training(const TempDir& dir) {
  there(put_model(dir, "a", tiny_tensors()), dir.file("plain"), "mindspore");
  const TensorFile weights(dir.file("plain/model.safetensors"));
  TinyFile file;
  uint64_t stream = 100;
  for (const StoredTensor& tensor : weights.content().tensors)
    file.push_back({tensor.name,
                    tensor.shape,
                    "F32",
                    {reinterpret_cast<const char*>(tensor.pieces[0].data()), tensor.pieces[0].size()}});
  const size_t count = file.size();
  for (const char* front : {"adam_m.", "adam_v."})
    for (size_t i = 0; i < count; ++i)
      file.push_back(test::uniform(front + file[i].name, file[i].shape, stream++, 1, 0.5));
  const int32_t step = 41;
  file.push_back({"global_step", {1}, "I32", {reinterpret_cast<const char*>(&step), 4}});
  return put_model(dir, "trained", file);
}

std::map<std::string, std::string> hashes(const std::string& folder) {
  std::map<std::string, std::string> out;
  const Json json = account(folder);
  for (const char* part : {"tensors", "optimizer"})
    for (const Json& tensor : json[part]) out[tensor["target"]] = tensor["hash"];
  return out;
}

TEST(OptimizerState, TheStateOfAnOptimizerThereAndBack) {
  const TempDir dir;
  const std::string from = put_mindspore_training(dir);
  const auto go = [&](const std::string& source, const std::string& to, const std::string& format) {
    const Conversion done =
        convert({.from = dir.file(source), .to = dir.file(to), .format = format, .optimizer = true}, kNoPoll);
    EXPECT_GT(done.state.size(), 56u);
  };
  go("trained", "same", "mindspore");
  go("trained", "torch", "torch");
  go("torch", "lamina", "hf");
  go("lamina", "ckpt", "mindspore-ckpt");
  go("ckpt", "again", "mindspore");
  EXPECT_EQ(hashes(dir.file("same")), hashes(dir.file("again")));
  EXPECT_EQ(hashes(dir.file("same")).size(), 36u * 3 + 1);
  // Without being asked for it stays, and is named.
  const Conversion plain = there(from, dir.file("weights"), "hf");
  EXPECT_TRUE(plain.state.empty());
  EXPECT_EQ(plain.report.state.size(), 36u * 2 + 1);
}

TEST(OptimizerState, AStepIsANumberOfUpdates) {
  const TempDir dir;
  put_mindspore_training(dir);
  const std::string whole = read_bytes(dir.file("trained/model.safetensors"));
  const auto with_step = [&](int32_t step) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + bytes.size() - 4, &step, 4);
    dir.write("trained/model.safetensors", bytes);
    convert({.from = dir.file("trained"), .to = dir.file(std::to_string(step)), .format = "torch", .optimizer = true},
            kNoPoll);
  };
  EXPECT_NO_THROW(with_step(0));
  EXPECT_NO_THROW(with_step(1 << 24));
  expect_error([&] { with_step(-4); }, ErrorCode::invalid, {"global_step", "-4"});
  expect_error([&] { with_step((1 << 24) + 1); }, ErrorCode::invalid, {"global_step", "16777216", "16777217"});
}

TEST(OptimizerState, AStateThatIsNotWhole) {
  const TempDir dir;
  const std::string from = put_model(dir, "a", tiny_tensors());
  const auto state = [&](const std::string& source) {
    convert({.from = dir.file(source), .to = dir.file("b"), .format = "hf", .optimizer = true}, kNoPoll);
  };
  expect_error([&] { state("a"); }, ErrorCode::invalid, {"no optimizer state", "optimizer.pt"});
  TinyFile file = tiny_tensors();
  file.push_back(test::uniform("adam_m.transformer.wte.weight", {97, 16}, 5, 0, 1));
  put_model(dir, "half", file);
  expect_error([&] { state("half"); }, ErrorCode::invalid, {"adam_v.transformer.wte.weight", "nothing"});
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"a", "half"}));
  // A moment of no weight, and the third one of AMSGrad, are not dropped in silence.
  for (const char* name : {"adam_m.bogus", "max_exp_avg_sq.layer.0.ln_1.gamma"}) {
    put_mindspore_training(dir);
    TinyFile more;
    const TensorFile all(dir.file("trained/model.safetensors"));
    for (const StoredTensor& tensor : all.content().tensors)
      more.push_back({tensor.name,
                      tensor.shape,
                      tensor.dtype,
                      {reinterpret_cast<const char*>(tensor.pieces[0].data()), tensor.pieces[0].size()}});
    more.push_back(test::uniform(name, {16}, 5, 0, 1));
    put_model(dir, "more", more);
    expect_error([&] { state("more"); }, ErrorCode::invalid, {name});
    for (const char* folder : {"plain", "more"}) std::filesystem::remove_all(dir.file(folder));
  }
}

}  // namespace
}  // namespace lamina
