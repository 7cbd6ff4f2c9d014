// One function per reader: takes any bytes, and lets out nothing but a clear Error. Each also states what must hold of
// input that is accepted. Used by libFuzzer (one NAME.cc each) and by replay_test.cc.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "io/checkpoint_folder.h"
#include "io/documents.h"
#include "io/foreign.h"
#include "io/formats.h"
#include "io/hf_config.h"
#include "io/hf_folder.h"
#include "io/json.h"
#include "io/llmc_checkpoint.h"
#include "io/model_names.h"
#include "io/model_weights.h"
#include "io/safetensors.h"
#include "io/small_bpe.h"
#include "io/split.h"
#include "io/tiny.h"
#include "io/token_file.h"
#include "io/tokenizer.h"
#include "io/tokenizer_files.h"
#include "io/torch_file.h"
#include "io/utf8.h"
#include "migrate/lint.h"
#include "migrate/lint_python.h"
#include "train/checkpoint.h"
#include "train/resume.h"

namespace lamina::fuzz {

// Not an assertion of GoogleTest: libFuzzer wants the process to end.
inline void must(bool condition, const char* what, std::string_view of = "") {
  if (condition) return;
  std::fprintf(stderr, "fuzz: does not hold: %s: %.*s\n", what, static_cast<int>(of.size()), of.data());
  std::abort();
}

// The call succeeds, or throws Error with one line of text; any other exception gets out.
template <typename F>
bool accepted(F&& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    const std::string_view text = error.what();
    must(!text.empty() && text.find('\n') == std::string_view::npos, "an error is one line", text);
    must(find_invalid_utf8(text) == kNoFault, "an error is text");
    return false;
  }
}

