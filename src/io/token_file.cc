#include "io/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/pages.h"
#include "io/sniff.h"

namespace lamina {
namespace {

constexpr int64_t kHeaderBytes = 1024;
constexpr int32_t kMagic = 20240520;      // GPT-2 files
constexpr int32_t kMagicWide = 20240801;  // files of larger vocabularies, u32
constexpr int64_t kBlock = 1 << 20;       // ids checked between two hand-backs of pages

int64_t width_of(TokenType type) { return type == TokenType::u16 ? 2 : 4; }

int32_t load_i32(const std::byte* at) {
  int32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Index of the first id that is not in [0, limit), or `count`. Whole blocks are only compared with a maximum.
template <typename Id>
int64_t first_above(const std::byte* data, int64_t count, uint32_t limit) {
  constexpr int64_t kStep = 4096;
  std::array<Id, kStep> ids;
  for (int64_t at = 0; at < count; at += kStep) {
    const int64_t n = std::min(kStep, count - at);
    std::memcpy(ids.data(), data + at * static_cast<int64_t>(sizeof(Id)), static_cast<size_t>(n) * sizeof(Id));
    Id most = 0;
    for (int64_t i = 0; i < n; ++i) most = std::max(most, ids[static_cast<size_t>(i)]);
    if (most < limit) continue;
    for (int64_t i = 0; i < n; ++i)
      if (ids[static_cast<size_t>(i)] >= limit) return at + i;
  }
  return count;
}

}  // namespace

std::string_view token_type_name(TokenType type) {
  return type == TokenType::u16 ? "u16" : type == TokenType::u32 ? "u32" : "i32";
}

std::optional<TokenType> parse_token_type(std::string_view name) {
  for (const TokenType type : {TokenType::u16, TokenType::u32, TokenType::i32})
    if (token_type_name(type) == name) return type;
  return std::nullopt;
}

TokenFile::TokenFile(const std::string& path, std::optional<TokenType> type) : map_(path) {
  refuse_foreign_file(map_.bytes(), path, "a token file");
  const auto size = static_cast<int64_t>(map_.bytes().size());
  const int32_t magic = size >= 4 ? load_i32(map_.bytes().data()) : 0;
  if (magic == kMagic || magic == kMagicWide) {
    read_header(type);
    return;
  }
  if (magic == static_cast<int32_t>(__builtin_bswap32(kMagic)))
    throw_error(ErrorCode::unsupported, "bad token file: {}: its header has big-endian numbers, expected little-endian",
                path);
  type_ = type.value_or(TokenType::u16);
  const int64_t width = width_of(type_);
  if (size % width != 0)
    throw_error(ErrorCode::invalid, "bad token file: {}: {} bytes are no whole number of ids of {} bytes ({})", path,
                size, width, token_type_name(type_));
  count_ = size / width;
}

void TokenFile::read_header(std::optional<TokenType> type) {
  const auto size = static_cast<int64_t>(map_.bytes().size());
  if (size < kHeaderBytes)
    throw_error(ErrorCode::invalid, "bad token file: {}: its header takes {} bytes, the file has {}", path(),
                kHeaderBytes, size);
  const int32_t version = load_i32(map_.bytes().data() + 4);
  count_ = load_i32(map_.bytes().data() + 8);
  begin_ = kHeaderBytes;
  const int64_t data = size - kHeaderBytes;
  // Version 1 of the GPT-2 magic is u16. Later ones, and the other magic, may be wider: the size tells.
  const bool narrow = version == 1 && load_i32(map_.bytes().data()) == kMagic;
  if (version < 1 || count_ < 0)
    throw_error(ErrorCode::invalid, "bad token file: {}: its header says version {} and {} ids", path(), version,
                count_);
  type_ = !narrow && data == count_ * 4 ? TokenType::u32 : TokenType::u16;
  if (data != count_ * width_of(type_))
    throw_error(ErrorCode::invalid,
                "bad token file: {}: its header says {} ids ({} bytes), the file has {} bytes of ids", path(), count_,
                count_ * width_of(type_), data);
  if (type && width_of(*type) != width_of(type_) && count_ > 0)
    throw_error(ErrorCode::invalid, "bad token file: {}: its header says {}, --token-type {}", path(),
                token_type_name(type_), token_type_name(*type));
  if (type) type_ = *type;
}

int64_t TokenFile::value(int64_t i) const {
  const std::byte* at = map_.bytes().data() + begin_ + i * width_of(type_);
  if (type_ == TokenType::i32) return load_i32(at);
  if (type_ == TokenType::u32) return static_cast<uint32_t>(load_i32(at));
  uint16_t id;
  std::memcpy(&id, at, sizeof id);
  return id;
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  const auto n = static_cast<int64_t>(out.size());
  LAMINA_CHECK(begin >= 0 && n <= count_ && begin <= count_ - n, "ids {}+{} of {}", begin, n, count_);
  if (out.empty()) return;
  const std::byte* at = map_.bytes().data() + begin_ + begin * width_of(type_);
  if (type_ != TokenType::u16) {
    std::memcpy(out.data(), at, out.size_bytes());
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    uint16_t id;
    std::memcpy(&id, at + 2 * i, sizeof id);
    out[static_cast<size_t>(i)] = id;
  }
}

void TokenFile::check_ids(int64_t vocab_size) const {
  LAMINA_CHECK(vocab_size > 0, "vocabulary of {}", vocab_size);
  // A negative i32 is a large u32: one comparison does for both.
  const auto limit = static_cast<uint32_t>(std::min<int64_t>(vocab_size, std::numeric_limits<int32_t>::max()));
  const int64_t width = width_of(type_);
  for (int64_t at = 0; at < count_; at += kBlock) {
    const int64_t n = std::min(kBlock, count_ - at);
    const std::byte* data = map_.bytes().data() + begin_ + at * width;
    const int64_t bad = width == 2 ? first_above<uint16_t>(data, n, limit) : first_above<uint32_t>(data, n, limit);
    if (bad < n)
      throw_error(ErrorCode::invalid,
                  "id outside the vocabulary: {}: position {} (byte {}): expected an id below {}, got {}", path(),
                  at + bad, begin_ + (at + bad) * width, vocab_size, value(at + bad));
    drop_pages(map_, {data, static_cast<size_t>(n * width)});
  }
}

void TokenFile::require(int64_t count) const {
  if (count_ < count)
    throw_error(ErrorCode::invalid, "too few ids: {}: expected at least {}, got {}", path(), count, count_);
}

void write_token_file(const std::string& path, std::span<const int32_t> ids) {
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw_error(ErrorCode::invalid, "too many ids for a token file: {}: at most 2147483647, got {}", path, ids.size());
  AtomicFile file(path);
  std::array<int32_t, 256> header{kMagic, 1, static_cast<int32_t>(ids.size())};
  file.write(std::as_bytes(std::span(header)));
  std::vector<uint16_t> block;
  for (size_t at = 0; at < ids.size(); at += kBlock) {
    block.clear();
    for (const int32_t id : ids.subspan(at, std::min<size_t>(kBlock, ids.size() - at))) {
      if (id < 0 || id > 65535)
        throw_error(ErrorCode::invalid, "id too large for a token file: {}: expected at most 65535, got {}", path, id);
      block.push_back(static_cast<uint16_t>(id));
    }
    file.write(std::as_bytes(std::span(block)));
  }
  file.commit();
}

}  // namespace lamina
