#include "io/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "io/sniff.h"

namespace lamina {
namespace {

constexpr int64_t kHeaderBytes = 1024;
constexpr int64_t kBlock = 1 << 18;  // ids checked or written at a time

// The headers that llm.c writes. Another version under one of its magics may be anything: it is not guessed at.
struct Format {
  int32_t magic;
  int32_t version;
  TokenType type;
};
constexpr Format kFormats[] = {{20240520, 1, TokenType::u16},   // GPT-2
                               {20240801, 7, TokenType::u32}};  // larger vocabularies
constexpr Format kWritten = kFormats[0];

const Format* format_of(int32_t magic) {
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.magic == magic; });
  return found == std::end(kFormats) ? nullptr : found;
}

int64_t width_of(TokenType type) { return type == TokenType::u16 ? 2 : 4; }

}  // namespace

std::string_view token_type_name(TokenType type) {
  return type == TokenType::u16 ? "u16" : type == TokenType::u32 ? "u32" : "i32";
}

std::optional<TokenType> parse_token_type(std::string_view name) {
  for (const TokenType type : {TokenType::u16, TokenType::u32, TokenType::i32})
    if (token_type_name(type) == name) return type;
  return std::nullopt;
}

TokenFile::TokenFile(const std::string& path, std::optional<TokenType> type) : file_(path) {
  std::array<std::byte, kHeaderBytes> front;
  const int64_t size = file_.size();
  const std::span<std::byte> there = std::span(front).first(static_cast<size_t>(std::min(size, kHeaderBytes)));
  file_.read(0, there);
  refuse_foreign_file(there, path, "a token file");
  std::array<int32_t, 3> words{};
  std::memcpy(words.data(), front.data(), std::min(sizeof words, there.size()));
  const int32_t magic = size >= 4 ? words[0] : 0;
  if (format_of(magic) != nullptr) {
    read_header(words, type);
    return;
  }
  if (format_of(static_cast<int32_t>(__builtin_bswap32(static_cast<uint32_t>(magic)))) != nullptr)
    throw_error(ErrorCode::unsupported,
                "bad token file: {}: header, expected little-endian numbers, got big-endian ones", path);
  type_ = type.value_or(TokenType::u16);
  const int64_t width = width_of(type_);
  if (size % width != 0)
    throw_error(ErrorCode::invalid, "bad token file: {}: size, expected a multiple of {} bytes ({}), got {}", path,
                width, token_type_name(type_), size);
  count_ = size / width;
}

void TokenFile::read_header(std::span<const int32_t, 3> words, std::optional<TokenType> type) {
  const Format& format = *format_of(words[0]);
  if (file_.size() < kHeaderBytes)
    throw_error(ErrorCode::invalid, "bad token file: {}: header, expected {} bytes, got {}", path(), kHeaderBytes,
                file_.size());
  if (words[1] != format.version)
    throw_error(ErrorCode::unsupported, "unsupported token file: {}: header with magic {}, expected version {}, got {}",
                path(), format.magic, format.version, words[1]);
  type_ = format.type;
  count_ = words[2];
  begin_ = kHeaderBytes;
  const int64_t data = file_.size() - kHeaderBytes;
  if (count_ < 0 || data != count_ * width_of(type_))
    throw_error(ErrorCode::invalid,
                "bad token file: {}: its header says {} ids of {} bytes, expected {} bytes after it, got {}", path(),
                count_, width_of(type_), count_ * width_of(type_), data);
  if (type && width_of(*type) != width_of(type_) && count_ > 0)
    throw_error(ErrorCode::invalid, "bad token file: {}: --token-type, expected {} as its header says, got {}", path(),
                token_type_name(type_), token_type_name(*type));
  if (type) type_ = *type;
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  const auto n = static_cast<int64_t>(out.size());
  LAMINA_CHECK(begin >= 0 && n <= count_ && begin <= count_ - n, "ids {}+{} of {}", begin, n, count_);
  const auto width = static_cast<size_t>(width_of(type_));
  const std::span<std::byte> bytes = std::as_writable_bytes(out).first(out.size() * width);
  file_.read(begin_ + begin * static_cast<int64_t>(width), bytes);
  if (type_ != TokenType::u16) return;
  for (size_t i = out.size(); i-- > 0;) {  // from the back, each id's place lies behind its bytes
    uint16_t id;
    std::memcpy(&id, bytes.data() + 2 * i, sizeof id);
    out[i] = id;
  }
}

template <typename Id>
void TokenFile::check_ids_of_type(int64_t vocab_size) const {
  // A negative i32 is a large u32: one comparison does for both.
  const auto limit = static_cast<uint32_t>(std::min<int64_t>(vocab_size, std::numeric_limits<int32_t>::max()));
  constexpr auto kWidth = static_cast<int64_t>(sizeof(Id));
  std::vector<Id> ids(static_cast<size_t>(std::min(kBlock, count_)));
  for (int64_t at = 0; at < count_; at += kBlock) {
    const std::span<Id> block = std::span(ids).first(static_cast<size_t>(std::min(kBlock, count_ - at)));
    file_.read(begin_ + at * kWidth, std::as_writable_bytes(block));
    Id most = 0;
    for (const Id id : block) most = std::max(most, id);
    if (most < limit) continue;
    const auto bad = std::find_if(block.begin(), block.end(), [&](Id id) { return id >= limit; });
    const int64_t place = at + (bad - block.begin());
    const int64_t id = type_ == TokenType::i32 ? int64_t{static_cast<int32_t>(*bad)} : int64_t{*bad};
    throw_error(ErrorCode::invalid,
                "id outside the vocabulary: {}: position {} (byte {}): expected an id below {}, got {}", path(), place,
                begin_ + place * kWidth, vocab_size, id);
  }
}

void TokenFile::check_ids(int64_t vocab_size) const {
  LAMINA_CHECK(vocab_size > 0, "vocabulary of {}", vocab_size);
  if (type_ == TokenType::u16)
    check_ids_of_type<uint16_t>(vocab_size);
  else
    check_ids_of_type<uint32_t>(vocab_size);
}

TokenFileWriter::TokenFileWriter(const std::string& path) : file_(path) {
  const std::array<std::byte, kHeaderBytes> header{};
  file_.write(header);
}

void TokenFileWriter::add(std::span<const int32_t> ids) {
  count_ += std::ssize(ids);
  if (count_ > std::numeric_limits<int32_t>::max())
    throw Error(ErrorCode::invalid,
                fmt::format("too many ids for a token file: {}: expected at most 2147483647, got {} or more",
                            file_.path(), count_),
                "write several files: --data takes any number of them");
  for (size_t at = 0; at < ids.size(); at += kBlock) {
    block_.clear();
    for (const int32_t id : ids.subspan(at, std::min<size_t>(kBlock, ids.size() - at))) {
      if (id < 0 || id > 65535)
        throw_error(ErrorCode::invalid, "id too large for a token file: {}: expected at most 65535, got {}",
                    file_.path(), id);
      block_.push_back(static_cast<uint16_t>(id));
    }
    file_.write(std::as_bytes(std::span(block_)));
  }
}

void TokenFileWriter::commit() {
  const std::array<int32_t, 3> words{kWritten.magic, kWritten.version, static_cast<int32_t>(count_)};
  file_.rewrite(0, std::as_bytes(std::span(words)));
  file_.commit();
}

void write_token_file(const std::string& path, std::span<const int32_t> ids) {
  TokenFileWriter writer(path);
  writer.add(ids);
  writer.commit();
}

}  // namespace lamina
