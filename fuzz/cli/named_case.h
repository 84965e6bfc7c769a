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

/// `name`: a case's text; a witness's or record's JSON file, or a file whose first line is a case's text; or 16
/// hexadecimal digits, looked for in `campaign` ("": the newest one in ./flashproof-campaigns). Throws UsageError.
NamedCase find_case(const std::string& name, const std::string& campaign);

/// The same for a case to be run by `verb`: `flags` name the kernel and config in its place, `check` the check that
/// fails ("" as it says). UsageError also for an unknown check, and where nothing names a kernel.
NamedCase find_failing_case(const std::string& verb, const std::string& name, const std::string& campaign,
                            const NamedCase& flags, const std::string& check);

/// Where campaigns go when no folder is named.
constexpr const char* campaigns_folder = "flashproof-campaigns";
/// A folder that was not there before, flashproof-campaigns/NAME, or NAME-2, NAME-3, ... where another program has made
/// the one before. Removed at the end if nothing was written into it. UnavailableError with the reason.
class NewCampaignFolder {
 public:
  explicit NewCampaignFolder(const std::string& name);
  ~NewCampaignFolder();
  NewCampaignFolder(const NewCampaignFolder&) = delete;
  NewCampaignFolder& operator=(const NewCampaignFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
/// The folder there whose campaign was started last; of those of one second the last by name. Throws UsageError when
/// there is none.
std::string newest_campaign();

}  // namespace flashproof
