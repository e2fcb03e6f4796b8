// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"testing"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

func TestMain(m *testing.M) { reflectiontest.Main(m) }

// lab is a Lab with additional methods that only the tests of this package use.
type lab struct{ *reflectiontest.Lab }

func newLab(t *testing.T, change ...func(*reflection.Options)) *lab {
	t.Helper()
	return &lab{reflectiontest.New(t, change...)}
}

// newLabOn returns a lab with the given cluster as its consumer.
func newLabOn(t *testing.T, consumer *testenv.Cluster, change ...func(*reflection.Options)) *lab {
	t.Helper()
	return &lab{reflectiontest.NewOn(t, consumer, change...)}
}

func (l *lab) start() *lab {
	l.Helper()
	l.Start()
	return l
}
