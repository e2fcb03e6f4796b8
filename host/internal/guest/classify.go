// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/sys"

	"github.com/refract-project/refract/host/fuel"
)

// classifyError returns a typed error for the failure that has ended a call.
func (i *Instance) classifyError(err error) error {
	i.endLines()
	if typed := typedError(err); typed != nil {
		return typed
	}
	m := i.module
	if errors.Is(err, errOutOfFuel) {
		return &OutOfFuelError{Plugin: m.Name, During: i.during, Fuel: i.budget}
	}
	if errors.Is(err, errMemoryRefused) {
		return i.limitError(LimitMemory, int(i.memory.max>>16))
	}
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return &TrapError{Plugin: m.Name, During: i.during, Err: i.withPanic(fmt.Errorf("it exited with status %d", exit.ExitCode()))}
	}
	switch i.stopCause() {
	case fuel.OutOfFuel:
		return &OutOfFuelError{Plugin: m.Name, During: i.during, Fuel: i.budget}
	case fuel.OutOfStack:
		return i.limitError(LimitCallDepth, m.Limits.CallDepth)
	}
	// The text is compared, because the runtime exports no error for its stack limit.
	if strings.Contains(err.Error(), "stack overflow") {
		return i.limitError(LimitCallDepth, 0)
	}
	if i.memory.refused {
		return i.limitError(LimitMemory, int(i.memory.max>>16))
	}
	return &TrapError{Plugin: m.Name, During: i.during, Err: i.withPanic(err)}
}

func (i *Instance) limitError(l Limit, n int) error {
	return &LimitError{Plugin: i.module.Name, During: i.during, Limit: l, Max: int64(n)}
}

func (i *Instance) stopCause() fuel.Cause {
	if i.fuel == nil || i.depth == nil {
		return fuel.NotStopped
	}
	return fuel.Stopped(i.fuel.Get(), i.depth.Get())
}

// typedError returns the error of the host function that has ended the call, without the stack trace that wazero adds,
// or nil if there is no such error.
func typedError(err error) error {
	var access *AccessError
	if errors.As(err, &access) {
		return access
	}
	var limit *LimitError
	if errors.As(err, &limit) {
		return limit
	}
	return nil
}
