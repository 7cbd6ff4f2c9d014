// Arrays and lists of Python to rows of ids, and floats back to arrays.
//
// Arrays come in by DLPack or the buffer protocol and are read where they lie if they are int32. Out they go as numpy
// arrays where numpy is installed, else as objects with both protocols.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <span>
#include <vector>

#include "host.h"
#include "train/attention_mask.h"

namespace lamina::python {

// The same object as a numpy array, where numpy is installed.
nanobind::object as_numpy(nanobind::object array);

using IdArray = nanobind::ndarray<nanobind::ro, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

// A (rows, width) matrix of ids: the caller's array, or a copy of nested lists or of int64. For errors: what they are,
// and what they are within.
class Ids {
 public:
  explicit Ids(const nanobind::object& from, const char* what = "ids", const char* within = "vocabulary");

  size_t rows() const { return rows_; }
  size_t width() const { return width_; }
  std::span<const int32_t> row(size_t r) const { return {data_ + r * width_, width_}; }

 private:
  [[noreturn]] void refuse() const;
  void read_lists(const nanobind::object& from);
  void read_array();
  void narrow(const int64_t* wide);

  const char *what_, *within_;
  IdArray array_;
  std::vector<int32_t> copy_;
  const int32_t* data_ = nullptr;
  size_t rows_ = 0, width_ = 0;
};

// Ids of one row: any sequence, or an array of one dimension. None where it is something else.
std::optional<std::vector<int32_t>> row_of_ids(nanobind::handle from);

// A mask of any shape and type where the caller has it, or a copy of nested lists.
class MaskArray {
 public:
  explicit MaskArray(const nanobind::object& from);
  const MaskView& view() const { return view_; }

 private:
  template <typename T>
  bool read_lists(const nanobind::object& from, MaskType type, std::vector<T>& copy);

  nanobind::ndarray<nanobind::ro, nanobind::device::cpu> array_;
  std::vector<int64_t> integers_;
  std::vector<double> floats_;
  MaskView view_;
};

// The rows of one call, each with its targets. Without targets each id is the target of the one before it.
class Batch {
 public:
  Batch(const nanobind::object& ids, const nanobind::object& targets);
  explicit Batch(const nanobind::object& ids);  // for forward(): nothing is predicted
  // What attends to what, and positions in place of those that follow from it; both as wide as the ids, or None.
  void attend(const nanobind::object& mask, const nanobind::object& positions);
  // No token sees another document, none is predicted from one; each ends with this id.
  void isolate(int32_t document_end);

  const std::vector<Row>& rows() const { return rows_; }
  size_t width() const { return ids_.width(); }

 private:
  void shift();
  std::span<int32_t> own_targets(size_t r);

  Ids ids_;
  std::optional<Ids> targets_, positions_;
  std::vector<int32_t> ignored_;
  std::vector<int32_t> key_begin_, own_targets_, borders_;
  std::vector<Row> rows_;
};

// (rows, width, V) in the session's memory, which lives as long as the array.
nanobind::object as_array(const LogitsView& view, size_t width);
// By name, each with memory of its own.
nanobind::dict as_dict(std::vector<HfArray> arrays);

}  // namespace lamina::python
