// Items (passes/recompute.h) are sorted by time per byte; what is tried are the beginnings of that list, for
// checkpoints kept at every 1st, 2nd, 4th … place. Taking items in this order is within one item of the best choice,
// and an item is one node of one layer. Each candidate's memory is that of its real lifetimes after all passes; whether
// it fits is decided by its real placement.
#include "recompute.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/lifetime.h"
#include "graph/schema.h"
#include "passes/recompute.h"
#include "plan/cost.h"
#include "plan/planner.h"

namespace lamina {
namespace {

constexpr double kNextToNothing = 0.01;  // of a step
constexpr double kBargain = 10.0;        // its share of memory over its share of time, at least
constexpr int64_t kWorthwhile = 50;      // a part of the plan: less is not worth any time
constexpr int kSamples = 8;              // of each list, for the curve and the smallest plan
constexpr int64_t kPoints = 12;          // of the curve, about
constexpr size_t kTrials = 12;           // costliest nodes that are dropped again where that still fits
constexpr int32_t kLeastGap = 4;         // nodes: what is read again sooner is as well kept
constexpr double kFullGap = 0.125;       // of the longest gap: values that are dead for less are taken later

struct Choice {
  std::vector<NodeId> nodes;
  double seconds = 0.0;
  int64_t bytes = 0;  // of the whole plan, by lifetimes
};

class Search {
 public:
  Search(const RecomputeProblem& problem, const RecomputeOptions& options) : problem_(problem), options_(options) {
    const PlanProgram* program = problem.plan.find_program(problem.graph.name);
    LAMINA_CHECK(program != nullptr, "no program {} in the plan", problem.graph.name);
    seconds_.assign(static_cast<size_t>(problem.graph.next_node), 0.0);
    const Rates rates = typical_rates(problem.plan.isa);
    for (const Node& node : problem.graph.nodes)
      seconds_[static_cast<size_t>(node.id)] = node_seconds(problem.graph, node, rates);
    for (double seconds : seconds_) step_seconds_ += seconds;
    for (const PlanProgram& other : problem.plan.programs)
      if (&other != program) other_arena_ = std::max(other_arena_, other.arena_bytes);
    fixed_ = problem.plan.total_bytes(options.threads) - problem.plan.region(Region::transient);
    nothing_.bytes = total(program->arena_bytes);
    for (const Node& node : problem.graph.nodes)
      if (node.id < problem.context.backward) op_[node.id] = node.op;
  }

  const Choice& nothing() const { return nothing_; }

  Choice listed() const {
    const std::vector<RecomputeItem> items = items_of(1);
    std::vector<RecomputeItem> wanted;
    for (const std::string& kind : options_.kinds) {
      const size_t before = wanted.size();
      for (const RecomputeItem& item : items)
        if (op_name(item.op) == kind) wanted.push_back(item);
      if (wanted.size() == before) refuse_kind(kind, items);
    }
    return evaluate(beginning(wanted, wanted.size()));
  }

  Choice without_limit() const {
    const std::vector<RecomputeItem> items = sorted_items(1);
    size_t most = 0;
    while (most < items.size() && is_bargain(items[most]) &&
           beginning(items, most + 1).seconds <= kNextToNothing * step_seconds_)
      ++most;
    const Choice least = evaluate(beginning(items, most));
    const int64_t saved = nothing_.bytes - least.bytes;
    if (saved < nothing_.bytes / kWorthwhile) return nothing_;
    return shortest(items, most, least.bytes + saved / kWorthwhile);
  }

  // The cheapest choice whose plan fits. Throws where none does.
  Choice within_limit(int64_t limit) const {
    if (nothing_.bytes <= limit) return nothing_;
    std::vector<Choice> fitting;
    Choice smallest = nothing_;
    for (int32_t stride : strides()) {
      const std::vector<RecomputeItem> items = sorted_items(stride);
      bool found = false;
      for (int s = 1; s <= kSamples; ++s) {
        const Choice sample = evaluate(beginning(items, sample_size(items, s)));
        if (sample.bytes < smallest.bytes) smallest = sample;
        if (sample.bytes > limit) continue;
        fitting.push_back(sample);
        if (!found) fitting.push_back(shortest(items, sample_size(items, s), limit));
        found = true;
      }
    }
    std::stable_sort(fitting.begin(), fitting.end(), cheaper);
    for (const Choice& choice : fitting) {
      if (placed_bytes(choice) > limit) continue;
      Choice less = trimmed(choice, limit);
      return placed_bytes(less) <= limit ? less : choice;
    }
    Choice least = trimmed(smallest, smallest.bytes);
    const int64_t bytes = placed_bytes(least);
    if (bytes <= limit) return least;
    refuse_limit(limit, bytes);
  }

