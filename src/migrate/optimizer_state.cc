#include "migrate/optimizer_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "io/checkpoint_folder.h"
#include "io/element_type.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/quote.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

constexpr const char *kLaminaFile = "optimizer.safetensors", *kTorchFile = "optimizer.pt";
constexpr double kMostUpdates = 0x1p24;  // every whole number up to here is one of fp32, as PyTorch keeps it

using Names = std::pair<std::string, std::string>;  // of the moments of one tensor

// All tensors and values of the files that may hold the state, by name.
class Stock {
 public:
  Stock(std::span<const TensorFile> files, std::string where) : where_(std::move(where)) {
    for (const TensorFile& file : files) {
      for (const StoredTensor& tensor : file.content().tensors) tensors_[tensor.name] = {&file, &tensor};
      for (const StoredValue& value : file.content().values) values_[value.name] = &value;
    }
  }

  bool has(const std::string& name) const { return tensors_.contains(name); }

  // Throws where it is missing, of another shape or of a type that is no fp32.
  ModelTensor find(const std::string& name, const ProfileTensor& what) const {
    const auto at = tensors_.find(name);
    if (at == tensors_.end()) fail(name, shape_text(what.shape), "nothing");
    const auto [file, tensor] = at->second;
    if (tensor->shape != what.shape || !(tensor->dtype == "F32" || tensor->dtype == "BF16" || tensor->dtype == "F16"))
      fail(name, "F32 " + shape_text(what.shape), tensor->dtype + " " + shape_text(tensor->shape));
    taken_.insert(name);
    return {what, file, tensor};
  }

  // A number of updates: a value, or a tensor of one element. Nothing where there is none.
  std::optional<int64_t> count(const std::string& name) const {
    const std::optional<double> value = number(name);
    if (!value) return std::nullopt;
    if (!(*value >= 0.0 && *value <= kMostUpdates) || *value != std::floor(*value))
      fail(name, fmt::format("a whole number from 0 to {:.0f}", kMostUpdates), fmt::format("{}", *value));
    return static_cast<int64_t>(*value);
  }

  // Every tensor of the state has to be one that was taken.
  void check_all_taken(const std::vector<std::string>& fronts) const {
    for (const auto& [name, place] : tensors_)
      for (const std::string& front : fronts)
        if (name.starts_with(front) && !taken_.contains(name))
          fail(name, "a moment or the step of a weight", "another tensor");
  }

  [[noreturn]] void fail(const std::string& name, const std::string& expected, const std::string& got) const {
    throw_error(ErrorCode::invalid, "bad optimizer state: {}: {}: expected {}, got {}", where_, quote_text(name),
                expected, got);
  }

  // The names of parameters in all groups of PyTorch's, without wrappers, where it was given named ones (since 2.6).
  std::vector<std::string> parameter_names(const std::string& front) const {
    std::vector<std::string> out;
    for (size_t group = 0;; ++group) {
      size_t place = 0;
      for (;; ++place) {
        const StoredValue* value = in_group(front, group, "param_names", place);
        const auto* name = value == nullptr ? nullptr : std::get_if<std::string>(&value->value);
        if (name == nullptr) break;
        out.push_back(without_wrappers(*name));
      }
      if (place == 0) return out;
    }
  }

  // The ids of parameters in each group of PyTorch's.
  std::vector<std::vector<int64_t>> groups(const std::string& front) const {
    std::vector<std::vector<int64_t>> out;
    while (true) {
      std::vector<int64_t> ids;
      while (true) {
        const StoredValue* value = in_group(front, out.size(), "params", ids.size());
        if (value == nullptr) break;
        const auto* id = std::get_if<int64_t>(&value->value);
        if (id == nullptr) fail(value->name, "a whole number", "another value");
        ids.push_back(*id);
      }
      if (ids.empty()) return out;
      out.push_back(std::move(ids));
    }
  }

 private:
  // An entry of a list of one of PyTorch's groups; null behind its end.
  const StoredValue* in_group(const std::string& front, size_t group, const char* key, size_t place) const {
    const auto at = values_.find(fmt::format("{}param_groups.{}.{}.{}", front, group, key, place));
    return at == values_.end() ? nullptr : at->second;
  }

