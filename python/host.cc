#include "host.h"

#include <algorithm>
#include <map>

#include "base/cpu.h"
#include "base/error.h"
#include "infer/load.h"
#include "train/init.h"
#include "train/options.h"
#include "train/weights.h"

namespace lamina::python {
namespace {

// Parameters and moments that both sessions have, between whatever layouts.
void copy_state(const Session& from, Session& to, bool moments) {
  std::vector<float> values;
  for (const PlanTensor& tensor : from.plan().tensors) {
    const bool wanted = tensor.tensor_class == "parameters" || (moments && tensor.tensor_class == "optimizer");
    if (!wanted || tensor.region != Region::persistent || !to.has_tensor(tensor.name)) continue;
    values.resize(static_cast<size_t>(tensor.shape.elements()));
    from.read(tensor.name, values.data(), tensor.shape.last(), 1);
    to.write(tensor.name, {values.data(), tensor.shape.last(), 1});
  }
}

int64_t longest(const std::vector<Row>& rows) {
  int64_t out = 1;
  for (const Row& row : rows) out = std::max(out, std::ssize(row.tokens));
  return out;
}

}  // namespace

OwnedRow::OwnedRow(const Row& row)
    : tokens(row.tokens.begin(), row.tokens.end()),
      targets(row.targets.begin(), row.targets.end()),
      key_begin(row.key_begin.begin(), row.key_begin.end()),
      positions(row.positions.begin(), row.positions.end()) {}

Row OwnedRow::row() const {
  return {.tokens = tokens, .targets = targets, .key_begin = key_begin, .positions = positions};
}

Host::Host(ModelConfig config, const HostLimits& limits)
    : config_(std::move(config)), specs_(parameter_specs(config_)), limits_(limits) {
  slot(Purpose::inference).options = {.train = false, .eval = true, .forward = true};
  slot(Purpose::gradients).options = {.keep_gradients = true};
}

std::shared_ptr<Host> Host::open(const std::string& folder, const HostLimits& limits,
                                 const std::function<void()>& poll) {
  const HfConfig config = read_hf_config(folder);
  const std::shared_ptr<Host> host(new Host(config.model, limits));
  Slot& first = host->slot(Purpose::inference);
  LoadedModel model = load_model(
      folder, config,
      {.needs = [&] { return first.options; }, .threads = limits.threads, .memory_limit = limits.memory, .poll = poll});
  first.session = std::move(model.session);
  first.version = 0;
  host->warnings_ = std::move(model.warnings);
  return host;
}

std::shared_ptr<Host> Host::create(HfConfig config, uint64_t seed, const HostLimits& limits) {
  const std::shared_ptr<Host> host(new Host(std::move(config.model), limits));
  host->warnings_ = std::move(config.warnings);
  Slot& first = host->slot(Purpose::inference);
  host->build(first, first.options);
  initialise(*first.session, host->specs_, seed);
  first.version = 0;
  return host;
}

// A callback of generate() that asks the same model would wait for itself.
std::unique_lock<std::mutex> Host::enter() {
  if (generating_ == std::this_thread::get_id())
    throw_error(ErrorCode::invalid, "the model is generating: it cannot be called from on_id or on_text");
  std::unique_lock lock(mutex_);
  if (spoiled_ > 0)
    throw_error(ErrorCode::invalid, "the model's weights are of no use: expected finite numbers, got those of step {}",
                spoiled_);
  return lock;
}

const Host::Slot& Host::newest() const {
  return *std::max_element(slots_.begin(), slots_.end(),
                           [](const Slot& a, const Slot& b) { return a.version < b.version; });
}

// Gradients are those of the function as it is evaluated: without dropout.
ModelConfig Host::config_for(const Slot& slot) const {
  if (&slot == &slots_[static_cast<size_t>(Purpose::gradients)]) return with_dropout(config_, 0.0);
  return with_dropout(config_, dropout_);
}

// The slot stays as it was where this throws.
void Host::build(Slot& slot, CompileOptions wanted) {
  wanted.isa = select_isa();
  wanted.recompute.threads = limits_.threads;
  wanted.recompute.memory_limit = limits_.memory;
  const auto session =
      std::make_shared<Session>(lamina::compile(config_for(slot), wanted).plan, limits_.threads, limits_.memory);
  if (slot.session != nullptr) copy_state(*slot.session, *session, true);
  slot.session = session;
  slot.options = wanted;
}

void Host::bring_up_to_date(Slot& slot) {
  const Slot& source = newest();
  if (slot.version == source.version) return;
  copy_state(*source.session, *slot.session, false);
  slot.version = source.version;
}

// A session of this purpose that holds the rows and the newest parameters.
Session& Host::ready(Purpose purpose, const std::vector<Row>& rows, int64_t micro_batches) {
  Slot& out = slot(purpose);
  const int64_t batch = (std::max<int64_t>(std::ssize(rows), 1) + micro_batches - 1) / micro_batches;
  const int64_t seq = longest(rows);
  if (out.session == nullptr || batch > out.options.batch || seq > out.options.seq) {
    CompileOptions wanted = out.options;
    wanted.batch = std::max(wanted.batch, batch);
    wanted.seq = std::max(wanted.seq, seq);
    build(out, wanted);
  }
  bring_up_to_date(out);
  return *out.session;
}

LogitsView Host::forward(const std::vector<Row>& rows) {
  const std::unique_lock lock = enter();
  Session& session = ready(Purpose::inference, rows);
  BatchInputs inputs(session);
  inputs.check(rows, inputs.rows());
  inputs.fill(rows, 0);
  session.run(session.program("forward"));
  return {slot(Purpose::inference).session,
          session.floats("logits").data(),
          std::ssize(rows),
          longest(rows),
          config_.vocab_size,
          inputs.seq()};
}

double Host::loss(const std::vector<Row>& rows) {
  const std::unique_lock lock = enter();
  EvalStep step(ready(Purpose::inference, rows));
  EvalResult result;
  step.add(rows, result);
  return result.mean();
}

std::vector<HfArray> Host::gradients(const std::vector<Row>& rows) {
  const std::unique_lock lock = enter();
  Session& session = ready(Purpose::gradients, rows);
  for (const ParameterSpec& spec : specs_) session.fill("grad." + spec.name, 0.0f);
  TrainStep(session, {}).backward(rows, 1);
  return collect(session, "grad.");
}

std::vector<HfArray> Host::parameters() {
  const std::unique_lock lock = enter();
  return collect(*newest().session, "");
}

std::vector<HfArray> Host::collect(const Session& session, const std::string& prefix) const {
  std::vector<HfArray> out;
  std::map<std::string, size_t> places;
  for (const ParameterSpec& spec : specs_) {
    const Shape& shape = spec.hf.shape;
    const auto [place, fresh] = places.emplace(spec.hf.name, out.size());
    if (fresh) {
      const std::string front = spec.hf.name == "lm_head.weight" ? "" : "transformer.";
      out.push_back({front + spec.hf.name,
                     {shape.dims.begin(), shape.dims.begin() + shape.rank},
                     std::vector<float>(static_cast<size_t>(shape.elements()))});
    }
    float* data = out[place->second].values.data() + spec.hf.column;
    const int64_t stride_row = spec.hf.transposed ? 1 : shape.last();
    session.read(prefix + spec.name, data, stride_row, spec.hf.transposed ? shape.last() : 1);
  }
  return out;
}

std::vector<Generated> Host::generate(const std::vector<Prompt>& prompts, int64_t batch, const GenerateOptions& options,
                                      const GenerateHooks& hooks) {
  const std::unique_lock lock = enter();
  Slot& inference = slot(Purpose::inference);
  const int64_t rows = std::clamp<int64_t>(std::ssize(prompts), 1, batch);
  if (rows > inference.options.generate_batch) {
    CompileOptions wanted = inference.options;
    wanted.generate_batch = rows;
    build(inference, wanted);
  }
  bring_up_to_date(inference);
  struct Mark {
    std::atomic<std::thread::id>& id;
    ~Mark() { id = std::thread::id(); }
  };
  const Mark mark{generating_};
  generating_ = std::this_thread::get_id();
  return Generator(*inference.session, config_).generate(prompts, options, hooks);
}

void Host::save(const std::string& folder) {
  const std::unique_lock lock = enter();
  if (const std::string found = find_non_finite(*newest().session, specs_); !found.empty())
    throw_error(ErrorCode::invalid, "weights of no use are not saved: {}: {}", folder, found);
  save_model(*newest().session, folder, config_, parameter_specs(config_));
}

int64_t Host::add_trainer(const TrainerPlan& plan) {
  const std::unique_lock lock = enter();
  Slot& training = slot(Purpose::training);
  if (training.session != nullptr) {
    bring_up_to_date(slot(Purpose::inference));  // the newest parameters must not go with their session
    training = {};
  }
  training.options = plan.compile;
  dropout_ = plan.dropout;
  updates_ = 0;
  loss_scale_.reset();
  if (plan.dynamic_loss_scale) loss_scale_.emplace();
  return ++trainers_;
}

void Host::check_newest(int64_t trainer) const {
  if (trainer != trainers_)
    throw_error(ErrorCode::invalid, "a newer Trainer has taken over this model: trainer {}, now {}", trainer,
                trainers_);
}

Plan Host::training_plan(int64_t trainer) {
  const std::unique_lock lock = enter();
  check_newest(trainer);
  Slot& training = slot(Purpose::training);
  if (training.session == nullptr) build(training, training.options);
  return training.session->plan();
}

StepResult Host::train(int64_t trainer, const std::vector<Row>& rows, int64_t step, double lr, uint64_t seed) {
  const std::unique_lock lock = enter();
  check_newest(trainer);
  Slot& training = slot(Purpose::training);
  Session& session = ready(Purpose::training, rows, training.options.accumulate);
  const UpdateOptions& update = training.options.update;
  TrainStep runner(session, {.seed = seed,
                             .accumulate = training.options.accumulate,
                             .beta1 = update.beta1,
                             .beta2 = update.beta2,
                             .dynamic_loss_scale = loss_scale_.has_value()});
  runner.set_updates(updates_);
  if (loss_scale_) runner.set_loss_scale(*loss_scale_);
  const StepResult result = runner.step(rows, step, lr);
  if (!result.finite && update.in_backward) {
    spoiled_ = step;
    const std::string what =
        result.overflow ? "the gradient of " + gradient_name(specs_, runner.bad_gradient()) : "the loss";
    refuse_applied_step({step, what, result.loss, result.grad_norm, "the model has to be loaded again"});
  }
  loss_scale_ = runner.loss_scale();
  if (result.overflow && loss_scale_) check_loss_scale(result.loss_scale, step, specs_, runner.bad_gradient());
  if (runner.updates() > updates_) training.version = newest().version + 1;
  updates_ = runner.updates();
  return result;
}

}  // namespace lamina::python
