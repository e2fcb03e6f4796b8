// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

// audited reports whether the cluster has an audit log.
func (o Options) audited() bool { return o.AuditLog || len(o.AuditWritesOf) > 0 }

// auditPolicy returns the policy of the audit log: the first rule that matches a request determines its level, and a
// request that no rule matches is not recorded. Each request is recorded once, when it has been answered.
func (o Options) auditPolicy() auditv1.Policy {
	policy := auditv1.Policy{
		TypeMeta:   metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"},
		OmitStages: []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted, auditv1.StagePanic},
	}
	if len(o.AuditWritesOf) > 0 {
		writes := auditv1.PolicyRule{
			Level: auditv1.LevelMetadata, UserGroups: o.AuditWritesOf,
			Verbs: []string{"create", "update", "patch", "delete", "deletecollection"},
		}
		bodies := writes
		bodies.Level = auditv1.LevelRequest
		bodies.Resources = []auditv1.GroupResources{
			{Group: "rbac.authorization.k8s.io", Resources: []string{"rolebindings", "clusterrolebindings"}},
			{Group: "certificates.k8s.io", Resources: []string{"certificatesigningrequests/approval"}},
		}
		policy.Rules = append(policy.Rules, bodies, writes)
	}
	if o.AuditLog {
		policy.Rules = append(policy.Rules, auditv1.PolicyRule{Level: auditv1.LevelMetadata})
	}
	return policy
}

// writeAuditPolicy writes the audit policy to the state folder.
func (c *Cluster) writeAuditPolicy() error {
	if !c.opts.audited() {
		return nil
	}
	text, err := yaml.Marshal(c.opts.auditPolicy())
	if err != nil {
		return err
	}
	return os.WriteFile(c.path("audit-policy.yaml"), text, 0o600)
}
