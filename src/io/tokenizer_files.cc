#include "io/tokenizer_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/byte_letters.h"
#include "io/json.h"
#include "io/quote.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr JsonLimits kLimits{.bytes = int64_t{128} << 20, .depth = 32};
constexpr const char* kJson = "tokenizer.json";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kPairs[][2] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};

// A vocabulary as the files spell it, with what is needed to look parts of merges up.
struct Spelt {
  std::vector<std::string> letters;                // by id, empty where no entry has that id
  std::unordered_map<std::string, int32_t> id_of;  // letters -> id
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<int32_t> specials;
};

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& expected,
                         const std::string& got) {
  throw_error(ErrorCode::unsupported, "unsupported tokenizer: {}: {}, expected {}, got {}", where, what, expected, got);
}

[[noreturn]] void bad(const std::string& where, const std::string& what) {
  throw_error(ErrorCode::invalid, "bad tokenizer: {}: {}", where, what);
}

// {"token": id}: the ids are 0 … n-1, each once. `extra` more ids may follow (tokens that are only in added_tokens).
void read_vocab(const Json& vocab, const std::string& where, size_t extra, Spelt& out) {
  if (!vocab.is_object()) bad(where, "vocab, expected an object, got " + json_text(vocab));
  out.letters.resize(vocab.size() + extra);
  std::vector<bool> taken(out.letters.size());
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_unsigned())
      bad(where, fmt::format("token {}: expected an id, got {}", quote_text(token, 40), json_text(id)));
    const uint64_t at = id.get<uint64_t>();
    if (at >= taken.size())
      bad(where, fmt::format("token {}: expected an id below {}, got {}", quote_text(token, 40), taken.size(), at));
    if (taken[at])
      bad(where, fmt::format("id {} twice: {} and {}", at, quote_text(out.letters[at], 40), quote_text(token, 40)));
    taken[at] = true;
    out.letters[at] = token;
    out.id_of.emplace(token, static_cast<int32_t>(at));
  }
}

// "left right": two parts and one space between them.
std::pair<std::string, std::string> split_merge(std::string_view line, size_t index, const std::string& where) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos)
    bad(where, fmt::format("merge {}: expected two parts, got {}", index, quote_text(line, 40)));
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

void read_merges(const Json& merges, const std::string& where, Spelt& out) {
  if (!merges.is_array()) bad(where, "merges, expected a list, got " + json_text(merges));
  for (size_t i = 0; i < merges.size(); ++i) {
    const Json& merge = merges[i];
    if (merge.is_string()) {
      out.merges.push_back(split_merge(merge.get_ref<const std::string&>(), i, where));
      continue;
    }
    if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
      bad(where, fmt::format("merge {}: expected two parts, got {}", i, json_text(merge)));
    out.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
}

// From spellings to bytes and ids.
Tokenizer build(Spelt spelt, const std::string& where) {
  TokenizerParts parts;
  parts.specials = spelt.specials;
  parts.tokens.resize(spelt.letters.size());
  std::vector<bool> special(spelt.letters.size());
  for (const int32_t id : spelt.specials) special[static_cast<size_t>(id)] = true;
  for (size_t id = 0; id < spelt.letters.size(); ++id) {
    const std::string& letters = spelt.letters[id];
    if (letters.empty()) bad(where, fmt::format("id {} of {}, expected a token, got none", id, spelt.letters.size()));
    const std::optional<std::string> bytes = special[id] ? letters : bytes_of_letters(letters);
    if (!bytes)
      bad(where, fmt::format("token {}: expected GPT-2's letters for bytes, got {}", id, quote_text(letters, 40)));
    parts.tokens[id] = *bytes;
  }
  for (size_t i = 0; i < spelt.merges.size(); ++i) {
    const auto& [left, right] = spelt.merges[i];
    const auto a = spelt.id_of.find(left), b = spelt.id_of.find(right);
    if (a == spelt.id_of.end() || b == spelt.id_of.end())
      bad(where, fmt::format("merge {}: expected parts in the vocabulary, got {}", i,
                             quote_text(a == spelt.id_of.end() ? left : right, 40)));
    parts.merges.emplace_back(a->second, b->second);
  }
  return Tokenizer(std::move(parts), where);
}

// The value of a key that must be absent, null, or equal to `expected`.
void expect_value(const Json& object, const char* key, const Json& expected, const std::string& where,
                  const std::string& owner) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null() || *at == expected) return;
  refuse(where, owner + "." + key, expected.dump() + " or nothing", json_text(*at));
}

