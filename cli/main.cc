// The program `lamina`: runs one command, turns errors into one line and an exit code.
#include <fcntl.h>

#include <new>

#include "command.h"
#include "io/load_error.h"
#include "signals.h"

namespace {

using lamina::Error;
using lamina::ErrorCode;

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

int fail(int code, const std::string& text, const std::string& hint = {}) {
  lamina::cli::say("lamina: error: {}", one_line(text));
  if (!hint.empty()) lamina::cli::say("hint: {}", one_line(hint));
  return code;
}

// A process may be started without standard streams: the next file that it opens would get the number of one, and what
// is said would be written into it.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) (void)!::open("/dev/null", O_RDWR);  // gets the lowest free number
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  lamina::cli::install_signal_handlers();
  try {
    return lamina::cli::parse_command_line(argc, argv)();
  } catch (const lamina::LoadError& error) {
    for (const std::string& line : error.table()) lamina::cli::say_line(line);
    return fail(kFailed, error.what(), error.hint());
  } catch (const Error& error) {
    return fail(error.code() == ErrorCode::usage ? kWrongUsage : kFailed, error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "not enough memory");
  } catch (const std::exception& error) {
    return fail(kFailed, error.what());
  }
}
