#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "command.h"

namespace lamina::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);

bool colour_wanted(bool terminal) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return terminal && (no_colour == nullptr || *no_colour == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string count_text(double value) {
  return value >= 1e6   ? fmt::format("{:.2f}M", value * 1e-6)
         : value >= 1e3 ? fmt::format("{:.1f}k", value * 1e-3)
                        : fmt::format("{:.0f}", value);
}

std::string duration_text(double seconds) {
  const int64_t whole = std::llround(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string record_text(const StepRecord& r) {
  std::string out =
      fmt::format("step {}/{}  loss {:.4f}  lr {:.3g}  norm {:.3f}  {} tokens/s  {:.0f} % of peak", r.step, r.steps,
                  r.loss, r.lr, r.grad_norm, count_text(r.tokens_per_s), 100.0 * r.limit_fraction);
  if (r.valid_loss) out += fmt::format("  validation {:.4f}", *r.valid_loss);
  return out;
}

std::string bar_text(const StepRecord& r) {
  constexpr int64_t kWidth = 16;
  const int64_t done = r.steps > 0 ? kWidth * r.step / r.steps : 0;
  return "[" + std::string(static_cast<size_t>(done), '#') + std::string(static_cast<size_t>(kWidth - done), '.') +
         "] ";
}

// The same in fewer words, as many as there is room for: what matters comes first, and no number is cut.
std::string short_text(const StepRecord& r, double seconds_left, size_t room) {
  std::string out;
  for (const std::string& part : {fmt::format("{}/{}", r.step, r.steps), fmt::format("  loss {:.4f}", r.loss),
                                  fmt::format("  {} tok/s", count_text(r.tokens_per_s)),
                                  fmt::format("  {:.0f} % of peak", 100.0 * r.limit_fraction),
                                  fmt::format("  {} left", duration_text(seconds_left)),
                                  fmt::format("  lr {:.3g}", r.lr), fmt::format("  norm {:.3f}", r.grad_norm)}) {
    if (out.size() + part.size() > room) break;
    out += part;
  }
  return out;
}

}  // namespace

Progress::Progress(int64_t log_every)
    : log_every_(log_every), terminal_(isatty(STDERR_FILENO) != 0), colour_(colour_wanted(terminal_)) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\n", stderr);
}

void Progress::clear_bar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::say(const std::string& line) {
  clear_bar();
  cli::say("{}", line);
}

void Progress::draw_bar(const StepRecord& record) {
  const Clock::time_point now = Clock::now();
  if (now < next_draw_ && record.step != record.steps) return;
  next_draw_ = now + kRedraw;
  if (steps_before_ < 0) steps_before_ = record.step - 1;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double left =
      elapsed / static_cast<double>(record.step - steps_before_) * static_cast<double>(record.steps - record.step);
  const std::string bar = bar_text(record);
  const size_t room = terminal_width() - 1;
  const std::string text = short_text(record, left, room > bar.size() ? room - bar.size() : 0);
  const std::string line = colour_ ? fmt::format("\r\033[K\033[36m{}\033[0m{}", bar, text) : "\r\033[K" + bar + text;
  std::fwrite(line.data(), 1, line.size(), stderr);
  drawn_ = true;
}

void Progress::step(const StepRecord& record) {
  if (!record.finite || record.tokens == 0) return;  // the run has said so
  if (terminal_) {
    if (record.valid_loss) say(record_text(record));
    draw_bar(record);
  } else if (record.step % log_every_ == 0 || record.step == 1 || record.step == record.steps || record.valid_loss) {
    say(record_text(record));
  }
}

}  // namespace lamina::cli
