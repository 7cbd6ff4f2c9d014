// The state of a run on disk: bit-equal when it comes back, and never half a state, wherever a save is killed. The ids
// (R6, R7, …) are those of tests/cases/README.md.
#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/rng.h"
#include "io/atomic_file.h"
#include "io/checkpoint_folder.h"
#include "io/files.h"
#include "train/resume.h"
#include "train/tiny_run.h"

namespace lamina {
namespace {

using test::expect_error;
using test::Rows;
using test::TempDir;
using test::tiny_config;
using test::tiny_rows;

const std::string kRun = "run";

void ignore(const std::string&) {}

// Tiny on one rung of kernels, whose layouts of weights and moments are its own.
class Trained {
 public:
  explicit Trained(Isa isa = Isa::portable)
      : specs_(parameter_specs(tiny_config())), session_(plan(isa), 1), step_(session_, {}) {}

  // Weights and moments from numbers: everything that a file could confuse differs.
  void fill(uint64_t seed) {
    Rng rng(seed);
    for (const std::string& name : names()) {
      std::vector<float> values(static_cast<size_t>(session_.tensor(name).shape.elements()));
      for (float& value : values) value = static_cast<float>(rng.uniform()) - (name[0] == 'v' ? 0.0f : 0.5f);
      session_.write(name, {values.data(), session_.tensor(name).shape.last(), 1});
    }
  }
  double take_step(int64_t number) {
    Rows rows(tiny_rows(2));
    return step_.step(rows.rows(), number, 1e-3).loss;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const char* front : {"", "m.", "v."})
      for (const ParameterSpec& spec : specs_) out.push_back(front + spec.name);
    return out;
  }
  std::vector<float> state() const {
    std::vector<float> out;
    for (const std::string& name : names()) {
      const Shape& shape = session_.tensor(name).shape;
      std::vector<float> values(static_cast<size_t>(shape.elements()));
      session_.read(name, values.data(), shape.last(), 1);
      out.insert(out.end(), values.begin(), values.end());
    }
    return out;
  }

  void save(const std::string& folder, const TrainState& state, const std::string& run = kRun,
            const nlohmann::json& settings = {{"seed", 1}}) const {
    save_checkpoint(folder, run, {.session = session_, .config = config_, .specs = specs_}, state, settings);
  }
  void load(const std::string& path) { load_checkpoint(path, session_, config_, specs_); }
  TrainStep& step() { return step_; }
  Session& session() { return session_; }

 private:
  static Plan plan(Isa isa) {
    CompileOptions options{.batch = 2, .seq = 8};
    options.isa = isa;
    return compile(tiny_config(), options).plan;
  }

  ModelConfig config_ = tiny_config();
  std::vector<ParameterSpec> specs_;
  Session session_;
  TrainStep step_;
};

TEST(Checkpoint, R6EveryStateTensorComesBackBitEqualInEveryLayout) {
  for (const Isa from : available_isas())
    for (const Isa to : available_isas()) {
      const TempDir dir;
      Trained first(from), second(to);
      first.fill(1);
      for (int64_t s = 1; s <= 5; ++s) first.take_step(s);
      first.save(dir.path(), {.step = 5, .updates = 5});
      second.fill(2);
      second.load(dir.file("step-5"));
      EXPECT_EQ(first.state(), second.state()) << isa_name(from) << " to " << isa_name(to);
      second.step().set_updates(5);
      if (from != to) continue;
      EXPECT_EQ(first.take_step(6), second.take_step(6));
      EXPECT_EQ(first.state(), second.state());
    }
}

TEST(Checkpoint, CountersComeBackAsTheyWere) {
  const TempDir dir;
  const Trained run;
  const TrainState state{.step = 7,
                         .updates = 5,
                         .tokens = int64_t{1} << 40,
                         .skipped = 2,
                         .skips_in_a_row = 1,
                         .loss_scale = LossScale{8192.0, 1234},
                         .loss = 0.1 + 0.2,
                         .valid_loss = std::nullopt,
                         .evaluation_due = true,
                         .best_valid_loss = std::nextafter(3.0, 4.0),
                         .best_step = 3};
  run.save(dir.path(), state);
  const std::optional<FoundCheckpoint> found = find_checkpoint(dir.path(), kRun, ignore);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state, state);
  EXPECT_EQ(found->settings, nlohmann::json({{"seed", 1}}));
  const nlohmann::json sound = state_json(state);
  for (const auto& [key, value] : sound.items()) {
    nlohmann::json spoilt = sound;
    spoilt[key] = "text";
    expect_error([&] { parse_state(spoilt, "m"); }, ErrorCode::invalid, {"m", key});
    spoilt.erase(key);
    if (key == "loss_scale")  // older checkpoints have none
      EXPECT_EQ(parse_state(spoilt, "m").loss_scale, std::nullopt);
    else
      expect_error([&] { parse_state(spoilt, "m"); }, ErrorCode::invalid, {"m", key});
  }
  for (const nlohmann::json& scale : {nlohmann::json{{"scale", 0.0}, {"good_steps", 1}},
                                      {{"scale", -2.0}, {"good_steps", 1}},
                                      {{"scale", 8.0}, {"good_steps", -1}},
                                      {{"scale", 8.0}}}) {
    nlohmann::json spoilt = sound;
    spoilt["loss_scale"] = scale;
    expect_error([&] { parse_state(spoilt, "m"); }, ErrorCode::invalid, {"m", "loss_scale"});
  }
  EXPECT_EQ(parse_state(state_json({}), "m"), TrainState());  // none
}