  std::optional<double> number(const std::string& name) const {
    if (const auto at = values_.find(name); at != values_.end()) {
      if (const auto* whole = std::get_if<int64_t>(&at->second->value)) return static_cast<double>(*whole);
      if (const auto* real = std::get_if<double>(&at->second->value)) return *real;
    }
    const auto at = tensors_.find(name);
    if (at == tensors_.end()) return std::nullopt;
    taken_.insert(name);
    const StoredTensor& tensor = *at->second.second;
    std::vector<std::byte> room;
    const std::span<const std::byte> data = packed_data(tensor, room);
    const auto as = [&](auto value) -> double {
      if (data.size() != sizeof(value)) fail(name, "one number", fmt::format("{} bytes", data.size()));
      std::memcpy(&value, data.data(), sizeof(value));
      return static_cast<double>(value);
    };
    if (tensor.dtype == "I32") return as(int32_t{});
    if (tensor.dtype == "I64") return as(int64_t{});
    if (tensor.dtype == "F32") return as(float{});
    if (tensor.dtype == "F64") return as(double{});
    fail(name, "I32, I64, F32 or F64", tensor.dtype);
  }

  std::string where_;
  std::map<std::string, std::pair<const TensorFile*, const StoredTensor*>> tensors_;
  std::map<std::string, const StoredValue*> values_;
  mutable std::set<std::string> taken_;  // what was asked for
};

bool is_matrix(const ModelTensor& tensor) { return tensor.what.shape.size() > 1; }

// The tensors in the order in which the files have them: that of the module which saved its state there.
std::vector<ModelTensor> in_order_of_files(std::vector<ModelTensor> tensors, const std::vector<TensorFile>& files) {
  std::map<const StoredTensor*, size_t> places;
  for (const TensorFile& file : files)
    for (const StoredTensor& tensor : file.content().tensors) places.emplace(&tensor, places.size());
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](const ModelTensor& a, const ModelTensor& b) { return places[a.stored] < places[b.stored]; });
  return tensors;
}

// The same by names: the one in the file, or a tensor's own, with whatever wrappers the model was in.
std::vector<int64_t> named_ids(const std::vector<ModelTensor>& tensors, const Stock& stock, const std::string& front,
                               const std::vector<std::string>& names, const std::vector<int64_t>& ids) {
  std::vector<int64_t> out;
  for (const ModelTensor& tensor : tensors) {
    const std::string& own = tensor.what.name;
    const std::string stored = without_wrappers(tensor.stored->name);
    const auto is_own = [&](const std::string& name) {
      return name == stored || name == own || name.ends_with("." + own);
    };
    const auto at = std::find_if(names.begin(), names.end(), is_own);
    const auto count = std::count_if(names.begin(), names.end(), is_own);
    if (count != 1 || names.size() != ids.size())
      stock.fail(front + "param_groups", fmt::format("{} names, one of them {}", ids.size(), quote_text(own)),
                 fmt::format("{} names, {} of them that", names.size(), count));
    out.push_back(ids[static_cast<size_t>(at - names.begin())]);
  }
  return out;
}

// The id of each tensor among an optimizer's parameters. One group has them in the order of the model; of two groups
// the first has the matrices and tables, as nanoGPT and HuggingFace's Trainer make them.
std::vector<int64_t> torch_ids(const std::vector<ModelTensor>& tensors, const Stock& stock, const std::string& front) {
  std::vector<int64_t> sizes, ids;
  for (const std::vector<int64_t>& group : stock.groups(front)) {
    sizes.push_back(std::ssize(group));
    ids.insert(ids.end(), group.begin(), group.end());
  }
  if (const std::vector<std::string> names = stock.parameter_names(front); !names.empty())
    return named_ids(tensors, stock, front, names, ids);
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const int64_t matrices = std::count_if(tensors.begin(), tensors.end(), is_matrix);
  const std::vector<int64_t> one{std::ssize(tensors)}, two{matrices, std::ssize(tensors) - matrices};
  if (sizes == two)
    std::stable_partition(order.begin(), order.end(), [&](size_t i) { return is_matrix(tensors[i]); });
  else if (sizes != one)
    stock.fail(front + "param_groups", fmt::format("one group of {} or two of {} and {}", one[0], two[0], two[1]),
               fmt::format("{} of [{}]", sizes.size(), fmt::join(sizes, ", ")));
  std::vector<int64_t> out(tensors.size());
  for (size_t j = 0; j < order.size(); ++j) out[order[j]] = ids[j];
  return out;
}

