// Every limit that isn't a pair's policy: name, default, and the reason. One table, so that a reader finds them all.
#pragma once

#include <chrono>
#include <cstddef>

namespace weighlock::limits {

using namespace std::chrono_literals;

// HTTP server
inline constexpr std::size_t kRequestHeaderBytesMax = 16 * 1024;  // uvicorn's is 64 KiB; our clients send under 1 KiB
inline constexpr std::size_t kRequestBodyBytesMax = 64 * 1024 * 1024;  // AWEX metadata of large models is tens of MB
inline constexpr auto kRequestReadTimeout = 30s;                       // wall clock for one request, headers and body
inline constexpr auto kIdleTimeout = 600s;  // longer than a train step: the controller keeps its connection
inline constexpr std::size_t kConnectionsMax = 8192;
inline constexpr auto kAnswerStallTimeout = 30s;  // a client that takes no byte of its answer for so long is gone
inline constexpr std::size_t kStreamBacklogBytesMax =
    4 * 1024 * 1024;                         // of one event stream, unsent: the reader is too slow
inline constexpr int kListenBacklog = 4096;  // as the Python gateway's

// HTTP client
inline constexpr std::size_t kAnswerHeaderBytesMax = 64 * 1024;
inline constexpr std::size_t kAnswerBodyBytesMax =
    64 * 1024 * 1024;                        // vLLM's checksums of a large model are about 1 MB
inline constexpr auto kConnectTimeout = 5s;  // a worker on the same network answers in milliseconds
inline constexpr auto kCallHardTimeout =
    7200s;  // a leaked call ends some day; the protocol's deadlines come long before

// Protocol
inline constexpr std::size_t kQueuedUpdatesMax =
    16;  // a trainer publishes one step at a time; more is a runaway client
inline constexpr std::size_t kUpdatesRememberedMax = 256;  // ended updates kept per pair for history and idempotency
inline constexpr std::size_t kWorkersPerPairMax = 4096;
inline constexpr std::size_t kTrainersPerPairMax = 16384;
inline constexpr std::size_t kPairsMax = 1024;
inline constexpr std::size_t kNameBytesMax = 256;         // pair names, idempotency keys
inline constexpr std::size_t kEngineTextBytesMax = 2048;  // of an engine's or trainer's answer, quoted in an error

// The process
inline constexpr auto kStopBudget = 4s;  // from SIGTERM on engines are brought back; the process has left within 5 s
inline constexpr auto kStopAtMost = 4700ms;        // then it ends, even if a disk holds a thread
inline constexpr auto kStateLockWait = 10s;        // `finish` waits for a gateway that leaves: twice its time
inline constexpr auto kStateLockRetry = 100ms;     // how soon a freed state directory is noticed
inline constexpr std::size_t kReplayBatch = 4096;  // records read at a time: a few MB

// Checkpoints
inline constexpr std::size_t kSafetensorsHeaderBytesMax = 100'000'000;  // the reference implementation's cap
inline constexpr std::size_t kIndexBytesMax = 100'000'000;              // same order: one line a tensor
inline constexpr std::size_t kConfigBytesMax = 16 * 1024 * 1024;
inline constexpr std::size_t kTensorRankMax = 64;
inline constexpr std::size_t kSpotTensorsMax = 8;
inline constexpr std::size_t kSpotValuesMax = 100;  // SGLang's default truncate_size

}  // namespace weighlock::limits
