// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/crds"
	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	"github.com/refract-project/refract/test/support/testenv"
)

// additions are the fields and columns in the CRDs of the network that Liqo 1.1 does not have. Liqo 1.2 has the
// conditions of Configurations, too.
var additions = []string{
	"Configuration status.conditions", "Configuration column Message",
	"Network status.conditions", "Network column Message",
	"IP status.conditions", "IP column Message",
}

// TestNetworkHasTheFieldsOfLiqo checks that the CRDs of the network have the same names, columns and fields as Liqo's,
// with the same types, defaults and rules. Only additions may differ. hack/cluster/liqo/crdfields writes the expected
// file from Liqo's CRDs.
func TestNetworkHasTheFieldsOfLiqo(t *testing.T) {
	text, err := os.ReadFile("testdata/liqo-network.json")
	require.NoError(t, err)
	var theirs []apiextensionsv1.CustomResourceDefinitionSpec
	require.NoError(t, json.Unmarshal(text, &theirs))
	files, err := fs.Glob(crds.Network(), "*.yaml")
	require.NoError(t, err)
	templates, err := fs.Glob(crds.FS(), "networking.liqo.io_*.yaml")
	require.NoError(t, err)
	assert.Len(t, append(files, templates...), len(theirs))
	for i := range theirs {
		file := theirs[i].Group + "_" + theirs[i].Names.Plural + ".yaml"
		from := crds.Network()
		if slices.Contains(templates, file) {
			from = crds.FS()
		}
		text, err := fs.ReadFile(from, file)
		require.NoError(t, err)
		ours := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.UnmarshalStrict(text, ours))
		if diff := cmp.Diff(describeCRD(&theirs[i]), describeCRD(&ours.Spec)); diff != "" {
			t.Errorf("%s (-Liqo +Refract):\n%s", file, diff)
		}
	}
}

// describeCRD returns descriptions of the names, columns and fields of a CRD. The keys are their places in the CRD.
func describeCRD(spec *apiextensionsv1.CustomResourceDefinitionSpec) map[string]string {
	names := spec.Names
	found := map[string]string{
		"names": fmt.Sprintf("%s %s %s %q %q", names.Kind, names.Plural, spec.Scope, names.ShortNames, names.Categories),
	}
	for _, version := range spec.Versions {
		found["version "+version.Name] = fmt.Sprintf("has a status: %t", version.Subresources != nil && version.Subresources.Status != nil)
		for _, column := range version.AdditionalPrinterColumns {
			found["column "+strings.TrimSpace(column.Name)] = fmt.Sprintf("%s %d %s", column.Type, column.Priority, column.JSONPath)
		}
		describeSchema(found, "", version.Schema.OpenAPIV3Schema)
	}
	maps.DeleteFunc(found, func(place, _ string) bool {
		return slices.ContainsFunc(additions, func(addition string) bool {
			full := spec.Names.Kind + " " + place
			return full == addition || strings.HasPrefix(full, addition+".") || strings.HasPrefix(full, addition+"[")
		})
	})
	return found
}

// describeSchema adds descriptions of the fields in a schema. The fields of a Service template are not compared,
// because Refract's CRD has no schema for it.
func describeSchema(found map[string]string, path string, schema *apiextensionsv1.JSONSchemaProps) {
	text := schema.Type + schema.Format
	if schema.Default != nil {
		text += " default " + string(schema.Default.Raw)
	}
	for _, value := range schema.Enum {
		text += " or " + string(value.Raw)
	}
	if schema.Minimum != nil {
		text += fmt.Sprintf(" from %v", *schema.Minimum)
	}
	for _, rule := range schema.XValidations {
		text += " rule " + rule.Rule
	}
	required := slices.Sorted(slices.Values(schema.Required))
	if path != "" {
		found[path] = strings.Join(append([]string{text}, required...), " ")
	}
	if strings.HasPrefix(path, "spec.serviceTemplate.") {
		return
	}
	if schema.Items != nil {
		describeSchema(found, path+"[]", schema.Items.Schema)
	}
	for name := range schema.Properties {
		child := strings.TrimPrefix(path+"."+name, ".")
		if child != "apiVersion" && child != "kind" && child != "metadata" {
			property := schema.Properties[name]
			describeSchema(found, child, &property)
		}
	}
}

// TestNetworkIsStored checks that the API server stores granted ranges and addresses, and every field of a Service
// template.
func TestNetworkIsStored(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{CRDPaths: []string{"network"}, NoScheduler: true})[0]
	c, err := dynamic.NewForConfig(cluster.Config())
	require.NoError(t, err)
	networks := c.Resource(ipam.GroupVersion.WithResource("networks")).Namespace(metav1.NamespaceDefault)
	ips := c.Resource(ipam.GroupVersion.WithResource("ips")).Namespace(metav1.NamespaceDefault)
	strict := metav1.FieldValidationStrict

	wish := func(spec string) *unstructured.Unstructured {
		return parse(t, `{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, metadata: {name: a}, spec: {`+spec+`}}`)
	}
	network, err := networks.Create(t.Context(), wish("cidr: 10.1.0.0/16, preAllocated: 1"), metav1.CreateOptions{FieldValidation: strict})
	require.NoError(t, err)
	for name, wrong := range map[string]string{
		"no range":          "cidr: 10.1.0.0",
		"a negative number": "cidr: 10.1.0.0/16, preAllocated: -1",
		"nothing":           "",
	} {
		invalid := wish(wrong)
		invalid.SetName("b")
		_, err := networks.Create(t.Context(), invalid, metav1.CreateOptions{FieldValidation: strict})
		assert.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
	}
	changed := network.DeepCopy()
	changed.Object["spec"].(map[string]any)["cidr"] = "10.2.0.0/16"
	_, err = networks.Update(t.Context(), changed, metav1.UpdateOptions{})
	assert.ErrorContains(t, err, "cidr is immutable")

	sent := parse(t, `{apiVersion: ipam.liqo.io/v1alpha1, kind: IP, metadata: {name: a}, spec: {
	  ip: 10.0.0.9, masquerade: true, networkRef: {name: a, namespace: default},
	  serviceTemplate: {metadata: {labels: {a: b}}, spec: {ports: [{port: 80, futureField: 1}]}}}}`)
	ip, err := ips.Create(t.Context(), sent.DeepCopy(), metav1.CreateOptions{FieldValidation: strict})
	require.NoError(t, err)
	assert.Equal(t, normal(t, sent.Object["spec"]), normal(t, ip.Object["spec"]))
	ip.Object["status"] = map[string]any{"ip": "10.1.0.1", "cidr": "10.1.0.0/16"}
	ip, err = ips.UpdateStatus(t.Context(), ip, metav1.UpdateOptions{FieldValidation: strict})
	require.NoError(t, err)
	changed = ip.DeepCopy()
	changed.Object["status"].(map[string]any)["ip"] = "10.1.0.2"
	_, err = ips.UpdateStatus(t.Context(), changed, metav1.UpdateOptions{})
	assert.ErrorContains(t, err, "a granted address does not change")
	ip.Object["status"] = map[string]any{}
	_, err = ips.UpdateStatus(t.Context(), ip, metav1.UpdateOptions{})
	assert.NoError(t, err, "a grant is taken back")
}
