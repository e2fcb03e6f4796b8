// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package dynamicclient

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// serializers returns client-go's serializer (theirs) and this package's serializer (ours).
func serializers() (theirs, ours runtime.SerializerInfo) {
	usual := dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer
	return usual.SupportedMediaTypes()[0], negotiated{usual, &parsers{}}.SupportedMediaTypes()[0]
}

// same decodes data with both decoders. It compares the objects, the kinds, and whether there was an error.
func same(t *testing.T, theirs, ours runtime.Decoder, data []byte, into func() runtime.Object) {
	t.Helper()
	want, wantKind, wantErr := theirs.Decode(data, nil, into())
	got, gotKind, gotErr := ours.Decode(data, nil, into())
	if (wantErr == nil) != (gotErr == nil) {
		t.Errorf("%.200s: error %v, want %v", data, gotErr, wantErr)
		return
	}
	if wantErr != nil {
		return
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%.200s (-want +got):\n%s", data, diff)
	}
	if diff := gocmp.Diff(wantKind, gotKind); diff != "" {
		t.Errorf("%.200s: kind (-want +got):\n%s", data, diff)
	}
}

var documents = []string{
	`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"a":"b"}},"spec":{"replicas":3,"ratio":0.5,"big":9223372036854775807,"bigger":9223372036854775808,"e":1e3,"neg":-0,"on":true,"off":false,"none":null,"list":[],"map":{},"nested":[{"name":"x"},{"name":"y"}]}}`,
	`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"text":"a \"quoted\" \u00e9 \ud83d\ude00 \n line \u0000"}}}`,
	`{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no","code":404}`,
	`{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}`,
	`{"apiVersion":"example.org/v1","kind":"Odd","items":[]}`,
	`{"kind":"Pod"}`,
	`{"apiVersion":"v1"}`,
	`{}`,
	`[]`,
	`"text"`,
	`null`,
	``,
	`{`,
	`{"apiVersion":"v1","kind":"Pod"} {"more":1}`,
	`{"apiVersion":"v1","kind":"Pod","kind":"Service"}`,
	`{"apiVersion":"v1","kind":"Pod","bad":"` + "\xff" + `"}`,
	`{"apiVersion":"v1","kind":7}`,
	`{"apiVersion":"0","kind":"Status"}`,
	`{"apiVersion":"v1","kind":"Pod","n":1e999}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":7}`,
	" \n{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}\n",
}

func TestDecodesLikeClientGo(t *testing.T) {
	theirs, ours := serializers()
	for _, document := range documents {
		same(t, theirs.Serializer, ours.Serializer, []byte(document), func() runtime.Object { return nil })
		same(t, theirs.Serializer, ours.Serializer, []byte(document), func() runtime.Object { return &unstructured.Unstructured{} })
		same(t, theirs.Serializer, ours.Serializer, []byte(document), func() runtime.Object { return &unstructured.UnstructuredList{} })
	}
	for _, event := range []string{
		`{"type":"ADDED","object":` + documents[0] + `}`,
		`{"object":` + documents[0] + `,"type":"DELETED"}`,
		`{"type":"ERROR","object":` + documents[2] + `}`,
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}`,
		`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","s":"}]\\\""}}`, "{\"type\":\"ADDED\",\"object\":" + documents[0] + "} ", `{"type":"ADD\u0045D","object":` + documents[0] + `}`,
		`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod"},"object":{"apiVersion":"v1","kind":"Service"}}`,
		`{"type":"ADDED"}`, `{"type":7,"object":{}}`, `{"other":1,"type":"ADDED","object":{}}`, `{"type":"ADDED","object":{}`, ``,
	} {
		same(t, theirs.StreamSerializer.Serializer, ours.StreamSerializer.Serializer, []byte(event), func() runtime.Object { return &metav1.WatchEvent{} })
	}
}