std::string type_of(const Json& object) {
  return object.is_object() && object.contains("type") && object["type"].is_string() ? object["type"].get<std::string>()
                                                                                     : json_text(object);
}

// A Sequence of one is that one.
Json only_one(Json part) {
  for (const char* list : {"pretokenizers", "processors", "decoders"})
    if (part.is_object() && part.contains(list) && part[list].is_array() && part[list].size() == 1)
      return Json(part[list][0]);
  return part;
}

void check_pre_tokenizer(const Json& root, const std::string& where) {
  const Json part = only_one(root.value("pre_tokenizer", Json()));
  if (type_of(part) != "ByteLevel") refuse(where, "pre_tokenizer", "ByteLevel", type_of(part));
  expect_value(part, "use_regex", true, where, "pre_tokenizer");
  const Json prefix = part.value("add_prefix_space", Json());
  if (prefix != Json(false)) refuse(where, "pre_tokenizer.add_prefix_space", "false", prefix.dump());
}

// ByteLevel changes no id here, and a template that adds no token neither.
void check_post_processor(const Json& root, const std::string& where) {
  const Json part = only_one(root.value("post_processor", Json()));
  if (part.is_null() || type_of(part) == "ByteLevel") return;
  const Json single = part.is_object() ? part.value("single", Json()) : Json();
  const bool plain = type_of(part) == "TemplateProcessing" && single.is_array() && single.size() == 1 &&
                     single[0].is_object() && single[0].contains("Sequence");
  if (!plain) refuse(where, "post_processor", "ByteLevel, or a template that adds nothing", type_of(part));
}

void check_decoder(const Json& root, const std::string& where) {
  const Json part = only_one(root.value("decoder", Json()));
  if (!part.is_null() && type_of(part) != "ByteLevel") refuse(where, "decoder", "ByteLevel", type_of(part));
}

void check_model(const Json& model, const std::string& where) {
  expect_value(model, "type", "BPE", where, "model");
  expect_value(model, "continuing_subword_prefix", "", where, "model");
  expect_value(model, "end_of_word_suffix", "", where, "model");
  expect_value(model, "fuse_unk", false, where, "model");
  expect_value(model, "byte_fallback", false, where, "model");
  expect_value(model, "ignore_merges", false, where, "model");
  const auto dropout = model.find("dropout");
  if (dropout != model.end() && !dropout->is_null() && *dropout != 0)
    refuse(where, "model.dropout", "nothing", json_text(*dropout));
  for (const auto& [key, value] : model.items())
    if (key != "type" && key != "continuing_subword_prefix" && key != "end_of_word_suffix" && key != "fuse_unk" &&
        key != "byte_fallback" && key != "ignore_merges" && key != "dropout" && key != "unk_token" && key != "vocab" &&
        key != "merges")
      refuse(where, "model", "no key " + quote_text(key, 40), json_text(value));
}

void check_pipeline(const Json& root, const std::string& where, std::vector<std::string>& warnings) {
  const Json normalizer = root.value("normalizer", Json());
  const bool empty = normalizer.is_object() && normalizer.value("normalizers", Json()) == Json::array();
  if (!normalizer.is_null() && !empty) refuse(where, "normalizer", "none", type_of(normalizer));
  check_pre_tokenizer(root, where);
  check_post_processor(root, where);
  check_decoder(root, where);
  for (const char* key : {"truncation", "padding"})
    if (!root.value(key, Json()).is_null()) warnings.push_back(fmt::format("{}: {} has no effect here", where, key));
  for (const auto& [key, value] : root.items())
    if (key != "version" && key != "truncation" && key != "padding" && key != "added_tokens" && key != "normalizer" &&
        key != "pre_tokenizer" && key != "post_processor" && key != "decoder" && key != "model")
      refuse(where, "tokenizer", "no key " + quote_text(key, 40), json_text(value));
}

struct Added {
  int32_t id;
  std::string content;
};