OptimizerState read_torch(const Stock& stock, const std::string& front, std::vector<ModelTensor> tensors) {
  const auto absent = std::stable_partition(tensors.begin(), tensors.end(),
                                            [](const ModelTensor& tensor) { return tensor.stored != nullptr; });
  OptimizerState out;
  out.m.assign(absent, tensors.end());
  out.v = out.m;
  tensors.erase(absent, tensors.end());
  const std::vector<int64_t> ids = torch_ids(tensors, stock, front);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = fmt::format("{}state.{}.", front, ids[i]);
    out.m.push_back(stock.find(name + "exp_avg", tensors[i].what));
    out.v.push_back(stock.find(name + "exp_avg_sq", tensors[i].what));
    const std::optional<int64_t> step = stock.count(name + "step");
    if (!step) stock.fail(name + "step", "a number", "nothing");
    if (i > 0 && *step != out.step) stock.fail(name + "step", fmt::format("{}", out.step), fmt::format("{}", *step));
    out.step = *step;
  }
  stock.check_all_taken({front + "state."});
  return out;
}

OptimizerState read_named(const Stock& stock, const Names& fronts, const std::vector<ModelTensor>& tensors) {
  OptimizerState out;
  for (const ModelTensor& tensor : tensors) {
    if (tensor.stored == nullptr) {  // a bias that the model does not have
      out.m.push_back(tensor);
      out.v.push_back(tensor);
      continue;
    }
    out.m.push_back(stock.find(fronts.first + tensor.stored->name, tensor.what));
    out.v.push_back(stock.find(fronts.second + tensor.stored->name, tensor.what));
  }
  stock.check_all_taken({fronts.first, fronts.second, "max_exp_avg_sq."});
  for (const char* name : {"global_step", "state_step", "step"})
    if (const std::optional<int64_t> step = stock.count(name)) {
      out.step = *step;
      return out;
    }
  stock.fail("global_step", "a whole number", "nothing");
}

// Parameters as Lamina keeps them: each a tensor of its own, weights (in, out), tables (C, rows).
std::vector<TargetTensor> neutral_tensors(const std::string& front, const ModelConfig& config) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  std::vector<TargetTensor> out;
  for (size_t i = 0; i < specs.size(); ++i) {
    const Shape& shape = specs[i].shape;
    const int64_t N = shape.last();
    out.push_back({front + specs[i].name,
                   {specs[i].name,
                    {shape.dims.begin(), shape.dims.begin() + shape.rank},
                    {{i, 0, shape.rank > 1 ? N : 0, N, 1, 1, N}}}});
  }
  return out;
}

OptimizerState read_lamina(const Stock& stock, const std::string& folder, const ModelConfig& config) {
  OptimizerState out;
  for (const TargetTensor& tensor : neutral_tensors("m.", config))
    out.m.push_back(stock.find(tensor.name, tensor.what));
  for (const TargetTensor& tensor : neutral_tensors("v.", config))
    out.v.push_back(stock.find(tensor.name, tensor.what));
  if (const std::optional<int64_t> step = stock.count("step")) {
    out.step = *step;
  } else {
    const Manifest manifest = read_manifest(folder);
    out.step = JsonReader(manifest.state, "bad checkpoint: " + folder)["progress"]["updates"].count();
  }
  return out;
}

// Where the state lies; one of the three, or none.
struct Place {
  Names fronts = {};       // among the weights, by name
  std::string front = {};  // among the weights, by the place of a parameter: nanoGPT's, PyTorch Lightning's
  std::string file = {};   // beside them
};

