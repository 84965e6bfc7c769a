// Certificates as files, where they are looked for, and what is said where the one that `bits` asks for is missing.
#include "fuzz/certificates.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <sys/stat.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fuzz/cli/execution.h"
#include "fuzz/cli/options.h"
#include "fuzz/report/report.h"
#include "reference/errors.h"
#include "tests/kernels/made_up_certificate.h"

namespace flashproof {
namespace {

using test::made_up_certificate;

Certificate with_everything() {
  Certificate c = made_up_certificate();
  c.checks[0].mismatches = 7, c.checks[0].counterexample = "x \"0x1\": GPU 0x2";
  c.checks[1].skipped = "for a test";
  c.alternatives = {{"mma.sync bf16", "ptxas 0.1", "one alignment bit more", 100, 3}};
  c.chain = {{"mma.sync e4m3 e4m3", 65536, 1, 0.25f}};
  return c;
}

TEST(CertificateFile, IsReadBackWhole) {
  const Certificate c = with_everything();
  const Certificate back = parse_certificate(print(c));
  EXPECT_EQ(print(back), print(c));
  EXPECT_EQ(back.checks.size(), c.checks.size());
  EXPECT_EQ(back.checks[0].counterexample, c.checks[0].counterexample);
  EXPECT_EQ(back.checks[1].skipped, "for a test");
  EXPECT_EQ(back.checks[2].assembler, "ptxas 0.1");
  EXPECT_EQ(back.alternatives[0].rule, "one alignment bit more");
  EXPECT_EQ(back.chain[0].measured, 0.25f);
  EXPECT_EQ(back.models, models_digest());
  EXPECT_EQ(back.run_time_assembler, "NVRTC 0.2");
}

TEST(CertificateFile, IsRefusedWhereItIsNone) {
  const std::string text = print(made_up_certificate());
  const auto changed = [&text](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return other;
  };
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), std::string("{}"), changed("flashproof-certificate", "another"),
        changed("\"flashproof-certificate\"", "1"), changed("\"models\"", "\"modelz\""),
        changed("\"holds\": true", "\"holds\": false"), changed("\"holds\": true", "\"holds\": 1"),
        changed("\"mismatches\": 0", "\"mismatches\": 7"), text.substr(0, text.size() / 2)})
    EXPECT_THROW(parse_certificate(bad), UsageError) << bad.substr(0, 60);
  for (const char* version :
       {"2", "0", "-7", "1.0", "1.9", "true", "\"one\"", "4294967297", "1000000000000000000000000000000"})
    EXPECT_THROW(parse_certificate(changed("\"version\": 1", std::string("\"version\": ") + version)), UsageError)
        << version;
  for (const char* key : {"inputs", "mismatches", "sample", "host_mismatches"})
    for (const char* number : {"-1", "0.9", "0.0", "1e300", "18446744073709551616", "false", "null", "\"0\""}) {
      std::string bad = text;
      const size_t at = bad.find('"' + std::string(key) + "\": ") + std::string(key).size() + 4;
      bad.replace(at, bad.find_first_of(",\n", at) - at, number);
      EXPECT_THROW(parse_certificate(bad), UsageError) << key << " " << number;
    }
  for (const char* list : {"checks", "alternatives", "chain"})
    for (const char* none : {"{}", "null", "0"}) {
      auto json = nlohmann::ordered_json::parse(text);
      json[list] = nlohmann::ordered_json::parse(none), json["holds"] = list != std::string("checks");
      EXPECT_THROW(parse_certificate(json.dump()), UsageError) << list << " " << none;
    }
  for (const char* number : {"1e300", "true", "null"}) {
    auto json = nlohmann::ordered_json::parse(print(with_everything()));
    json["chain"][0]["measured"] = nlohmann::ordered_json::parse(number);
    EXPECT_THROW(parse_certificate(json.dump()), UsageError) << number;
  }
}

