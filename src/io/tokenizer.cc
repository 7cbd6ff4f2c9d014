#include "io/tokenizer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "io/quote.h"
#include "io/split.h"

namespace lamina {
namespace {

constexpr size_t kMaxSlots = size_t{1} << 17;  // of the memory of pieces
constexpr size_t kMaxRemembered = 48;          // bytes; longer pieces seldom come again
constexpr size_t kPollBytes = size_t{1} << 20;

// The places of special-token texts, leftmost first, the longest of those at one place, none overlapping.
class SpecialFinder {
 public:
  SpecialFinder(std::string_view text, const TokenizerParts& parts) : text_(text), parts_(parts) {
    next_.assign(parts.specials.size(), 0);
    for (size_t i = 0; i < next_.size(); ++i) next_[i] = text_.find(content(i));
  }

  struct Place {
    size_t begin = 0, length = 0;
    int32_t id = -1;  // -1: none
  };

  Place find(size_t from) {
    Place best;
    for (size_t i = 0; i < next_.size(); ++i) {
      if (next_[i] != std::string_view::npos && next_[i] < from) next_[i] = text_.find(content(i), from);
      if (next_[i] == std::string_view::npos) continue;
      if (best.id < 0 || next_[i] < best.begin || (next_[i] == best.begin && content(i).size() > best.length))
        best = {next_[i], content(i).size(), parts_.specials[i]};
    }
    return best;
  }

 private:
  std::string_view content(size_t i) const { return parts_.tokens[static_cast<size_t>(parts_.specials[i])]; }

  std::string_view text_;
  const TokenizerParts& parts_;
  std::vector<size_t> next_;
};

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts, const std::string& where)
    : parts_(std::move(parts)), merges_(parts_.merges.size()) {
  std::sort(parts_.specials.begin(), parts_.specials.end());
  for (const int32_t id : parts_.specials)
    LAMINA_CHECK(id >= 0 && id < vocab_size() && !token(id).empty(), "special id {}", id);
  check_bytes(where);
  check_merges(where);
}

void Tokenizer::check_bytes(const std::string& where) {
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < vocab_size(); ++id)
    if (token(id).size() == 1 && !is_special(id)) byte_ids_[static_cast<unsigned char>(token(id)[0])] = id;
  for (size_t byte = 0; byte < 256; ++byte)
    if (byte_ids_[byte] < 0)
      throw_error(ErrorCode::invalid, "bad tokenizer: {}: expected a token for the byte 0x{:02x}, got none", where,
                  byte);
}

void Tokenizer::check_merges(const std::string& where) {
  std::unordered_map<std::string_view, int32_t> id_of;
  for (int32_t id = 0; id < vocab_size(); ++id)
    if (!is_special(id) && !id_of.emplace(token(id), id).second)
      throw_error(ErrorCode::invalid, "bad tokenizer: {}: token {} twice", where, quote_text(token(id), 40));
  std::vector<bool> made(parts_.tokens.size());
  for (size_t i = 0; i < parts_.merges.size(); ++i) {
    const auto [left, right] = parts_.merges[i];
    LAMINA_CHECK(left >= 0 && left < vocab_size() && right >= 0 && right < vocab_size(), "merge {} of ids {} and {}", i,
                 left, right);
    const auto result = id_of.find(std::string(token(left)) + std::string(token(right)));
    if (is_special(left) || is_special(right) || result == id_of.end())
      throw_error(ErrorCode::invalid,
                  "bad tokenizer: {}: merge {}: {} and {}: its parts and result, expected in the vocabulary", where, i,
                  quote_text(token(left), 40), quote_text(token(right), 40));
    if (!merges_.add(left, right, {static_cast<uint32_t>(i), result->second}))
      throw_error(ErrorCode::invalid, "bad tokenizer: {}: merge {}: {} and {} for the second time", where, i,
                  quote_text(token(left), 40), quote_text(token(right), 40));
    made[static_cast<size_t>(result->second)] = true;
  }
  // A merge list that was cut short leaves tokens that nothing makes.
  for (int32_t id = 0; id < vocab_size(); ++id)
    if (token(id).size() != 1 && !is_special(id) && !made[static_cast<size_t>(id)])
      throw_error(ErrorCode::invalid,
                  "bad tokenizer: {}: {} merges for a vocabulary of {}: token {} ({}), expected a merge that makes it, "
                  "got none",
                  where, parts_.merges.size(), vocab_size(), id, quote_text(token(id), 40));
}

void check_fit(const Tokenizer& tokenizer, const std::string& name, int64_t vocab_size, const std::string& model) {
  if (tokenizer.vocab_size() > vocab_size)
    throw_error(ErrorCode::invalid,
                "tokenizer and model do not fit: {}, expected at most {} ids (vocab_size of {}), got {}", name,
                vocab_size, model, tokenizer.vocab_size());
}