func FuzzDecode(f *testing.F) {
	for _, document := range documents {
		f.Add([]byte(document))
	}
	theirs, ours := serializers()
	f.Fuzz(func(t *testing.T, data []byte) {
		want, _, wantErr := theirs.Serializer.Decode(data, nil, nil)
		got, _, gotErr := ours.Serializer.Decode(data, nil, nil)
		// This package must accept all texts that client-go accepts, with the same result. It may also accept valid
		// JSON that client-go rejects.
		if wantErr == nil && gotErr != nil {
			t.Errorf("%q: %v", data, gotErr)
		}
		// Status is the only type of the API machinery that servers send to a dynamic client. They do not send
		// WatchEvents and DeleteOptions.
		_, object := want.(*unstructured.Unstructured)
		_, status := want.(*metav1.Status)
		if wantErr == nil && gotErr == nil && (object || status) {
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", data, diff)
			}
		}
	})
}

func TestFramesAreFoundInAnyStream(t *testing.T) {
	_, ours := serializers()
	text := strings.Join([]string{`{"a":"}{"}`, "\n", `{"b":[1,2]}`, `{"c":"` + strings.Repeat("x", 5000) + `"}`, "\n"}, "")
	for name, stream := range map[string]io.Reader{
		"whole": strings.NewReader(text), "in pieces": iotest.OneByteReader(strings.NewReader(text)),
	} {
		reader := ours.StreamSerializer.NewFrameReader(io.NopCloser(stream))
		var frames []string
		for {
			frame, err := readFrame(reader)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoErrorf(t, err, "%s", name)
			frames = append(frames, frame)
		}
		if got := strings.Join(frames, "|"); got != `{"a":"}{"}|{"b":[1,2]}|{"c":"`+strings.Repeat("x", 5000)+`"}` {
			t.Errorf("%s: frames %.100s", name, got)
		}
	}
	cut := ours.StreamSerializer.NewFrameReader(io.NopCloser(strings.NewReader(`{"a":`)))
	if frame, err := readFrame(cut); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a stream that is cut off gives %q, %v", frame, err)
	}
}

// TestLostConnectionsAreNoRubbish checks that errors of the stream are returned unchanged, because client-go compares
// them with known errors.
func TestLostConnectionsAreNoRubbish(t *testing.T) {
	_, ours := serializers()
	reset := errors.New("read tcp 127.0.0.1:1->127.0.0.1:2: connection reset by peer")
	for name, tc := range map[string]struct {
		stream io.Reader
		want   error
	}{
		"ended":             {strings.NewReader(""), io.EOF},
		"cut off":           {strings.NewReader(`{"a":`), io.ErrUnexpectedEOF},
		"lost":              {iotest.ErrReader(io.ErrUnexpectedEOF), io.ErrUnexpectedEOF},
		"lost in an event":  {io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(io.ErrUnexpectedEOF)), io.ErrUnexpectedEOF},
		"reset":             {iotest.ErrReader(reset), reset},
		"reset in an event": {io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(reset)), reset},
	} {
		if _, err := readFrame(ours.StreamSerializer.NewFrameReader(io.NopCloser(tc.stream))); err != tc.want { //nolint:errorlint // as client-go does
			t.Errorf("%s: %v, want exactly %v", name, err, tc.want)
		}
	}
	_, err := readFrame(ours.StreamSerializer.NewFrameReader(io.NopCloser(strings.NewReader("<html>"))))
	require.EqualError(t, err, "the stream has '<' where a JSON object should begin")
}

// TestObjectsThatNeverEnd checks that an endless object fails at client-go's limit instead of being buffered without
// limit.
func TestObjectsThatNeverEnd(t *testing.T) {
	_, ours := serializers()
	endless := io.MultiReader(strings.NewReader(`{"a":"`), &repeated{text: []byte("x")})
	decoder := streaming.NewDecoder(ours.StreamSerializer.NewFrameReader(io.NopCloser(endless)), ours.StreamSerializer.Serializer)
	_, _, err := decoder.Decode(nil, &metav1.WatchEvent{})
	require.ErrorIs(t, err, streaming.ErrObjectTooLarge)
}

