#pragma once

#include "base/result.h"
#include "lab/constants.h"
#include "lab/lab_file.h"
#include "manager/model_registry.h"
#include "twin/setup.h"

namespace heddle::lab {

/// The hosts of `policy` in the words of their twin, and its models, which get their ids in
/// `registry` in the order of the file. Hosts of a cluster are numbered from 1, the only server is
/// host 0. Reads the models' files. Errors as opening models and configuring devices;
/// kInvalidArgument for what cannot be predicted: external engines, and hosts on which a model
/// takes different memory.
Result<twin::TwinSetup> twin_setup(const LabFile& lab,
                                   const LabPolicy& policy,
                                   const Constants& constants,
                                   manager::ModelRegistry& registry);

}  // namespace heddle::lab
