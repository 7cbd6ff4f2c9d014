// Every fuzz target over a small corpus made here and its deterministic mutations: the same inputs on every run.
// LAMINA_FUZZ_SECONDS=N goes on for N seconds per target instead of a fixed number of inputs, from LAMINA_FUZZ_SEED
// (tools/fuzz.py).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "base/rng.h"
#include "fuzz/targets.h"

namespace lamina {
namespace {

using Corpus = std::vector<std::string>;

// Bytes and words at the borders of what readers compare with.
const char* const kWords[] = {"0",
                              "-1",
                              "1e999",
                              "18446744073709551615",
                              "9223372036854775807",
                              "\"",
                              "{",
                              "}",
                              "[",
                              "]",
                              ",",
                              ":",
                              "null",
                              "true",
                              "NaN",
                              "\\u0000",
                              "\\ud800",
                              "\n",
                              " ",
                              "F64",
                              "shape",
                              "h.1.",
                              "h.2.",
                              ".",
                              "module.",
                              "transformer.",
                              "\xFF\xFF",
                              "\xC3",
                              "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F",
                              "\x7F\xFF\xFF\xFF",
                              "PK\x01\x02",
                              "PK\x06\x07",
                              "cposix\nsystem\n",
                              "crc_num",
                              "\\\n",
                              "'''",
                              "(lambda *a, b=nn.Dropout(0.1): b)"};

// One small change: a bit, a byte, a cut, a doubled part, a word, or a part of another input.
std::string mutate(std::string input, const Corpus& corpus, Rng& rng) {
  const auto place = [&](size_t size) { return static_cast<size_t>(rng.below(size + 1)); };
  const size_t at = place(input.size());
  const size_t length = std::min<size_t>(place(16), input.size() - at);
  switch (rng.below(7)) {
    case 0:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << rng.below(8)));
      break;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(rng.below(256));
      break;
    case 2: input.erase(at, length); break;
    case 3: input.insert(place(input.size()), input.substr(at, length)); break;
    case 4: input.replace(at, rng.below(2) == 0 ? 0 : length, kWords[rng.below(std::size(kWords))]); break;
    case 5: input.resize(at); break;
    default: {
      const std::string& other = corpus[rng.below(corpus.size())];
      const size_t from = place(other.size());
      input.replace(at, length, other.substr(from, place(64)));
    }
  }
  return input;
}

void replay(void (*target)(std::string_view), const Corpus& corpus, int inputs) {
  for (const std::string& seed : corpus) target(seed);
  const char* seconds = std::getenv("LAMINA_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 0);
  const char* seed = std::getenv("LAMINA_FUZZ_SEED");
  Rng rng(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1);
  for (int i = 0; seconds != nullptr ? std::chrono::steady_clock::now() < end : i < inputs; ++i) {
    std::string input = corpus[rng.below(corpus.size())];
    for (uint64_t changes = 1 + rng.below(4); changes > 0; --changes) input = mutate(std::move(input), corpus, rng);
    target(input);
  }
}

TEST(FuzzReplay, Json) {
  replay(fuzz::json,
         {"{}", R"({"a":[1,-2,2.5e3,"x\u00e9",null,true],"b":{"c":[{},{"d":[[[]]]}]}})", "[\"é🙂\"]", "7"}, 20000);
}

TEST(FuzzReplay, Safetensors) {
  test::TinyFile two = {test::f32("a", {2}, {1, 2}), test::f32("probe.weight", {}, {3})};
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})";
  replay(fuzz::safetensors,
         {test::tiny_safetensors(two), test::tiny_safetensors({}), test::safetensors_bytes_of("{}", ""),
          test::safetensors_bytes_of(header, "abcd"),
          "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 548105171\n"},
         20000);
}

