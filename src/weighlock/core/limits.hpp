// Every limit that isn't a pair's policy: name, default, and the reason. One table, so that a reader finds them all.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace weighlock::limits {

using namespace std::chrono_literals;

// HTTP server
inline constexpr std::size_t kRequestHeaderBytesMax = 16 * 1024;  // uvicorn's is 64 KiB; our clients send under 1 KiB
inline constexpr std::size_t kRequestHeadersMax = 100;            // Apache's limit; our clients send ten
inline constexpr std::size_t kRequestTargetBytesMax = 8 * 1024;   // RFC 9112, 3: at least 8000 bytes
inline constexpr std::size_t kRequestBodyBytesMax = 64 * 1024 * 1024;  // AWEX metadata of large models is tens of MB
inline constexpr std::size_t kControlBodyBytesMax =
    8 * 1024 * 1024;  // of every other route: 20,000 URLs; these are parsed on the loop
inline constexpr std::size_t kRequestsBytesMax =
    512 * 1024 * 1024;  // of all requests that are being read: eight of the largest, however many connections there are
inline constexpr auto kRequestReadTimeout = 30s;  // wall clock for one request, headers and body
inline constexpr auto kIdleTimeout = 600s;        // longer than a train step: the controller keeps its connection
inline constexpr std::size_t kConnectionsMax = 8192;
inline constexpr auto kAnswerStallTimeout = 30s;  // a client that takes no byte of its answer for so long is gone
inline constexpr std::size_t kStreamBacklogBytesMax =
    4 * 1024 * 1024;                                  // of one event stream, unsent: the reader is too slow
inline constexpr int kListenBacklog = 4096;           // as the Python gateway's
inline constexpr std::size_t kEventStreamsMax = 256;  // each reads every record
inline constexpr auto kWaitMax = 600s;                // ?wait=: who wants more asks again; proxies cut longer silences
inline constexpr std::size_t kEchoBytesMax = 1024;    // of a bad value, shown in an error
inline constexpr std::size_t kErrorTextBytesMax = 8192;  // of a whole error text in an answer

// What clients send
inline constexpr std::size_t kJsonDepthMax = 64;          // our own bodies nest three deep
inline constexpr std::size_t kJsonValuesMax = 2'000'000;  // an index of a million tensors; 100 MB of memory
inline constexpr std::size_t kUrlBytesMax = 2048;         // what proxies and browsers agree on
inline constexpr std::size_t kPathBytesMax = 3500;        // PATH_MAX is 4096: below it there are attempts and shards
inline constexpr std::size_t kPathNameBytesMax = 255;     // NAME_MAX, of one directory's name
inline constexpr std::size_t kKeyBytesMax = 4096;         // an engine's key, in a file: a header line must hold it
inline constexpr auto kKeyFileTimeout = 5s;               // a mount that doesn't answer by then hangs
inline constexpr std::int64_t kVersionMagnitudeMax =
    (std::int64_t{1} << 62) - 1;  // the difference of two versions fits in 64 bits

// HTTP client
inline constexpr std::size_t kAnswerHeaderBytesMax = 64 * 1024;
inline constexpr std::size_t kAnswerBodyBytesMax =
    64 * 1024 * 1024;  // vLLM's checksums of a large model are about 1 MB
// Of one AWEX worker's metadata: an engine of 32 ranks of DeepSeek-V3's size reports 88 MB.
inline constexpr std::size_t kReportBytesMax = 256 * 1024 * 1024;
inline constexpr std::size_t kReportsBytesMax = 512 * 1024 * 1024;  // read and not parsed yet, of any number of workers
inline constexpr auto kConnectTimeout = 5s;  // a worker on the same network answers in milliseconds
inline constexpr auto kCallHardTimeout =
    7200s;  // a leaked call ends some day; the protocol's deadlines come long before

// Protocol
inline constexpr std::size_t kQueuedUpdatesMax =
    16;  // a trainer publishes one step at a time; more is a runaway client
inline constexpr std::size_t kUpdatesRememberedMax = 256;     // ended updates kept per pair for history and idempotency
inline constexpr std::size_t kTargetsRememberedMax = 50'000;  // ... and their workers: about 60 MB
// A quarantined worker that somebody continued is paused again within 2 s of it: a period, its jitter, and two calls.
inline constexpr std::chrono::milliseconds kWatchPeriod = 1s;
inline constexpr int kWatchJitterPermille = 100;                    // a thousand workers aren't looked at in one moment
inline constexpr std::chrono::milliseconds kWatchReadTimeout = 5s;  // a look that has no answer by then is a failed one
inline constexpr std::chrono::milliseconds kWatchBackOffMax = 30s;  // of one that doesn't answer; doubled up to this
// One that serves: a thousand of them cost less than 1 % of a core.
inline constexpr std::chrono::milliseconds kIdleWatchPeriod = 10s;
// One that serves and misses so many looks in a row is fenced: 24 s if it refuses, 50 s if it is silent. Two or three
// are missed by an engine that compiles, or whose event loop does something else.
inline constexpr int kSilentLooks = 5;
// An answer that the worker's dialect doesn't know, so often in a row, is another engine's: it is asked what it is. One
// may be a proxy's, or an engine's that is about to start.
inline constexpr int kStrangeReadings = 2;
// An owed flush is asked for with looks a period apart so often, then with each idle look: an engine that refuses says
// so in its log each time.
inline constexpr int kOwedFlushTriesSoon = 10;
inline constexpr int kIdleLooksPerWhole = 6;  // looks until one reads the start time too; a label tells most restarts
inline constexpr std::chrono::milliseconds kFirstLookWithin =
    2s;  // after a start or a connect: a thousand reads, spread
