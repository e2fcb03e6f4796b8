// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reviews_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/refract-project/refract/controllers/internal/reviews"
)

// review returns a review of an object with the given number of bytes, as an API server encodes it.
func review(t testing.TB, operation admissionv1.Operation, user string, bytes int) string {
	t.Helper()
	const around = len(`{"a":""}`)
	object := kruntime.RawExtension{Raw: []byte(`{"a":"` + strings.Repeat("x", bytes-around) + `"}`)}
	request := &admissionv1.AdmissionRequest{UID: "7", Name: "request", Operation: operation, Object: object}
	request.UserInfo.Username = user
	if operation == admissionv1.Update {
		request.OldObject = object
	}
	text, err := json.Marshal(admissionv1.AdmissionReview{Request: request})
	require.NoError(t, err)
	return string(text)
}

// TestLargeCreationsAreRefused checks that the creation of a large object is refused without parsing the object, and
// that all other reviews are forwarded unchanged.
func TestLargeCreationsAreRefused(t *testing.T) {
	t.Parallel()
	const most = 100 << 10
	var forwarded string
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2, server.Config = true, reviews.NewHTTPServer(reviews.RefuseLarge(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		assert.NoError(t, err)
		forwarded = string(body)
	}), most, "too large"))
	server.StartTLS()
	defer server.Close()
	send := func(body io.Reader) string {
		forwarded = ""
		response, err := server.Client().Post(server.URL, "application/json", body)
		require.NoError(t, err)
		defer func() { assert.NoError(t, response.Body.Close()) }()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return string(text)
	}
	for name, text := range map[string]string{
		"small":                    review(t, admissionv1.Create, "rome", 10<<10),
		"just allowed":             review(t, admissionv1.Create, "rome", most),
		"of a user with much text": review(t, admissionv1.Create, strings.Repeat("rome", most), 10<<10),
		"an update":                review(t, admissionv1.Update, "rome", 10*most),
		"a deletion":               review(t, admissionv1.Delete, "rome", 10*most),
		"no review":                strings.Repeat("[", 10*most),
		"no object":                `{"request":{"uid":"7","operation":"CREATE","name":"` + strings.Repeat("a", 10*most) + `"}}`,
		"nothing":                  strings.Repeat(" ", 10*most),
	} {
		assert.Empty(t, send(strings.NewReader(text)), name)
		assert.True(t, text == forwarded, name)
	}
	assert.Empty(t, send(struct{ io.Reader }{strings.NewReader(review(t, admissionv1.Create, "rome", 10*most))}), "without a length")

	for _, bytes := range []int{most + 8<<10, 10 * most} {
		answer := &admissionv1.AdmissionReview{}
		require.NoError(t, json.Unmarshal([]byte(send(strings.NewReader(review(t, admissionv1.Create, "rome", bytes)))), answer))
		assert.Empty(t, forwarded)
		assert.False(t, answer.Response.Allowed)
		assert.Equal(t, "7 too large Forbidden", fmt.Sprint(answer.Response.UID, " ", answer.Response.Result.Message, " ", answer.Response.Result.Reason))
		assert.Equal(t, "AdmissionReview", answer.Kind)
	}
}