// Nested, with values of every kind, both ways to name a callable, a number of NumPy, and a set.
Corpus pickles() {
  using namespace std::string_literals;
  using test::pickled_dict, test::pickled_number, test::pickled_tensor, test::pickled_text;
  const std::string group =
      "](" + pickled_dict({{"lr", "G\x3f\xe0\0\0\0\0\0\0"s}, {"foreach", "N"}, {"fused", "\x89"}}) + "e";
  const std::string scalar = "cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\n" + pickled_text("f4") + "\x85R(K\3" +
                             pickled_text("<") + "NtbC\4abcd\x86R";
  return {test::pickle(pickled_dict({{"w", pickled_tensor({})}, {"t", pickled_tensor({.strides = {1, 2}})}})),
          test::pickle(pickled_dict(
              {{"optimizer", pickled_dict({{"param_groups", group}})}, {"s", scalar}, {"n", pickled_number(7)}})),
          test::pickle("ccollections\nOrderedDict\n)R(" + pickled_text("a") + "q\0h\0u}b"s),
          "\x80\4\x8c\x0c"
          "torch._utils\x8c\x12_rebuild_parameter\x93" +
              pickled_tensor({.key = "1", .shape = {}, .strides = {}}) + "\x88)\x87R.",
          test::pickle("cbuiltins\nset\n](K\1K\2e\x85R")};
}

TEST(FuzzReplay, Pickle) { replay(fuzz::pickle, pickles(), 20000); }

TEST(FuzzReplay, Zip) {
  const std::string storage(16, 'x');
  replay(fuzz::zip,
         {test::torch_zip(pickles()[0], {storage}), test::zip_bytes({{"a/data.pkl", "\x80\2N."}}), test::zip_bytes({})},
         20000);
}

TEST(FuzzReplay, TorchLegacy) {
  const std::string data = test::pickle(test::pickled_dict({{"w", test::pickled_tensor({}, true)}}));
  replay(fuzz::torch_legacy, {test::torch_legacy(data, {{"0", 4, std::string(16, 'x')}})}, 20000);
}

TEST(FuzzReplay, Ckpt) {
  const std::string body = test::ckpt_record("w", "Float32", {1, 2}, "abcdefgh") +
                           test::ckpt_record("p", "UInt8", {3}, "ab") + test::ckpt_record("p", "UInt8", {3}, "c") +
                           test::ckpt_record("s", "str", {0}, std::string("a\0\0\0", 4));
  replay(fuzz::ckpt, {body, body + test::ckpt_trailer(body)}, 20000);
}

TEST(FuzzReplay, Llmc) {
  replay(fuzz::llmc, {test::llmc_bytes(3, 1, 1, 1, 1, 1, 1), test::llmc_bytes(5, 2, 3, 2, 1, 2, 4)}, 10000);
}

TEST(FuzzReplay, HfConfig) {
  replay(fuzz::hf_config,
         {hf_config_text(ModelConfig()), hf_config_text(test::tiny_config()), R"({"model_type":"gpt2"})"}, 5000);
}

template <typename Tensor>
std::string name_lines(const std::vector<Tensor>& tensors, const std::string& front) {
  std::string lines;
  for (const Tensor& tensor : tensors) {
    lines += front + tensor.name;
    for (const int64_t size : tensor.shape) lines += " " + std::to_string(size);
    lines += "\n";
  }
  return lines;
}

TEST(FuzzReplay, Names) {
  Corpus corpus;
  for (const char* front : {"transformer.", "", "_orig_mod.module.transformer."})
    corpus.push_back(name_lines(test::tiny_tensors(2, false, ""), front));
  corpus.push_back(corpus[0] +
                   "transformer.h.0.attn.bias 1 1 16 16\ntransformer.h.0.attn.masked_bias\nlm_head.weight 97 16\n");
  for (const NameProfile& profile : name_profiles())
    corpus.push_back(name_lines(profile_tensors(profile, test::tiny_config()), std::string(profile.front)));
  replay(fuzz::names, corpus, 1500);
}

TEST(FuzzReplay, HfIndex) {
  replay(fuzz::hf_index,
         {R"({"metadata":{"total_size":4},"weight_map":{"x":"a.safetensors"}})", R"({"weight_map":{}})",
          R"({"weight_map":{"x":"../a.safetensors","y":"b.safetensors"}})"},
         200);
}

