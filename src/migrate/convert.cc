#include "migrate/convert.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/quote.h"
#include "io/staged_folder.h"
#include "io/stored_config.h"
#include "migrate/conversion_plan.h"
#include "migrate/model_files.h"
#include "migrate/optimizer_state.h"
#include "migrate/tensor_stream.h"

namespace lamina {
namespace {

constexpr std::array<TargetFormat, 4> kTargets{{
    {"hf", WeightFormat::safetensors, "model.safetensors", "hf"},
    {"torch", WeightFormat::torch, "pytorch_model.bin", "hf"},
    {"mindspore", WeightFormat::mindspore_safetensors, "model.safetensors", "lamina"},
    {"mindspore-ckpt", WeightFormat::mindspore_ckpt, "model.ckpt", "lamina"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTypes{
    {{"keep", ""}, {"fp32", "F32"}, {"fp16", "F16"}, {"bf16", "BF16"}}};

// The row whose first word is `id`.
template <typename Rows, typename Id>
const auto& choose(const Rows& rows, const std::string& id, const char* option, const Id& id_of) {
  const auto at = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return id_of(row) == id; });
  if (at != rows.end()) return *at;
  std::string expected;
  for (const auto& row : rows) expected += fmt::format("{}{}", expected.empty() ? "" : ", ", id_of(row));
  throw_error(ErrorCode::usage, "bad value of --{}: expected one of {}, got {}", option, expected, quote_text(id));
}

const NameProfile& choose_names(const std::string& id, std::string_view usual, const char* option) {
  const std::string wanted = id.empty() ? std::string(usual) : id;
  return choose(name_profiles(), wanted, option, [](const NameProfile& row) { return row.id; });
}

// What was asked for, looked up.
struct Target {
  const TargetFormat& format;
  const NameProfile& names;
  std::string dtype;

  explicit Target(const ConvertRequest& request)
      : format(choose(kTargets, request.format, "to", [](const TargetFormat& row) { return row.id; })),
        names(choose_names(request.names_to, format.names, "names")),
        dtype(choose(kTypes, request.dtype, "dtype", [](const auto& row) { return row.first; }).second) {}
};

std::vector<TargetTensor> targets_of(const NameProfile& names, const ModelConfig& config) {
  std::vector<TargetTensor> out;
  for (ProfileTensor& tensor : profile_tensors(names, config)) {
    std::string name = file_name(names, tensor);
    out.push_back({std::move(name), std::move(tensor)});
  }
  return out;
}

Converted told(const PlannedTensor& planned, const Streamed& streamed) {
  Converted out{.target = planned.target.name,
                .operation = planned.operation,
                .dtype = planned.target.dtype,
                .hash = streamed.hash,
                .shape = planned.target.shape,
                .from = {},
                .dtype_from = {},
                .shape_from = {}};
  for (const ModelTensor* tensor : planned.from) {
    out.from.push_back(tensor->stored->name);
    out.dtype_from.push_back(tensor->stored->dtype);
    out.shape_from.push_back(tensor->stored->shape);
  }
  return out;
}

// Writes planned tensors one after the other into one file.
class PlanWriter {
 public:
  PlanWriter(WeightFormat format, AtomicFile& file, const std::vector<PlannedTensor>& planned,
             const WriteOptions& options, const std::function<void()>& poll)
      : planned_(planned), poll_(poll), writer_(format, file, entries_of(planned), options) {}

  // `each` is told what was written, tensor by tensor.
  void run(const std::function<void(const PlannedTensor&, const Streamed&)>& each) {
    for (const PlannedTensor& planned : planned_) {
      const Streamed streamed = stream_tensor(planned, [&](std::span<const std::byte> bytes) {
        poll_();
        writer_.write(bytes);
      });
      for (const ModelTensor* tensor : planned.from) tensor->file->forget(*tensor->stored);
      each(planned, streamed);
    }
    writer_.finish();
  }

 private:
  static std::vector<TensorEntry> entries_of(const std::vector<PlannedTensor>& planned) {
    std::vector<TensorEntry> out;
    for (const PlannedTensor& tensor : planned) out.push_back(tensor.target);
    return out;
  }

  const std::vector<PlannedTensor>& planned_;
  const std::function<void()>& poll_;
  TensorWriter writer_;
};

struct OutputFile {
  std::string path;
  WeightFormat format;
  WriteOptions options;
};

[[noreturn]] void refuse_non_finite(const Conversion& done, const std::string& from) {
  const auto& [name, count] = *done.non_finite.begin();
  std::vector<std::string> table;
  const size_t count_of_all = done.tensors.size() + done.state.size();
  for (const auto& [tensor, numbers] : done.non_finite)
    table.push_back(fmt::format("not finite: {}: {} numbers are NaN or infinite", quote_text(tensor), numbers));
  throw LoadError(
      ErrorCode::invalid,
      fmt::format("cannot convert: {}: expected finite weights, got {} NaN or infinite in {} of {} tensors, "
                  "the first {} (--allow-non-finite takes them)",
                  from, count, done.non_finite.size(), count_of_all, quote_text(name)),
      std::move(table));
}

Conversion begin(const Target& target, const StoredConfig& found, const ModelWeights& weights) {
  Conversion out;
  out.config = found.model;
  out.format_from = weights.format();
  out.names_from = weights.names().id;
  out.format_to = target.format.id;
  out.names_to = target.names.id;
  out.config_json = found.json;
  out.config_from = std::filesystem::path(found.source).filename().string();
  out.report = weights.report();
  if (weights.tied_head() != nullptr) out.tied = weights.tied_head()->name;
  out.warnings = found.warnings;
  out.warnings.insert(out.warnings.end(), out.report.warnings.begin(), out.report.warnings.end());
  std::set<std::string> types;
  for (const ModelTensor& tensor : weights.tensors())
    if (tensor.stored != nullptr) types.insert(tensor.stored->dtype);
  if (types.size() > 1 && target.dtype.empty()) out.warnings.push_back(out.report.narrow + ": kept as stored");
  return out;
}

// Tensors of one file: the first `of_model` are weights, the others the optimizer's.
void write_tensors(const OutputFile& target, const std::vector<PlannedTensor>& planned, size_t of_model,
                   const std::function<void()>& poll, Conversion& out) {
  AtomicFile file(target.path);
  PlanWriter writer(target.format, file, planned, target.options, poll);
  size_t count = 0;
  writer.run([&](const PlannedTensor& tensor, const Streamed& done) {
    (count++ < of_model ? out.tensors : out.state).push_back(told(tensor, done));
    if (done.non_finite > 0) out.non_finite[tensor.target.name] = done.non_finite;
  });
  file.commit();
}

// MindSpore keeps the state of the optimizer among the weights, the others in a file of its own.
bool is_mindspore(const Target& target) {
  return target.format.container == WeightFormat::mindspore_safetensors ||
         target.format.container == WeightFormat::mindspore_ckpt;
}

void write_state_file(const Target& target, const StagedFolder& folder, const OptimizerState& state,
                      const std::vector<TargetTensor>& targets, const std::function<void()>& poll, Conversion& out) {
  if (target.format.container != WeightFormat::torch)
    return write_tensors({folder.file("optimizer.safetensors"), WeightFormat::safetensors, {}},
                         plan_lamina_state(state, out.config), 0, poll, out);
  const auto matrices = std::count_if(targets.begin(), targets.end(),
                                      [](const TargetTensor& tensor) { return tensor.what.shape.size() > 1; });
  write_tensors({folder.file("optimizer.pt"), WeightFormat::torch, {{matrices, std::ssize(targets) - matrices}}},
                plan_torch_state(state, targets), 0, poll, out);
}

}  // namespace

std::span<const TargetFormat> target_formats() { return kTargets; }

Conversion convert(const ConvertRequest& request, const std::function<void()>& poll) {
  const Target target(request);
  if (!request.names_from.empty()) (void)choose_names(request.names_from, "", "names-from");
  WeightFiles files = open_weights(request.from);
  for (const TensorFile& file : files.files) check_sums(file.content(), file.path());
  StoredConfig found = find_config(request.from, files, request.config);
  ModelConfig source = found.model;
  source.vocab_size = found.table_rows;
  const ModelWeights weights(std::move(files), request.from, source,
                             {.names = request.names_from, .allow = request.allow, .biases = found.biases});
  if (request.vocab_size) found.model.vocab_size = *request.vocab_size;
  validate(found.model);

  Conversion out = begin(target, found, weights);
  out.parameters = parameter_count(out.config);
  const std::vector<TargetTensor> targets = targets_of(target.names, out.config);
  std::vector<PlannedTensor> planned = plan_conversion(weights.tensors(), targets, target.dtype);
  const size_t of_model = planned.size();
  std::optional<OptimizerState> state;
  if (request.optimizer) {
    state = read_optimizer(request.from, weights, source);
    out.optimizer =
        fmt::format("the optimizer's state: moments of {} tensors, {} updates", state->m.size(), state->step);
  } else if (has_optimizer(request.from, weights)) {
    out.optimizer = "the optimizer's state stays behind: --optimizer moves that of an Adam";
  }
  if (state && is_mindspore(target))
    for (PlannedTensor& tensor : plan_mindspore_state(*state, targets)) planned.push_back(std::move(tensor));
  StagedFolder folder(request.to);
  write_tensors({folder.file(std::string(target.format.file)), target.format.container, {}}, planned, of_model, poll,
                out);
  if (state && !is_mindspore(target)) write_state_file(target, folder, *state, targets, poll, out);
  if (!out.non_finite.empty() && !request.allow_non_finite) refuse_non_finite(out, request.from);
  write_model_files(out, target.format, folder);
  folder.commit();
  return out;
}

}  // namespace lamina
