// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func packTwice(t testing.TB, s *Strings, object map[string]any) *packed {
	t.Helper()
	require.NotNil(t, s.packContent(object, false))
	// The strings are stored in the table only now, because they have occurred before.
	again := s.packContent(object, false)
	require.NotNil(t, again)
	return again
}

func TestUnpackingReturnsWhatWasPacked(t *testing.T) {
	t.Parallel()
	object := map[string]any{
		"": "", "null": nil, "true": true, "false": false, "text": "über", "long": strings.Repeat("x", 3*textMost),
		"ints":   []any{int64(0), int64(-1), int64(127), int64(128), int64(math.MaxInt64), int64(math.MinInt64)},
		"floats": []any{0.0, -1.5, math.MaxFloat64}, "one": int64(1), "one point none": 1.0, "number": json.Number("18446744073709551615"),
		"empty": []any{[]any{}, map[string]any{}}, "nested": map[string]any{"text": []any{map[string]any{"text": "text"}}},
	}
	s := NewStrings()
	for range 3 {
		if got := s.packContent(object, false).unpackContent(); !reflect.DeepEqual(got, object) {
			t.Errorf("%#v became %#v", object, got)
		}
	}
}

func FuzzUnpackingReturnsWhatWasPacked(f *testing.F) {
	f.Add([]byte(`{"a":[1,-1.5,null,true,{"b":"a"}],"":"é"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var object map[string]any
		if utiljson.Unmarshal(data, &object) != nil || object == nil {
			return
		}
		s := NewStrings()
		first, second := s.packContent(object, false).unpackContent(), packTwice(t, s, object).unpackContent()
		if !reflect.DeepEqual(first, object) || !reflect.DeepEqual(second, object) {
			t.Errorf("%#v became %#v and %#v", object, first, second)
		}
	})
}

func TestObjectsWithOtherTypesStayUnpacked(t *testing.T) {
	t.Parallel()
	for _, value := range []any{1, []string{"x"}, map[string]string{}, struct{}{}} {
		if packed := NewStrings().packContent(map[string]any{"x": []any{map[string]any{"y": value}}}, false); packed != nil {
			t.Errorf("%#v was packed to %q", value, packed.text)
		}
	}
}

func TestStringsThatManyHaveAreKeptOnce(t *testing.T) {
	t.Parallel()
	s := NewStrings()
	pod := func(n int) map[string]any {
		return map[string]any{"kind": "Pod", "metadata": map[string]any{"name": fmt.Sprintf("web-%d", n), "labels": map[string]any{"app": "shop-front-end"}}}
	}
	for n := range 3 {
		packed := s.packContent(pod(n), false)
		if repeated := strings.Contains(packed.text, "shop-front-end"); repeated != (n == 0) {
			t.Errorf("pod %d repeats its label: %v, %q", n, repeated, packed.text)
		}
		if !strings.Contains(packed.text, fmt.Sprintf("web-%d", n)) {
			t.Errorf("the name of pod %d is kept elsewhere than in %q", n, packed.text)
		}
	}
}

func TestNothingOfPrivateObjectsIsKept(t *testing.T) {
	t.Parallel()
	s := NewStrings()
	secret := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a-key": "a-value"}}}
	for range 3 {
		if got := s.packContent(secret, true).unpackContent(); !reflect.DeepEqual(got, secret) {
			t.Errorf("%v became %v", secret, got)
		}
	}
	if len(s.met)+len(s.current.strings) > 0 {
		t.Errorf("kept are %v and %v", s.met, s.current.strings)
	}
}

// TestStringsAreBounded checks that a client that keeps creating new labels cannot make the memory grow without limit,
// and that objects that were packed earlier can still be read.
func TestStringsAreBounded(t *testing.T) {
	t.Parallel()
	s := NewStrings()
	label := func(n int) map[string]any { return map[string]any{"label": fmt.Sprint("value-", n)} }
	first := packTwice(t, s, label(-1))
	for n := range tableMost + metMost {
		packTwice(t, s, label(n))
		if len(s.met) > metMost || len(s.current.strings) > tableMost+2 || len(s.current.strings) != len(s.current.numbers) {
			t.Fatalf("%d strings were met, %d are kept", len(s.met), len(s.current.strings))
		}
	}
	if first.table == s.current {
		t.Error("no further table was begun")
	}
	if got := first.unpackContent(); !reflect.DeepEqual(got, label(-1)) {
		t.Errorf("%v became %v", label(-1), got)
	}
}

// somePod returns a typical cached pod.
func somePod(tb testing.TB) map[string]any {
	tb.Helper()
	var object map[string]any
	require.NoError(tb, utiljson.Unmarshal([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-5d4f8c7b9-x2x7p","generateName":"web-5d4f8c7b9-",
"namespace":"shop","uid":"0d7d7b6e-5f0e-4a0f-9d5b-1c1f8f0a6a55","resourceVersion":"12345","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"web","pod-template-hash":"5d4f8c7b9"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d4f8c7b9","uid":"7c1c1a6e-8b39-4c9f-9f57-2f2b0f0f3a11","controller":true,"blockOwnerDeletion":true}]},
"spec":{"containers":[{"name":"web","image":"registry.local/shop/web:1.2.3","imagePullPolicy":"IfNotPresent","resources":{"requests":{"cpu":"100m","memory":"64Mi"}},
"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","volumeMounts":[{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}],
"dnsPolicy":"ClusterFirst","enableServiceLinks":true,"nodeName":"milan","preemptionPolicy":"PreemptLowerPriority","priority":0,"restartPolicy":"Always","schedulerName":"default-scheduler",
"securityContext":{},"serviceAccount":"default","serviceAccountName":"default","terminationGracePeriodSeconds":30,
"tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}],
"volumes":[{"name":"kube-api-access","projected":{"defaultMode":420,"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}]}}]},
"status":{"phase":"Running","podIP":"10.0.0.17","podIPs":[{"ip":"10.0.0.17"}],"hostIP":"192.168.0.1","startTime":"2026-01-01T00:00:01Z","qosClass":"Burstable",
"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:02Z"},{"type":"ContainersReady","status":"True","lastTransitionTime":"2026-01-01T00:00:02Z"},{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}],
"containerStatuses":[{"name":"web","image":"registry.local/shop/web:1.2.3","imageID":"","ready":true,"started":true,"restartCount":0,"state":{"running":{"startedAt":"2026-01-01T00:00:02Z"}},"lastState":{}}]}}`), &object))
	return object
}

func BenchmarkPack(b *testing.B) {
	s, pod := NewStrings(), somePod(b)
	size := len(packTwice(b, s, pod).text)
	b.ReportAllocs()
	for b.Loop() {
		s.packContent(pod, false)
	}
	b.ReportMetric(float64(size), "packed-bytes")
}

func BenchmarkUnpack(b *testing.B) {
	packed := packTwice(b, NewStrings(), somePod(b))
	b.ReportAllocs()
	for b.Loop() {
		packed.unpackContent()
	}
}

// BenchmarkJSON measures, for comparison with packing, how long the standard library takes to encode and decode the
// same object as JSON.
func BenchmarkJSON(b *testing.B) {
	pod := somePod(b)
	b.ReportAllocs()
	for b.Loop() {
		text, err := json.Marshal(pod)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(text)), "packed-bytes")
		var object map[string]any
		if err := utiljson.Unmarshal(text, &object); err != nil {
			b.Fatal(err)
		}
	}
}
