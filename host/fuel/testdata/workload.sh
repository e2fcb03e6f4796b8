#!/bin/sh
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
# Rebuilds workload.wasm with the pinned TinyGo.
set -eu
cd "$(dirname "$0")/../../.."
hack/tinygo/build-plugin.sh host/fuel/testdata/workload host/fuel/testdata/workload.wasm
