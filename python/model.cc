// lamina.Model and lamina.Generated.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "base/error.h"
#include "bind.h"
#include "infer/row_texts.h"
#include "io/tokenizer_files.h"
#include "train/options.h"
#include "train/weights.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lamina::python {
namespace {

struct GeneratedRow {
  Generated row;
  std::optional<std::string> text;  // where a tokenizer was given
};

HostLimits limits_of(const std::optional<int64_t>& threads, const std::optional<std::string>& memory_limit) {
  ShapeOptions options;
  options.threads = threads;
  options.memory_limit = memory_limit.value_or("");
  validate(options);
  return {thread_count(options.threads), memory_limit ? parse_bytes("memory-limit", *memory_limit) : 0};
}

Model open_model_folder(const Path& folder, const std::optional<int64_t>& threads,
                        const std::optional<std::string>& memory_limit) {
  const nb::gil_scoped_release release;
  return {Host::open(folder.string(), limits_of(threads, memory_limit), check_signals), {}};
}

// The name of a size, the path of a config.json, or its content as a dict.
HfConfig config_from(const nb::object& config) {
  if (PyDict_Check(config.ptr()))
    return parse_hf_config(nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(config)), "config");
  Path name;
  if (!nb::try_cast(config, name))
    throw_error(ErrorCode::invalid, "bad config: expected a name, a path or a dict, got {}",
                nb::repr(config.type()).c_str());
  ModelSource source = open_model(name.string());
  return {std::move(source.config), std::move(source.warnings)};
}

Model new_model(const nb::object& config, int64_t seed, const std::optional<int64_t>& threads,
                const std::optional<std::string>& memory_limit) {
  TrainOptions options;
  options.seed = seed;
  validate(options);
  HfConfig read = config_from(config);
  const nb::gil_scoped_release release;
  return {Host::create(std::move(read), static_cast<uint64_t>(seed), limits_of(threads, memory_limit)), {}};
}

nb::object forward(const Model& model, const nb::object& ids, const nb::object& mask, const nb::object& positions) {
  Batch batch(ids);
  batch.attend(mask, positions);
  LogitsView view;
  {
    const nb::gil_scoped_release release;
    view = model.host->forward(batch.rows());
  }
  return as_array(view, batch.width());
}

double loss(Model& model, const nb::object& ids, const nb::object& targets, const nb::object& mask,
            const nb::object& positions) {
  Batch batch(ids, targets);
  batch.attend(mask, positions);
  model.last = std::vector<OwnedRow>(batch.rows().begin(), batch.rows().end());
  const nb::gil_scoped_release release;
  return model.host->loss(batch.rows());
}

nb::dict gradients(const Model& model) {
  if (model.last.empty()) throw_error(ErrorCode::invalid, "gradients of what: call loss() first");
  const auto last = model.last;  // another thread may call loss() meanwhile
  std::vector<Row> rows;
  for (const OwnedRow& owned : last) rows.push_back(owned.row());
  std::vector<HfArray> out;
  {
    const nb::gil_scoped_release release;
    out = model.host->gradients(rows);
  }
  return as_dict(std::move(out));
}

nb::dict parameters(const Model& model) {
  std::vector<HfArray> out;
  {
    const nb::gil_scoped_release release;
    out = model.host->parameters();
  }
  return as_dict(std::move(out));
}

// A text, or ids in any sequence.
Prompt prompt_of(nb::handle from, size_t row, const Tokenizer* tokenizer, uint64_t seed) {
  std::string text;
  if (nb::try_cast(from, text)) {
    if (tokenizer == nullptr) throw_error(ErrorCode::invalid, "no tokenizer: prompt {} is a text, expected ids", row);
    const nb::gil_scoped_release release;
    return {encode(*tokenizer, text, {.where = fmt::format("prompt {}", row), .poll = check_signals}), seed};
  }
  std::optional<std::vector<int32_t>> ids = row_of_ids(from);
  if (!ids)
    throw_error(ErrorCode::invalid, "prompt {} has the wrong type: expected a text or a list of ids, got {}", row,
                nb::repr(from.type()).c_str());
  return {std::move(*ids), seed};
}

std::vector<Prompt> prompts_of(const nb::object& prompts, const Tokenizer* tokenizer, uint64_t seed) {
  std::vector<Prompt> out;
  if (PyUnicode_Check(prompts.ptr())) return {prompt_of(prompts, 0, tokenizer, seed)};
  if (!nb::hasattr(prompts, "__iter__"))
    throw_error(ErrorCode::invalid, "prompts have the wrong type: expected a text or a list of prompts, got {}",
                nb::repr(prompts.type()).c_str());
  for (const nb::handle prompt : prompts) out.push_back(prompt_of(prompt, out.size(), tokenizer, seed));
  return out;
}

template <typename T>
std::vector<T> one_or_more(const nb::object& from, const char* name) {
  T one;
  std::vector<T> out;
  if (nb::try_cast(from, one)) return {one};
  if (!nb::try_cast(from, out)) throw_error(ErrorCode::usage, "bad option: {}, expected one or a list of them", name);
  return out;
}

struct GenerateArguments {
  GenerateOptions options = {};
  std::vector<std::string> stop = {};
  int64_t batch = 0, seed = 0;
  const Tokenizer* tokenizer = nullptr;
  nb::object on_id, on_text;
};

