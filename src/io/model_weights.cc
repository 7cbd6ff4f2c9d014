#include "io/model_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "io/element_type.h"
#include "io/quote.h"
#include "io/widen.h"

namespace lamina {
namespace {

using Bytes = std::span<const std::byte>;

// Whether two tensors hold the same values, bit by bit, whatever their types.
bool equal_values(const StoredTensor& a, const StoredTensor& b) {
  if (a.shape != b.shape) return false;
  std::vector<std::byte> room_a, room_b;
  const Bytes bytes_a = packed_data(a, room_a), bytes_b = packed_data(b, room_b);
  if (a.dtype == b.dtype)
    return bytes_a.size() == bytes_b.size() &&
           (bytes_a.data() == bytes_b.data() || std::memcmp(bytes_a.data(), bytes_b.data(), bytes_a.size()) == 0);
  constexpr size_t kChunk = 1 << 16;
  std::vector<float> x(kChunk), y(kChunk);
  const size_t width_a = a.dtype == "F32" ? 4 : 2, width_b = b.dtype == "F32" ? 4 : 2;
  const size_t count = bytes_a.size() / width_a;
  for (size_t at = 0; at < count; at += kChunk) {
    const size_t n = std::min(kChunk, count - at);
    widen(a.dtype, bytes_a.subspan(at * width_a, n * width_a), x.data());
    widen(b.dtype, bytes_b.subspan(at * width_b, n * width_b), y.data());
    if (std::memcmp(x.data(), y.data(), n * sizeof(float)) != 0) return false;
  }
  return true;
}

struct Room {
  std::vector<std::byte> bytes;
  std::vector<float> floats, even;
};

// One tensor as aligned fp32: where it lies in the file, or in `room`.
const float* as_floats(const StoredTensor& tensor, Room& room) {
  const Bytes bytes = packed_data(tensor, room.bytes);
  if (tensor.dtype == "F32" && reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) == 0)
    return reinterpret_cast<const float*>(bytes.data());
  room.floats.resize(bytes.size() / (tensor.dtype == "F32" ? 4 : 2));
  widen(tensor.dtype, bytes, room.floats.data());
  return room.floats.data();
}

// Gives one parameter to the sink; one whose heads are apart is put together first, rows of k along n.
void give(const ParameterView& view, int64_t elements, const float* data, Room& room, const ParameterSink& sink) {
  if (view.even()) return sink(view.spec, data + view.offset, view.stride_k, view.stride_d);
  const int64_t N = view.heads * view.depth, K = elements / N;
  room.even.resize(static_cast<size_t>(elements));
  for (int64_t h = 0; h < view.heads; ++h)
    for (int64_t d = 0; d < view.depth; ++d)
      for (int64_t k = 0; k < K; ++k)
        room.even[static_cast<size_t>((h * view.depth + d) * K + k)] =
            data[view.offset + k * view.stride_k + h * view.stride_h + d * view.stride_d];
  sink(view.spec, room.even.data(), 1, K);
}

// Parts of a dictionary that training programs save beside a model, and what MindSpore's optimizers and loss-scale
// cells put among the weights.
constexpr std::string_view kStateRoots[] = {"optimizer",       "optimizer_state_dict",
                                            "lr_scheduler",    "scheduler",
                                            "scaler",          "opt_param_scheduler",
                                            "rng_state",       "adam_m",
                                            "adam_v",          "moment1",
                                            "moment2",         "exp_avg",
                                            "exp_avg_sq",      "max_exp_avg_sq",
                                            "optimizer_states"};
constexpr std::string_view kStateNames[] = {
    "global_step", "learning_rate", "beta1_power",           "beta2_power",
    "state_step",  "scale_sense",   "current_iterator_step", "last_overflow_iterator_step",
    "epoch_num",   "step_num",      "best_val_loss"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "transformer.h.3.attn.bias" and its like of all layers as one: "transformer.h.*.attn.bias".
std::string without_layer(const std::string& name) {
  const size_t at = name.find("h.");
  const size_t end = at == std::string::npos ? at : name.find('.', at + 2);
  return end == std::string::npos ? name : name.substr(0, at + 2) + "*" + name.substr(end);
}

}  // namespace

bool is_training_state(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? contains(kStateNames, name) : contains(kStateRoots, name.substr(0, dot));
}

bool fits_pattern(std::string_view pattern, std::string_view name) {
  // Where a try fails, the last * takes one letter more.
  size_t at = 0, in = 0, star = std::string_view::npos, retry = 0;
  while (at < name.size()) {
    if (in < pattern.size() && pattern[in] == '*') {
      star = in++;
      retry = at;
    } else if (in < pattern.size() && pattern[in] == name[at]) {
      ++in, ++at;
    } else if (star != std::string_view::npos) {
      in = star + 1;
      at = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', in) == std::string_view::npos;
}

std::string LoadReport::summary() const {
  const std::string zeros = fmt::format(", {} are biases that the model has none of: zero", wanted - used);
  return fmt::format("{} of {} tensors, {} left over{}", used, wanted, allowed.size(), used < wanted ? zeros : "");
}

std::vector<std::string> LoadReport::loading() const {
  std::vector<std::string> out = warnings;
  if (!narrow.empty()) out.push_back(narrow + ": converted to fp32 exactly");
  return out;
}

std::string LoadReport::text() const {
  std::string out = summary();
  std::string separator = "; taken off the names: ";
  for (const std::string& front : removed) out += std::exchange(separator, ", ") + plain_or_quoted(front);
  std::set<std::string> constants;
  for (const std::string& name : ignored) constants.insert(without_layer(name));
  separator = "; ignored, as they are constants: ";
  for (const std::string& name : constants) out += std::exchange(separator, ", ") + plain_or_quoted(name);
  if (!state.empty())
    out += fmt::format("; {} tensors of the state of training, {} among them", state.size(), plain_or_quoted(state[0]));
  return out;
}

ModelWeights::ModelWeights(WeightFiles files, const std::string& path, const ModelConfig& config,
                           const WeightsOptions& options)
    : path_(path), files_(std::move(files.files)) {
  report_.warnings = std::move(files.warnings);
  std::vector<Source> sources;
  std::vector<FileTensor> tensors;
  for (const TensorFile& file : files_)
    for (const StoredTensor& tensor : file.content().tensors) {
      const auto fits = [&](const std::string& pattern) { return fits_pattern(pattern, tensor.name); };
      if (std::any_of(options.allow.begin(), options.allow.end(), fits)) {
        report_.allowed.push_back(tensor.name);
      } else if (is_training_state(tensor.name)) {
        report_.state.push_back(tensor.name);
      } else {
        sources.push_back({&file, &tensor});
        tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
      }
    }
  choose_names(tensors, options);
  NameMatch found = match_gpt2_names(tensors, config, *names_, options.biases);
  if (!found.problems.empty()) throw_problems(path_, found.problems);
  std::vector<ProfileTensor> wanted = profile_tensors(*names_, config);
  LAMINA_CHECK(wanted.size() == found.wanted.size(), "{} tensors of {}", found.wanted.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const int64_t at = found.wanted[i].source;
    const Source source = at < 0 ? Source{nullptr, nullptr} : sources[static_cast<size_t>(at)];
    tensors_.push_back({std::move(wanted[i]), source.file, source.tensor});
  }
  if (found.tied_head >= 0) {
    const Source& head = sources[static_cast<size_t>(found.tied_head)];
    check_tie(head, {tensors_.front().file, tensors_.front().stored});
    tied_head_ = head.tensor;
  }
  report_.wanted = std::ssize(tensors_);
  report_.used = std::count_if(tensors_.begin(), tensors_.end(),
                               [](const ModelTensor& tensor) { return tensor.stored != nullptr; });
  report_.removed = std::move(found.removed);
  report_.ignored = std::move(found.ignored);
  report_.narrow = narrow_tensors();
}

// Megatron-LM's first versions packed q, k and v in two other ways under the same names; only the file's number tells.
void ModelWeights::choose_names(const std::vector<FileTensor>& tensors, const WeightsOptions& options) {
  names_ = options.names.empty() ? &detect_profile(tensors) : find_profile(options.names);
  if (names_ == nullptr)
    throw_error(ErrorCode::usage, "unknown names: expected {}, got {}", profile_ids(), quote_text(options.names));
  if (names_->packing != QkvPacking::heads || !options.names.empty()) return;
  std::string got = "none";
  for (const StoredValue& value : files_.front().content().values) {
    if (value.name != "checkpoint_version") continue;
    const auto* real = std::get_if<double>(&value.value);
    const auto* whole = std::get_if<int64_t>(&value.value);
    if (real == nullptr && whole == nullptr) break;
    const double version = real != nullptr ? *real : static_cast<double>(*whole);
    if (version >= 2.0) return;
    got = fmt::format("{}", version);
  }
  throw Error(
      ErrorCode::invalid,
      fmt::format("cannot load weights: {}: names of Megatron-LM: expected checkpoint_version 2 or above, which says "
                  "how q, k and v are packed, got {}",
                  path_, got),
      fmt::format("lamina convert --names-from {0} (verify: --names-a {0}) takes q, k and v of each head together",
                  names_->id));
}

void ModelWeights::check_tie(const Source& head, const Source& table) const {
  const bool equal = equal_values(*head.tensor, *table.tensor);
  head.file->forget(*head.tensor);
  table.file->forget(*table.tensor);
  if (!equal)
    throw_error(ErrorCode::invalid,
                "cannot load weights: {}: {} and {} differ, and tie_word_embeddings true (or absent) makes them one",
                path_, quote_text(table.tensor->name), quote_text(head.tensor->name));
}

// One line for all of a type, with the first of them.
std::string ModelWeights::narrow_tensors() const {
  std::map<std::string, std::pair<int64_t, std::string>> kinds;  // type -> number, first name
  for (const ModelTensor& tensor : tensors_) {
    if (tensor.stored == nullptr || tensor.stored->dtype == "F32") continue;
    auto& [count, first] = kinds[tensor.stored->dtype];
    if (count++ == 0) first = tensor.stored->name;
  }
  std::string text;
  for (const auto& [type, kind] : kinds)
    text += fmt::format("{}{} of {} tensors {} {} ({}{})", text.empty() ? "" : "; ", kind.first, tensors_.size(),
                        kind.first == 1 ? "is" : "are", type, quote_text(kind.second), kind.first > 1 ? ", …" : "");
  return text.empty() ? text : fmt::format("{}: {}", path_, text);
}

void ModelWeights::read(const ParameterSink& sink) const {
  Room room;
  for (const ModelTensor& tensor : tensors_) {
    const int64_t elements = elements_of(tensor.what);
    if (tensor.stored == nullptr) room.floats.assign(static_cast<size_t>(elements), 0.0F);
    const float* data = tensor.stored == nullptr ? room.floats.data() : as_floats(*tensor.stored, room);
    for (const ParameterView& view : tensor.what.parts)
      give(view, elements / std::ssize(tensor.what.parts), data, room, sink);
    if (tensor.stored != nullptr) tensor.file->forget(*tensor.stored);
  }
}

}  // namespace lamina