  // Of what was tried, what costs more only where it needs clearly less.
  std::vector<RecomputePoint> curve() const {
    std::vector<Choice> all{nothing_};
    for (int32_t stride : strides())
      for (const std::vector<RecomputeItem> items = sorted_items(stride); int s : {1, 2, 3, 4, 5, 6, 7, 8})
        all.push_back(evaluate(beginning(items, sample_size(items, s))));
    std::stable_sort(all.begin(), all.end(), cheaper);
    std::vector<RecomputePoint> out;
    const int64_t smallest = std::min_element(all.begin(), all.end(), smaller)->bytes;
    const int64_t step = (nothing_.bytes - smallest) / kPoints;
    int64_t least = INT64_MAX;
    for (const Choice& choice : all) {
      if (choice.bytes >= least || (least - choice.bytes < step && choice.bytes > smallest)) continue;
      least = choice.bytes;
      out.push_back(point(choice));
    }
    return out;
  }

  RecomputePoint point(const Choice& choice) const {
    std::map<std::string, int> counts;
    for (NodeId id : choice.nodes) ++counts[std::string(op_name(op_.at(id)))];
    std::string what;
    for (const auto& [name, count] : counts) what += fmt::format("{}{} {}", what.empty() ? "" : ", ", count, name);
    return {choice.bytes, choice.seconds / step_seconds_, what.empty() ? "nothing" : what};
  }

 private:
  int64_t total(int64_t arena) const { return fixed_ + std::max(arena, other_arena_); }

  // 1, 2, 4 … while there are two checkpoints left.
  std::vector<int32_t> strides() const {
    const int32_t checkpoints = count_checkpoints(problem_.graph, problem_.context.backward);
    std::vector<int32_t> out{1};
    while (2 * out.back() < checkpoints) out.push_back(2 * out.back());
    return out;
  }

  bool is_bargain(const RecomputeItem& item) const {
    return kBargain * seconds_of(item.nodes) / step_seconds_ <=
           static_cast<double>(item.bytes) / static_cast<double>(nothing_.bytes);
  }

  double seconds_of(const std::vector<NodeId>& nodes) const {
    double sum = 0.0;
    for (NodeId id : nodes) sum += seconds_[static_cast<size_t>(id)];
    return sum;
  }

  std::vector<RecomputeItem> items_of(int32_t stride) const {
    std::vector<RecomputeItem> items = recompute_items(problem_.graph, problem_.context.backward, stride);
    std::erase_if(items, [](const RecomputeItem& item) { return item.gap < kLeastGap; });
    return items;
  }

  std::vector<RecomputeItem> sorted_items(int32_t stride) const {
    std::vector<RecomputeItem> items = items_of(stride);
    int32_t longest = 1;
    for (const RecomputeItem& item : items) longest = std::max(longest, item.gap);
    const auto price = [&](const RecomputeItem& item) {
      const double dead = std::min(1.0, item.gap / (kFullGap * longest));
      return seconds_of(item.nodes) / (static_cast<double>(item.bytes) * std::max(dead, 1e-3));
    };
    std::stable_sort(items.begin(), items.end(),
                     [&](const RecomputeItem& a, const RecomputeItem& b) { return price(a) < price(b); });
    return items;
  }

  Choice beginning(const std::vector<RecomputeItem>& items, size_t count) const {
    std::set<NodeId> nodes;
    for (size_t i = 0; i < count; ++i) nodes.insert(items[i].nodes.begin(), items[i].nodes.end());
    Choice out{{nodes.begin(), nodes.end()}, 0.0, 0};
    out.seconds = seconds_of(out.nodes);
    return out;
  }

  Graph graph_of(const Choice& choice) const {
    PassContext context = problem_.context;
    context.recompute = choice.nodes;
    Graph graph = problem_.graph;
    for (const Pass& pass : memory_passes())
      if (!problem_.pipeline.skips(pass.name)) pass.run(graph, context);
    return graph;
  }

