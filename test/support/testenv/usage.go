// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// ticksPerSecond is the kernel's USER_HZ, which is 100 on every architecture that Go supports.
const ticksPerSecond = 100

// parseUsage parses the contents of the files status and stat of a process (see proc(5)).
func parseUsage(status, stat []byte) (Usage, error) {
	var u Usage
	for line := range bytes.Lines(status) {
		switch fields := bytes.Fields(line); {
		case len(fields) < 2:
		case bytes.Equal(fields[0], []byte("VmRSS:")):
			u.RSS = kibibytes(fields[1])
		case bytes.Equal(fields[0], []byte("VmHWM:")):
			u.PeakRSS = kibibytes(fields[1])
		}
	}
	// The name of the command is in parentheses and may contain any character, so the fields are counted from the end
	// of the name. utime and stime are the 14th and 15th fields.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return u, fmt.Errorf("reading a process's times, %d fields in stat", len(fields))
	}
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return u, fmt.Errorf("reading a process's times, %w", err)
		}
		u.CPU += time.Duration(ticks) * time.Second / ticksPerSecond
	}
	return u, nil
}

func kibibytes(field []byte) int64 {
	n, err := strconv.ParseInt(string(field), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
