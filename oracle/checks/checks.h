// The checks, one file each, and the steps of judging that they share.
#pragma once
#include <optional>

#include "oracle/check.h"
#include "oracle/large_cases.h"

namespace flashproof {

extern const Check bound_check, bits_check, readout_check, exact_inputs_check, isolation_check, repeat_check,
    relations_check, reject_check;

/// The verdict of `bits`, with this GPU for large cases.
Verdict judge_bits(const Case&, const Subject&, std::span<const RunResult>, const GpuOracle&);

/// Makes the verdict a failure of this kind, unless it is one already.
void fail(Verdict&, const char* kind, const std::string& why);
/// The same for one element of an exact check: no ratio but infinity.
void fail_at(Verdict&, const Where&, const char* kind, const std::string& why);
/// Fails the verdict for what the call did to memory: "red-zone", "input-changed", "unwritten", "tail".
void judge_memory(Verdict&, const MemoryReport&);
/// The verdict's entry of the output, a new one where it has none.
OutputRatio& ratio_of(Verdict&, OutputId);
/// Notes another ratio of one element: the output's worst, and the verdict's. True where it is the verdict's worst so
/// far.
bool note_ratio(Verdict&, const Problem&, OutputId, int64_t index, double ratio);
/// The verdict fails for the element noted last, its worst: `kind` and `why` are of the element that `where` names.
void fail_as_worst(Verdict&, const char* kind, const std::string& why);

/// A pass that compared nothing is no pass: the verdict, or one with an empty `check`.
Verdict unless_vacuous(const Verdict&);

/// Nine significant digits: enough to tell fp32 numbers apart.
std::string number_text(double);

/// The outputs that a kernel with these conventions is judged on, and what it leaves unjudged, in words.
bool is_judged(const Subject&, const Problem&, OutputId);
std::string undefined_conventions(const Subject&);

/// L of a row without keys and sink in the kernel's convention; nothing where it is undefined.
std::optional<double> empty_lse(const Subject&);
bool empty_o_defined(const Subject&);
/// Whether the query row (at.b, at.head, at.position) sees no key.
bool sees_no_key(const Inputs&, const Where& at);
/// Rows of [total_q, H] whose O or L the kernel leaves undefined: those without keys and sink. Empty where it defines
/// both.
std::vector<uint8_t> undefined_rows(const Case&, const Subject&);

/// The case with q = 0 data of `family`: bias, slopes, sink, softcap, descales, edits, direction and a scale near
/// fp32's largest number neutral. `keep_dropout`: rate 1/2 stays.
Case neutral_case(const Case&, Family family, bool keep_dropout);

}  // namespace flashproof
