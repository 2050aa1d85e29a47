// A model in training: float32 master values that each step changes a little, read out in bfloat16.
//
// A step moves linear weights as AdamW does (a learning rate times a normalised gradient, which bfloat16 swallows for
// many values), and the embedding and lm_head by a walk wide enough that greedy text changes each time. Deterministic:
// the same seed and step give the same bytes. Thread rule: none of its own; one user at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "tinyengine/model/seeded.hpp"

namespace weighlock::tiny {

class TrainedModel {
 public:
  // `step_scale` multiplies every change; 0 freezes the model.
  TrainedModel(ModelShape shape, std::uint64_t seed, double step_scale);

  void advance();
  std::uint64_t step() const { return step_; }
  const ModelShape& shape() const { return shape_; }
  std::vector<Tensor> tensors() const { return tensors_from(shape_, masters_); }

 private:
  ModelShape shape_;
  std::uint64_t seed_;
  double step_scale_;
  std::uint64_t step_ = 0;
  std::vector<std::vector<float>> masters_;
};

}  // namespace weighlock::tiny