TEST(FuzzReplay, TokenizerJson) {
  // Short on purpose: the whole alphabet is needed for a sound file, so few mutations get past it; both kinds matter.
  replay(fuzz::tokenizer_json,
         {test::small_json(test::merges_as_texts()).dump(), test::small_json(test::merges_as_pairs()).dump(),
          tokenizer_json_text(test::small_tokenizer())},
         500);
}

TEST(FuzzReplay, MergesTxt) {
  replay(fuzz::merges_txt,
         {"#version: 0.2\n# #\na b\nab c\nĠ ab\n## ##\nĠ Ġ\n", "# #\r\na b\r\nab c\r\nĠ ab\r\n## ##\r\nĠ Ġ", ""}, 2000);
}

TEST(FuzzReplay, Python) {
  replay(
      fuzz::python,
      {"import mindspore as ms\nfrom mindspore import nn, ops\nnet = nn.Dropout(0.1)\nms.load_param_into_net(net, p)\n"
       "x = nn.LayerNorm((4,), -1,\n -1)(y) * -1e9; a = a.b\n",
       "from torch import (nn,  # 'x\n  optim as o)\nclass A(nn.Module):\n  def f(self, *a, **k): return "
       "f\"{a!r:>{4}}\"\n"
       "o.AdamW(m.parameters(), lr=1e-3)\n(loss / args.accum).backward()\nh.weight = w.weight\n",
       "'''a\\''' + rb\"\\\"\" + 0xE-5 + 1_0.e-3j\r\n\\\r\nimport numpy, mindspore.nn.layer.basic as "
       "b\rb.Dropout(0.1)\f\n"},
      5000);
}

TEST(FuzzReplay, Manifest) {
  const std::string hash(32, 'a');
  const nlohmann::json settings = {{"options", {{"lr", 0.5}, {"schedule", "wsd"}, {"warmup", 2}}},
                                   {"config", {{"n_layer", 2}}},
                                   {"data", {{"train_ids", 9}}},
                                   {"steps", 6},
                                   {"decay_steps", 2}};
  const nlohmann::json state = {{"progress", state_json({.step = 5, .loss = 4.5})}, {"settings", settings}};
  const Manifest sound{5, "run", {{"config.json", {2, hash, {}}}, {"x.safetensors", {8, hash, {{"w", hash}}}}}, state};
  replay(fuzz::manifest, {manifest_text(sound), manifest_text({1, "", {}, nlohmann::json::object()}), "{}"}, 3000);
}

TEST(FuzzReplay, TokenFile) {
  std::string llmc(1024, '\0');
  const int32_t words[] = {20240520, 1, 4};
  std::memcpy(llmc.data(), words, sizeof words);
  replay(fuzz::token_file, {llmc + std::string("\1\0\2\0\3\0\4\0", 8), std::string("\1\0\0\0\x60\0\0\0", 8), "", "a"},
         1000);
}

TEST(FuzzReplay, Jsonl) {
  replay(
      fuzz::jsonl,
      {R"({"text":"é\n\u00e9\ud83d\ude42","id":1})", "{\"text\":\"\"}\r\n\n{\"meta\":{\"text\":[1]},\"text\":\"x\"}\n",
       "\xEF\xBB\xBF{\"text\":\"a\"}\n[1]\n", R"({"content":"x"})", "{\"text\":\"a\xC3\"}\n", "\n \n"},
      10000);
}

TEST(FuzzReplay, Text) {
  replay(fuzz::text,
         {"abc ab ##a  abab#####\n#", "it's  \u3000日本 \u2028é🙂 12½", "x<|endoftext|>y<|endoftext|>",
          "ab\xED\xA0\x80\xF4\x90\x80\x80\xC0\xAF\xE2\x82", std::string(300, '#')},
         10000);
}

}  // namespace
}  // namespace lamina
