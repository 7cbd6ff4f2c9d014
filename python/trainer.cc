// lamina.Trainer and lamina.StepResult: one step of training at a time, on rows that the caller brings.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "base/error.h"
#include "bind.h"
#include "observe/memory_picture.h"
#include "train/data.h"
#include "train/options.h"
#include "train/precision.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lamina::python {
namespace {

struct TrainerStep {
  StepResult result = {};
  int64_t step = 0;
  double lr = 0.0;
};

LearningRate rate_of(const TrainOptions& options) {
  if (options.schedule != "constant" && !options.steps)
    throw_error(ErrorCode::usage, "bad option: steps, expected the number of steps of a {} schedule, got none",
                options.schedule);
  return learning_rate_of(options, options.steps.value_or(std::max(options.warmup, int64_t{1})));
}

class Trainer {
 public:
  // Where `seq` is none, the first step says how large the plan is.
  Trainer(const Model& model, const TrainOptions& options) : host_(model.host), options_(options) {
    validate(options_);
    rate_ = rate_of(options_);
    if (options_.isolate_documents) document_end_ = document_end({}, host_->config());
    TrainerPlan plan{.compile = compile_options(options_, host_->config()), .dropout = options_.dropout};
    scaled_ = needs_loss_scale(precision_of_parts(plan.compile.precision, host_->config()));
    plan.dynamic_loss_scale = scaled_;
    if (!options_.seq) plan.compile.batch = plan.compile.seq = 1;
    trainer_ = host_->add_trainer(plan);
  }

  TrainerStep step(const nb::object& ids, const nb::object& targets, const nb::object& mask,
                   const nb::object& positions) {
    Batch batch(ids, targets);
    batch.attend(mask, positions);
    if (document_end_) batch.isolate(*document_end_);
    ++steps_;  // with the GIL, so that of two threads each has a number of its own
    TrainerStep out{.step = steps_, .lr = learning_rate(rate_, steps_)};
    try {
      const nb::gil_scoped_release release;
      out.result = host_->train(trainer_, batch.rows(), out.step, out.lr, static_cast<uint64_t>(options_.seed));
    } catch (...) {
      --steps_;
      throw;
    }
    planned_ = true;
    judge(out);
    return out;
  }

  // Keys as those of `lamina plan --json`.
  nb::dict plan() {
    if (!options_.seq && !planned_)
      throw_error(ErrorCode::invalid, "no plan yet: the first step makes it, or the options batch and seq");
    Plan plan;
    MemoryPicture memory;
    {
      const nb::gil_scoped_release release;
      plan = host_->training_plan(trainer_);
      memory = memory_picture(plan, host_->threads());
    }
    int64_t max_live = 0;
    for (const PlanProgram& program : plan.programs) max_live = std::max(max_live, program.max_live_bytes);
    nb::dict classes, out;
    for (const MemoryClass& entry : memory.classes) classes[entry.name.c_str()] = entry.bytes;
    out["digest"] = plan.digest;
    out["total_bytes"] = plan.total_bytes(host_->threads());
    out["arena_bytes"] = plan.region(Region::transient);
    out["max_live_bytes"] = max_live;
    out["classes"] = classes;
    out["peak_owner"] = memory.step;
    out["peak_program"] = memory.program;
    return out;
  }

 private:
  void judge(const TrainerStep& step) {
    if (scaled_ && step.result.overflow) return;  // the loss scale at work
    skips_in_a_row_ = step.result.finite ? 0 : skips_in_a_row_ + 1;
    check_skips(skips_in_a_row_, options_.max_skips, step.step);
  }

  std::shared_ptr<Host> host_;
  TrainOptions options_;
  LearningRate rate_;
  std::optional<int32_t> document_end_;  // where documents are isolated
  int64_t trainer_ = 0;
  int64_t steps_ = 0;
  int64_t skips_in_a_row_ = 0;
  bool scaled_ = false;  // by a loss scale
  bool planned_ = false;
};

// Options have the names and the meaning of `lamina train`.
void make_trainer(Trainer* self, const Model& model, double lr, const std::array<double, 2>& betas, double eps,
                  double weight_decay, double clip, double clip_layer, int64_t accumulate, const std::string& schedule,
                  int64_t warmup, double min_lr, const std::optional<int64_t>& decay_steps,
                  const std::optional<int64_t>& steps, int64_t seed, const std::optional<double>& dropout,
                  int64_t max_skips, int64_t batch, const std::optional<int64_t>& seq, bool isolate_documents,
                  const std::string& recompute, const Path& precision, bool update_in_backward,
                  const std::vector<std::string>& passes) {
  TrainOptions options;
  options.lr = lr;
  options.betas = betas;
  options.eps = eps;
  options.weight_decay = weight_decay;
  options.clip = clip;
  options.clip_layer = clip_layer;
  options.accumulate = accumulate;
  options.schedule = schedule;
  options.warmup = warmup;
  options.min_lr = min_lr;
  options.decay_steps = decay_steps;
  options.steps = steps;
  options.seed = seed;
  options.dropout = dropout;
  options.max_skips = max_skips;
  options.batch = batch;
  options.seq = seq;
  options.isolate_documents = isolate_documents;
  options.recompute = recompute;
  options.precision = precision.string();
  options.update_in_backward = update_in_backward;
  options.passes = passes;
  const nb::gil_scoped_release release;
  new (self) Trainer(model, options);
}

}  // namespace

void bind_trainer(nb::module_& m) {
  nb::class_<TrainerStep>(m, "StepResult")
      .def_ro("step", &TrainerStep::step)
      .def_ro("lr", &TrainerStep::lr)
      .def_prop_ro("loss", [](const TrainerStep& s) { return s.result.loss; })
      .def_prop_ro("grad_norm", [](const TrainerStep& s) { return s.result.grad_norm; })
      .def_prop_ro("tokens", [](const TrainerStep& s) { return s.result.tokens; })
      .def_prop_ro("loss_scale", [](const TrainerStep& s) { return s.result.loss_scale; })
      .def_prop_ro("finite", [](const TrainerStep& s) { return s.result.finite; });
  const TrainOptions usual;
  nb::class_<Trainer>(m, "Trainer")
      .def("__init__", &make_trainer, "model"_a, nb::kw_only(), "lr"_a = usual.lr, "betas"_a = usual.betas,
           "eps"_a = usual.eps, "weight_decay"_a = usual.weight_decay, "clip"_a = usual.clip,
           "clip_layer"_a = usual.clip_layer, "accumulate"_a = usual.accumulate, "schedule"_a = usual.schedule,
           "warmup"_a = usual.warmup, "min_lr"_a = usual.min_lr, "decay_steps"_a = nb::none(), "steps"_a = nb::none(),
           "seed"_a = usual.seed, "dropout"_a = nb::none(), "max_skips"_a = usual.max_skips, "batch"_a = usual.batch,
           "seq"_a = nb::none(), "isolate_documents"_a = usual.isolate_documents, "recompute"_a = usual.recompute,
           "precision"_a = usual.precision, "update_in_backward"_a = usual.update_in_backward,
           "passes"_a = usual.passes)
      .def("step", &Trainer::step, "ids"_a, "targets"_a = nb::none(), "attention_mask"_a = nb::none(),
           "position_ids"_a = nb::none())
      .def("plan", &Trainer::plan);
}

}  // namespace lamina::python