// Whoever changes a manifest by hand and makes its hash anew is told which value is wrong.
TEST(Checkpoint, SettingsOfAnotherTypeAreNamed) {
  const Trained run;
  for (const nlohmann::json& settings :
       {nlohmann::json{{"tokenizer", 5}}, nlohmann::json{{"isa", {1}}}, nlohmann::json(7)}) {
    const TempDir dir;
    run.save(dir.path(), {.step = 1}, kRun, settings);
    expect_error([&] { (void)find_checkpoint(dir.path(), kRun, ignore); }, ErrorCode::invalid,
                 {"step-1: settings", "expected", "got"});
  }
}

TEST(Checkpoint, FindsTheNewestWholeOneOfThisRun) {
  const TempDir dir;
  const Trained run;
  for (int64_t step : {10, 20, 30}) run.save(dir.path(), {.step = step});
  run.save(dir.path(), {.step = 1000}, "stranger");
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) { said.push_back(line); };
  EXPECT_EQ(find_checkpoint(dir.path(), kRun, say)->state.step, 30);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(test::names(said[0], "step-1000") && test::names(said[0], "stranger")) << said[0];
  dir.write("step-30/optimizer.safetensors", "x");
  EXPECT_EQ(find_checkpoint(dir.path(), kRun, say)->state.step, 20);
  EXPECT_TRUE(test::names(said.back(), "step-30")) << said.back();
  // What cannot be read may be whole: nothing older is taken in its place.
  std::filesystem::remove(dir.file("step-30/manifest.json"));
  std::filesystem::create_directory(dir.file("step-30/manifest.json"));
  expect_error([&] { find_checkpoint(dir.path(), kRun, ignore); }, ErrorCode::io, {"step-30"});
  std::filesystem::remove_all(dir.file("step-30"));
  // A folder under another number holds what it holds.
  std::filesystem::rename(dir.file("step-20"), dir.file("step-40"));
  EXPECT_EQ(find_checkpoint(dir.path(), kRun, say)->state.step, 10);
  std::filesystem::remove_all(dir.file("step-10"));
  expect_error([&] { find_checkpoint(dir.path(), kRun, ignore); }, ErrorCode::invalid,
               {"no whole checkpoint", "step-40"});
  EXPECT_FALSE(find_checkpoint(dir.file("none"), kRun, ignore));
}

TEST(Checkpoint, R9KeepsTheNewestAndTheBest) {
  const TempDir dir;
  const Trained run;
  const auto steps = [&] {
    std::vector<int64_t> out;
    for (const CheckpointPlace& place : list_checkpoints(dir.path())) out.push_back(place.step);
    return out;
  };
  run.save(dir.path(), {.step = 1000}, "stranger");
  for (int64_t step : {10, 20, 30}) {
    run.save(dir.path(), {.step = step});
    keep_checkpoints(dir.path(), kRun, 1, step, 10);
  }
  EXPECT_EQ(steps(), (std::vector<int64_t>{1000, 30, 10}));
  keep_checkpoints(dir.path(), kRun, 1, 30, 0);  // without a best
  EXPECT_EQ(steps(), (std::vector<int64_t>{1000, 30}));
  // One behind the newest that this run has written, left over from before it went back: neither counted nor deleted.
  run.save(dir.path(), {.step = 40});
  run.save(dir.path(), {.step = 25});
  keep_checkpoints(dir.path(), kRun, 1, 25, 0);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1000, 40, 30, 25}));
  dir.write("step-25/manifest.json", "{");  // nobody can say whose it is
  keep_checkpoints(dir.path(), kRun, 1, 40, 0);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1000, 40, 25}));
}

