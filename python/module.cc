// lamina._lamina: what Python sees. Conversions and the GIL only; what is computed is in host.h and in src/.
//
// Arrays come in by DLPack or the buffer protocol and are read where they lie if they are int32. Logits go out as a
// view of the session's memory, parameters and gradients as copies: as numpy arrays where numpy is installed, else as
// objects with both protocols.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>

#include "base/error.h"
#include "host.h"
#include "io/hf_config.h"
#include "io/tokenizer_files.h"
#include "train/schedule.h"
#include "train/version.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lamina::python {
namespace {

using IdArray = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FloatArray = nb::ndarray<nb::array_api, float, nb::device::cpu>;

nb::object as_array(FloatArray array) {
  nb::object out = nb::cast(std::move(array));
  try {
    return nb::module_::import_("numpy").attr("asarray")(out);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    return out;
  }
}

// A (rows, width) matrix of ids: the caller's array, read where it lies, or a copy of nested lists or of int64.
class Ids {
 public:
  explicit Ids(const nb::object& from) {
    if (PyList_Check(from.ptr()) || PyTuple_Check(from.ptr()))
      read_lists(from);
    else if (!nb::try_cast(from, array_))
      throw_error(ErrorCode::invalid, "{}", kWanted);
    else
      read_array();
  }

  size_t rows() const { return rows_; }
  size_t width() const { return width_; }
  std::span<const int32_t> row(size_t r) const { return {data_ + r * width_, width_}; }

 private:
  static constexpr const char* kWanted =
      "ids have the wrong type: expected int32 or int64 in a contiguous array of two dimensions, or rows in a list";

  void read_lists(const nb::object& from) {
    std::vector<std::vector<int64_t>> lists;
    if (!nb::try_cast(from, lists)) throw_error(ErrorCode::invalid, "{}", kWanted);
    rows_ = lists.size();
    width_ = lists.empty() ? 0 : lists.front().size();
    std::vector<int64_t> all;
    for (size_t r = 0; r < rows_; ++r) {
      if (lists[r].size() != width_)
        throw_error(ErrorCode::invalid, "rows of different lengths: row {}, expected {} ids, got {}", r, width_,
                    lists[r].size());
      all.insert(all.end(), lists[r].begin(), lists[r].end());
    }
    narrow(all.data());
  }

  void read_array() {
    rows_ = array_.shape(0);
    width_ = array_.shape(1);
    if (array_.dtype() == nb::dtype<int32_t>())
      data_ = static_cast<const int32_t*>(array_.data());
    else if (array_.dtype() == nb::dtype<int64_t>())
      narrow(static_cast<const int64_t*>(array_.data()));
    else
      throw_error(ErrorCode::invalid, "{}", kWanted);
  }

  void narrow(const int64_t* wide) {
    copy_.resize(rows_ * width_);
    for (size_t i = 0; i < copy_.size(); ++i) {
      if (wide[i] > INT32_MAX || wide[i] < INT32_MIN)
        throw_error(ErrorCode::invalid, "id outside the vocabulary: row {}, position {}, got {}", i / width_,
                    i % width_, wide[i]);
      copy_[i] = static_cast<int32_t>(wide[i]);
    }
    data_ = copy_.data();
  }

  IdArray array_;
  std::vector<int32_t> copy_;
  const int32_t* data_ = nullptr;
  size_t rows_ = 0, width_ = 0;
};

// The rows of one call, each with its targets.
class Batch {
 public:
  Batch(const nb::object& ids, const nb::object& targets) : ids_(ids) {
    if (targets.is_none()) {
      shift();
      return;
    }
    targets_.emplace(targets);
    if (targets_->rows() != ids_.rows() || targets_->width() != ids_.width())
      throw_error(ErrorCode::invalid, "targets have another shape than ids: expected ({}, {}), got ({}, {})",
                  ids_.rows(), ids_.width(), targets_->rows(), targets_->width());
    for (size_t r = 0; r < ids_.rows(); ++r) rows_.push_back({ids_.row(r), targets_->row(r)});
  }

  // For forward(): nothing is predicted.
  explicit Batch(const nb::object& ids) : ids_(ids), ignored_(ids_.width(), -1) {
    for (size_t r = 0; r < ids_.rows(); ++r) rows_.push_back({ids_.row(r), ignored_});
  }

