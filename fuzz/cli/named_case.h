// The case that a user names: by its text, by a file that holds it, or by its id in a campaign.
#pragma once
#include <string>
#include <vector>

namespace flashproof {

struct NamedCase {
  std::string text;                 ///< of the case
  std::string kernel, config;       ///< "" where the name does not say
  std::vector<std::string> checks;  ///< of a witness: the one that failed
};

/// `name`: a case's text; a witness's or record's JSON file, or a file whose first line is a case's text; or 16 hexadecimal
/// digits, looked for in `campaign` ("": the newest one in ./flashproof-campaigns). Throws UsageError.
NamedCase find_case(const std::string& name, const std::string& campaign);

/// Where campaigns go when no folder is named.
constexpr const char* campaigns_folder = "flashproof-campaigns";
/// The folder there whose name, a time, is the last. Throws UsageError when there is none.
std::string newest_campaign();

}  // namespace flashproof
