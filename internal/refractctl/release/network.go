// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"io/fs"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	definitions "github.com/refract-project/refract/api/crds"
)

// releaseAnnotation is the annotation with the name of the release that an object belongs to. Helm sets it.
const releaseAnnotation = "meta.helm.sh/release-name"

// listNetworkCRDs returns the network CRDs in the cluster that belong to a release of the chart. Helm keeps these CRDs
// when it removes the release. Network CRDs of Liqo or of an administrator are left out.
func (i *Installer) listNetworkCRDs(ctx context.Context) (found []*unstructured.Unstructured, err error) {
	files, err := fs.Glob(definitions.Network(), "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing the CRDs of the network, %w", err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(definitions.Network(), file)
		if err != nil {
			return nil, fmt.Errorf("reading the CRD %s, %w", file, err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			return nil, fmt.Errorf("parsing the CRD %s, %w", file, err)
		}
		there, err := i.readCRD(ctx, crd.GetName())
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case there.GetAnnotations()[releaseAnnotation] != "" && there.GetLabels()[nameLabel] == chartName:
			found = append(found, there)
		}
	}
	return found, nil
}

// listNetworkUses returns a use for each CRD that listNetworkCRDs returns, with the instructions to remove its objects.
func (i *Installer) listNetworkUses(ctx context.Context) (uses []use, err error) {
	found, err := i.listNetworkCRDs(ctx)
	for _, crd := range found {
		read := func(path ...string) string {
			text, _, _ := unstructured.NestedString(crd.Object, append([]string{"spec"}, path...)...)
			return text
		}
		name := crd.GetName()
		kind := schema.GroupVersionKind{Group: read("group"), Version: storedVersion(crd), Kind: read("names", "kind")}
		uses = append(uses, use{kind, func(o client.Object) string {
			return fmt.Sprintf(
				"it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n %s delete %s %s",
				o.GetNamespace(),
				name,
				o.GetName(),
			)
		}})
	}
	return uses, err
}

// storedVersion returns the version in which the objects of a CRD are stored, or "" if the CRD has none.
func storedVersion(crd *unstructured.Unstructured) string {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, version := range versions {
		if v, ok := version.(map[string]any); ok && v["storage"] == true {
			name, _ := v["name"].(string)
			return name
		}
	}
	return ""
}