  const std::vector<Row>& rows() const { return rows_; }
  size_t width() const { return ids_.width(); }

 private:
  // Without targets each id is the target of the one before it.
  void shift() {
    if (ids_.width() < 2)
      throw_error(ErrorCode::invalid, "without targets a row needs at least 2 ids, got {}", ids_.width());
    for (size_t r = 0; r < ids_.rows(); ++r)
      rows_.push_back({ids_.row(r).first(ids_.width() - 1), ids_.row(r).subspan(1)});
  }

  Ids ids_;
  std::optional<Ids> targets_;
  std::vector<int32_t> ignored_;
  std::vector<Row> rows_;
};

nb::dict as_dict(std::vector<HfArray> arrays) {
  nb::dict out;
  for (HfArray& array : arrays) {
    auto* values = new std::vector<float>(std::move(array.values));
    const nb::capsule owner(values, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
    out[array.name.c_str()] = as_array(FloatArray(values->data(), array.shape.size(), array.shape.data(), owner));
  }
  return out;
}

class Model {
 public:
  explicit Model(std::shared_ptr<Host> host) : host_(std::move(host)) {}

  Host& host() const { return *host_; }

  nb::object forward(const nb::object& ids) {
    const Batch batch(ids);
    LogitsView view;
    {
      const nb::gil_scoped_release release;
      view = host_->forward(batch.rows());
    }
    const size_t shape[3] = {static_cast<size_t>(view.rows), batch.width(), static_cast<size_t>(view.vocab)};
    const int64_t strides[3] = {view.row_stride * view.vocab, view.vocab, 1};
    const nb::capsule owner(new std::shared_ptr<Session>(view.session),
                            [](void* p) noexcept { delete static_cast<std::shared_ptr<Session>*>(p); });
    return as_array(FloatArray(view.data, 3, shape, owner, strides));
  }

  double loss(const nb::object& ids, const nb::object& targets) {
    const Batch batch(ids, targets);
    remember(batch);
    const nb::gil_scoped_release release;
    return host_->loss(batch.rows());
  }

  nb::dict gradients() {
    if (last_.empty()) throw_error(ErrorCode::invalid, "gradients of what: call loss() first");
    std::vector<Row> rows;
    for (const auto& [tokens, targets] : last_) rows.push_back({tokens, targets});
    std::vector<HfArray> out;
    {
      const nb::gil_scoped_release release;
      out = host_->gradients(rows);
    }
    return as_dict(std::move(out));
  }

  nb::dict parameters() {
    std::vector<HfArray> out;
    {
      const nb::gil_scoped_release release;
      out = host_->parameters();
    }
    return as_dict(std::move(out));
  }

  std::vector<Generated> generate(const std::vector<std::vector<int32_t>>& prompts, int64_t max_tokens,
                                  double temperature, int64_t top_k, double top_p, uint64_t seed,
                                  const std::optional<std::vector<int32_t>>& end_ids, bool log_probabilities,
                                  const nb::object& on_id) {
    std::vector<Prompt> rows;
    for (const std::vector<int32_t>& ids : prompts) rows.push_back({ids, seed});
    GenerateOptions options{
        .max_tokens = max_tokens, .sampling = {temperature, top_k, top_p}, .log_probabilities = log_probabilities};
    if (end_ids)
      options.end_ids = *end_ids;
    else if (const auto eos = host_->config().eos_token_id)
      options.end_ids = {static_cast<int32_t>(*eos)};
    GenerateHooks hooks;
    hooks.poll = [] {
      const nb::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    };
    if (!on_id.is_none())
      hooks.id = [&](size_t row, int32_t id) {
        const nb::gil_scoped_acquire acquire;
        const nb::object answer = on_id(row, id);
        return answer.is_none() || nb::cast<bool>(answer);
      };
    const nb::gil_scoped_release release;
    return host_->generate(rows, options, hooks);
  }

  void save(const std::string& folder) {
    const nb::gil_scoped_release release;
    host_->save(folder);
  }

 private:
  void remember(const Batch& batch) {
    last_.clear();
    for (const Row& row : batch.rows())
      last_.emplace_back(std::vector<int32_t>(row.tokens.begin(), row.tokens.end()),
                         std::vector<int32_t>(row.targets.begin(), row.targets.end()));
  }

  std::shared_ptr<Host> host_;
  std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> last_;  // the rows of the last loss()
};

struct TrainerStep {
  StepResult result = {};
  int64_t step = 0;
  double lr = 0.0;
};

class Trainer {
 public:
  Trainer(const Model& model, const LearningRate& rate, const UpdateOptions& update, int64_t accumulate, uint64_t seed)
      : model_(model), rate_(rate), seed_(seed) {
    const nb::gil_scoped_release release;
    if (accumulate < 1)
      throw_error(ErrorCode::usage, "bad option: accumulate, expected a number from 1 on, got {}", accumulate);
    trainer_ = model_.host().add_trainer({.accumulate = accumulate, .update = update});
  }

  TrainerStep step(const nb::object& ids, const nb::object& targets) {
    const Batch batch(ids, targets);
    TrainerStep out{.step = steps_ + 1, .lr = learning_rate(rate_, steps_ + 1)};
    {
      const nb::gil_scoped_release release;
      out.result = model_.host().train(trainer_, batch.rows(), out.step, out.lr, seed_);
    }
    ++steps_;
    return out;
  }

 private:
  Model model_;  // shares the host
  LearningRate rate_;
  uint64_t seed_;
  int64_t trainer_ = 0;
  int64_t steps_ = 0;
};

// UTF-8 of a str (its own exception names a lone surrogate's position), or bytes as they are.
std::string_view text_of(const nb::object& text) {
  if (PyBytes_Check(text.ptr()))
    return {PyBytes_AS_STRING(text.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(text.ptr()))};
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

SpecialMode special_mode(const std::string& name) {
  if (name == "text") return SpecialMode::text;
  if (name == "allow") return SpecialMode::allow;
  if (name == "error") return SpecialMode::error;
  throw_error(ErrorCode::usage, "bad option: special, expected text, allow or error, got {}", name);
}

std::vector<int32_t> encode_text(const Tokenizer& tokenizer, const nb::object& text, const std::string& special) {
  const EncodeOptions options{.special = special_mode(special)};
  const std::string_view view = text_of(text);
  const nb::gil_scoped_release release;
  return encode(tokenizer, view, options);
}

nb::str decode_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const std::string bytes = tokenizer.decode(ids);
  PyObject* text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (text == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(text);
}

std::shared_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  const nb::gil_scoped_release release;
  return std::make_shared<Tokenizer>(load_tokenizer(path).tokenizer);
}

LearningRate learning_rate_options(double lr, double min_lr, const std::string& schedule, int64_t warmup,
                                   const std::optional<int64_t>& steps) {
  const std::optional<Schedule> kind = parse_schedule(schedule);
  if (!kind)
    throw_error(ErrorCode::usage, "bad option: schedule, expected constant, linear or cosine, got {}", schedule);
  if (*kind != Schedule::constant && !steps)
    throw_error(ErrorCode::usage, "bad option: steps, expected the number of steps of a {} schedule, got none",
                schedule);
  if (warmup < 0 || (steps && *steps < 1))
    throw_error(ErrorCode::usage, "bad option: warmup or steps, expected positive numbers, got {} and {}", warmup,
                steps.value_or(1));
  return {lr, min_lr, *kind, warmup, steps.value_or(warmup + 1)};
}

std::string_view code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage: return "usage";
    case ErrorCode::invalid: return "invalid";
    case ErrorCode::io: return "io";
    case ErrorCode::memory: return "memory";
    case ErrorCode::unsupported: return "unsupported";
  }
  return "unknown";
}

