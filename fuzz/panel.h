// The progress of a campaign on stderr: a panel in place on a terminal, else one line of key=value words every 30 s.
#pragma once
#include <string>

#include "fuzz/summary.h"

namespace flashproof {

class Panel {
 public:
  /// `title` heads the panel. Budgets of 0 have no limit.
  Panel(std::string title, double seconds, int64_t cases, std::string directory);
  /// Takes the panel off the terminal.
  ~Panel();
  Panel(const Panel&) = delete;
  Panel& operator=(const Panel&) = delete;

  void show(const Summary&, double seconds, bool reducing);

 private:
  void draw(const std::string& lines);

  std::string title_, directory_;
  double budget_seconds_;
  int64_t budget_cases_;
  bool terminal_;
  int drawn_lines_ = 0;
  double next_line_ = 30;
  int64_t last_cells_ = 0;
  double last_new_cell_ = 0;
  double first_seconds_ = -1;
  int64_t first_cases_ = 0;
};

}  // namespace flashproof