// What the options mean for this model. Throws what the command line says.
void fit_options(const Model& model, GenerateArguments& arguments) {
  GenerateOptions& options = arguments.options;
  validate(options);
  check_value({"batch", "N", "", {1.0, 4096.0}}, arguments.batch);
  check_value({"seed", "N", "", kFromZero}, arguments.seed);
  const ModelConfig& config = model.host->config();
  const bool for_text = !arguments.stop.empty() || !arguments.on_text.is_none();
  if (arguments.tokenizer == nullptr) {
    if (for_text)
      throw_error(ErrorCode::invalid, "no tokenizer: stop and on_text are about text, expected one, got None");
    return;
  }
  options.known_ids = arguments.tokenizer->vocab_size();
  check_fit(*arguments.tokenizer, "tokenizer", config.vocab_size, "the model");
}

std::vector<GeneratedRow> run_generate(const Model& model, const std::vector<Prompt>& prompts,
                                       const GenerateArguments& arguments) {
  std::optional<RowTexts> texts;
  if (arguments.tokenizer != nullptr) texts.emplace(*arguments.tokenizer, prompts.size(), arguments.stop);
  const auto show = [&](size_t row, const std::string& piece) {
    if (piece.empty() || arguments.on_text.is_none()) return;
    const nb::gil_scoped_acquire acquire;
    arguments.on_text(row, piece);
  };
  GenerateHooks hooks;
  hooks.poll = check_signals;
  hooks.say = warn;
  hooks.id = [&](size_t row, int32_t id) {
    bool going = true;
    if (texts) {
      show(row, texts->push(row, id));
      going = !texts->stopped(row);
    }
    if (arguments.on_id.is_none()) return going;
    const nb::gil_scoped_acquire acquire;
    const nb::object answer = arguments.on_id(row, id);
    return going && (answer.is_none() || nb::cast<bool>(answer));
  };
  const nb::gil_scoped_release release;
  std::vector<GeneratedRow> out;
  for (Generated& row : model.host->generate(prompts, arguments.batch, arguments.options, hooks))
    out.push_back({std::move(row), std::nullopt});
  for (size_t row = 0; row < out.size() && texts; ++row) {
    show(row, texts->finish(row));
    out[row].text = texts->text(row);
  }
  return out;
}

std::vector<GeneratedRow> generate(const Model& model, const nb::object& prompts,
                                   const std::optional<int64_t>& max_tokens, double temperature, int64_t top_k,
                                   double top_p, int64_t seed, const nb::object& stop, const nb::object& end_id,
                                   bool log_probabilities, const Tokenizer* tokenizer, int64_t batch,
                                   const nb::object& on_id, const nb::object& on_text) {
  GenerateArguments arguments{.options = {.max_tokens = max_tokens,
                                          .sampling = {temperature, top_k, top_p},
                                          .log_probabilities = log_probabilities},
                              .batch = batch,
                              .seed = seed,
                              .tokenizer = tokenizer,
                              .on_id = on_id,
                              .on_text = on_text};
  if (!end_id.is_none())
    arguments.options.end_ids = one_or_more<int32_t>(end_id, "end_id");
  else if (const auto eos = model.host->config().eos_token_id)
    arguments.options.end_ids = {static_cast<int32_t>(*eos)};
  if (!stop.is_none()) arguments.stop = one_or_more<std::string>(stop, "stop");
  fit_options(model, arguments);
  return run_generate(model, prompts_of(prompts, tokenizer, static_cast<uint64_t>(seed)), arguments);
}

void save(const Model& model, const Path& path, const Tokenizer* tokenizer) {
  const std::string folder = path.string();
  const nb::gil_scoped_release release;
  model.host->save(folder);
  if (tokenizer != nullptr) save_tokenizer(folder, *tokenizer, model.host->config().n_positions);
}

nb::object config_of(const Model& model) {
  return nb::module_::import_("json").attr("loads")(hf_config_text(model.host->config()));
}

}  // namespace

void bind_model(nb::module_& m) {
  nb::class_<GeneratedRow>(m, "Generated")
      .def_prop_ro("ids", [](const GeneratedRow& g) { return g.row.ids; })
      .def_ro("text", &GeneratedRow::text)
      .def_prop_ro("finish_reason", [](const GeneratedRow& g) { return std::string(finish_reason_name(g.row.reason)); })
      .def_prop_ro("log_probabilities", [](const GeneratedRow& g) { return g.row.log_probabilities; });
  nb::class_<Model>(m, "Model")
      .def_static("from_pretrained", &open_model_folder, "folder"_a, nb::kw_only(), "threads"_a = nb::none(),
                  "memory_limit"_a = nb::none())
      .def_static("from_config", &new_model, "config"_a, nb::kw_only(), "seed"_a = 0, "threads"_a = nb::none(),
                  "memory_limit"_a = nb::none())
      .def("forward", &forward, "ids"_a, "attention_mask"_a = nb::none(), "position_ids"_a = nb::none())
      .def("loss", &loss, "ids"_a, "targets"_a = nb::none(), "attention_mask"_a = nb::none(),
           "position_ids"_a = nb::none())
      .def("gradients", &gradients)
      .def("parameters", &parameters)
      .def("generate", &generate, "prompts"_a, nb::kw_only(), "max_tokens"_a = nb::none(), "temperature"_a = 1.0,
           "top_k"_a = 0, "top_p"_a = 1.0, "seed"_a = 0, "stop"_a = nb::none(), "end_id"_a = nb::none(),
           "log_probabilities"_a = false, "tokenizer"_a = nb::none(), "batch"_a = 8, "on_id"_a = nb::none(),
           "on_text"_a = nb::none())
      .def("save_pretrained", &save, "folder"_a, nb::kw_only(), "tokenizer"_a = nb::none())
      .def_prop_ro("config", &config_of)
      .def_prop_ro("warnings", [](const Model& model) { return model.host->warnings(); });
}

}  // namespace lamina::python
