// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// TestAuditPolicy checks what the audit log contains: all requests, only the writes of some groups, or both.
func TestAuditPolicy(t *testing.T) {
	assert.False(t, Options{}.audited())
	everything := auditv1.PolicyRule{Level: auditv1.LevelMetadata}
	assert.Equal(t, []auditv1.PolicyRule{everything}, Options{AuditLog: true}.auditPolicy().Rules)

	writes := Options{AuditWritesOf: []string{"rome"}}
	assert.True(t, writes.audited())
	rules := writes.auditPolicy().Rules
	require.Len(t, rules, 2)
	assert.Equal(t, auditv1.LevelRequest, rules[0].Level)
	assert.NotEmpty(t, rules[0].Resources)
	assert.Equal(t, auditv1.LevelMetadata, rules[1].Level)
	assert.Empty(t, rules[1].Resources)
	for _, rule := range rules {
		assert.Equal(t, []string{"rome"}, rule.UserGroups)
		assert.NotContains(t, rule.Verbs, "get")
	}
	both := Options{AuditLog: true, AuditWritesOf: []string{"rome"}}.auditPolicy().Rules
	assert.Equal(t, append(rules, everything), both)
}
