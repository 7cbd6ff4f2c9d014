// Tiny in a session that can train and evaluate, for the tests of steps.
#pragma once

#include <memory>

#include "common/tiny.h"
#include "compile.h"
#include "runtime/session.h"
#include "train/step.h"

namespace lamina::test {

class TinyRun {
 public:
  explicit TinyRun(CompileOptions options, const ModelConfig& config = tiny_config(), int threads = 1)
      : specs_(parameter_specs(config)), session_(compile(config, prepared(options)).plan, threads) {
    std::vector<float> values;
    for (const ParameterSpec& spec : specs_) {
      values.resize(static_cast<size_t>(spec.shape.elements()));
      fill_tiny(spec, values.data(), spec.shape.last(), 1);
      session_.write(spec.name, {values.data(), spec.shape.last(), 1});
    }
  }

  Session& session() { return session_; }
  const std::vector<ParameterSpec>& specs() const { return specs_; }

  std::vector<float> read(const std::string& name) const {
    const Shape& shape = session_.tensor(name).shape;
    std::vector<float> out(static_cast<size_t>(shape.elements()));
    session_.read(name, out.data(), shape.last(), 1);
    return out;
  }
  // Of all parameters, one after the other.
  std::vector<float> weights() const {
    std::vector<float> out;
    for (const ParameterSpec& spec : specs_) {
      const std::vector<float> values = read(spec.name);
      out.insert(out.end(), values.begin(), values.end());
    }
    return out;
  }

 private:
  static CompileOptions prepared(CompileOptions options) {
    options.isa = select_isa();
    return options;
  }

  std::vector<ParameterSpec> specs_;
  Session session_;
};

// Rows over ids that live here: each list of ids gives its inputs and, one place on, its targets.
class Rows {
 public:
  explicit Rows(std::vector<std::vector<int32_t>> ids) : ids_(std::move(ids)) {
    for (const std::vector<int32_t>& own : ids_)
      rows_.push_back({std::span(own).first(own.size() - 1), std::span(own).subspan(1)});
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  std::vector<Row>& rows() { return rows_; }

 private:
  std::vector<std::vector<int32_t>> ids_;
  std::vector<Row> rows_;
};

// The first `count` rows of 8 inputs and 8 targets of Tiny's stream.
inline std::vector<std::vector<int32_t>> tiny_rows(size_t count) {
  const std::vector<int32_t> ids = tiny_tokens(8 * count + 1);
  std::vector<std::vector<int32_t>> out;
  for (size_t r = 0; r < count; ++r)
    out.emplace_back(ids.begin() + static_cast<int64_t>(8 * r), ids.begin() + static_cast<int64_t>(8 * r + 9));
  return out;
}

}  // namespace lamina::test