PyObject* error_type = nullptr;  // lamina.Error, for as long as the interpreter

// lamina.Error: the one line of the command line as its text, the hint and the kind as attributes.
void bind_error(nb::module_& m) {
  error_type = PyErr_NewExceptionWithDoc("lamina.Error",
                                         "What the caller or the world got wrong: the command line's one line. `hint` "
                                         "is one more line or empty, `code` is "
                                         "usage, invalid, io, memory or unsupported.",
                                         PyExc_Exception, nullptr);
  m.attr("Error") = nb::borrow(error_type);
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      const nb::object value = nb::borrow(error_type)(error.what());
      value.attr("hint") = error.hint();
      value.attr("code") = std::string(code_name(error.code()));
      PyErr_SetObject(error_type, value.ptr());
    }
  });
}

void bind_model(nb::module_& m) {
  nb::class_<Generated>(m, "Generated")
      .def_ro("ids", &Generated::ids)
      .def_prop_ro("finish_reason", [](const Generated& g) { return std::string(finish_reason_name(g.reason)); })
      .def_ro("log_probabilities", &Generated::log_probabilities);
  nb::class_<Model>(m, "Model")
      .def_static(
          "from_pretrained",
          [](const std::string& folder, int threads) {
            const nb::gil_scoped_release release;
            return Model(Host::open(folder, threads));
          },
          "folder"_a, "threads"_a = 0)
      .def_static(
          "from_config",
          [](const std::string& path, uint64_t seed, int threads) {
            const nb::gil_scoped_release release;
            return Model(Host::create(path, seed, threads));
          },
          "path"_a, "seed"_a = 0, "threads"_a = 0)
      .def("forward", &Model::forward, "ids"_a)
      .def("loss", &Model::loss, "ids"_a, "targets"_a = nb::none())
      .def("gradients", &Model::gradients)
      .def("parameters", &Model::parameters)
      .def("generate", &Model::generate, "prompts"_a, nb::kw_only(), "max_tokens"_a = 128, "temperature"_a = 1.0,
           "top_k"_a = 0, "top_p"_a = 1.0, "seed"_a = 0, "end_ids"_a = nb::none(), "log_probabilities"_a = false,
           "on_id"_a = nb::none())
      .def("save_pretrained", &Model::save, "folder"_a)
      .def_prop_ro("config", [](const Model& model) { return hf_config_text(model.host().config()); })
      .def_prop_ro("warnings", [](const Model& model) { return model.host().warnings(); });
}