func TestManagedFieldsAreDropped(t *testing.T) {
	usual := dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer
	dropping := negotiated{usual, &parsers{options: Options{DropManagedFields: true}}}.SupportedMediaTypes()[0].Serializer
	entries := `[{"manager":"somebody","fieldsV1":{"f:spec":{}}}]`
	for given, want := range map[string]string{
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","managedFields":` + entries + `,"uid":"1"}}`: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","uid":"1"}}`,
		// Fields of users that have the same name in other places are kept.
		`{"apiVersion":"v1","kind":"Odd","managedFields":1,"metadata":{"labels":{"managedFields":"a"}},"spec":{"metadata":{"managedFields":[]}}}`: "",
		`{"apiVersion":"v1","kind":"Odd","metadata":"none"}`: "",
	} {
		object, _, err := dropping.Decode([]byte(given), nil, &unstructured.Unstructured{})
		require.NoError(t, err)
		text, err := json.Marshal(object)
		require.NoError(t, err)
		require.JSONEq(t, cmp.Or(want, given), string(text))
	}
	_, _, err := dropping.Decode([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":[}}`), nil, &unstructured.Unstructured{})
	require.Error(t, err)
}

// TestParsersAreUsedAgain checks that parsers can be reused concurrently, no matter what they have parsed before, for
// example a truncated object, or an object with more keys than a parser remembers.
func TestParsersAreUsedAgain(t *testing.T) {
	_, ours := serializers()
	many := map[string]any{"apiVersion": "v1", "kind": "Many"}
	for i := range 2 * maxKeys {
		many[fmt.Sprint("key-", i)] = "value"
	}
	text, err := json.Marshal(many)
	require.NoError(t, err)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				for document, want := range map[string]int{string(text): len(many), documents[0]: 4, `{"apiVersion":"v1","kind":"Cut"`: 0} {
					object := &unstructured.Unstructured{}
					if _, _, err := ours.Serializer.Decode([]byte(document), nil, object); (err != nil) != (want == 0) || len(object.Object) != want {
						t.Errorf("%.40s: %d fields, want %d, error %v", document, len(object.Object), want, err)
					}
				}
			}
		})
	}
	group.Wait()
}

// readFrame reads a frame in the same way as client-go's streaming decoder, which starts with a buffer that is too
// small.
func readFrame(r io.Reader) (string, error) {
	var frame []byte
	for {
		buffer := make([]byte, 700)
		n, err := r.Read(buffer)
		frame = append(frame, buffer[:n]...)
		if !errors.Is(err, io.ErrShortBuffer) {
			return string(frame), err
		}
	}
}

// BenchmarkEvent measures the decoding of a watch event of an ordinary pod, from the stream to the object.
func BenchmarkEvent(b *testing.B) {
	event := podEvent(b)
	theirs, ours := serializers()
	dropping := negotiated{dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer, &parsers{options: Options{DropManagedFields: true}}}.SupportedMediaTypes()[0]
	for name, info := range map[string]runtime.SerializerInfo{"client-go": theirs, "one-pass": ours, "without-managed-fields": dropping} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(event)))
			reader := info.StreamSerializer.NewFrameReader(io.NopCloser(&repeated{text: event}))
			buffer := make([]byte, 1<<16)
			for b.Loop() {
				n, err := reader.Read(buffer)
				if err != nil {
					b.Fatal(err)
				}
				var envelope metav1.WatchEvent
				_, _, err = info.StreamSerializer.Decode(buffer[:n], nil, &envelope)
				if err != nil {
					b.Fatal(err)
				}
				_, _, err = info.Serializer.Decode(envelope.Object.Raw, nil, nil)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// repeated is an endless stream of the same event.
type repeated struct {
	text []byte
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

func podEvent(tb testing.TB) []byte {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "web-5c7578d589-29l6f", Namespace: "shop", UID: "9700be20-4233-4658-a3ba-3be89337d34c", Labels: map[string]string{"app": "web", "pod-template-hash": "5c7578d589"}},
		Spec:       corev1.PodSpec{NodeName: "cloud", ServiceAccountName: "default", Tolerations: []corev1.Toleration{{Key: "virtual-node.liqo.io/not-allowed", Operator: "Exists"}}},
		Status:     corev1.PodStatus{Phase: "Running", PodIP: "10.245.0.1"},
	}
	for i := range 2 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", i), Image: "registry.example/shop/web:1.4", Env: []corev1.EnvVar{{Name: "CACHE", Value: "cache:6379"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-v7fvr", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		})
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: "True"})
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c0\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}},"f:dnsPolicy":{},"f:restartPolicy":{}}}`),
		})
	}
	object, err := json.Marshal(pod)
	require.NoError(tb, err)
	return []byte(`{"type":"MODIFIED","object":` + string(object) + "}\n")
}