  Choice evaluate(Choice choice) const {
    const Graph graph = graph_of(choice);
    choice.bytes = total(live_peak(transient_lifetimes(graph), graph.nodes.size()).bytes);
    return choice;
  }

  int64_t placed_bytes(const Choice& choice) const {
    const Graph graph = graph_of(choice);
    std::vector<Interval> intervals;
    for (const Lifetime& life : transient_lifetimes(graph)) intervals.push_back({life.first, life.last, life.bytes});
    // Fused nodes may need more scratch than those that were planned.
    const int64_t scratch =
        make_plan({&graph, 1}, problem_.plan.isa, problem_.arithmetics).scratch_bytes - problem_.plan.scratch_bytes;
    return total(place(intervals).height) + std::max(int64_t{0}, scratch) * options_.threads;
  }

  // Beginnings of a list, evenly spread; the last one is all of it.
  static size_t sample_size(const std::vector<RecomputeItem>& items, int s) {
    return items.size() * static_cast<size_t>(s) / kSamples;
  }

  static bool smaller(const Choice& a, const Choice& b) { return a.bytes < b.bytes; }
  static bool cheaper(const Choice& a, const Choice& b) { return a.seconds < b.seconds; }

  // The shortest beginning that needs no more than `bytes`; one of `most` items does.
  Choice shortest(const std::vector<RecomputeItem>& items, size_t most, int64_t bytes) const {
    size_t too_few = 0, enough = most;
    while (enough - too_few > 1) {
      const size_t middle = (too_few + enough) / 2;
      (evaluate(beginning(items, middle)).bytes <= bytes ? enough : too_few) = middle;
    }
    return evaluate(beginning(items, enough));
  }

  // Without those of the costliest nodes that the limit does not ask for: the last item may have brought more than was
  // missing.
  Choice trimmed(Choice choice, int64_t limit) const {
    std::vector<NodeId> costly = choice.nodes;
    std::stable_sort(costly.begin(), costly.end(), [&](NodeId a, NodeId b) {
      return seconds_[static_cast<size_t>(a)] > seconds_[static_cast<size_t>(b)];
    });
    costly.resize(std::min(costly.size(), kTrials));
    for (NodeId node : costly) {
      Choice shorter = choice;
      std::erase(shorter.nodes, node);
      shorter.seconds = seconds_of(shorter.nodes);
      shorter = evaluate(std::move(shorter));
      if (shorter.bytes <= limit) choice = std::move(shorter);
    }
    return choice;
  }

  [[noreturn]] void refuse_kind(const std::string& kind, const std::vector<RecomputeItem>& items) const {
    std::set<std::string> known;
    for (const RecomputeItem& item : items) known.insert(std::string(op_name(item.op)));
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    throw_error(ErrorCode::usage, "nothing to recompute: --recompute, expected kinds among {}, got {}",
                list.empty() ? "none of this program" : list, kind);
  }

  [[noreturn]] void refuse_limit(int64_t limit, int64_t smallest) const {
    throw_error(ErrorCode::memory,
                "not enough memory for the plan: the limit, expected at least {} bytes, which the smallest plan needs "
                "({} of them apart from the arena), got {}",
                smallest, fixed_, limit);
  }

  const RecomputeProblem& problem_;
  const RecomputeOptions& options_;
  std::vector<double> seconds_;  // of a node's id
  double step_seconds_ = 0.0;
  int64_t fixed_ = 0;        // bytes of everything but the arena
  int64_t other_arena_ = 0;  // that other programs need
  Choice nothing_;
  std::map<NodeId, Op> op_;  // of forward nodes
};

}  // namespace

std::vector<NodeId> choose_recompute(const RecomputeProblem& problem, const RecomputeOptions& options,
                                     RecomputeReport& report) {
  const Search search(problem, options);
  Choice choice = search.nothing();
  switch (options.mode) {
    case RecomputeOptions::none: break;
    case RecomputeOptions::listed: choice = search.listed(); break;
    case RecomputeOptions::automatic:
      choice = options.memory_limit > 0 ? search.within_limit(options.memory_limit) : search.without_limit();
      break;
  }
  report.chosen = search.point(choice);
  if (options.curve) {
    const auto start = std::chrono::steady_clock::now();
    report.curve = search.curve();
    report.curve_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  return choice.nodes;
}

}  // namespace lamina
