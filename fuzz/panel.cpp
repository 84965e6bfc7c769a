// See panel.h.
#include "fuzz/panel.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace flashproof {
namespace {

std::string clock_time(double seconds) {
  const int64_t s = int64_t(seconds);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

struct Counts {
  int64_t inconclusive = 0, rejected = 0;
  double worst = 0;
  std::string worst_at;
};

Counts counts_of(const Summary& s) {
  Counts counts;
  for (const auto& [name, count] : s.kernels)
    counts.inconclusive += count.inconclusive, counts.rejected += count.rejected;
  for (const auto& [dtype, outputs] : s.worst)
    for (const auto& [output, worst] : outputs)
      if (worst.ratio > counts.worst) counts.worst = worst.ratio, counts.worst_at = dtype + " " + output;
  return counts;
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

}  // namespace

Panel::Panel(std::string title, double seconds, int64_t cases, std::string directory)
    : title_(std::move(title)),
      directory_(std::move(directory)),
      budget_seconds_(seconds),
      budget_cases_(cases),
      terminal_(isatty(STDERR_FILENO) != 0) {}

Panel::~Panel() { draw(""); }

/// Each line is cut at the terminal's width: a wrapped one could not be taken back.
void Panel::draw(const std::string& lines) {
  if (!terminal_) return;
  std::string out = drawn_lines_ > 0 ? fmt::format("\x1b[{}A\x1b[J", drawn_lines_) : "";
  drawn_lines_ = 0;
  const size_t width = size_t(terminal_width()) - 1;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    out += lines.substr(begin, std::min(end - begin, width)) + "\n";
    ++drawn_lines_;
    begin = end + 1;
  }
  std::fputs(out.c_str(), stderr);
  std::fflush(stderr);
}

void Panel::show(const Summary& s, double seconds, bool reducing) {
  const Counts counts = counts_of(s);
  // A resumed campaign brings the cases of earlier runs: the rate is this run's.
  if (first_seconds_ < 0) first_seconds_ = seconds, first_cases_ = s.cases;
  const double rate = seconds > first_seconds_ ? double(s.cases - first_cases_) / (seconds - first_seconds_) : 0;
  if (s.cells.visited > last_cells_) last_cells_ = s.cells.visited, last_new_cell_ = seconds;

  if (!terminal_) {
    if (seconds < next_line_ && !reducing) return;
    next_line_ = seconds + 30;
    fmt::print(stderr,
               "progress seconds={:.0f} cases={} rate={:.1f} findings={} inconclusive={} rejected={} worst={:.3f} "
               "cells={}/{} reducing={}\n",
               seconds, s.cases, rate, s.findings.size(), counts.inconclusive, counts.rejected, counts.worst,
               s.cells.visited, s.cells.feasible, int(reducing));
    std::fflush(stderr);
    return;
  }
  const double busy = s.kernel_seconds + s.oracle_seconds;
  std::string budget = budget_seconds_ > 0 ? " / " + clock_time(budget_seconds_) : "";
  if (budget_cases_ > 0) budget += fmt::format("  of {} cases", budget_cases_);
  std::string lines =
      fmt::format("{}   {}{}{}\n", title_, clock_time(seconds), budget, reducing ? "   reducing what was found" : "");
  lines +=
      fmt::format("  findings {}   worst error / bound {:.3f} {}\n", s.findings.size(), counts.worst, counts.worst_at);
  lines += fmt::format("  cases {} ({:.1f}/s)   inconclusive {}   rejected {:.1f} %\n", s.cases, rate,
                       counts.inconclusive, percent(double(counts.rejected), double(s.cases)));
  lines += fmt::format("  cells {} of {} ({:.1f} %), last new {} ago   emptiest: {}\n", s.cells.visited,
                       s.cells.feasible, percent(double(s.cells.visited), double(s.cells.feasible)),
                       clock_time(seconds - last_new_cell_), s.cells.emptiest.empty() ? "-" : s.cells.emptiest.front());
  lines += fmt::format("  oracle {:.0f} %, kernel {:.0f} % of the work\n", percent(s.oracle_seconds, busy),
                       percent(s.kernel_seconds, busy));
  lines += fmt::format("  {}   Ctrl-C keeps everything\n", directory_);
  draw(lines);
}

}  // namespace flashproof