TEST(Checkpoint, RefusesMomentsThatDoNotFit) {
  const TempDir dir;
  Trained run;
  run.save(dir.path(), {.step = 1});
  const std::string path = dir.file("step-1/optimizer.safetensors");
  const std::string sound = test::read_bytes(path);
  const auto renamed = [&](const std::string& from, const std::string& to) {
    std::string content = sound;
    content.replace(content.find(from), from.size(), to);
    dir.write("step-1/optimizer.safetensors", content);
  };
  renamed("v.ln_f.bias", "w.ln_f.bias");
  expect_error([&] { run.load(dir.file("step-1")); }, ErrorCode::invalid, {"optimizer", "v.ln_f.bias", "missing"});
  renamed("\"m.ln_f.bias\":{\"dtype\":\"F32\"", "\"m.ln_f.bias\":{\"dtype\":\"I32\"");
  expect_error([&] { run.load(dir.file("step-1")); }, ErrorCode::invalid, {"optimizer", "m.ln_f.bias", "F32", "I32"});
}

// Calls that change what is on the disk, or begin to.
bool touches_files(uint64_t call) {
  constexpr uint64_t kCalls[] = {SYS_openat,    SYS_write,    SYS_fsync,  SYS_close,  SYS_mkdirat, SYS_ftruncate,
                                 SYS_renameat2, SYS_unlinkat,
#ifdef SYS_rename
                                 SYS_open,      SYS_mkdir,    SYS_rename, SYS_unlink, SYS_rmdir
#endif
  };
  return std::find(std::begin(kCalls), std::end(kCalls), call) != std::end(kCalls);
}

// Runs `work` in a process of its own that is killed before the call number `last`, counted from 0, that touches files.
// True where it ended before that; nothing where this place does not allow to watch a process.
std::optional<bool> ends_before_call(int64_t last, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(99);
    ::raise(SIGSTOP);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return std::nullopt;
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
  for (int64_t calls = 0; calls <= last;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return true;
    }
    EXPECT_TRUE(WIFSTOPPED(status));
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) <= 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return std::nullopt;
    }
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY && touches_files(info.entry.nr)) ++calls;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return false;
}

// Folders of tests in memory where there is such a place: the thousands of flushes below would wait for a disk.
class MemoryFolders {
 public:
  MemoryFolders() : saved_(std::filesystem::temp_directory_path()) {
    if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  }
  ~MemoryFolders() { ::setenv("TMPDIR", saved_.c_str(), 1); }
  MemoryFolders(const MemoryFolders&) = delete;
  MemoryFolders& operator=(const MemoryFolders&) = delete;

 private:
  std::string saved_;
};

// SIGKILL before every system call that touches files, of a save and of the deletion that follows it: every write,
// flush and rename of every file. What is found afterwards is the first state or the second, whole; nothing is left
// over.
TEST(Checkpoint, R7KilledAtEveryPlaceOfASave) {
  const MemoryFolders here;
  Trained first, second, found_run;
  first.fill(1);
  second.fill(2);
  const std::vector<float> states[] = {first.state(), second.state()};
  for (const bool in_the_way : {false, true}) {  // a damaged checkpoint of the same step
    int64_t found_first = 0, found_second = 0;
    for (int64_t call = 0;; ++call) {
      const TempDir dir;
      first.save(dir.path(), {.step = 1, .updates = 1});
      if (in_the_way) dir.write("step-2/manifest.json", "{");
      const std::optional<bool> ended = ends_before_call(call, [&] {
        second.save(dir.path(), {.step = 2, .updates = 2});
        keep_checkpoints(dir.path(), kRun, 1, 2, 0);
      });
      if (!ended) GTEST_SKIP() << "no process may be watched here";
      remove_temporaries(dir.path());
      const std::optional<FoundCheckpoint> found = find_checkpoint(dir.path(), kRun, ignore);
      ASSERT_TRUE(found) << "call " << call;
      found_run.fill(3);
      found_run.load(found->path);
      ASSERT_EQ(found->state.updates, found->state.step) << "call " << call;
      ASSERT_EQ(found_run.state(), states[found->state.step - 1]) << "call " << call;
      (found->state.step == 1 ? found_first : found_second) += 1;
      for (const std::string& name : dir.list()) ASSERT_TRUE(name.starts_with("step-")) << name;
      if (*ended) break;
    }
    EXPECT_GE(found_first, 100);
    EXPECT_GE(found_second, 2);
  }
}

