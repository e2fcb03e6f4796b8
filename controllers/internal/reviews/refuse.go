// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// headBytes is the number of bytes at the beginning of a review that are read to find the object. The object
	// follows the user and the names, which rarely take more than a few KiB.
	headBytes = 32 << 10
	// tailBytes is the maximum number of bytes after the object in the review of a creation.
	tailBytes = 4 << 10
)

// RefuseLarge returns a handler that refuses reviews of the creation of objects that exceed the maximum size (most, in
// bytes). The response contains the message. All other requests are forwarded to next. Only the beginning of a refused
// review is parsed, because decoding the whole review would take a thousand times as long, and several times its size
// in memory. The handler is safe for concurrent use.
func RefuseLarge(next http.Handler, most int64, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.ContentLength <= most {
			next.ServeHTTP(w, request)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		body := bufio.NewReaderSize(request.Body, headBytes)
		beginning, _ := body.Peek(headBytes) // next gets a read error when it reads the body
		head, ok := parseHead(beginning)
		if !ok || head.operation != string(admissionv1.Create) || request.ContentLength-head.object <= most+tailBytes {
			request.Body = readCloser{body, request.Body}
			next.ServeHTTP(w, request)
			return
		}
		// The rest of the body is read before the response is sent. Otherwise an API server that is still sending its
		// request might not read the response, and apply its failure policy.
		if _, err := io.Copy(io.Discard, body); err != nil {
			return
		}
		writeRefusal(w, head.uid, message)
	})
}

type readCloser struct {
	io.Reader
	io.Closer
}

// head contains the fields of a review before the object, and the offset of the object.
type head struct {
	uid       string
	operation string
	object    int64
}

// errObject stops the parser when it reaches the object of a review.
var errObject = errors.New("the object begins")

// parseHead parses the beginning of a review. ok is false if text ends before the object begins.
func parseHead(text []byte) (found head, ok bool) {
	decoder := jsontext.NewDecoder(bytes.NewReader(text))
	err := readFields(decoder, func(key string) error {
		if key != "request" {
			return decoder.SkipValue()
		}
		return readFields(decoder, func(key string) error {
			switch key {
			case "uid":
				return readString(decoder, &found.uid)
			case "operation":
				return readString(decoder, &found.operation)
			case "object":
				found.object = decoder.InputOffset()
				return errObject
			}
			return decoder.SkipValue()
		})
	})
	return found, errors.Is(err, errObject)
}

// readFields calls read for each field of a JSON object. The callback must read the value of the field from the
// decoder.
func readFields(decoder *jsontext.Decoder, read func(key string) error) error {
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	for decoder.PeekKind() == '"' {
		key, err := decoder.ReadToken()
		if err != nil {
			return err
		}
		if err := read(key.String()); err != nil {
			return err
		}
	}
	_, err := decoder.ReadToken()
	return err
}

func readString(decoder *jsontext.Decoder, value *string) error {
	token, err := decoder.ReadToken()
	if err == nil && token.Kind() == '"' {
		*value = token.String()
	}
	return err
}

// writeRefusal responds to a review with a refusal.
func writeRefusal(w http.ResponseWriter, uid, message string) {
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: &admissionv1.AdmissionResponse{UID: types.UID(uid), Result: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}},
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // this fails only if the connection is lost
}
