#include "train/metrics.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_map.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string_view text_of(const FileMap& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// The step that a line is of; 0 for a line that a kill or a power cut left damaged.
int64_t step_of(std::string_view line) {
  const Json value = Json::parse(line, nullptr, false);
  if (!value.is_object() || !value.contains("step") || !value["step"].is_number_integer()) return 0;
  return value["step"].get<int64_t>();
}

struct Lines {
  int64_t bytes = 0;      // of all whole lines of steps up to the one that was asked for
  int64_t last_line = 0;  // where the last of them begins
};

Lines lines_until(const std::string& path, int64_t step) {
  Lines out;
  if (std::error_code ignored; step == 0 || !fs::exists(path, ignored)) return out;
  const FileMap file(path);
  const std::string_view text = text_of(file);
  for (size_t at = 0;;) {
    const size_t end = text.find('\n', at);
    if (end == std::string_view::npos) return out;
    const int64_t own = step_of(text.substr(at, end - at));
    if (own < 1 || own > step) return out;
    out = {static_cast<int64_t>(end + 1), static_cast<int64_t>(at)};
    at = end + 1;
  }
}

// The few parts of protocol buffers that an event needs: https://protobuf.dev/programming-guides/encoding/
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

template <typename T>
void put_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_key(std::string& out, uint64_t field, Wire wire) { put_varint(out, field << 3 | wire); }

std::string bytes_field(uint64_t field, std::string_view content) {
  std::string out;
  put_key(out, field, kBytes);
  put_varint(out, content.size());
  return out.append(content);
}

// Summary.Value: tag = 1, simple_value = 2; in Summary: value = 1.
std::string scalar(std::string_view tag, double value) {
  std::string out = bytes_field(1, tag);
  put_key(out, 2, kFixed32);
  put_little_endian(out, std::bit_cast<uint32_t>(static_cast<float>(value)));
  return bytes_field(1, out);
}

// Event: wall_time = 1, step = 2, then one of file_version = 3, summary = 5, session_log = 7.
std::string event(double time, int64_t step, const std::string& field) {
  std::string out;
  put_key(out, 1, kFixed64);
  put_little_endian(out, std::bit_cast<uint64_t>(time));
  put_key(out, 2, kVarint);
  put_varint(out, static_cast<uint64_t>(step));
  return out + field;
}

// TFRecord: length, its checksum, data, its checksum.
std::string record(const std::string& data) {
  const auto masked = [](uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8u; };
  std::string out;
  put_little_endian(out, uint64_t{data.size()});
  put_little_endian(out, masked(crc32c(out)));
  out += data;
  put_little_endian(out, masked(crc32c(data)));
  return out;
}

// The number that follows the front part of the latest event file, 0 where there is none.
int64_t latest_events(const std::string& run, std::string_view front) {
  int64_t latest = 0;
  std::error_code error;
  for (fs::directory_iterator at(run, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    int64_t number = 0;
    if (name.starts_with(front)) std::from_chars(name.data() + front.size(), name.data() + name.size(), number);
    latest = std::max(latest, std::min<int64_t>(number, 9999999998));
  }
  return latest;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < 256; ++i) {
      out[i] = i;
      for (int bit = 0; bit < 8; ++bit) out[i] = out[i] >> 1 ^ ((out[i] & 1) != 0 ? 0x82F63B78u : 0u);
    }
    return out;
  }();
  uint32_t crc = ~0u;
  for (char c : data) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

MetricsFile::MetricsFile(const std::string& path, int64_t step)
    : path_(path), file_(path, lines_until(path, step).bytes) {}

void MetricsFile::write(const StepRecord& r) {
  Json line = {{"step", r.step},
               {"tokens", r.tokens},
               {"loss", number_or_null(r.loss)},
               {"lr", r.lr},
               {"grad_norm", number_or_null(r.grad_norm)},
               {"loss_scale", r.loss_scale},
               {"step_ms", r.step_ms},
               {"tokens_per_s", r.tokens_per_s},
               {"peak_fraction", r.peak_fraction}};
  if (!r.finite) {
    line["skipped"] = true;
    line["not_finite"] = r.not_finite;
  }
  if (r.valid_loss) line["valid_loss"] = number_or_null(*r.valid_loss);
  file_.append(line.dump() + "\n");
}

void MetricsFile::add_valid_loss(int64_t step, double valid_loss) {
  const Lines lines = lines_until(path_, step);
  Json line;
  {
    const FileMap file(path_);
    const std::string_view text = text_of(file);
    line = Json::parse(
        text.substr(static_cast<size_t>(lines.last_line), static_cast<size_t>(lines.bytes - lines.last_line)), nullptr,
        false);
  }
  if (!line.is_object() || line["step"] != step) return;  // the line was lost with the machine's power
  line["valid_loss"] = number_or_null(valid_loss);
  file_.replace(lines.last_line, line.dump() + "\n");
}

EventFile::EventFile(const std::string& run, int64_t step) : begin_ns_(steady_ns()) {
  constexpr std::string_view kFront = "events.out.tfevents.";
  const auto clock = std::chrono::system_clock::now().time_since_epoch();
  const int64_t seconds =
      std::max(std::chrono::duration_cast<std::chrono::seconds>(clock).count(), latest_events(run, kFront) + 1);
  start_ = static_cast<double>(seconds);
  file_.emplace(fmt::format("{}/{}{:010}.{}", run, kFront, seconds, host_name()));
  write_event(0, bytes_field(3, "brain.Event:2"));
  if (step == 0) return;
  std::string start;  // SessionLog: status = 1, START = 1
  put_key(start, 1, kVarint);
  put_varint(start, 1);
  write_event(step + 1, bytes_field(7, start));
}

double EventFile::now() const { return start_ + static_cast<double>(steady_ns() - begin_ns_) * 1e-9; }

void EventFile::write_event(int64_t step, const std::string& field) {
  file_->append(record(event(now(), step, field)));
}

void EventFile::write(const StepRecord& r) {
  std::string values;
  const auto add = [&](const char* tag, double value) {
    if (std::isfinite(value)) values += scalar(tag, value);
  };
  add("loss", r.loss);
  add("lr", r.lr);
  add("grad_norm", r.grad_norm);
  add("loss_scale", r.loss_scale);
  add("step_ms", r.step_ms);
  add("tokens_per_s", r.tokens_per_s);
  add("peak_fraction", r.peak_fraction);
  if (r.valid_loss) add("valid_loss", *r.valid_loss);
  write_event(r.step, bytes_field(5, values));
}

void EventFile::write_valid_loss(int64_t step, double valid_loss) {
  write_event(step, bytes_field(5, scalar("valid_loss", valid_loss)));
}

}  // namespace lamina