TEST(CertificateFolder, HoldsOneOfAGpuAndNamesWhatItCannotRead) {
  const TemporaryFolder folder;
  const std::string place = folder.path() + "/new/folder";
  const size_t shipped = read_certificates(place).size();
  Certificate c = made_up_certificate();
  const std::string path = keep(c, place);
  EXPECT_EQ(path, place + "/Made-up-GPU.json");
  c.driver = "1.0";
  EXPECT_EQ(keep(c, place), path);
  std::ofstream(place + "/another.json") << "{}";
  testing::internal::CaptureStderr();
  const std::vector<Certificate> read = read_certificates(place);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("another.json is left out: not a flashproof-certificate"), std::string::npos) << said;
  ASSERT_EQ(read.size(), 1 + shipped);
  EXPECT_EQ(read[0].driver, "1.0") << "the user's come first, and the newest is kept";
  EXPECT_THROW(keep(c, ""), UnavailableError);
  EXPECT_THROW(keep(c, path), UnavailableError) << "a file is no folder";
}

/// A folder, a pipe, a device and a link to nothing, each called *.json, beside a certificate.
TEST(CertificateFolder, TakesRegularFilesAlone) {
  const TemporaryFolder folder;
  const std::string place = folder.path();
  std::filesystem::create_directory(place + "/folder.json");
  ASSERT_EQ(mkfifo((place + "/pipe.json").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", place + "/device.json");
  std::filesystem::create_symlink(place + "/gone", place + "/dangling.json");
  std::ofstream(place + "/target") << print(made_up_certificate());
  std::filesystem::create_symlink(place + "/target", place + "/link.json");
  const size_t shipped = shipped_certificates().size();
  testing::internal::CaptureStderr();
  EXPECT_EQ(read_certificates(place).size(), 1 + shipped) << "a link to a file is one";
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* name : {"folder", "pipe", "device"})
    EXPECT_NE(said.find(std::string(name) + ".json is left out: no regular file"), std::string::npos) << said;
  EXPECT_NE(said.find("dangling.json is left out: No such file"), std::string::npos) << said;
  EXPECT_EQ(said.find("link.json"), std::string::npos) << said;
}

TEST(CertificateFolder, ThatIsNoneIsSaidWhereSomeoneNamedIt) {
  const TemporaryFolder folder;
  const std::string missing = folder.path() + "/missing", file = folder.path() + "/file";
  std::ofstream(file) << "{}";
  const auto said_of = [](const std::string& place) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(read_certificates(place).size(), shipped_certificates().size());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said_of(missing), "") << "nobody has run `certify` yet";
  EXPECT_EQ(said_of(""), "");
  EXPECT_NE(said_of(file).find("no certificates are read from " + file), std::string::npos);
  const char* before = std::getenv("FLASHPROOF_CERTIFICATES");
  const std::optional<std::string> kept = before == nullptr ? std::nullopt : std::optional<std::string>(before);
  setenv("FLASHPROOF_CERTIFICATES", missing.c_str(), 1);
  EXPECT_NE(said_of(certificate_folder()).find("no certificates are read from " + missing), std::string::npos);
  kept ? setenv("FLASHPROOF_CERTIFICATES", kept->c_str(), 1) : unsetenv("FLASHPROOF_CERTIFICATES");
}

TEST(CertificateFolder, IsNamedByTheEnvironment) {
  const char* names[] = {"FLASHPROOF_CERTIFICATES", "XDG_DATA_HOME", "HOME"};
  std::vector<std::optional<std::string>> before;
  for (const char* name : names) {
    const char* value = std::getenv(name);
    before.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
    unsetenv(name);
  }
  EXPECT_EQ(certificate_folder(), "");
  setenv("HOME", "/home/a", 1);
  EXPECT_EQ(certificate_folder(), "/home/a/.local/share/flashproof/certificates");
  setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_EQ(certificate_folder(), "/data/flashproof/certificates");
  setenv("FLASHPROOF_CERTIFICATES", "/here", 1);
  EXPECT_EQ(certificate_folder(), "/here");
  for (size_t n = 0; n < std::size(names); ++n)
    before[n] ? setenv(names[n], before[n]->c_str(), 1) : unsetenv(names[n]);
}