// A file in memory under a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    must(fd_ >= 0 && ::write(fd_, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
         "a memory file");
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// A file on disk, where the ending of its name matters.
class NamedFile {
 public:
  NamedFile(std::string_view content, const char* ending)
      : path_(std::filesystem::temp_directory_path() / ("lamina-fuzz-" + std::to_string(::getpid()) + ending)) {
    std::ofstream(path_, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  ~NamedFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline void json(std::string_view data) {
  nlohmann::json got;
  if (!accepted([&] { got = parse_json(data, "f"); })) return;
  must(got == nlohmann::json::parse(data), "the value is that of a plain parser");
}

inline void safetensors(std::string_view data) {
  // A copy of exactly this size, so that a sanitizer sees a read beyond it.
  const std::vector<std::byte> file(std::as_bytes(std::span(data)).begin(), std::as_bytes(std::span(data)).end());
  accepted([&] {
    const Safetensors content = parse_safetensors(file, "f");
    auto bytes = static_cast<size_t>(content.data_begin);
    unsigned sum = 0;
    for (const SafetensorsTensor& tensor : content.tensors) {
      must(tensor.bytes.data() == file.data() + bytes, "tensors tile the data");
      bytes += tensor.bytes.size();
      for (const std::byte b : tensor.bytes) sum += std::to_integer<unsigned>(b);
    }
    must(bytes == file.size() && sum < std::numeric_limits<unsigned>::max(), "no byte is left over");
  });
}

// Any reader of files of tensors: what is accepted lies within the file and is as long as its shape says.
inline void tensors(std::string_view data, TensorContent (*parse)(std::span<const std::byte>, const std::string&)) {
  const std::vector<std::byte> file(std::as_bytes(std::span(data)).begin(), std::as_bytes(std::span(data)).end());
  accepted([&] {
    const TensorContent content = parse(file, "f");
    check_names(content, "f");
    for (const StoredTensor& tensor : content.tensors) {
      for (const auto& piece : tensor.pieces)
        must(piece.empty() || (piece.data() >= file.data() && piece.data() + piece.size() <= file.data() + file.size()),
             "a tensor lies within its file", tensor.name);
      int64_t bytes = 0;
      if (tensor.bytes > 1 << 20) continue;
      for_each_part(tensor, [&](std::span<const std::byte> part) { bytes += std::ssize(part); });
      must(bytes == tensor.bytes, "a tensor is as long as its shape says", tensor.name);
    }
    for (const StoredValue& value : content.values)
      if (const auto* text = std::get_if<std::string>(&value.value))
        must(find_invalid_utf8(*text) == kNoFault, "a value is text");
    check_sums(content, "f");
  });
}

// As the pickle of an archive that is sound.
inline void pickle(std::string_view data) {
  const std::string storage(16, 'x');
  tensors(test::torch_zip(std::string(data), {storage, storage}), parse_torch_zip);
}

inline void zip(std::string_view data) { tensors(data, parse_torch_zip); }
inline void torch_legacy(std::string_view data) { tensors(data, parse_torch_legacy); }
inline void ckpt(std::string_view data) { tensors(data, parse_ckpt); }
inline void llmc(std::string_view data) { tensors(data, parse_llmc); }

inline void hf_config(std::string_view data) {
  accepted([&] {
    const ModelConfig config = parse_hf_config(data, "f").model;
    must(parse_hf_config(hf_config_text(config), "g").model == config, "what is written reads back");
  });
}

// A match without problems uses each tensor once, and each parameter has one.
inline void match_names(const std::vector<FileTensor>& tensors, const NameProfile& profile) {
  const NameMatch match = match_gpt2_names(tensors, test::tiny_config(), profile);
  if (!match.problems.empty()) return;
  must(match.wanted.size() == profile_tensors(profile, test::tiny_config()).size(), "all tensors of the model");
  std::vector<bool> used(tensors.size());
  for (const WantedTensor& wanted : match.wanted) {
    must(wanted.source >= 0 && !used[static_cast<size_t>(wanted.source)], "each has a source of its own");
    must(tensors[static_cast<size_t>(wanted.source)].shape == wanted.shape, "of its shape");
    used[static_cast<size_t>(wanted.source)] = true;
  }
  const auto count = static_cast<size_t>(std::count(used.begin(), used.end(), true));
  must(count + match.ignored.size() + (match.tied_head >= 0 ? 1 : 0) == tensors.size(), "nothing is left over");
}

// Lines "NAME DTYPE SIZE SIZE …" as the tensors of a file.
inline void names(std::string_view data) {
  std::vector<FileTensor> tensors;
  while (!data.empty()) {
    const size_t end = std::min(data.find('\n'), data.size());
    std::string_view line = data.substr(0, end);
    data.remove_prefix(std::min(end + 1, data.size()));
    FileTensor tensor{std::string(line.substr(0, line.find(' '))), "F32", {}};
    while (line.find(' ') != std::string_view::npos) {
      line.remove_prefix(line.find(' ') + 1);
      tensor.shape.push_back(std::strtoll(std::string(line.substr(0, 12)).c_str(), nullptr, 10));
    }
    tensors.push_back(std::move(tensor));
  }
  std::set<std::string_view> ids{"hf", detect_profile(tensors).id};
  for (const std::string_view id : ids) match_names(tensors, *find_profile(id));
}

inline void hf_index(std::string_view data) {
  static const test::TempDir dir;
  dir.write("model.safetensors.index.json", data);
  dir.write("a.safetensors", test::tiny_safetensors({test::f32("x", {1}, {1})}));
  must(!accepted([&] { ModelWeights(dir.path(), test::tiny_config()); }), "no index makes one tensor a model");
}

inline void tokenizer_json(std::string_view data) {
  accepted([&] {
    const Tokenizer tokenizer = parse_tokenizer_json(data, "f").tokenizer;
    const std::string text = "abc ab ##a  é🙂<|endoftext|>";
    must(tokenizer.decode(encode(tokenizer, text)) == text, "text comes back");
    must(tokenizer_json_text(parse_tokenizer_json(tokenizer_json_text(tokenizer), "g").tokenizer) ==
             tokenizer_json_text(tokenizer),
         "what is written reads back");
  });
}

inline void merges_txt(std::string_view data) {
  static const std::string vocab = test::small_vocab().dump();
  accepted([&] {
    const Tokenizer tokenizer = parse_vocab_and_merges(vocab, "v", data, "m").tokenizer;
    must(tokenizer.decode(encode(tokenizer, test::kSmallText)) == test::kSmallText, "text comes back");
  });
}

// Findings lie in the script, and a comment before it changes none.
inline void python(std::string_view data) {
  std::vector<Finding> found;
  if (!accepted([&] { found = lint_script(data, "f"); })) return;
  const auto lines = std::count(data.begin(), data.end(), '\n') + std::count(data.begin(), data.end(), '\r') + 1;
  for (const Finding& finding : found)
    must(finding.place.line >= 1 && finding.place.line <= lines && find_invalid_utf8(finding.what) == kNoFault,
         "a finding lies in the script, and is text", finding.what);
  const PyScript script = scan_python(data, "f");
  for (const PyCall& call : script.calls)
    for (const PyArgument& argument : call.arguments)
      must(argument.begin <= argument.end && argument.end <= script.tokens.size(), "arguments are tokens",
           call.written);
  if (!data.starts_with("\xEF\xBB\xBF"))
    must(lint_script("#\n" + std::string(data), "f").size() == found.size(), "a comment changes nothing");
}

// The manifest as it stands, and once more with its own hash made right, which a stranger could do as well.
inline void manifest(std::string_view data) {
  const auto try_one = [](std::string_view text) {
    accepted([&] {
      const Manifest got = parse_manifest(text, "f");
      must(parse_manifest(manifest_text(got), "g") == got, "what is written reads back");
      for (const auto& [name, file] : got.files)
        must(!name.empty() && name.front() != '.' && name.find('/') == std::string::npos && file.bytes >= 0,
             "files lie in the folder");
      must(got.step >= 0 && got.state.is_object(), "a step and a state");
      accepted([&] { parse_state(got.state.value("progress", nlohmann::json()), "f"); });
      compare_settings(got.state.value("settings", nlohmann::json()), {{"steps", 5}, {"options", {{"lr", 0.5}}}}, 3);
    });
  };
  try_one(data);
  nlohmann::json content;
  if (!accepted([&] { content = parse_json(data, "f"); }) || !content.is_object()) return;
  content["xxh3_128"] = manifest_hash(content);
  try_one(content.dump());
}

inline void token_file(std::string_view data) {
  const MemoryFile memory(data);
  for (const std::optional<TokenType> type : {std::optional<TokenType>(), std::optional(TokenType::u16),
                                              std::optional(TokenType::u32), std::optional(TokenType::i32)})
    accepted([&] {
      const TokenFile file(memory.path(), type);
      std::vector<int32_t> ids(static_cast<size_t>(file.size()));
      file.read(0, ids);
      const bool sound = accepted([&] { file.check_ids(97); });
      const bool all_below = std::all_of(ids.begin(), ids.end(), [](int32_t id) { return id >= 0 && id < 97; });
      must(sound == all_below, "check_ids finds every bad id");
    });
}

inline void jsonl(std::string_view data) {
  const std::string where = "f: line 1";
  std::string text;
  if (accepted([&] { text = text_of_json_line(data, "text", where); }))
    must(text == nlohmann::json::parse(data).at("text").get<std::string>(), "the text is that of a plain parser");
  const NamedFile file(data, ".jsonl");
  for (const InvalidUtf8 invalid : {InvalidUtf8::refuse, InvalidUtf8::replace})
    accepted([&] {
      DocumentReader reader({file.path()}, {.invalid = invalid});
      for (auto documents = reader.next(); !documents.empty(); documents = reader.next())
        for (const Document& document : documents)
          must(find_invalid_utf8(document.text) == kNoFault, "a document is text");
    });
}

inline void text(std::string_view data) {
  static const Tokenizer tokenizer = test::small_tokenizer();
  const bool sound = accepted([&] { must(tokenizer.decode(encode(tokenizer, data)) == data, "text comes back"); });
  must(sound == (find_invalid_utf8(data) == kNoFault), "strict means strict");
  int64_t count = 0;
  const std::string repaired = replace_invalid_utf8(data, count);
  must(find_invalid_utf8(repaired) == kNoFault && sound == (count == 0), "repaired text is text");
  std::vector<int32_t> ids;
  const EncodeOptions options{.special = SpecialMode::allow, .invalid = InvalidUtf8::replace};
  must(Encoder(tokenizer).encode(data, ids, options).replaced == count, "each part counts");
  must(tokenizer.decode(ids) == repaired, "and comes back");
}

}  // namespace lamina::fuzz
