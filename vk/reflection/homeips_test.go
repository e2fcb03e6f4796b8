// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
)

// TestCopiesHaveTheClusterIPOfHome checks that the copy of a Service has the cluster IP of this cluster in an annotation, which users
// cannot set, and that it follows changes of the Service.
func TestCopiesHaveTheClusterIPOfHome(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const lie = wire.HomeClusterIPsAnnotation + ": 10.96.0.1"
	for _, text := range []string{
		service("web", lie),
		`{apiVersion: v1, kind: Service, metadata: {name: db, annotations: {` + lie + `}},
			spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}}`,
		`{apiVersion: v1, kind: Service, metadata: {name: name, annotations: {` + lie + `}},
			spec: {type: ExternalName, externalName: example.com}}`,
	} {
		l.Local.Create(t, l.Namespace, text)
	}
	l.Start()
	home := func(want string) func(*unstructured.Unstructured) error {
		return func(copied *unstructured.Unstructured) error {
			if found := copied.GetAnnotations()[wire.HomeClusterIPsAnnotation]; found != want {
				return fmt.Errorf("the annotation is %q instead of %q", found, want)
			}
			return nil
		}
	}
	clusterIP := func(name string) string {
		ip, _, _ := unstructured.NestedString(l.Local.Get(t, "Service", l.Namespace, name).Object, "spec", "clusterIP")
		return ip
	}
	copied := l.Present(l.Remote, "Service", l.RemoteNS, "web", home(clusterIP("web")))
	if ip, _, _ := unstructured.NestedString(copied.Object, "spec", "clusterIP"); ip == "" || clusterIP("web") == "" {
		t.Errorf("the Service has the cluster IP %q, and its copy %q", clusterIP("web"), ip)
	}
	l.Present(l.Remote, "Service", l.RemoteNS, "db", home(""))
	l.Present(l.Remote, "Service", l.RemoteNS, "name", home(""))
	l.Settled()
	l.Quiet("changing the annotation of a user", func() {
		l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {annotations: {`+wire.HomeClusterIPsAnnotation+`: 10.96.0.2}}}`)
	})
	l.Local.PatchYAML(t, "Service", l.Namespace, "name", `{spec: {type: ClusterIP, externalName: null, ports: [{port: 80}]}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "name", home(clusterIP("name")))
	l.Local.PatchYAML(t, "Service", l.Namespace, "name",
		`{spec: {type: ExternalName, externalName: example.com, clusterIP: null, clusterIPs: null, ports: null}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "name", home(""))
	l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", `{metadata: {annotations: {`+wire.HomeClusterIPsAnnotation+`: null}}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", home(clusterIP("web")))
}
