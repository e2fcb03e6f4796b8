// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestClusterIDValidate(t *testing.T) {
	for _, id := range []ClusterID{"a", "milan-2", "0", ClusterID(strings.Repeat("x", MaxClusterIDLength))} {
		assert.NoErrorf(t, id.Validate(), "%s", id)
	}
	for _, id := range []ClusterID{"", "Milan", "-a", "a-", "a.b", "a_b", ClusterID(strings.Repeat("x", MaxClusterIDLength+1))} {
		err := id.Validate()
		if err == nil || !strings.Contains(err.Error(), `"`+string(id)+`"`) {
			t.Errorf("%q: got %v, want an error that names the id", id, err)
		}
	}
}

func TestConditionOf(t *testing.T) {
	conditions := []Condition{{Type: APIServerStatusCondition, Status: ConditionStatusEstablished}}
	if got := ConditionOf(conditions, APIServerStatusCondition); got != ConditionStatusEstablished {
		t.Errorf("got %s", got)
	}
	if got := ConditionOf(conditions, AuthTenantStatusCondition); got != ConditionStatusNone {
		t.Errorf("a condition that is not there has the status %s, want None", got)
	}
}
