// lamina._lamina: the module, its errors and its signals. One class a file beside this one.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "base/error.h"
#include "base/version.h"
#include "bind.h"

namespace nb = nanobind;

namespace lamina::python {
namespace {

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

}  // namespace

void check_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void warn(const std::string& line) {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_WarnEx(PyExc_UserWarning, line.c_str(), 1) != 0) throw nb::python_error();
}

}  // namespace lamina::python

NB_MODULE(_lamina, m) {
  m.attr("__version__") = lamina::kVersion;
  lamina::python::bind_error(m);
  lamina::python::bind_tokenizer(m);
  lamina::python::bind_files(m);
  lamina::python::bind_migrate(m);
  lamina::python::bind_model(m);
  lamina::python::bind_trainer(m);
}
