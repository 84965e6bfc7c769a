// See known_findings.h.
#include "fuzz/cli/known_findings.h"

#include <ctime>
#include <filesystem>
#include <regex>
#include <sstream>

#include <fmt/format.h>

#include "fuzz/cli/options.h"
#include "reference/errors.h"

namespace flashproof {

std::vector<KnownFinding> read_known_findings(const std::string& path) {
  static const std::regex form(R"(\s*(\S+)\s+(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))\s+(\S.*))");
  if (!std::filesystem::exists(path))
    throw UnavailableError("there is no file of known findings " + path + "; without any, make it empty: touch " +
                           path);
  std::vector<KnownFinding> known;
  std::istringstream lines(read_text(path));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos || line[0] == '#') continue;
    std::smatch match;
    if (!std::regex_match(line, match, form))
      throw UsageError(
          fmt::format("{} line {}: `{}` is not BUCKET YYYY-MM-DD REASON\n"
                      "  example: mine.bound.value.dQ 2027-01-31 issue 12",
                      path, number, line));
    known.push_back({match[1], match[2], match[3]});
  }
  return known;
}

std::string today_utc() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

}  // namespace flashproof
