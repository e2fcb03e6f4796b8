// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"testing"
	"time"

	"github.com/refract-project/refract/test/support/story"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestStories runs the stories in testdata/stories. Packages test/support/story and reflectiontest (Stage) describe the
// commands of the stories.
func TestStories(t *testing.T) {
	t.Parallel()
	story.Run(t, "testdata/stories", func(t *testing.T) *story.Stage {
		return reflectiontest.Stage(reflectiontest.New(t, func(o *reflection.Options) {
			o.CallTimeout, o.Workers = 2*time.Second, map[string]int{reflection.ServiceKind: 1}
		}))
	})
}
