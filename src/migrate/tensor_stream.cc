#include "migrate/tensor_stream.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "base/hash.h"
#include "io/element_type.h"
#include "io/quote.h"
#include "io/widen.h"

namespace lamina {
namespace {

using Bytes = std::span<const std::byte>;
using Sink = std::function<void(Bytes)>;

constexpr int64_t kChunk = 1 << 18;  // elements that are cast at a time

int64_t width_of(std::string_view dtype) { return find_type(&ElementType::name, dtype)->bytes; }

// Elements whose bits of the exponent are all set. The bytes need no alignment.
template <typename T>
int64_t count_non_finite(Bytes bytes, T exponent) {
  int64_t out = 0;
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T word;
    std::memcpy(&word, bytes.data() + at, sizeof(T));
    out += (word & exponent) == exponent;
  }
  return out;
}

int64_t count_non_finite(std::string_view dtype, Bytes bytes) {
  if (dtype == "F32") return count_non_finite<uint32_t>(bytes, 0x7F800000u);
  if (dtype == "F16") return count_non_finite<uint16_t>(bytes, 0x7C00u);
  if (dtype == "BF16") return count_non_finite<uint16_t>(bytes, 0x7F80u);
  return 0;
}

// One tensor on its way.
class Stream {
 public:
  Stream(const PlannedTensor& planned, const Sink& sink) : planned_(planned), sink_(sink) {}

  Streamed run() {
    if (!planned_.constant.empty())
      send(planned_.constant);
    else if (planned_.from.empty())
      zeros();
    else if (planned_.moves.empty())
      whole(*planned_.from.front()->stored, [this](Bytes bytes) { send(bytes); });
    else
      moved();
    out_.hash = hash_.text();
    return out_;
  }

 private:
  void zeros() {
    int64_t left = *packed_bytes(planned_.target.shape, width_of(planned_.target.dtype));
    const std::vector<std::byte> room(static_cast<size_t>(std::min<int64_t>(left, kChunk)));
    for (; left > 0; left -= std::ssize(room))
      send(Bytes(room).first(static_cast<size_t>(std::min<int64_t>(left, std::ssize(room)))));
  }

  // One source tensor in the target's type. Parts of a file may be cut within an element; then they are put together
  // first.
  void whole(const StoredTensor& tensor, const Sink& sink) {
    const int64_t width = width_of(tensor.dtype);
    for (const Bytes piece : tensor.pieces)
      if (std::ssize(piece) % width != 0) {
        std::vector<std::byte> room;
        return take(tensor.dtype, packed_data(tensor, room), sink);
      }
    for_each_part(tensor, [&](Bytes part) { take(tensor.dtype, part, sink); });
  }

  void moved() {
    const int64_t width = width_of(planned_.target.dtype);
    std::vector<std::byte> out(static_cast<size_t>(*packed_bytes(planned_.target.shape, width)));
    std::vector<std::byte> room;
    for (size_t i = 0; i < planned_.from.size(); ++i) {
      const Bytes data = in_type(*planned_.from[i]->stored, room);
      for (const PlannedMove& move : planned_.moves)
        if (move.from == i) rearrange(move.move, width, data, out);
    }
    send(out);
  }

  // All of a source tensor in the target's type: where it lies, or in `room`.
  Bytes in_type(const StoredTensor& tensor, std::vector<std::byte>& room) {
    if (tensor.dtype == planned_.target.dtype) return packed_data(tensor, room);
    room.clear();
    whole(tensor, [&](Bytes bytes) { room.insert(room.end(), bytes.begin(), bytes.end()); });
    return room;
  }

  // Bytes of type `from`, cast where another is wanted.
  void take(const std::string& from, Bytes bytes, const Sink& sink) {
    if (from == planned_.target.dtype) return sink(bytes);
    const auto step = static_cast<size_t>(kChunk * width_of(from));
    for (size_t at = 0; at < bytes.size(); at += step)
      cast(from, bytes.subspan(at, std::min(step, bytes.size() - at)), sink);
  }

  void cast(const std::string& from, Bytes bytes, const Sink& sink) {
    floats_.resize(bytes.size() / static_cast<size_t>(width_of(from)));
    widen(from, bytes, floats_.data());
    if (planned_.target.dtype == "F32") return sink(std::as_bytes(std::span(floats_)));
    const Dtype dtype = planned_.target.dtype == "F16" ? Dtype::f16 : Dtype::bf16;
    words_.resize(floats_.size());
    for (size_t i = 0; i < floats_.size(); ++i) {
      words_[i] = to_16_bits(floats_[i], dtype);
      if (std::isfinite(floats_[i]) && !std::isfinite(from_16_bits(words_[i], dtype)))
        throw_error(ErrorCode::invalid, "cannot convert: tensor {}: expected numbers within {}, got {}",
                    quote_text(planned_.target.name), planned_.target.dtype, floats_[i]);
    }
    sink(std::as_bytes(std::span(words_)));
  }

  void send(Bytes bytes) {
    out_.non_finite += count_non_finite(planned_.target.dtype, bytes);
    hash_.add(bytes);
    sink_(bytes);
  }

  const PlannedTensor& planned_;
  const Sink& sink_;
  Hash128 hash_;
  Streamed out_;
  std::vector<float> floats_;
  std::vector<uint16_t> words_;
};

}  // namespace

Streamed stream_tensor(const PlannedTensor& planned, const std::function<void(std::span<const std::byte>)>& sink) {
  return Stream(planned, sink).run();
}

}  // namespace lamina