bool Tokenizer::is_special(int32_t id) const {
  return std::binary_search(parts_.specials.begin(), parts_.specials.end(), id);
}

std::optional<int32_t> Tokenizer::end_of_text() const {
  for (const int32_t id : parts_.specials)
    if (token(id) == kEndOfText) return id;
  return std::nullopt;
}

std::string_view Tokenizer::token(int32_t id) const {
  if (id < 0 || id >= vocab_size())
    throw_error(ErrorCode::invalid, "id outside the vocabulary: expected an id below {}, got {}", vocab_size(), id);
  return parts_.tokens[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) out += token(id);
  return out;
}

EncodeCounts Encoder::encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options) {
  EncodeCounts counts;
  std::string repaired;
  if (options.invalid != InvalidUtf8::replace) {
    require_utf8(text, options.where, options.base, options.invalid);
  } else if (find_invalid_utf8(text) != kNoFault) {
    repaired = replace_invalid_utf8(text, counts.replaced);
    text = repaired;
  }
  SpecialFinder specials(text, tokenizer_.parts());
  size_t from = 0;
  for (auto place = specials.find(0); place.id >= 0; place = specials.find(place.begin + place.length)) {
    ++counts.special;
    if (options.special == SpecialMode::error)
      throw Error(ErrorCode::invalid,
                  fmt::format("special token in the text: {}: byte {}: {}", options.where,
                              options.base + static_cast<int64_t>(place.begin), tokenizer_.token(place.id)),
                  "--special text takes it as text, allow as the token");
    if (options.special == SpecialMode::text) continue;
    encode_plain(text.substr(from, place.begin - from), out, options.poll);
    out.push_back(place.id);
    from = place.begin + place.length;
  }
  encode_plain(text.substr(from), out, options.poll);
  return counts;
}

void Encoder::encode_plain(std::string_view text, std::vector<int32_t>& out, const std::function<void()>& poll) {
  size_t next_poll = poll ? kPollBytes : text.size();
  for (size_t at = 0; at < text.size();) {
    if (at >= next_poll) {
      poll();
      next_poll = at + kPollBytes;
    }
    const size_t end = piece_end(text, at);
    encode_piece(text.substr(at, end - at), out);
    at = end;
  }
}

void Encoder::encode_piece(std::string_view piece, std::vector<int32_t>& out) {
  if (piece.size() == 1) {
    out.push_back(tokenizer_.byte_ids_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.size() > kMaxRemembered) {
    merge_piece(piece);
    out.insert(out.end(), symbols_.begin(), symbols_.end());
    return;
  }
  if (filled_ * 2 >= slots_.size()) grow();
  const uint64_t hash = XXH3_64bits(piece.data(), piece.size());
  Slot& slot = slot_of(piece, hash);
  if (slot.length == 0) {
    merge_piece(piece);
    slot = {hash, static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(ids_.size()),
            static_cast<uint32_t>(piece.size()), static_cast<uint32_t>(symbols_.size())};
    keys_ += piece;
    ids_.insert(ids_.end(), symbols_.begin(), symbols_.end());
    ++filled_;
  }
  for (uint32_t i = 0; i < slot.count; ++i) out.push_back(ids_[slot.ids + i]);
}

void Encoder::merge_piece(std::string_view piece) {
  if (piece.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw_error(ErrorCode::invalid, "text with a word too long to encode: expected at most 2147483647 bytes, got {}",
                piece.size());
  symbols_.resize(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) symbols_[i] = tokenizer_.byte_ids_[static_cast<unsigned char>(piece[i])];
  bpe_merge(tokenizer_.merges_, symbols_, scratch_);
}

// The piece's slot, or the empty one (length 0) where it belongs.
Encoder::Slot& Encoder::slot_of(std::string_view piece, uint64_t hash) {
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].length != 0) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && slot.length == piece.size() &&
        std::memcmp(keys_.data() + slot.key, piece.data(), piece.size()) == 0)
      break;
    at = (at + 1) & (slots_.size() - 1);
  }
  return slots_[at];
}

// Twice the slots; at the limit, everything is forgotten instead.
void Encoder::grow() {
  if (slots_.size() >= kMaxSlots) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    keys_.clear();
    ids_.clear();
    filled_ = 0;
    return;
  }
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(std::max<size_t>(old.size() * 2, 64), {});
  for (const Slot& slot : old)
    if (slot.length != 0) slot_of(std::string_view(keys_).substr(slot.key, slot.length), slot.hash) = slot;
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  std::vector<int32_t> out;
  Encoder(tokenizer).encode(text, out, options);
  return out;
}

}  // namespace lamina