std::vector<Added> read_added(const Json& root, const std::string& where) {
  std::vector<Added> out;
  const JsonReader list = JsonReader(root, "bad tokenizer: " + where)["added_tokens"];
  for (size_t i = 0; list.present() && i < list.list().size(); ++i) {
    const JsonReader token = list.entry(i);
    const std::string content = token["content"].as<std::string>();
    if (content.empty()) token["content"].refuse("a text of one character or more");
    const std::string name = "added token " + quote_text(content, 40);
    const int64_t id = token["id"].count();
    if (id > int64_t{1} << 30) token["id"].refuse("an id below 2^30");
    if (!token["special"].as_or(false)) refuse(where, name + ": special", "true", "false");
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (token[key].as_or(false)) refuse(where, name + ": " + key, "false", "true");
    out.push_back({static_cast<int32_t>(id), content});
  }
  return out;
}

// Puts the added tokens where the vocabulary has them, or behind it.
void place_added(const std::vector<Added>& added, const std::string& where, Spelt& spelt) {
  for (const Added& token : added) {
    const std::string name = quote_text(token.content, 40);
    if (token.id >= static_cast<int32_t>(spelt.letters.size()))
      bad(where, fmt::format("added token {}: expected an id below {}, got {}", name, spelt.letters.size(), token.id));
    std::string& there = spelt.letters[static_cast<size_t>(token.id)];
    if (!there.empty() && there != token.content)
      bad(where, fmt::format("id {} twice: {} and added token {}", token.id, quote_text(there, 40), name));
    const auto [at, fresh] = spelt.id_of.emplace(token.content, token.id);
    if (!fresh && at->second != token.id)
      bad(where, fmt::format("added token {}: id {} here, {} in the vocabulary", name, token.id, at->second));
    if (std::find(spelt.specials.begin(), spelt.specials.end(), token.id) != spelt.specials.end())
      bad(where, fmt::format("added token {} twice", name));
    there = token.content;
    spelt.specials.push_back(token.id);
  }
}

bool in_vocab(const Json& vocab, const std::string& token) { return vocab.is_object() && vocab.contains(token); }

// vocab.json + merges.txt do not say which tokens are special: those in angle brackets that no merge makes.
void guess_specials(Spelt& spelt) {
  std::unordered_map<std::string, bool> made;
  for (const auto& [left, right] : spelt.merges) made[left + right] = true;
  for (size_t id = 0; id < spelt.letters.size(); ++id) {
    const std::string& token = spelt.letters[id];
    if (token.size() > 2 && token.front() == '<' && token.back() == '>' && !made.contains(token))
      spelt.specials.push_back(static_cast<int32_t>(id));
  }
}

}  // namespace

LoadedTokenizer parse_tokenizer_json(std::string_view text, const std::string& where) {
  const Json root = parse_json(text, where, kLimits);
  (void)JsonReader(root, "bad tokenizer: " + where)["model"].object();
  std::vector<std::string> warnings;
  check_pipeline(root, where, warnings);
  const Json& model = root["model"];
  check_model(model, where);
  for (const char* key : {"vocab", "merges"})
    if (!model.contains(key)) bad(where, fmt::format("model, expected {} in it, got nothing", key));
  const std::vector<Added> added = read_added(root, where);
  size_t extra = 0;
  for (const Added& token : added) extra += in_vocab(model["vocab"], token.content) ? 0 : 1;
  Spelt spelt;
  read_vocab(model["vocab"], where, extra, spelt);
  read_merges(model["merges"], where, spelt);
  place_added(added, where, spelt);
  return {build(std::move(spelt), where), std::move(warnings)};
}

LoadedTokenizer parse_vocab_and_merges(std::string_view vocab, const std::string& vocab_where, std::string_view merges,
                                       const std::string& merges_where) {
  Spelt spelt;
  read_vocab(parse_json(vocab, vocab_where, kLimits), vocab_where, 0, spelt);
  require_utf8(merges, merges_where);
  bool first = true, ended = false;
  while (!merges.empty()) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool version = first && line.starts_with("#version");
    first = false;
    if (version) continue;
    if (line.empty()) {
      ended = true;  // empty lines may only end the file
      continue;
    }
    if (ended) bad(merges_where, fmt::format("merge {}: an empty line before it", spelt.merges.size()));
    spelt.merges.push_back(split_merge(line, spelt.merges.size(), merges_where));
  }
  guess_specials(spelt);
  return {build(std::move(spelt), merges_where), {}};
}

bool has_tokenizer(const std::string& folder) {
  std::error_code ignored;
  if (fs::exists(fs::path(folder) / kJson, ignored)) return true;
  for (const auto& pair : kPairs)
    if (fs::exists(fs::path(folder) / pair[0], ignored) && fs::exists(fs::path(folder) / pair[1], ignored)) return true;
  return false;
}

