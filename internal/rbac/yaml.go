// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"bytes"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// RulesYAML returns the rules of r as the YAML list that the chart includes. A comment above each rule contains its
// reason. The placeholders are kept for the templates.
func RulesYAML(r Role) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Copyright The Refract Authors\n# SPDX-License-Identifier: Apache-2.0\n#\n# Generated from internal/rbac by make generate.\n# Held by %s.\n", r.Purpose)
	for i := range r.Rules {
		rule, err := yaml.Marshal([]rbacv1.PolicyRule{r.Rules[i].PolicyRule})
		if err != nil {
			return nil, fmt.Errorf("encoding rule %d of role %s, %w", i, r.Name, err)
		}
		fmt.Fprintf(&out, "# Granted %s.\n%s", r.Rules[i].Reason, rule)
	}
	return out.Bytes(), nil
}
