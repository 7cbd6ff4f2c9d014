// What the files of the extension share: each binds a part of lamina._lamina (module.cc is the table of contents).
// Conversions and the GIL only; what is computed is in host.h and in src/.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host.h"
#include "io/tokenizer.h"

namespace lamina::python {

void bind_model(nanobind::module_& m);
void bind_trainer(nanobind::module_& m);
void bind_tokenizer(nanobind::module_& m);
void bind_files(nanobind::module_& m);
void bind_migrate(nanobind::module_& m);

// What a path is taken as: a text or any os.PathLike.
using Path = std::filesystem::path;
inline std::string path_text(const std::optional<Path>& path) { return path ? path->string() : std::string(); }

// For loops that run without the GIL: takes it, and throws what a signal's handler raised (KeyboardInterrupt).
void check_signals();
// The same, and a UserWarning; throws where the caller has made it an error.
void warn(const std::string& line);

// lamina.Model. `last` holds the rows of the last loss(), for gradients().
struct Model {
  std::shared_ptr<Host> host;
  std::vector<OwnedRow> last;
};

}  // namespace lamina::python