void bind_trainer(nb::module_& m) {
  nb::class_<TrainerStep>(m, "StepResult")
      .def_ro("step", &TrainerStep::step)
      .def_ro("lr", &TrainerStep::lr)
      .def_prop_ro("loss", [](const TrainerStep& s) { return s.result.loss; })
      .def_prop_ro("grad_norm", [](const TrainerStep& s) { return s.result.grad_norm; })
      .def_prop_ro("tokens", [](const TrainerStep& s) { return s.result.tokens; })
      .def_prop_ro("finite", [](const TrainerStep& s) { return s.result.finite; });
  nb::class_<Trainer>(m, "Trainer")
      .def(
          "__init__",
          [](Trainer* self, const Model& model, double lr, const std::pair<double, double>& betas, double eps,
             double weight_decay, double clip, double clip_layer, int64_t accumulate, const std::string& schedule,
             int64_t warmup, double min_lr, const std::optional<int64_t>& steps, uint64_t seed) {
            const UpdateOptions update{betas.first, betas.second, eps, weight_decay, clip, clip_layer};
            new (self)
                Trainer(model, learning_rate_options(lr, min_lr, schedule, warmup, steps), update, accumulate, seed);
          },
          "model"_a, nb::kw_only(), "lr"_a = 1e-3, "betas"_a = std::pair(0.9, 0.999), "eps"_a = 1e-8,
          "weight_decay"_a = 0.0, "clip"_a = 0.0, "clip_layer"_a = 0.0, "accumulate"_a = 1, "schedule"_a = "constant",
          "warmup"_a = 0, "min_lr"_a = 0.0, "steps"_a = nb::none(), "seed"_a = 0)
      .def("step", &Trainer::step, "ids"_a, "targets"_a = nb::none());
}

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def_static("from_pretrained", &open_tokenizer, "path"_a)
      .def("encode", &encode_text, "text"_a, "special"_a = "text")
      .def("decode", &decode_text, "ids"_a)
      .def(
          "decode_bytes",
          [](const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
            const std::string bytes = tokenizer.decode(ids);
            return nb::bytes(bytes.data(), bytes.size());
          },
          "ids"_a)
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("end_of_text", &Tokenizer::end_of_text);
}

}  // namespace
}  // namespace lamina::python

NB_MODULE(_lamina, m) {
  m.attr("__version__") = lamina::kVersion;
  lamina::python::bind_error(m);
  lamina::python::bind_model(m);
  lamina::python::bind_trainer(m);
  lamina::python::bind_tokenizer(m);
}
