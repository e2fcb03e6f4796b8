// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/apifailure"
)

// droppedReason is the reason of the Event about fields that the API server has dropped.
const droppedReason = "FieldsDropped"

// essential lists fields, as patterns of path.Match, without which a pod behaves differently from the consumer's
// request. API servers drop these fields without an error if they are older than the field or have the feature
// disabled.
var essential = []string{
	"resources", "hostnameOverride", "hostUsers", "resourceClaims",
	"initContainers/*/restartPolicy", "initContainers/*/restartPolicyRules", "containers/*/restartPolicy", "containers/*/restartPolicyRules",
	"*/*/resources/claims", "*/*/lifecycle/stopSignal", "*/*/lifecycle/*/sleep", "*/*/volumeMounts/*/recursiveReadOnly", "volumes/*/image",
	"securityContext/supplementalGroupsPolicy", "securityContext/seLinuxChangePolicy", "securityContext/appArmorProfile",
	"*/*/securityContext/appArmorProfile", "*/*/securityContext/procMount",
}

// isEssential reports whether a field is essential or part of an essential field.
func isEssential(field string) bool {
	return slices.ContainsFunc(essential, func(pattern string) bool {
		depth := strings.Count(pattern, "/") + 1
		parts := strings.Split(field, "/")
		if len(parts) < depth {
			return false
		}
		matches, err := path.Match(pattern, strings.Join(parts[:depth], "/"))
		return err == nil && matches
	})
}

// checkFields sends a dry-run creation for a pod that has essential fields, and returns an error if the API server
// would drop any of them. The pod must then not be created, because it might run differently from the request before
// its deletion. Pods without essential fields cost no request.
func (c *Controller) checkFields(ctx context.Context, shadow, pod *unstructured.Unstructured) error {
	sent, _ := pod.Object["spec"].(map[string]any)
	if !slices.ContainsFunc(vanished(sent, nil), isEssential) {
		return nil
	}
	tried := pod.DeepCopy()
	if err := c.client.Create(ctx, tried, client.DryRunAll); err != nil {
		if apifailure.IsUndecided(err) {
			return fmt.Errorf("asking which fields of pod %s are supported, %w", client.ObjectKeyFromObject(pod), err)
		}
		return nil // the creation fails with the same error, which is then reported
	}
	stored, _ := tried.Object["spec"].(map[string]any)
	dropped := droppedEssentials(sent, stored)
	if len(dropped) == 0 {
		return nil
	}
	key := client.ObjectKeyFromObject(shadow)
	c.report.Warn(shadow, wire.FailedCreatePodReason, createAction, fmt.Sprintf(
		"creating the pod: the API server of this cluster%s drops %s, without which the pod would run differently, so the pod was not created. "+
			"Ask the administrator of this cluster to upgrade Kubernetes or to enable the feature, or remove the field", c.describeVersion(ctx), fieldNames(dropped)))
	return report.Later(fmt.Errorf("creating pod %s: the API server drops %s", key, fieldNames(dropped)), c.invalid.Next(key, generationOf(shadow)))
}

// droppedEssentials returns the essential fields of sent that are missing in stored. It includes the fields of items and
// lists that are missing as a whole.
func droppedEssentials(sent, stored map[string]any) (fields []string) {
	all := vanished(sent, nil)
	for _, dropped := range vanished(sent, stored) {
		if isEssential(dropped) {
			fields = append(fields, dropped)
			continue
		}
		for _, field := range all {
			if strings.HasPrefix(field, dropped+"/") && isEssential(field) {
				fields = append(fields, field)
			}
		}
	}
	return fields
}

// reportDropped warns about fields that are not essential and that the API server has dropped.
func (c *Controller) reportDropped(ctx context.Context, shadow *unstructured.Unstructured, sent map[string]any, created *unstructured.Unstructured) {
	stored, _ := created.Object["spec"].(map[string]any)
	if dropped := vanished(sent, stored); len(dropped) > 0 {
		c.report.Warn(shadow, droppedReason, createAction, fmt.Sprintf(
			"the pod was created without %s: the API server of this cluster%s does not support it, or its admission has removed it", fieldNames(dropped), c.describeVersion(ctx)))
	}
}

// describeVersion returns the version of the API server for a message. It is empty if the version is unknown.
func (c *Controller) describeVersion(ctx context.Context) string {
	if c.options.Version == nil {
		return ""
	}
	version, err := c.options.Version(ctx)
	if err != nil {
		return ""
	}
	return " (Kubernetes " + version + ")"
}

func fieldNames(fields []string) string {
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = "spec." + strings.ReplaceAll(field, "/", ".")
	}
	return strings.Join(names, ", ")
}

// vanished returns the sorted paths of the fields of sent that are missing in stored, down to each field if stored is
// nil. Changed values are not included. List items are matched by their names: an API server drops the volumes that it
// does not support together with their mounts. Items without a name are not compared, because admission may add, remove
// and sort items.
func vanished(sent, stored map[string]any) (fields []string) {
	for _, key := range slices.Sorted(maps.Keys(sent)) {
		value, present := stored[key]
		switch wanted := sent[key].(type) {
		case map[string]any:
			actual, _ := value.(map[string]any)
			fields = append(fields, prefixed(key, vanished(wanted, actual))...)
		case []any:
			if len(wanted) > 0 && !present {
				fields = append(fields, key)
			}
			items := namedItems(value)
			for name, item := range namedItems(wanted) {
				switch actual, has := items[name]; {
				case has || stored == nil:
					fields = append(fields, prefixed(key+"/"+name, vanished(item, actual))...)
				case present:
					fields = append(fields, key+"/"+name)
				}
			}
		default:
			if !present && !isOmitted(key, wanted) {
				fields = append(fields, key)
			}
		}
	}
	slices.Sort(fields)
	return fields
}

func prefixed(prefix string, fields []string) []string {
	for i := range fields {
		fields[i] = prefix + "/" + fields[i]
	}
	return fields
}

// namedItems returns the items of a list that are objects with a name.
func namedItems(list any) map[string]map[string]any {
	items, _ := list.([]any)
	named := map[string]map[string]any{}
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok {
			if name, ok := fields["name"].(string); ok && !strings.Contains(name, "/") {
				named[name] = fields
			}
		}
	}
	return named
}

// isOmitted reports whether the value of a field has the same meaning as a missing field.
func isOmitted(field string, value any) bool {
	return value == nil || field != "hostUsers" && reflect.ValueOf(value).IsZero()
}
