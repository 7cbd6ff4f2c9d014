// lamina bench ablation: what each acceleration of the compiler is worth. The same model is compiled with all of them
// and without one, and the steps of both alternate, so that whatever else the machine does hits both alike.
#include <algorithm>

#include "base/cpu.h"
#include "bench.h"
#include "plan/cost.h"
#include "timed_steps.h"
#include "train/precision.h"

namespace lamina::cli {
namespace {

struct Acceleration {
  std::string_view name;
  std::string_view without;  // what happens instead, for people
  void (*leave_out)(ShapeOptions& options);
  void (*take_in)(ShapeOptions& options) = nullptr;  // first, where it is not in use by itself
};

void skip(ShapeOptions& options, std::initializer_list<const char*> passes) {
  for (const char* pass : passes) options.passes.push_back(fmt::format("-{}", pass));
}

// Only without clips, so both sides have none; what else forbids it leaves both sides alike.
void update_in_backward(ShapeOptions& options) {
  const PrecisionMap map = parse_precision(options.precision).map;
  const auto is_fp16 = [](const PrecisionRule& rule) { return rule.dtype == Dtype::f16; };
  options.clip = options.clip_layer = 0.0;
  options.update_in_backward = options.accumulate == 1 && std::none_of(map.begin(), map.end(), is_fp16);
}

// A row for each; every pass that can be left out is in one.
constexpr Acceleration kAccelerations[] = {
    {"fold_identities", "dropout that is off, scaling by 1", [](ShapeOptions& o) { skip(o, {"fold_identities"}); }},
    {"remove_dead", "what nothing needs",
     [](ShapeOptions& o) {
       skip(o, {"remove_dead", "remove_dead_gradients"});
     }},
    {"merge_duplicates", "equal nodes twice",
     [](ShapeOptions& o) {
       skip(o, {"merge_duplicates", "merge_duplicates_backward"});
     }},
    {"fuse_accumulate", "additions alone: residuals, sums of gradients",
     [](ShapeOptions& o) {
       skip(o, {"fuse_accumulate", "fuse_accumulate_backward"});
     }},
    {"head", "logits of all rows at once", [](ShapeOptions& o) { skip(o, {"fuse_head"}); }},
    {"qkv", "three projections apart",
     [](ShapeOptions& o) {
       skip(o, {"fuse_qkv", "fuse_qkv_gradient"});
     }},
    {"gelu", "GELU and its slope alone",
     [](ShapeOptions& o) {
       skip(o, {"fuse_gelu", "fuse_gelu_gradient"});
     }},
    {"layernorm", "LayerNorm alone, its gradients in two visits",
     [](ShapeOptions& o) {
       skip(o, {"fuse_layernorm", "fuse_layernorm_gradient"});
     }},
    {"bias_gradient", "bias gradients alone", [](ShapeOptions& o) { skip(o, {"fuse_bias_gradient"}); }},
    {"residual", "dropout, residual and embeddings alone", [](ShapeOptions& o) { skip(o, {"fuse_residual"}); }},
    {"precision", "everything in fp32", [](ShapeOptions& o) { o.precision = "fp32"; }},
    {"casts", "casts alone", [](ShapeOptions& o) { skip(o, {"fuse_casts"}); }},
    {"storage", "operands stored in fp32, rounded where they are packed",
     [](ShapeOptions& o) {
       skip(o, {"insert_casts", "fuse_casts"});
     }},
    {"recompute", "everything kept for backward", [](ShapeOptions& o) { skip(o, {"recompute"}); }},
    {"update", "gradients of the layers whole, updates after their norm; no clip on either side",
     [](ShapeOptions& o) {
       skip(o, {"fuse_update"});
       o.update_in_backward = false;
     },
     update_in_backward},
    {"order_for_memory", "nodes as they were made", [](ShapeOptions& o) { skip(o, {"order_for_memory"}); }},
    {"share_storage", "outputs beside their inputs", [](ShapeOptions& o) { skip(o, {"share_storage"}); }},
};

struct Options : TimedOptions {
  std::vector<std::string> only;
  int64_t steps = 5;
  int64_t warmup = 1;
  bool json = false;
};

template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(OptionRow{"only", "NAME", "an acceleration (default: all of them); may be repeated"}, o.only);
  f(OptionRow{"steps", "N", "steps of each side that are timed", kFromOne}, o.steps);
  f(OptionRow{"warmup", "N", "steps of each before them", kFromZero}, o.warmup);
  for_each_shape_option(o, f);
}

struct Effect {
  double step_ms = 0.0;
  double bytes = 0.0;  // of the operands of all that runs in a step
  int64_t peak_bytes = 0;
  int64_t nodes = 0;
};

struct Variant {
  Plan plan;
  Effect effect;
};

class Ablation {
 public:
  explicit Ablation(const Options& options)
      : options_(options), model_(open_model(options.model)), threads_(thread_count(options.threads)) {
    for (const std::string& warning : model_.warnings) say("warning: {}", warning);
    model_.config = with_dropout(model_.config, options.dropout);
    all_ = variant(options);
  }