// An update waits so long for the reading of a worker that is known to be silent, if others aren't: one that is back
// answers within it, and one that hangs costs each update this and not its whole deadline.
inline constexpr std::chrono::milliseconds kSilentSurvey = 2s;
// A worker that could not be brought back is tried again after this, doubled up to the second.
inline constexpr std::chrono::milliseconds kJoinBackOffMin = 1s;
inline constexpr std::chrono::milliseconds kJoinBackOffMax = 60s;  // a load of a great model takes as long
inline constexpr std::chrono::milliseconds kWatchTellAgain = 60s;  // who continues it each second is told once a minute
// An engine that runs makes one token in tens of ms; one that is paused by its trainer waits this long for the update.
inline constexpr std::chrono::milliseconds kPauseDoubtAtMost = 300ms;
// Who owns a pair (protocol/ownership.hpp)
inline constexpr std::chrono::milliseconds kEpochLookPeriod = 5s;     // between updates (protocol.md section 9)
inline constexpr std::chrono::milliseconds kEpochLookBusy = 500ms;    // while engines may be held paused
inline constexpr std::chrono::milliseconds kEpochStale = 1s;          // two such looks: nothing waits while they come
inline constexpr std::chrono::milliseconds kEpochLookTimeout = 5s;    // a mount that says nothing by then hangs
inline constexpr std::chrono::milliseconds kEpochWriteTimeout = 30s;  // as a pause's: the update waits for it
// Direct transfer (docs/awex.md)
inline constexpr std::chrono::milliseconds kTransferGrace = 5s;  // after a first failure, for the others' own words
inline constexpr std::chrono::milliseconds kLeaveWait = 5s;      // of a disconnect, for trainers that leave their group
inline constexpr std::size_t kProvenPairsMax =
    50'000'000;  // of parts: half a second at connect; DeepSeek-V3's size has 0.3 million
inline constexpr std::size_t kMeetingsMax = 4096;  // places that are remembered: as many workers as a pair may have
inline constexpr int kMeetingPortsMax = 1000;      // tried from the first one on

inline constexpr std::size_t kWorkersPerPairMax = 4096;
inline constexpr std::size_t kTrainersPerPairMax = 16384;
inline constexpr std::size_t kPairsMax = 1024;
inline constexpr std::size_t kNameBytesMax = 256;         // pair names, idempotency keys
inline constexpr std::size_t kLoraNameBytesMax = 200;     // with "-v" and a version it stays a file name of 255 bytes
inline constexpr std::size_t kEngineTextBytesMax = 2048;  // of an engine's or trainer's answer, quoted in an error

// The process
inline constexpr auto kStopBudget = 4s;  // from SIGTERM on engines are brought back; the process has left within 5 s
inline constexpr auto kStopAtMost = 4700ms;                        // then it ends, even if a disk holds a thread
inline constexpr auto kStopEnforced = 4900ms;                      // then its parent kills it, even if it hangs
inline constexpr std::chrono::milliseconds kRestartAfter = 100ms;  // a crashed gateway is started again; doubled up to
inline constexpr std::chrono::milliseconds kRestartAfterMax = 10s;
inline constexpr std::chrono::milliseconds kQuickDeath = 60s;  // who lived longer begins with the shortest pause again
inline constexpr int kQuickDeathsTold = 5;                     // after so many in a row it is said in so many words
inline constexpr auto kStateLockWait = 10s;        // `finish` waits for a gateway that leaves: twice its time
inline constexpr auto kStateLockRetry = 100ms;     // how soon a freed state directory is noticed
inline constexpr std::size_t kReplayBatch = 4096;  // records read at a time: a few MB
// Metadata of the compatible API (gateway/meta_store.hpp); it lives in memory
inline constexpr std::size_t kMetaBytesPerPairMax =
    256 * 1024 * 1024;  // two lists of tens of MB, with room for a third

inline constexpr std::size_t kMetaBytesMax = 1024 * 1024 * 1024;  // of all pairs: what a control host can spare
inline constexpr std::size_t kListBytesMax =
    std::size_t{2} * 1024 * 1024 * 1024;  // of all AWEX groups: 70,000 tensors in five copies are 280 MB for each
inline constexpr std::size_t kMetaEntryBytes = 256;  // that a key or a set's member counts beside its own bytes
inline constexpr std::size_t kMetaDepthMax = 256;    // AWEX nests ten deep; Python's json gives up at about 1000
// LoRA
inline constexpr auto kAdapterUnloadTimeout = 10s;       // it waits for the requests that use the name; best effort
inline constexpr std::int64_t kAdapterWindowMax = 1024;  // versions of a pair that stay loaded

// Checkpoints
inline constexpr std::size_t kSafetensorsHeaderBytesMax = 100'000'000;  // the reference implementation's cap
inline constexpr std::size_t kIndexBytesMax = 100'000'000;              // same order: one line a tensor
inline constexpr std::size_t kConfigBytesMax = 16 * 1024 * 1024;
inline constexpr std::size_t kTensorRankMax = 64;
inline constexpr std::size_t kSpotTensorsMax = 8;
inline constexpr std::size_t kSpotValuesMax = 100;  // SGLang's default truncate_size

}  // namespace weighlock::limits
