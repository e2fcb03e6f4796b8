// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/refract-project/refract/internal/tenantlimits"
)

// TestRemediesAreLimits checks that messages of policies recommend refractctl peer --tenant-limit only for values of
// the chart that are limits of single consumers.
func TestRemediesAreLimits(t *testing.T) {
	isLimit := map[string]bool{}
	for _, setting := range tenantlimits.Settings() {
		isLimit[setting.Value()] = true
	}
	value := regexp.MustCompile(`tenants\.([A-Za-z]+)`)
	found := 0
	for _, object := range objects(t, values(t, "pair")) {
		policy, ok := object.(*admissionv1.ValidatingAdmissionPolicy)
		if !ok {
			continue
		}
		for _, validation := range policy.Spec.Validations {
			for _, message := range []string{validation.Message, validation.MessageExpression} {
				if !strings.Contains(message, "--tenant-limit") {
					continue
				}
				found++
				names := value.FindAllStringSubmatch(message, -1)
				require.NotEmptyf(t, names, "%s: %s", policy.Name, message)
				for _, name := range names {
					assert.Truef(t, isLimit[name[1]], "%s: tenants.%s is for all consumers: %s", policy.Name, name[1], message)
				}
			}
		}
	}
	assert.Greater(t, found, 10)
}
