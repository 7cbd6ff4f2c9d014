// lamina.convert, lamina.verify, lamina.lint_migration: what the commands of these names do, returned as what their
// --json says.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>

#include "arrays.h"
#include "base/cpu.h"
#include "base/error.h"
#include "bind.h"
#include "migrate/convert.h"
#include "migrate/lint.h"
#include "migrate/verify_request.h"
#include "train/options.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lamina::python {
namespace {

nb::object parsed(const std::string& json) { return nb::module_::import_("json").attr("loads")(json); }

nb::object convert_model(const Path& source, const Path& target, const std::string& to,
                         const std::optional<std::string>& names, const std::optional<std::string>& names_from,
                         const std::optional<Path>& config, const std::string& dtype, std::optional<int64_t> vocab_size,
                         bool optimizer, const std::vector<std::string>& allow, bool allow_non_finite) {
  const ConvertRequest request{.from = source.string(),
                               .to = target.string(),
                               .format = to,
                               .names_from = names_from.value_or(""),
                               .names_to = names.value_or(""),
                               .config = path_text(config),
                               .dtype = dtype,
                               .allow = allow,
                               .vocab_size = vocab_size,
                               .optimizer = optimizer,
                               .allow_non_finite = allow_non_finite};
  std::string account;
  {
    const nb::gil_scoped_release release;
    account = conversion_text(convert(request, check_signals));
  }
  return parsed(account);
}

nb::object verify_model(const Path& a, const std::optional<Path>& b, const std::optional<Path>& config_a,
                        const std::optional<Path>& config_b, const std::optional<std::string>& names_a,
                        const std::optional<std::string>& names_b, const std::optional<Path>& witness,
                        const std::optional<Path>& write_witness, const nb::object& ids, std::optional<int64_t> tokens,
                        int64_t seed, std::optional<double> tolerance, std::optional<int64_t> steps,
                        std::optional<double> lr, std::optional<int64_t> threads) {
  VerifyRequest request{.a = a.string(),
                        .b = path_text(b),
                        .config_a = path_text(config_a),
                        .config_b = path_text(config_b),
                        .names_a = names_a.value_or(""),
                        .names_b = names_b.value_or(""),
                        .witness = path_text(witness),
                        .write_witness = path_text(write_witness),
                        .tokens = tokens,
                        .seed = seed,
                        .ids = ids.is_none() ? std::nullopt : row_of_ids(ids),
                        .steps = steps,
                        .lr = lr};
  if (!ids.is_none() && !request.ids)
    throw_error(ErrorCode::invalid, "ids have the wrong type: expected a row of integers, got {}",
                nb::cast<std::string>(nb::str(ids.type())));
  const VerifyOptions options{.threads = thread_count(threads),
                              .tolerance = tolerance,
                              .say = [](const std::string&) { check_signals(); },
                              .warn = warn};
  std::string report;
  {
    const nb::gil_scoped_release release;
    (void)select_isa();
    report = verified_text(verify(request, options));
  }
  return parsed(report);
}

nb::object lint_migration(const nb::args& given, bool rules) {
  std::vector<std::string> paths;
  for (const nb::handle one : given) {
    Path path;
    if (!nb::try_cast(one, path))
      throw_error(ErrorCode::usage, "bad path: expected a text or a path, got {}", nb::repr(one.type()).c_str());
    paths.push_back(path.string());
  }
  if (rules != paths.empty())
    throw_error(ErrorCode::usage, "{}: expected paths or rules", rules ? "contradiction" : "nothing to look at");
  LintReport report;
  std::string text;
  {
    const nb::gil_scoped_release release;
    for (const std::string& path : paths) lint_path(path, report);
    for (const std::string& line : report.warnings) warn(line);
    text = rules ? lint_rules_json().dump() : lint_text(report);
  }
  return parsed(text);
}

}  // namespace

void bind_migrate(nb::module_& m) {
  m.def("convert", &convert_model, "source"_a, "target"_a, nb::kw_only(), "to"_a, "names"_a = nb::none(),
        "names_from"_a = nb::none(), "config"_a = nb::none(), "dtype"_a = "keep", "vocab_size"_a = nb::none(),
        "optimizer"_a = false, "allow"_a = std::vector<std::string>(), "allow_non_finite"_a = false);
  m.def("verify", &verify_model, "a"_a, "b"_a = nb::none(), nb::kw_only(), "config_a"_a = nb::none(),
        "config_b"_a = nb::none(), "names_a"_a = nb::none(), "names_b"_a = nb::none(), "witness"_a = nb::none(),
        "write_witness"_a = nb::none(), "ids"_a = nb::none(), "tokens"_a = nb::none(), "seed"_a = 0,
        "tolerance"_a = nb::none(), "steps"_a = nb::none(), "lr"_a = nb::none(), "threads"_a = nb::none());
  m.def("lint_migration", &lint_migration, "paths"_a, "rules"_a = false);
}

}  // namespace lamina::python