Place find_place(const std::string& from, const ModelWeights& weights, const Stock& beside) {
  const ModelTensor& first = weights.tensors().front();
  for (const Names& fronts : {Names{"adam_m.", "adam_v."}, {"moment1.", "moment2."}, {"exp_avg.", "exp_avg_sq."}})
    if (first.stored != nullptr && beside.has(fronts.first + first.stored->name)) return {.fronts = fronts};
  for (const char* front : {"optimizer.", "optimizer_state_dict.", "optimizer_states.0."})
    if (beside.has(fmt::format("{}state.0.exp_avg", front))) return {.front = front};
  std::error_code ignored;
  const fs::path folder = fs::is_directory(from, ignored) ? fs::path(from) : fs::path(from).parent_path();
  for (const char* name : {kLaminaFile, kTorchFile})
    if (const std::string path = (folder / name).string(); path_exists(path)) return {.file = path};
  return {};
}

PlannedTensor number_tensor(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
                            std::vector<std::byte> bytes) {
  return {.target = {name, dtype, shape}, .from = {}, .moves = {}, .constant = std::move(bytes), .operation = "step"};
}

template <typename T>
std::vector<std::byte> bytes_of(T value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

std::vector<TargetTensor> with_front(const std::string& front, std::vector<TargetTensor> tensors) {
  for (TargetTensor& tensor : tensors) tensor.name = front + tensor.name;
  return tensors;
}

void append(std::vector<PlannedTensor>& out, std::vector<PlannedTensor> more) {
  out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

OptimizerState read_optimizer(const std::string& from, const ModelWeights& weights, const ModelConfig& config) {
  const Stock beside(weights.files(), from);
  const Place place = find_place(from, weights, beside);
  const std::vector<ModelTensor>& tensors = weights.tensors();
  if (!place.fronts.first.empty()) return read_named(beside, place.fronts, tensors);
  if (!place.front.empty()) return read_torch(beside, place.front, in_order_of_files(tensors, weights.files()));
  if (place.file.empty())
    throw Error(ErrorCode::invalid,
                fmt::format("no optimizer state: {}: expected moments beside the weights, {} or {}, got none", from,
                            kLaminaFile, kTorchFile),
                "a run of lamina train keeps it in checkpoints/step-N");
  auto file = std::make_unique<TensorFile>(place.file);
  const Stock stock({file.get(), 1}, place.file);
  OptimizerState out = place.file.ends_with(kTorchFile)
                           ? read_torch(stock, "", tensors)
                           : read_lamina(stock, fs::path(place.file).parent_path().string(), config);
  out.file = std::move(file);
  return out;
}

bool has_optimizer(const std::string& from, const ModelWeights& weights) {
  const Place place = find_place(from, weights, Stock(weights.files(), from));
  return !(place.fronts.first + place.front + place.file).empty();
}

std::vector<PlannedTensor> plan_mindspore_state(const OptimizerState& state, const std::vector<TargetTensor>& targets) {
  std::vector<PlannedTensor> out = plan_conversion(state.m, with_front("adam_m.", targets), "F32");
  append(out, plan_conversion(state.v, with_front("adam_v.", targets), "F32"));
  out.push_back(number_tensor("global_step", "I32", {1}, bytes_of(static_cast<int32_t>(state.step))));
  return out;
}

std::vector<PlannedTensor> plan_lamina_state(const OptimizerState& state, const ModelConfig& config) {
  std::vector<PlannedTensor> out = plan_conversion(state.m, neutral_tensors("m.", config), "F32");
  append(out, plan_conversion(state.v, neutral_tensors("v.", config), "F32"));
  out.push_back(number_tensor("step", "I64", {}, bytes_of(state.step)));
  return out;
}

std::vector<PlannedTensor> plan_torch_state(const OptimizerState& state, const std::vector<TargetTensor>& targets) {
  std::vector<TargetTensor> ordered = targets;
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const TargetTensor& tensor) { return tensor.what.shape.size() > 1; });
  std::vector<PlannedTensor> out;
  for (size_t i = 0; i < ordered.size(); ++i) {
    const std::string front = fmt::format("state.{}.", i);
    out.push_back(number_tensor(front + "step", "F32", {}, bytes_of(static_cast<float>(state.step))));
    append(out, plan_conversion(state.m, {{front + "exp_avg", ordered[i].what}}, "F32"));
    append(out, plan_conversion(state.v, {{front + "exp_avg_sq", ordered[i].what}}, "F32"));
  }
  return out;
}

}  // namespace lamina
