// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package leb128_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/refract-project/refract/internal/leb128"
)

func TestAppendSigned(t *testing.T) {
	for v, want := range map[int64][]byte{
		0: {0x00}, -1: {0x7f}, 63: {0x3f}, 64: {0xc0, 0x00}, -64: {0x40}, -65: {0xbf, 0x7f}, 128: {0x80, 0x01},
		math.MinInt32: {0x80, 0x80, 0x80, 0x80, 0x78},
		math.MaxInt64: {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00},
		math.MinInt64: {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f},
	} {
		if got := leb128.AppendSigned([]byte{0x41}, v); !bytes.Equal(got[1:], want) || got[0] != 0x41 {
			t.Errorf("%d is % x after 41, want % x", v, got, want)
		}
	}
}