  // One row of the result.
  Json row(const Acceleration& acceleration) {
    ShapeOptions with = options_;
    if (acceleration.take_in != nullptr) acceleration.take_in(with);
    ShapeOptions shape = with;
    acceleration.leave_out(shape);
    Variant off = variant(shape);
    const Variant own = acceleration.take_in != nullptr ? variant(with) : all_;
    Effect on = own.effect;
    const bool changes = off.plan.digest != own.plan.digest;
    if (changes) {
      say("with and without {} in turn, {} steps each", acceleration.name, options_.steps);
      if (acceleration.take_in == nullptr) {
        time(own_steps(), std::move(off.plan), shape, on, off.effect);
      } else {
        steps_.reset();  // no third set of weights in memory
        TimedSteps steps(own.plan, model_.config, with, threads_);
        warm_up(steps);
        time(steps, std::move(off.plan), shape, on, off.effect);
      }
    } else {
      on.step_ms = off.effect.step_ms = own_step_ms();
    }
    const std::span<const std::string> passes = std::span(shape.passes).subspan(options_.passes.size());
    return {{"acceleration", acceleration.name},
            {"without", acceleration.without},
            {"passes", std::vector<std::string>(passes.begin(), passes.end())},
            {"changes", changes},
            {"on", effect_json(on)},
            {"off", effect_json(off.effect)}};
  }

  const ModelSource& model() const { return model_; }
  int threads() const { return threads_; }

 private:
  Variant variant(const ShapeOptions& shape) const {
    const Compiled compiled = compile(model_.config, compile_options(shape, model_.config));
    Effect effect{.peak_bytes = compiled.plan.total_bytes(threads_)};
    for (const PlanProgram& program : compiled.plan.programs)
      effect.bytes += work_of(compiled.plan, program).bytes() *
                      static_cast<double>(program.name == "micro_step" ? shape.accumulate : 1);
    for (const Graph& graph : compiled.graphs) effect.nodes += std::ssize(graph.nodes);
    return {compiled.plan, effect};
  }

  void warm_up(TimedSteps& steps) const {
    for (int64_t i = 0; i < options_.warmup; ++i) steps.step_ms();
  }

  void time(TimedSteps& own, Plan plan, const ShapeOptions& shape, Effect& on, Effect& off) {
    TimedSteps others(std::move(plan), model_.config, shape, threads_);
    warm_up(others);
    StepTimes with, without;
    for (int64_t i = 0; i < options_.steps; ++i) {
      with.ms.push_back(own.step_ms());
      without.ms.push_back(others.step_ms());
    }
    on.step_ms = with.least();
    off.step_ms = without.least();
  }

  TimedSteps& own_steps() {
    if (steps_) return *steps_;
    steps_.emplace(all_.plan, model_.config, options_, threads_);
    warm_up(*steps_);
    return *steps_;
  }

  // Of the plan with all accelerations alone: what equal plans take is timed once.
  double own_step_ms() {
    if (own_ms_ == 0.0) {
      StepTimes times;
      for (int64_t i = 0; i < options_.steps; ++i) times.ms.push_back(own_steps().step_ms());
      own_ms_ = times.least();
    }
    return own_ms_;
  }

  static Json effect_json(const Effect& effect) {
    return {{"step_ms", effect.step_ms},
            {"bytes", static_cast<int64_t>(effect.bytes)},
            {"peak_bytes", effect.peak_bytes},
            {"nodes", effect.nodes}};
  }

  const Options& options_;
  ModelSource model_;
  int threads_;
  Variant all_;
  std::optional<TimedSteps> steps_;  // of all_, once it is timed
  double own_ms_ = 0.0;
};

std::string row_text(const Json& row) {
  const std::string name = row["acceleration"].get<std::string>();
  if (!row["changes"].get<bool>()) return fmt::format("{:<18} changes nothing in this plan\n", name);
  const auto pair = [&](const char* key, double unit, int digits) {
    const double on = row["on"][key].get<double>() * unit, off = row["off"][key].get<double>() * unit;
    return fmt::format("{:>9.{}f} ->{:>9.{}f}", on, digits, off, digits);
  };
  return fmt::format("{:<18}{}  {:.3f}{}{}{}  {}\n", name, pair("step_ms", 1.0, 1),
                     row["off"]["step_ms"].get<double>() / row["on"]["step_ms"].get<double>(), pair("bytes", 1e-9, 3),
                     pair("peak_bytes", 1.0 / (1 << 20), 1), pair("nodes", 1.0, 0), row["without"].get<std::string>());
}

std::vector<Acceleration> chosen(const Options& options) {
  std::vector<Acceleration> out;
  for (const Acceleration& acceleration : kAccelerations)
    if (options.only.empty() ||
        std::find(options.only.begin(), options.only.end(), acceleration.name) != options.only.end())
      out.push_back(acceleration);
  return out;
}

void check(const Options& options) {
  check_options(options);
  validate(options);
  std::string known;
  for (const Acceleration& acceleration : kAccelerations)
    known += (known.empty() ? "" : ", ") + std::string(acceleration.name);
  for (const std::string& name : options.only)
    if (std::none_of(std::begin(kAccelerations), std::end(kAccelerations),
                     [&](const auto& a) { return a.name == name; }))
      bad_value("only", known, name);
}

int run(const Options& options) {
  check(options);
  Ablation ablation(options);
  Json rows = Json::array();
  std::string text = fmt::format("{:<18}{:>21}{:>7}{:>21}{:>21}{:>21}  {}\n", "with -> without", "step ms", "ratio",
                                 "GB moved", "memory MiB", "nodes", "instead");
  for (const Acceleration& acceleration : chosen(options)) {
    rows.push_back(ablation.row(acceleration));
    text += row_text(rows.back());
  }
  report(options.json,
         {{"cpu", cpu_name()},
          {"isa", isa_name(select_isa())},
          {"threads", ablation.threads()},
          {"model", ablation.model().name},
          {"batch", options.batch},
          {"seq", resolve_seq(options, ablation.model().config)},
          {"accumulate", options.accumulate},
          {"precision", options.precision},
          {"steps", options.steps},
          {"rows", rows}},
         text);
  return 0;
}

}  // namespace

void add_bench_ablation(const Command& bench) {
  const Command command = bench.add("ablation", "what each acceleration is worth: steps with and without it, in turn");
  const auto options = std::make_shared<Options>();
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli
