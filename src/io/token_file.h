// Files of token ids: llm.c's (a header of 256 int32, then ids) and nanoGPT's (ids and nothing else), read by 64-bit
// offsets; memory grows with what is read at a time, not with the file. Splits no text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/atomic_file.h"
#include "io/file_reader.h"

namespace lamina {

enum class TokenType { u16, u32, i32 };

std::string_view token_type_name(TokenType type);  // "u16", "u32", "i32"
std::optional<TokenType> parse_token_type(std::string_view name);

class TokenFile {
 public:
  // Without `type`, a file with llm.c's header is read by it and any other file is u16. Throws Error(invalid) that
  // names the file where its size is no whole number of ids, or the header and the size (or `type`) disagree.
  explicit TokenFile(const std::string& path, std::optional<TokenType> type = std::nullopt);

  const std::string& path() const { return file_.path(); }
  TokenType type() const { return type_; }
  int64_t size() const { return count_; }  // number of ids

  // ids [begin, begin + out.size()), which must lie in the file. Only after check_ids() are they within a vocabulary.
  // Allocates nothing.
  void read(int64_t begin, std::span<int32_t> out) const;

  // Reads the whole file once. Throws Error(invalid) that names the file, the place of the first id that is not below
  // `vocab_size`, its byte offset, the id and the size of the vocabulary.
  void check_ids(int64_t vocab_size) const;

 private:
  void read_header(std::span<const int32_t, 3> words, std::optional<TokenType> type);
  template <typename Id>
  void check_ids_of_type(int64_t vocab_size) const;

  FileReader file_;
  TokenType type_ = TokenType::u16;
  int64_t begin_ = 0;  // bytes before the first id
  int64_t count_ = 0;
};

// llm.c's form: magic 20240520, version 1, u16 ids. There whole or not at all.
class TokenFileWriter {
 public:
  explicit TokenFileWriter(const std::string& path);
  // Throws Error(invalid) for an id above 65535, and for more ids than the header can tell (2^31 - 1).
  void add(std::span<const int32_t> ids);
  void commit();
  int64_t size() const { return count_; }  // ids so far

 private:
  AtomicFile file_;
  std::vector<uint16_t> block_;
  int64_t count_ = 0;
};

// The same at once.
void write_token_file(const std::string& path, std::span<const int32_t> ids);

}  // namespace lamina
