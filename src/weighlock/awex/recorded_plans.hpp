// For tests: layouts, and each rank's operations as awex 0.9.0 plans them. Written by tests/awexplan/record.py;
// long because each operation is a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weighlock/awex/report_fixture.hpp"

namespace weighlock::awex {

struct RecordedPlan {
  std::string name;
  std::uint32_t engine_ranks;
  std::uint32_t engines;
  std::vector<std::vector<Told>> train;  // by rank
  std::vector<Told> engine;
  std::string plan;  // rank, peer, tensor, send offset, receive offset, shape
};

// clang-format off
inline const std::vector<RecordedPlan> kRecordedPlans = {
{"FSDP 4 to TP 2, uneven",
2, 1,
{
{{"model.embed_tokens.weight", {10, 4}, {3, 4}, {0, 0}, 0, 4, 4, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {1, 6}, {0, 0}, 0, 4, 4, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {1, 6}, {0, 0}, 0, 4, 4, 0, 0},
{"model.norm.weight", {5}, {2}, {0}, 0, 4, 4, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {3, 4}, {2, 0}, 1, 4, 4, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {1, 6}, {1, 0}, 1, 4, 4, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {1, 6}, {1, 0}, 1, 4, 4, 0, 0},
{"model.norm.weight", {5}, {2}, {1}, 1, 4, 4, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {3, 4}, {4, 0}, 2, 4, 4, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {1, 6}, {2, 0}, 2, 4, 4, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {1, 6}, {2, 0}, 2, 4, 4, 0, 0},
{"model.norm.weight", {5}, {1}, {2}, 2, 4, 4, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {1, 4}, {6, 0}, 3, 4, 4, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {1, 6}, {3, 0}, 3, 4, 4, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {1, 6}, {3, 0}, 3, 4, 4, 0, 0},
{"model.norm.weight", {5}, {0}, {3}, 3, 4, 4, 0, 0}},
},
{{"model.embed_tokens.weight", {10, 4}, {5, 4}, {0, 0}, 0, 2, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 0}, 0, 2, 2, 1, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 0}, 0, 2, 2, 1, 0},
{"model.norm.weight", {5}, {5}, {0}, 0, 2, 1, 0, 0},
{"model.embed_tokens.weight", {10, 4}, {5, 4}, {5, 0}, 1, 2, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 3}, 1, 2, 2, 1, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 3}, 1, 2, 2, 1, 0},
{"model.norm.weight", {5}, {5}, {0}, 1, 2, 1, 0, 0}},
"0 2 model.embed_tokens.weight [0,0] [0,0] [3,4]\n"
"0 2 model.layers.0.o.weight [0,0] [0,0] [1,3]\n"
"0 2 model.layers.1.o.weight [0,0] [0,0] [1,3]\n"
"0 2 model.norm.weight [0] [0] [2]\n"
"0 3 model.embed_tokens.weight [0,0] [3,0] [2,4]\n"
"0 3 model.layers.0.o.weight [0,0] [1,0] [1,3]\n"
"0 3 model.layers.1.o.weight [0,0] [1,0] [1,3]\n"
"0 3 model.norm.weight [0] [2] [2]\n"
"0 4 model.layers.0.o.weight [0,0] [2,0] [1,3]\n"
"0 4 model.layers.1.o.weight [0,0] [2,0] [1,3]\n"
"0 4 model.norm.weight [0] [4] [1]\n"
"0 5 model.layers.0.o.weight [0,0] [3,0] [1,3]\n"
"0 5 model.layers.1.o.weight [0,0] [3,0] [1,3]\n"
"1 2 model.layers.0.o.weight [0,3] [0,0] [1,3]\n"
"1 2 model.layers.1.o.weight [0,3] [0,0] [1,3]\n"
"1 2 model.norm.weight [0] [0] [2]\n"
"1 3 model.embed_tokens.weight [2,0] [0,0] [1,4]\n"
"1 3 model.layers.0.o.weight [0,3] [1,0] [1,3]\n"
"1 3 model.layers.1.o.weight [0,3] [1,0] [1,3]\n"
"1 3 model.norm.weight [0] [2] [2]\n"
"1 4 model.embed_tokens.weight [0,0] [1,0] [3,4]\n"
"1 4 model.layers.0.o.weight [0,3] [2,0] [1,3]\n"
"1 4 model.layers.1.o.weight [0,3] [2,0] [1,3]\n"
"1 4 model.norm.weight [0] [4] [1]\n"
"1 5 model.embed_tokens.weight [0,0] [4,0] [1,4]\n"
"1 5 model.layers.0.o.weight [0,3] [3,0] [1,3]\n"
"1 5 model.layers.1.o.weight [0,3] [3,0] [1,3]\n"
"2 0 model.embed_tokens.weight [0,0] [0,0] [3,4]\n"
"2 0 model.layers.0.o.weight [0,0] [0,0] [1,3]\n"
"2 0 model.layers.1.o.weight [0,0] [0,0] [1,3]\n"
"2 0 model.norm.weight [0] [0] [2]\n"
"2 1 model.layers.0.o.weight [0,3] [0,0] [1,3]\n"
"2 1 model.layers.1.o.weight [0,3] [0,0] [1,3]\n"
"2 1 model.norm.weight [0] [0] [2]\n"
"3 0 model.embed_tokens.weight [0,0] [3,0] [2,4]\n"
"3 0 model.layers.0.o.weight [0,0] [1,0] [1,3]\n"
"3 0 model.layers.1.o.weight [0,0] [1,0] [1,3]\n"
"3 0 model.norm.weight [0] [2] [2]\n"
"3 1 model.embed_tokens.weight [2,0] [0,0] [1,4]\n"
"3 1 model.layers.0.o.weight [0,3] [1,0] [1,3]\n"
"3 1 model.layers.1.o.weight [0,3] [1,0] [1,3]\n"
"3 1 model.norm.weight [0] [2] [2]\n"
"4 0 model.layers.0.o.weight [0,0] [2,0] [1,3]\n"
"4 0 model.layers.1.o.weight [0,0] [2,0] [1,3]\n"
"4 0 model.norm.weight [0] [4] [1]\n"
"4 1 model.embed_tokens.weight [0,0] [1,0] [3,4]\n"
"4 1 model.layers.0.o.weight [0,3] [2,0] [1,3]\n"
"4 1 model.layers.1.o.weight [0,3] [2,0] [1,3]\n"
"4 1 model.norm.weight [0] [4] [1]\n"
"5 0 model.layers.0.o.weight [0,0] [3,0] [1,3]\n"
"5 0 model.layers.1.o.weight [0,0] [3,0] [1,3]\n"
"5 1 model.embed_tokens.weight [0,0] [4,0] [1,4]\n"
"5 1 model.layers.0.o.weight [0,3] [3,0] [1,3]\n"
"5 1 model.layers.1.o.weight [0,3] [3,0] [1,3]\n"},
{"4 copies to 3 engines",
1, 3,
{
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 0, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 0, 4, 1, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 0, 4, 1, 0, 0},
{"model.norm.weight", {5}, {5}, {0}, 0, 4, 1, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 1, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 1, 4, 1, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 1, 4, 1, 0, 0},
{"model.norm.weight", {5}, {5}, {0}, 1, 4, 1, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 2, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 2, 4, 1, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 2, 4, 1, 0, 0},
{"model.norm.weight", {5}, {5}, {0}, 2, 4, 1, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 3, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 3, 4, 1, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 3, 4, 1, 0, 0},
{"model.norm.weight", {5}, {5}, {0}, 3, 4, 1, 0, 0}},
},
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 0, 1, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 0, 1, 1, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 0, 1, 1, 0, 0},
{"model.norm.weight", {5}, {5}, {0}, 0, 1, 1, 0, 0}},
"0 3 model.embed_tokens.weight [0,0] [0,0] [10,4]\n"
"0 3 model.norm.weight [0] [0] [5]\n"
"0 4 model.layers.1.o.weight [0,0] [0,0] [4,6]\n"
"0 6 model.layers.0.o.weight [0,0] [0,0] [4,6]\n"
"1 3 model.layers.0.o.weight [0,0] [0,0] [4,6]\n"
"1 4 model.embed_tokens.weight [0,0] [0,0] [10,4]\n"
"1 4 model.norm.weight [0] [0] [5]\n"
"1 5 model.layers.1.o.weight [0,0] [0,0] [4,6]\n"
"2 5 model.embed_tokens.weight [0,0] [0,0] [10,4]\n"
"2 5 model.norm.weight [0] [0] [5]\n"
"2 6 model.layers.0.o.weight [0,0] [0,0] [4,6]\n"
"2 6 model.layers.1.o.weight [0,0] [0,0] [4,6]\n"
"3 0 model.embed_tokens.weight [0,0] [0,0] [10,4]\n"
"3 0 model.norm.weight [0] [0] [5]\n"
"3 1 model.layers.0.o.weight [0,0] [0,0] [4,6]\n"
"4 0 model.layers.1.o.weight [0,0] [0,0] [4,6]\n"
"4 1 model.embed_tokens.weight [0,0] [0,0] [10,4]\n"
"4 1 model.norm.weight [0] [0] [5]\n"
"5 1 model.layers.1.o.weight [0,0] [0,0] [4,6]\n"
"5 2 model.embed_tokens.weight [0,0] [0,0] [10,4]\n"
"5 2 model.norm.weight [0] [0] [5]\n"
"6 0 model.layers.0.o.weight [0,0] [0,0] [4,6]\n"
"6 2 model.layers.0.o.weight [0,0] [0,0] [4,6]\n"
"6 2 model.layers.1.o.weight [0,0] [0,0] [4,6]\n"},
{"4 copies to 2 engines of TP 2",
2, 2,
{
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 0, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 0, 4, 1, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 0, 4, 1, 0, 0},
{"model.norm.weight", {5}, {5}, {0}, 0, 4, 1, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 1, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 1, 4, 1, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 1, 4, 1, 0, 0},
{"model.norm.weight", {5}, {5}, {0}, 1, 4, 1, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 2, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 2, 4, 1, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 2, 4, 1, 0, 0},
{"model.norm.weight", {5}, {5}, {0}, 2, 4, 1, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 3, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 3, 4, 1, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 3, 4, 1, 0, 0},
{"model.norm.weight", {5}, {5}, {0}, 3, 4, 1, 0, 0}},
},
{{"model.embed_tokens.weight", {10, 4}, {5, 4}, {0, 0}, 0, 2, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 0}, 0, 2, 2, 1, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 0}, 0, 2, 2, 1, 0},
{"model.norm.weight", {5}, {5}, {0}, 0, 2, 1, 0, 0},
{"model.embed_tokens.weight", {10, 4}, {5, 4}, {5, 0}, 1, 2, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 3}, 1, 2, 2, 1, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 3}, 1, 2, 2, 1, 0},
{"model.norm.weight", {5}, {5}, {0}, 1, 2, 1, 0, 0}},
"0 4 model.embed_tokens.weight [0,0] [0,0] [5,4]\n"
"0 4 model.layers.0.o.weight [0,0] [0,0] [4,3]\n"
"0 4 model.layers.1.o.weight [0,0] [0,0] [4,3]\n"
"0 4 model.norm.weight [0] [0] [5]\n"
"1 5 model.embed_tokens.weight [5,0] [0,0] [5,4]\n"
"1 5 model.layers.0.o.weight [0,3] [0,0] [4,3]\n"
"1 5 model.layers.1.o.weight [0,3] [0,0] [4,3]\n"
"1 5 model.norm.weight [0] [0] [5]\n"
"2 6 model.embed_tokens.weight [0,0] [0,0] [5,4]\n"
"2 6 model.layers.0.o.weight [0,0] [0,0] [4,3]\n"
"2 6 model.layers.1.o.weight [0,0] [0,0] [4,3]\n"
"2 6 model.norm.weight [0] [0] [5]\n"
"3 7 model.embed_tokens.weight [5,0] [0,0] [5,4]\n"
"3 7 model.layers.0.o.weight [0,3] [0,0] [4,3]\n"
"3 7 model.layers.1.o.weight [0,3] [0,0] [4,3]\n"
"3 7 model.norm.weight [0] [0] [5]\n"
"4 0 model.embed_tokens.weight [0,0] [0,0] [5,4]\n"
"4 0 model.layers.0.o.weight [0,0] [0,0] [4,3]\n"
"4 0 model.layers.1.o.weight [0,0] [0,0] [4,3]\n"
"4 0 model.norm.weight [0] [0] [5]\n"
"5 1 model.embed_tokens.weight [5,0] [0,0] [5,4]\n"
"5 1 model.layers.0.o.weight [0,3] [0,0] [4,3]\n"
"5 1 model.layers.1.o.weight [0,3] [0,0] [4,3]\n"
"5 1 model.norm.weight [0] [0] [5]\n"
"6 2 model.embed_tokens.weight [0,0] [0,0] [5,4]\n"
"6 2 model.layers.0.o.weight [0,0] [0,0] [4,3]\n"
"6 2 model.layers.1.o.weight [0,0] [0,0] [4,3]\n"
"6 2 model.norm.weight [0] [0] [5]\n"
"7 3 model.embed_tokens.weight [5,0] [0,0] [5,4]\n"
"7 3 model.layers.0.o.weight [0,3] [0,0] [4,3]\n"
"7 3 model.layers.1.o.weight [0,3] [0,0] [4,3]\n"
"7 3 model.norm.weight [0] [0] [5]\n"},
{"2 copies of FSDP 3 to TP 2",
2, 1,
{
{{"model.embed_tokens.weight", {10, 4}, {4, 4}, {0, 0}, 0, 6, 3, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {2, 6}, {0, 0}, 0, 6, 3, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {2, 6}, {0, 0}, 0, 6, 3, 0, 0},
{"model.norm.weight", {5}, {2}, {0}, 0, 6, 3, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {4, 4}, {3, 0}, 1, 6, 3, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {2, 6}, {1, 0}, 1, 6, 3, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {2, 6}, {1, 0}, 1, 6, 3, 0, 0},
{"model.norm.weight", {5}, {2}, {1}, 1, 6, 3, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {2, 4}, {6, 0}, 2, 6, 3, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {0, 6}, {2, 0}, 2, 6, 3, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {0, 6}, {2, 0}, 2, 6, 3, 0, 0},
{"model.norm.weight", {5}, {1}, {2}, 2, 6, 3, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {4, 4}, {0, 0}, 3, 6, 3, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {2, 6}, {0, 0}, 3, 6, 3, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {2, 6}, {0, 0}, 3, 6, 3, 0, 0},
{"model.norm.weight", {5}, {2}, {0}, 3, 6, 3, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {4, 4}, {3, 0}, 4, 6, 3, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {2, 6}, {1, 0}, 4, 6, 3, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {2, 6}, {1, 0}, 4, 6, 3, 0, 0},
{"model.norm.weight", {5}, {2}, {1}, 4, 6, 3, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {2, 4}, {6, 0}, 5, 6, 3, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {0, 6}, {2, 0}, 5, 6, 3, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {0, 6}, {2, 0}, 5, 6, 3, 0, 0},
{"model.norm.weight", {5}, {1}, {2}, 5, 6, 3, 0, 0}},
},
{{"model.embed_tokens.weight", {10, 4}, {5, 4}, {0, 0}, 0, 2, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 0}, 0, 2, 2, 1, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 0}, 0, 2, 2, 1, 0},
{"model.norm.weight", {5}, {5}, {0}, 0, 2, 1, 0, 0},
{"model.embed_tokens.weight", {10, 4}, {5, 4}, {5, 0}, 1, 2, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 3}, 1, 2, 2, 1, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 3}, 1, 2, 2, 1, 0},
{"model.norm.weight", {5}, {5}, {0}, 1, 2, 1, 0, 0}},
"0 2 model.embed_tokens.weight [0,0] [0,0] [4,4]\n"
"0 3 model.layers.1.o.weight [0,0] [2,0] [2,3]\n"
"0 3 model.norm.weight [0] [2] [2]\n"
"0 5 model.layers.0.o.weight [0,0] [0,0] [2,3]\n"
"0 5 model.layers.1.o.weight [0,0] [0,0] [2,3]\n"
"0 5 model.norm.weight [0] [0] [2]\n"
"0 6 model.embed_tokens.weight [0,0] [4,0] [1,4]\n"
"0 6 model.layers.0.o.weight [0,0] [2,0] [2,3]\n"
"0 7 model.norm.weight [0] [4] [1]\n"
"1 2 model.layers.1.o.weight [0,3] [0,0] [2,3]\n"
"1 3 model.embed_tokens.weight [1,0] [0,0] [3,4]\n"
"1 3 model.norm.weight [0] [2] [2]\n"
"1 4 model.embed_tokens.weight [0,0] [3,0] [2,4]\n"
"1 5 model.layers.0.o.weight [0,3] [0,0] [2,3]\n"
"1 5 model.norm.weight [0] [0] [2]\n"
"1 6 model.layers.0.o.weight [0,3] [2,0] [2,3]\n"
"1 6 model.layers.1.o.weight [0,3] [2,0] [2,3]\n"
"1 7 model.norm.weight [0] [4] [1]\n"
"2 0 model.embed_tokens.weight [0,0] [0,0] [4,4]\n"
"2 1 model.layers.1.o.weight [0,3] [0,0] [2,3]\n"
"3 0 model.layers.1.o.weight [0,0] [2,0] [2,3]\n"
"3 0 model.norm.weight [0] [2] [2]\n"
"3 1 model.embed_tokens.weight [1,0] [0,0] [3,4]\n"
"3 1 model.norm.weight [0] [2] [2]\n"
"4 1 model.embed_tokens.weight [0,0] [3,0] [2,4]\n"
"5 0 model.layers.0.o.weight [0,0] [0,0] [2,3]\n"
"5 0 model.layers.1.o.weight [0,0] [0,0] [2,3]\n"
"5 0 model.norm.weight [0] [0] [2]\n"
"5 1 model.layers.0.o.weight [0,3] [0,0] [2,3]\n"
"5 1 model.norm.weight [0] [0] [2]\n"
"6 0 model.embed_tokens.weight [0,0] [4,0] [1,4]\n"
"6 0 model.layers.0.o.weight [0,0] [2,0] [2,3]\n"
"6 1 model.layers.0.o.weight [0,3] [2,0] [2,3]\n"
"6 1 model.layers.1.o.weight [0,3] [2,0] [2,3]\n"
"7 0 model.norm.weight [0] [4] [1]\n"
"7 1 model.norm.weight [0] [4] [1]\n"},
{"grid 2 x 2 to TP 2",
2, 1,
{
{{"model.embed_tokens.weight", {10, 4}, {5, 2}, {0, 0}, 0, 4, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {2, 3}, {0, 0}, 0, 4, 2, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {2, 3}, {0, 0}, 0, 4, 2, 0, 0},
{"model.norm.weight", {5}, {3}, {0}, 0, 4, 2, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {5, 2}, {0, 2}, 1, 4, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {2, 3}, {0, 3}, 1, 4, 2, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {2, 3}, {0, 3}, 1, 4, 2, 0, 0},
{"model.norm.weight", {5}, {3}, {0}, 1, 4, 2, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {5, 2}, {5, 0}, 2, 4, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {2, 3}, {2, 0}, 2, 4, 2, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {2, 3}, {2, 0}, 2, 4, 2, 0, 0},
{"model.norm.weight", {5}, {2}, {2}, 2, 4, 2, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {5, 2}, {5, 2}, 3, 4, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {2, 3}, {2, 3}, 3, 4, 2, 0, 0},
{"model.layers.1.o.weight", {4, 6}, {2, 3}, {2, 3}, 3, 4, 2, 0, 0},
{"model.norm.weight", {5}, {2}, {2}, 3, 4, 2, 0, 0}},
},
{{"model.embed_tokens.weight", {10, 4}, {5, 4}, {0, 0}, 0, 2, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 0}, 0, 2, 2, 1, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 0}, 0, 2, 2, 1, 0},
{"model.norm.weight", {5}, {5}, {0}, 0, 2, 1, 0, 0},
{"model.embed_tokens.weight", {10, 4}, {5, 4}, {5, 0}, 1, 2, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 3}, 1, 2, 2, 1, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 3}, 1, 2, 2, 1, 0},
{"model.norm.weight", {5}, {5}, {0}, 1, 2, 1, 0, 0}},
"0 2 model.embed_tokens.weight [0,0] [0,0] [5,2]\n"
"0 2 model.layers.0.o.weight [0,0] [0,0] [2,3]\n"
"0 2 model.layers.1.o.weight [0,0] [0,0] [2,3]\n"
"0 2 model.norm.weight [0] [0] [3]\n"
"0 3 model.embed_tokens.weight [0,0] [0,2] [5,2]\n"
"0 4 model.layers.0.o.weight [0,0] [2,0] [2,3]\n"
"0 4 model.layers.1.o.weight [0,0] [2,0] [2,3]\n"
"0 4 model.norm.weight [0] [3] [2]\n"
"1 3 model.layers.0.o.weight [0,0] [0,0] [2,3]\n"
"1 3 model.layers.1.o.weight [0,0] [0,0] [2,3]\n"
"1 3 model.norm.weight [0] [0] [3]\n"
"1 4 model.embed_tokens.weight [0,0] [0,0] [5,2]\n"
"1 5 model.embed_tokens.weight [0,0] [0,2] [5,2]\n"
"1 5 model.layers.0.o.weight [0,0] [2,0] [2,3]\n"
"1 5 model.layers.1.o.weight [0,0] [2,0] [2,3]\n"
"1 5 model.norm.weight [0] [3] [2]\n"
"2 0 model.embed_tokens.weight [0,0] [0,0] [5,2]\n"
"2 0 model.layers.0.o.weight [0,0] [0,0] [2,3]\n"
"2 0 model.layers.1.o.weight [0,0] [0,0] [2,3]\n"
"2 0 model.norm.weight [0] [0] [3]\n"
"3 0 model.embed_tokens.weight [0,0] [0,2] [5,2]\n"
"3 1 model.layers.0.o.weight [0,0] [0,0] [2,3]\n"
"3 1 model.layers.1.o.weight [0,0] [0,0] [2,3]\n"
"3 1 model.norm.weight [0] [0] [3]\n"
"4 0 model.layers.0.o.weight [0,0] [2,0] [2,3]\n"
"4 0 model.layers.1.o.weight [0,0] [2,0] [2,3]\n"
"4 0 model.norm.weight [0] [3] [2]\n"
"4 1 model.embed_tokens.weight [0,0] [0,0] [5,2]\n"
"5 1 model.embed_tokens.weight [0,0] [0,2] [5,2]\n"
"5 1 model.layers.0.o.weight [0,0] [2,0] [2,3]\n"
"5 1 model.layers.1.o.weight [0,0] [2,0] [2,3]\n"
"5 1 model.norm.weight [0] [3] [2]\n"},
{"PP 2 x DP 2 to PP 2 x TP 2",
4, 1,
{
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 0, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 0, 4, 1, 0, 0}},
{{"model.embed_tokens.weight", {10, 4}, {10, 4}, {0, 0}, 1, 4, 1, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 6}, {0, 0}, 1, 4, 1, 0, 0}},
{{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 2, 4, 1, 0, 1},
{"model.norm.weight", {5}, {5}, {0}, 2, 4, 1, 0, 1}},
{{"model.layers.1.o.weight", {4, 6}, {4, 6}, {0, 0}, 3, 4, 1, 0, 1},
{"model.norm.weight", {5}, {5}, {0}, 3, 4, 1, 0, 1}},
},
{{"model.embed_tokens.weight", {10, 4}, {5, 4}, {0, 0}, 0, 4, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 0}, 0, 4, 2, 1, 0},
{"model.embed_tokens.weight", {10, 4}, {5, 4}, {5, 0}, 1, 4, 2, 0, 0},
{"model.layers.0.o.weight", {4, 6}, {4, 3}, {0, 3}, 1, 4, 2, 1, 0},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 0}, 2, 4, 2, 1, 1},
{"model.norm.weight", {5}, {5}, {0}, 2, 4, 1, 0, 1},
{"model.layers.1.o.weight", {4, 6}, {4, 3}, {0, 3}, 3, 4, 2, 1, 1},
{"model.norm.weight", {5}, {5}, {0}, 3, 4, 1, 0, 1}},
"0 4 model.embed_tokens.weight [0,0] [0,0] [5,4]\n"
"0 4 model.layers.0.o.weight [0,0] [0,0] [4,3]\n"
"1 5 model.embed_tokens.weight [5,0] [0,0] [5,4]\n"
"1 5 model.layers.0.o.weight [0,3] [0,0] [4,3]\n"
"2 6 model.layers.1.o.weight [0,0] [0,0] [4,3]\n"
"2 6 model.norm.weight [0] [0] [5]\n"
"3 7 model.layers.1.o.weight [0,3] [0,0] [4,3]\n"
"3 7 model.norm.weight [0] [0] [5]\n"
"4 0 model.embed_tokens.weight [0,0] [0,0] [5,4]\n"
"4 0 model.layers.0.o.weight [0,0] [0,0] [4,3]\n"
"5 1 model.embed_tokens.weight [5,0] [0,0] [5,4]\n"
"5 1 model.layers.0.o.weight [0,3] [0,0] [4,3]\n"
"6 2 model.layers.1.o.weight [0,0] [0,0] [4,3]\n"
"6 2 model.norm.weight [0] [0] [5]\n"
"7 3 model.layers.1.o.weight [0,3] [0,0] [4,3]\n"
"7 3 model.norm.weight [0] [0] [5]\n"},
};
// clang-format on

}  // namespace weighlock::awex
