// What stands behind lamina.Model: a model's parameters, and the sessions that were compiled for what was asked of it
// so far. Plain C++; how Python sees it is in model.cc and trainer.cc.
//
//   purpose     programs                     compiled when
//   inference   forward, eval, prefill, …    the model is opened, again when a batch is larger than all before
//   gradients   micro_step without dropout   gradients() is called
//   training    step; or micro_step, update  a Trainer steps
//
// Each session has parameters of its own. The newest ones are copied over when another purpose is next used.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "compile.h"
#include "infer/generate.h"
#include "io/hf_config.h"
#include "model/config.h"
#include "model/parameters.h"
#include "runtime/session.h"
#include "train/step.h"

namespace lamina::python {

enum class Purpose { inference, gradients, training };
constexpr size_t kPurposes = 3;

// A tensor in HuggingFace's packing, row-major.
struct HfArray {
  std::string name;
  std::vector<size_t> shape;
  std::vector<float> values;
};

// A row with memory of its own.
struct OwnedRow {
  explicit OwnedRow(const Row& row);
  Row row() const;

  std::vector<int32_t> tokens, targets, key_begin, positions;
};

// Logits of a batch where the session left them: element (b, t, v) at data[(b * row_stride + t) * V + v].
struct LogitsView {
  std::shared_ptr<Session> session;
  float* data = nullptr;
  int64_t rows = 0, seq = 0, vocab = 0, row_stride = 0;
};

// Of all sessions of a model. Threads 1 and above, bytes of memory for each session; 0: what the machine has.
struct HostLimits {
  int threads = 1;
  int64_t memory = 0;
};

// What a trainer compiles: its options, capacities for the first step, and dropout in place of the config's.
struct TrainerPlan {
  CompileOptions compile;
  bool dynamic_loss_scale = false;
  std::optional<double> dropout;
};

// Every method takes the lock: calls from several threads run one after the other.
class Host {
 public:
  static std::shared_ptr<Host> open(const std::string& folder, const HostLimits& limits,
                                    const std::function<void()>& poll);
  // GPT-2's initialisation.
  static std::shared_ptr<Host> create(HfConfig config, uint64_t seed, const HostLimits& limits);

  const ModelConfig& config() const { return config_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  LogitsView forward(const std::vector<Row>& rows);
  double loss(const std::vector<Row>& rows);
  std::vector<HfArray> gradients(const std::vector<Row>& rows);
  std::vector<HfArray> parameters();
  // At most `batch` rows at a time: the caches take memory for each.
  std::vector<Generated> generate(const std::vector<Prompt>& prompts, int64_t batch, const GenerateOptions& options,
                                  const GenerateHooks& hooks);
  void save(const std::string& folder);

  // A trainer names itself by a number; the newest one owns the moments.
  int64_t add_trainer(const TrainerPlan& plan);
  StepResult train(int64_t trainer, const std::vector<Row>& rows, int64_t step, double lr, uint64_t seed);
  // The plan that the newest trainer steps with; compiled now if it was not yet.
  Plan training_plan(int64_t trainer);
  int threads() const { return limits_.threads; }

 private:
  struct Slot {
    std::shared_ptr<Session> session;
    CompileOptions options;
    int64_t version = -1;  // of the parameters in it
  };

  Host(ModelConfig config, const HostLimits& limits);
  std::unique_lock<std::mutex> enter();
  Slot& slot(Purpose purpose) { return slots_[static_cast<size_t>(purpose)]; }
  Session& ready(Purpose purpose, const std::vector<Row>& rows, int64_t micro_batches = 1);
  void build(Slot& slot, CompileOptions wanted);
  ModelConfig config_for(const Slot& slot) const;
  void check_newest(int64_t trainer) const;
  void bring_up_to_date(Slot& slot);
  const Slot& newest() const;
  std::vector<HfArray> collect(const Session& session, const std::string& prefix) const;

  std::mutex mutex_;
  std::atomic<std::thread::id> generating_ = {};  // whose generate() runs, with callbacks
  ModelConfig config_;
  std::vector<ParameterSpec> specs_;
  std::vector<std::string> warnings_;
  HostLimits limits_;
  std::array<Slot, kPurposes> slots_;
  int64_t trainers_ = 0;
  int64_t updates_ = 0;                  // of the newest trainer
  std::optional<LossScale> loss_scale_;  // of it as well; none where gradients need none
  std::optional<double> dropout_;        // as well
  int64_t spoiled_ = 0;                  // the step that was applied though it was not finite; 0: none
};

}  // namespace lamina::python
