// lamina.Tokenizer.
#include "io/tokenizer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bind.h"
#include "io/bpe_train.h"
#include "io/tokenizer_files.h"
#include "train/options.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lamina::python {
namespace {

// UTF-8 of a str (its own exception names a lone surrogate's position), or bytes as they are.
std::string_view text_of(nb::handle text) {
  if (PyBytes_Check(text.ptr()))
    return {PyBytes_AS_STRING(text.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(text.ptr()))};
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

std::vector<int32_t> encode_text(const Tokenizer& tokenizer, const nb::object& text, const std::string& special) {
  const EncodeOptions options{.special = special_mode(special), .poll = check_signals};
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

nb::bytes decode_bytes(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const std::string bytes = tokenizer.decode(ids);
  return nb::bytes(bytes.data(), bytes.size());
}

std::shared_ptr<Tokenizer> open_tokenizer(const Path& path) {
  const nb::gil_scoped_release release;
  return std::make_shared<Tokenizer>(load_tokenizer(path.string()).tokenizer);
}

std::shared_ptr<Tokenizer> train_tokenizer(const nb::iterable& texts, int64_t vocab_size, int64_t min_count) {
  if (PyUnicode_Check(texts.ptr()) || PyBytes_Check(texts.ptr()))
    throw_error(ErrorCode::usage, "bad option: texts, expected a list of texts, got one text");
  BpeTrainer trainer;
  int64_t number = 0;
  for (const nb::handle text : texts) {
    const std::string_view view = text_of(text);
    const nb::gil_scoped_release release;
    require_utf8(view, fmt::format("text {}", number++), 0);
    trainer.add(view);
    check_signals();
  }
  const nb::gil_scoped_release release;
  return std::make_shared<Tokenizer>(trainer.train(vocab_size, min_count));
}

void save(const Tokenizer& tokenizer, const Path& folder, int64_t max_length) {
  const nb::gil_scoped_release release;
  save_tokenizer(folder.string(), tokenizer, max_length);
}

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def_static("from_pretrained", &open_tokenizer, "folder"_a)
      .def_static("train", &train_tokenizer, "texts"_a, nb::kw_only(), "vocab_size"_a, "min_count"_a = 2)
      .def("encode", &encode_text, "text"_a, "special"_a = "text")
      .def("decode", &decode_text, "ids"_a)
      .def("decode_bytes", &decode_bytes, "ids"_a)
      .def("save_pretrained", &save, "folder"_a, nb::kw_only(), "max_length"_a = 1024)
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("end_of_text", &Tokenizer::end_of_text);
}

}  // namespace lamina::python