/// What is part of the program was measured: it is of this program's models, and names a GPU.
TEST(ShippedCertificates, AreOfThisProgramsModels) {
  for (const std::string& text : shipped_certificates()) {
    const Certificate c = parse_certificate(text);
    EXPECT_EQ(c.models, models_digest()) << c.gpu << ": make it again with `flashproof certify`";
    EXPECT_TRUE(c.holds()) << c.gpu;
    EXPECT_EQ(c.gpu.find("Made-up"), std::string::npos);
  }
}

/// sim:flash2 as a kernel that runs on a GPU would look, run on the host.
struct PretendedGpuKernel {
  const LoadedKernel& host = load_kernel("sim:flash2");
  flashproof_kernel table = *host.table;
  LoadedKernel kernel = host;
  PretendedGpuKernel() { table.memory = FLASHPROOF_CUDA, kernel.table = &table, kernel.name = "gpu:pretended"; }
  Judgement judge(const LoadedKernel& described, const std::vector<std::string>& checks) const {
    const auto run = [this](const Run& r, const std::string& config) { return run_in_process(host, r, config); };
    return execute(run, described, {parse_case("bf16 q5 k20 d32 data=normal"), "", checks});
  }
};

TEST(MissingCertificate, TakesTheVerdictOfBitsAndIsSaid) {
  const PretendedGpuKernel pretended;
  const Judgement host = pretended.judge(pretended.host, {});
  EXPECT_TRUE(host.unjudged.empty());
  EXPECT_TRUE(
      std::any_of(host.verdicts.begin(), host.verdicts.end(), [](const Verdict& v) { return v.check == "bits"; }));
  const Judgement gpu = pretended.judge(pretended.kernel, {});
  if (gpu.subject.gpu->certificate != nullptr) GTEST_SKIP() << "this machine's GPU has a certificate";
  ASSERT_EQ(gpu.unjudged.size(), 1u);
  EXPECT_EQ(gpu.unjudged[0].check, "bits");
  EXPECT_NE(gpu.unjudged[0].reason.find("no certificate"), std::string::npos) << gpu.unjudged[0].reason;
  EXPECT_EQ(gpu.verdicts.size() + 1, host.verdicts.size());
  EXPECT_EQ(gpu.status(), Status::pass) << "nothing was found, and nothing is hidden";

  const Judgement alone = pretended.judge(pretended.kernel, {"bits"});
  EXPECT_EQ(alone.status(), Status::inconclusive);
  Execution e{{parse_case("bf16 q5 k20 d32"), "", {"bits"}}, {}, "", {}, {}, {}};
  e.judgement = alone;
  EXPECT_NE(page_of(e).find("bits          no verdict     no certificate"), std::string::npos) << page_of(e);
  EXPECT_NE(json_of(e).text().find("\"unjudged\":{\"bits\":\"no certificate"), std::string::npos) << json_of(e).text();
}

TEST(MissingCertificate, StandsInRecordsAndReports) {
  Record r;
  r.kernel = "gpu:pretended", r.text = "bf16 q5 k20 d32 data=normal seed=0", r.id = "1";
  r.unjudged = {{"bits", "no certificate of Made-up GPU"}};
  EXPECT_EQ(print(parse_record(print(r))), print(r));
  Report report;
  add(report, r), add(report, r);
  EXPECT_NE(page_of(report.summary).find("2 x no verdict of bits: no certificate of Made-up GPU"), std::string::npos);
  EXPECT_NE(report_markdown(report).find("no verdict of bits: no certificate of Made-up GPU (2 cases)"),
            std::string::npos);
  EXPECT_NE(report_paper(report).find("no verdict of bits: no certificate of Made-up GPU (2 cases)"),
            std::string::npos);
  EXPECT_NE(report_json(report).find("\"bits: no certificate of Made-up GPU\":2"), std::string::npos)
      << report_json(report);
  r.unjudged.clear();
  EXPECT_EQ(print(r).find("unjudged"), std::string::npos) << "a passing line stays short";
  Report without;
  add(without, r);
  EXPECT_EQ(page_of(without.summary).find("no verdict"), std::string::npos);
}

}  // namespace
}  // namespace flashproof