LoadedTokenizer load_tokenizer(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  const std::string name = is_folder ? "" : fs::path(path).filename().string();
  for (const auto& [vocab, merges] : kPairs) {
    const bool named = name == vocab || name == merges;
    const bool found = is_folder && !fs::exists(folder / kJson, ignored) && fs::exists(folder / vocab, ignored);
    if (!named && !found) continue;
    const std::string vocab_path = (folder / vocab).string(), merges_path = (folder / merges).string();
    return parse_vocab_and_merges(read_text_file(vocab_path, "a vocabulary", kLimits), vocab_path,
                                  read_text_file(merges_path, "a list of merges", kLimits), merges_path);
  }
  if (is_folder && !fs::exists(folder / kJson, ignored))
    throw_error(ErrorCode::io, "no tokenizer: {}: expected tokenizer.json, or vocab.json and merges.txt, got neither",
                path);
  const std::string file = is_folder ? (folder / kJson).string() : path;
  return parse_tokenizer_json(read_text_file(file, "a tokenizer.json", kLimits), file);
}

std::string tokenizer_json_text(const Tokenizer& tokenizer) {
  const TokenizerParts& parts = tokenizer.parts();
  const auto spelt = [&](int32_t id) {
    const std::string_view token = tokenizer.token(id);
    return tokenizer.is_special(id) ? std::string(token) : letters_of_bytes(token);
  };
  std::string text = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  for (size_t i = 0; i < parts.specials.size(); ++i)
    text += fmt::format(
        "{}\n    {{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": false, \"special\": true}}",
        i > 0 ? "," : "", parts.specials[i], Json(spelt(parts.specials[i])).dump());
  const std::string byte_level = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": ";
  text += "\n  ],\n  \"normalizer\": null,\n";
  text += "  \"pre_tokenizer\": " + byte_level + "true, \"use_regex\": true},\n";
  text += "  \"post_processor\": " + byte_level + "false, \"use_regex\": true},\n";
  text += "  \"decoder\": " + byte_level + "true, \"use_regex\": true},\n";
  text +=
      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": \"\",\n    \"end_of_word_suffix\": \"\",\n    \"fuse_unk\": false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {";
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    text += fmt::format("{}\n      {}: {}", id > 0 ? "," : "", Json(spelt(id)).dump(), id);
  text += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < parts.merges.size(); ++i)
    text += fmt::format("{}\n      {}", i > 0 ? "," : "",
                        Json(spelt(parts.merges[i].first) + " " + spelt(parts.merges[i].second)).dump());
  return text + "\n    ]\n  }\n}\n";
}

std::string tokenizer_config_text(const Tokenizer& tokenizer, int64_t max_length) {
  Json root = {{"add_prefix_space", false},
               {"clean_up_tokenization_spaces", false},
               {"model_max_length", max_length},
               {"tokenizer_class", "GPT2TokenizerFast"}};
  for (const char* key : {"bos_token", "eos_token", "unk_token"})
    root[key] = tokenizer.end_of_text() ? Json(kEndOfText) : Json(nullptr);
  Json added = Json::object();
  for (const int32_t id : tokenizer.parts().specials)
    added[std::to_string(id)] = {
        {"content", tokenizer.token(id)}, {"lstrip", false}, {"normalized", false}, {"rstrip", false},
        {"single_word", false},           {"special", true}};
  root["added_tokens_decoder"] = added;
  return root.dump(2) + "\n";
}

void check_tokenizer_folder(const std::string& folder) {
  std::error_code ignored;
  for (const char* name : {"lamina.json", "config.json", "checkpoints"})
    if (fs::exists(fs::path(folder) / name, ignored))
      throw Error(
          ErrorCode::invalid,
          fmt::format("folder of a model: {}: expected a new folder or one of a tokenizer, got one that holds {}",
                      folder, name),
          "the tokenizer of a model belongs to its weights: name another folder");
  check_output_folder(folder, {kJson, kConfig});
}

void save_tokenizer(const std::string& folder, const Tokenizer& tokenizer, int64_t max_length) {
  make_folder(folder);
  write_file((fs::path(folder) / kJson).string(), tokenizer_json_text(tokenizer));
  write_file((fs::path(folder) / kConfig).string(), tokenizer_config_text(tokenizer, max_length));
}

}  // namespace lamina