nlohmann::json settings() {
  return {{"config", {{"n_layer", 2}, {"attn_pdrop", 0.1}}},
          {"options", {{"lr", 0.5}, {"min_lr", 0.0}, {"schedule", "linear"}, {"warmup", 2}}},
          {"data", {{"train_fingerprint", "a"}}},
          {"steps", 10},
          {"decay_steps", 0},
          {"seq", 8},
          {"isa", "avx2"},
          {"precision", "fp32"},
          {"plan", "p"}};
}

TEST(Resume, WhatDiffersIsNamed) {
  const auto changes = [](const std::function<void(nlohmann::json&)>& change, int64_t steps_done = 5) {
    nlohmann::json given = settings();
    change(given);
    return compare_settings(settings(), given, steps_done);
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(changes([](auto&) {}).others, List{});
  EXPECT_EQ(changes([](auto& s) { s["config"]["n_layer"] = 3; }).model, List{"n_layer: stored 2, given 3"});
  EXPECT_EQ(changes([](auto& s) { s["config"]["attn_pdrop"] = 0.2; }).others,
            List{"attn_pdrop: stored 0.1, given 0.2"});
  EXPECT_EQ(changes([](auto& s) { s["options"]["min_lr"] = 1.0; }).others, List{"--min-lr: stored 0.0, given 1.0"});
  EXPECT_EQ(changes([](auto& s) { s["options"]["new"] = 1; }).others, List{"--new: stored null, given 1"});
  EXPECT_EQ(changes([](auto& s) { s["options"]["new"] = false; }).others, List{});  // a switch that it did not know
  EXPECT_EQ(changes([](auto& s) { s["options"]["new"] = true; }).others, List{"--new: stored null, given true"});
  EXPECT_EQ(changes([](auto& s) { s["isa"] = "avx512"; }).others, List{"isa: stored \"avx2\", given \"avx512\""});
  EXPECT_EQ(changes([](auto& s) { s["plan"] = "q"; }).others, List{"plan: stored \"p\", given \"q\""});
  EXPECT_EQ(changes([](auto& s) { s["data"]["train_fingerprint"] = "b"; }).others,
            List{"data, train_fingerprint: stored \"a\", given \"b\""});
  EXPECT_EQ(changes([](auto& s) { s["steps"] = 20; }).others, List{"--steps: stored 10, given 20"});
  EXPECT_EQ(changes([](auto& s) { s["steps"] = 20; }, 2).others, List{});  // still in the warm-up: no rate has changed
}

TEST(Resume, MoreStepsWhereNoRateThatWasUsedChanges) {
  const auto extended = [](const char* schedule, int64_t decay, int64_t steps_done) {
    nlohmann::json stored = settings(), given = settings();
    stored["options"]["schedule"] = given["options"]["schedule"] = schedule;
    stored["decay_steps"] = given["decay_steps"] = decay;
    given["steps"] = 20;
    return compare_settings(stored, given, steps_done).others.empty();
  };
  EXPECT_TRUE(extended("constant", 0, 10));
  EXPECT_TRUE(extended("wsd", 4, 6));
  EXPECT_TRUE(extended("wsd", 4, 7));  // the first step of the decay still uses the whole rate
  EXPECT_FALSE(extended("wsd", 4, 8));
  EXPECT_FALSE(extended("cosine", 0, 5));
}

TEST(Resume, SettingsOfAnotherShapeAreDifferences) {
  for (const char* text : {"{}", R"({"options": 3, "config": [], "data": null, "steps": "x"})",
                           R"({"options": {"lr": "x", "schedule": 4}, "steps": 10})"}) {
    const Changes changes = compare_settings(nlohmann::json::parse(text), settings(), 5);
    EXPECT_FALSE(changes.others.empty() && changes.model.empty()) << text;
  }
  expect_error([] { refuse_changes({.model = {"n_layer: 1"}, .others = {}}, true, "c"); }, ErrorCode::invalid,
               {"another model", "n_layer"});
  expect_error([] { refuse_changes({.model = {}, .others = {"--lr: 1"}}, false, "c"); }, ErrorCode::invalid,
               {"settings differ", "--lr"});
  refuse_changes({.model = {}, .others = {"--lr: 1"}}, true, "c");
}

}  // namespace
}  // namespace lamina
